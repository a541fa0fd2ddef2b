/* SPDX-License-Identifier: MIT */
/*
 * reload, introspect, version: the service as such.
 *
 * introspect and version ask org.varlink.service, which any Varlink service has: they work with a daemon whose
 * own interface is older or younger than this program.
 */
#include <string.h>

#include "ctl.h"

/* With the arena if the value is one's own. */
static void print_name(struct ctl *ctl, struct json_object *change)
{
    const char *arena = ctl_text(change, "arena");

    (void)fprintf(ctl->out, "%s%s%s: ", ctl_text(change, "name"), *arena ? " of " : "", arena);
}

/* An arena's size is told among the values, but it is the arena that is made, or that stays as it is. */
static bool is_arena(struct json_object *change)
{
    return strcmp(ctl_text(change, "name"), "size") == 0;
}

/* What the files changed. */
static void print_changes(struct ctl *ctl, struct json_object *changes)
{
    for (size_t i = 0; changes && i < json_object_array_length(changes); i++) {
        struct json_object *c = json_object_array_get_idx(changes, i);

        if (is_arena(c)) {
            (void)fprintf(ctl->out, "%s: made, %s\n", ctl_text(c, "arena"), ctl_text(c, "new"));
            continue;
        }
        print_name(ctl, c);
        (void)fprintf(ctl->out, "%s -> %s\n", ctl_text(c, "old"), ctl_text(c, "new"));
    }
}

/* What a person can do about it needs the arena's clients to go, so it is his to do. */
static void print_kept_arena(struct ctl *ctl, struct json_object *kept)
{
    const char *arena = ctl_text(kept, "arena");

    (void)fprintf(
        ctl->out,
        "%s: stays %s, the files say %s; to make it anew: reclaimctl remove-arena %s, then reload\n", arena,
        ctl_text(kept, "old"), ctl_text(kept, "new"), arena);
}

/* What somebody set at runtime is not lost by a reload, and not kept in silence either. */
static void print_kept(struct ctl *ctl, struct json_object *kept)
{
    for (size_t i = 0; kept && i < json_object_array_length(kept); i++) {
        struct json_object *c = json_object_array_get_idx(kept, i);

        if (is_arena(c)) {
            print_kept_arena(ctl, c);
            continue;
        }
        print_name(ctl, c);
        (void)fprintf(ctl->out, "stays %s as set at runtime; the files say %s\n", ctl_text(c, "old"),
                      ctl_text(c, "new"));
    }
}

/* What is wrong in the files comes back as an error with file and line. */
int verb_reload(struct ctl *ctl, int argc, char **argv)
{
    struct json_object *reply;
    int status = ctl_call(ctl, CTL_INTERFACE ".Reload", NULL, &reply);

    if (status != CTL_DONE)
        return status;
    if (!ctl_print_json(ctl, reply)) {
        print_changes(ctl, ctl_at(reply, "changes"));
        print_kept(ctl, ctl_at(reply, "kept"));
    }
    (void)json_object_put(reply);
    return CTL_DONE;
}

/* The daemon's own description, so that it is the one of the daemon that runs. */
int verb_introspect(struct ctl *ctl, int argc, char **argv)
{
    struct json_object *reply;
    int status = ctl_call(ctl, "org.varlink.service.GetInterfaceDescription",
                          ctl_object("interface", CTL_INTERFACE), &reply);

    if (status != CTL_DONE)
        return status;
    if (!ctl_print_json(ctl, reply))
        (void)fputs(ctl_text(reply, "description"), ctl->out);
    (void)json_object_put(reply);
    return CTL_DONE;
}

/* Both, as they can differ during an upgrade. Fails without a daemon: scripts wait for one with it. */
int verb_version(struct ctl *ctl, int argc, char **argv)
{
    struct json_object *reply;
    int status = ctl_call(ctl, "org.varlink.service.GetInfo", NULL, &reply);

    if (status != CTL_DONE)
        return status;
    if (!ctl_print_json(ctl, reply))
        (void)fprintf(ctl->out, "reclaimctl %s\n%s %s\n", RECLAIMD_VERSION, ctl_text(reply, "product"),
                      ctl_text(reply, "version"));
    (void)json_object_put(reply);
    return CTL_DONE;
}
