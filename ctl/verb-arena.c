/* SPDX-License-Identifier: MIT */
/*
 * create-arena, remove-arena, evict: who is there.
 *
 * What a person writes (a size, a name of a user, an octal mode) becomes what the wire has, numbers. Whether
 * they are allowed is for the daemon to say.
 */
#include <errno.h>
#include <grp.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdlib.h>

#include "basic/text.h"
#include "ctl.h"

enum {
    MODE_MAX = 0777,
};

/* Numbers go over the wire as JSON integers, whatever they were written as. */
static void add_number(struct json_object *o, const char *name, uint64_t n)
{
    (void)json_object_object_add(o, name, json_object_new_uint64(n));
}

/* The one thing that has no default: how large an arena must be is known to nobody else. */
static int add_size(struct ctl *ctl, struct json_object *o)
{
    struct error_line why;
    uint64_t bytes;
    int r;

    if (!ctl->size)
        return ctl_usage("create-arena needs --size SIZE, like 64M or 2G");
    r = parse_bytes(ctl->size, &bytes);
    if (r < 0) {
        parse_error_describe(PARSE_SIZE, r, ctl->size, &why);
        return ctl_usage("--size: %s", why.text);
    }
    add_number(o, "sizeBytes", bytes);
    return CTL_DONE;
}

/* By name or by number; names are looked up here, as the daemon may live in another user database. */
static int add_owner(struct ctl *ctl, struct json_object *o)
{
    struct passwd *user = ctl->owner ? getpwnam(ctl->owner) : NULL;
    uint64_t uid;

    if (!ctl->owner)
        return CTL_DONE;
    if (user)
        uid = user->pw_uid;
    else if (parse_u64(ctl->owner, 0, UINT32_MAX - 1, &uid) < 0)
        return ctl_fail("--owner: there is no user '%s'", text_quote(ctl->owner).text);
    add_number(o, "owner", uid);
    return CTL_DONE;
}

/* As add_owner(). */
static int add_group(struct ctl *ctl, struct json_object *o)
{
    struct group *group = ctl->group ? getgrnam(ctl->group) : NULL;
    uint64_t gid;

    if (!ctl->group)
        return CTL_DONE;
    if (group)
        gid = group->gr_gid;
    else if (parse_u64(ctl->group, 0, UINT32_MAX - 1, &gid) < 0)
        return ctl_fail("--group: there is no group '%s'", text_quote(ctl->group).text);
    add_number(o, "group", gid);
    return CTL_DONE;
}

/* Octal, as chmod takes it; the daemon gets the number. */
static int add_mode(struct ctl *ctl, struct json_object *o)
{
    unsigned long mode;
    char *end;

    if (!ctl->mode)
        return CTL_DONE;
    errno = 0;
    mode = strtoul(ctl->mode, &end, 8);
    if (errno != 0 || *end || ctl->mode[0] < '0' || ctl->mode[0] > '7' || mode > MODE_MAX)
        return ctl_usage("--mode: '%s' is no mode; write it like 0600 or 0660", text_quote(ctl->mode).text);
    add_number(o, "mode", mode);
    return CTL_DONE;
}

/* Calls a method that answers with nothing, which is "{}" for machines; takes the parameters. */
static int call_plain(struct ctl *ctl, const char *method, struct json_object *parameters)
{
    struct json_object *reply;
    int status = ctl_call(ctl, method, parameters, &reply);

    if (status != CTL_DONE)
        return status;
    if (ctl->json != CTL_JSON_OFF)
        (void)fputs("{}\n", ctl->out); /* json-c would spread it over two lines when pretty */
    (void)json_object_put(reply);
    return CTL_DONE;
}

/*
 * Names, limits and rights are the daemon's to check: it knows the parameters in force. Silence is
 * success, as with mkdir.
 */
int verb_create_arena(struct ctl *ctl, int argc, char **argv)
{
    struct json_object *o = ctl_object("name", argv[0]);
    int status = add_size(ctl, o);

    if (status == CTL_DONE)
        status = add_owner(ctl, o);
    if (status == CTL_DONE)
        status = add_group(ctl, o);
    if (status == CTL_DONE)
        status = add_mode(ctl, o);
    if (status != CTL_DONE) {
        (void)json_object_put(o);
        return status;
    }
    if (ctl->given & CTL_TRANSIENT)
        (void)json_object_object_add(o, "transient", json_object_new_boolean(true));
    return call_plain(ctl, CTL_INTERFACE ".CreateArena", o);
}

/* Without --force the daemon refuses while somebody uses it, and says who. */
int verb_remove_arena(struct ctl *ctl, int argc, char **argv)
{
    struct json_object *o = ctl_object("arena", argv[0]);

    if (ctl->given & CTL_FORCE)
        (void)json_object_object_add(o, "force", json_object_new_boolean(true));
    return call_plain(ctl, CTL_INTERFACE ".RemoveArena", o);
}

/*
 * Clients go by the daemon's numbers, never by pid: a pid may mean another process by the time it
 * arrives.
 */
int verb_evict(struct ctl *ctl, int argc, char **argv)
{
    struct json_object *o;
    uint64_t client;

    if (parse_u64(argv[0], 1, INT64_MAX - 1, &client) < 0)
        return ctl_usage("evict: '%s' is no client's number; list-clients shows them in its first column",
                         text_quote(argv[0]).text);
    o = json_object_new_object();
    add_number(o, "client", client);
    if (ctl->given & CTL_KILL)
        (void)json_object_object_add(o, "kill", json_object_new_boolean(true));
    return call_plain(ctl, CTL_INTERFACE ".EvictClient", o);
}
