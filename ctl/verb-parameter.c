/* SPDX-License-Identifier: MIT */
/*
 * list-parameters, get, set, reset: the parameters.
 *
 * Values are text in both directions, as people write them: their types, ranges and meaning are known to the
 * daemon alone, and a parameter that it learns tomorrow can be set with the program of today.
 *
 * --persist makes two things of one, the running value and the file. Both verbs begin with a dry run: who may
 * not, or writes nonsense, hears of it before any file or folder is touched. `set` then prepares the file, sets
 * the value, and lets the file take its place: what cannot be written is not set. `reset` begins with the file,
 * as the daemon must have read it before it can go back to it.
 */
#include <stdlib.h>
#include <string.h>

#include "basic/cleanup.h"
#include "basic/text.h"
#include "ctl.h"
#include "persist.h"
#include "table.h"

/* Cells are members of the reply as they are: the daemon writes values as people do. */
static int print_parameters(struct ctl *ctl, struct json_object *list, const char *const *columns,
                            const char *const *members)
{
    _cleanup_(table_freep) struct table *t = table_new(columns);

    if (ctl_print_json(ctl, list))
        return CTL_DONE;
    for (size_t i = 0; i < json_object_array_length(list); i++)
        for (size_t k = 0; members[k]; k++)
            table_add(t, ctl_text(json_object_array_get_idx(list, i), members[k]));
    return table_print(t, ctl->out, !ctl->no_legend) < 0 ? ctl_fail("out of memory") : CTL_DONE;
}

/* Takes the parameters. Names, order and unknown ones are the daemon's business. */
static int list(struct ctl *ctl, struct json_object *parameters, const char *const *columns,
                const char *const *members)
{
    struct json_object *reply;
    int status = ctl_call(ctl, CTL_INTERFACE ".ListParameters", parameters, &reply);

    if (status != CTL_DONE)
        return status;
    status = print_parameters(ctl, ctl_at(reply, "parameters"), columns, members);
    (void)json_object_put(reply);
    return status;
}

/* The arena may be an argument, as with the other lists, or the option, as with get and set. */
int verb_list_parameters(struct ctl *ctl, int argc, char **argv)
{
    static const char *const columns[] = {"NAME",   "VALUE", "DEFAULT",     "SCOPE",
                                          "ORIGIN", "RANGE", "DESCRIPTION", NULL};
    static const char *const members[] = {"name",   "value", "default",     "scope",
                                          "origin", "range", "description", NULL};

    if (argc > 0 && ctl->arena)
        return ctl_usage("list-parameters takes an arena once, as an argument or with --arena");
    return list(ctl, ctl_object("arena", argv[0] ?: ctl->arena), columns, members);
}

/* The words of the command line as they are. */
static struct json_object *text_array(int n, char **texts)
{
    struct json_object *array = json_object_new_array();

    for (int i = 0; i < n; i++)
        (void)json_object_array_add(array, json_object_new_string(texts[i]));
    return array;
}

/* In the order asked for. */
int verb_get(struct ctl *ctl, int argc, char **argv)
{
    static const char *const columns[] = {"NAME", "VALUE", "ORIGIN", NULL};
    static const char *const members[] = {"name", "value", "origin", NULL};
    struct json_object *parameters = ctl_object("arena", ctl->arena);

    (void)json_object_object_add(parameters, "names", text_array(argc, argv));
    return list(ctl, parameters, columns, members);
}

/* A value that stays the same may still be held by something else than before. */
static const char *unchanged_words(const struct ctl *ctl, struct json_object *change, bool sets)
{
    const char *origin = ctl_text(change, "oldOrigin"), *arena = ctl_text(change, "arena");
    bool was_set = strcmp(origin, *arena ? "runtime (arena)" : "runtime") == 0;

    if (!*origin || was_set == sets)
        return "";
    if (ctl->given & CTL_DRY_RUN)
        return sets ? ", would be set at runtime (dry run)" : ", would no longer be set at runtime (dry run)";
    return sets ? ", now set at runtime" : ", no longer set at runtime";
}

/* "drain-interval: 1s -> 250ms", or what stays as it is. */
static void print_change(struct ctl *ctl, struct json_object *change, bool sets)
{
    const char *old = ctl_text(change, "old"), *new = ctl_text(change, "new"),
               *arena = ctl_text(change, "arena");
    bool dry_run = ctl->given & CTL_DRY_RUN;

    (void)fprintf(ctl->out, "%s%s%s: ", ctl_text(change, "name"), *arena ? " of " : "", arena);
    if (strcmp(old, new) == 0)
        (void)fprintf(ctl->out, "%s, unchanged%s\n", new, unchanged_words(ctl, change, sets));
    else
        (void)fprintf(ctl->out, "%s -> %s%s\n", old, new, dry_run ? " (dry run)" : "");
}

enum change {
    CHANGE_SET,
    CHANGE_RESET,
};

/* Takes the parameters. The reply, which the caller puts. */
static int call_change(struct ctl *ctl, enum change what, struct json_object *parameters, bool dry_run,
                       struct json_object **ret)
{
    static const char *const methods[] = {CTL_INTERFACE ".SetParameters", CTL_INTERFACE ".ResetParameters"};

    if (dry_run)
        (void)json_object_object_add(parameters, "dryRun", json_object_new_boolean(true));
    return ctl_call(ctl, methods[what], parameters, ret);
}

/* Takes the parameters. */
static int change(struct ctl *ctl, enum change what, struct json_object *parameters)
{
    struct json_object *reply, *changes;
    int status = call_change(ctl, what, parameters, ctl->given & CTL_DRY_RUN, &reply);

    if (status != CTL_DONE)
        return status;
    changes = ctl_at(reply, "changes");
    if (!ctl_print_json(ctl, changes))
        for (size_t i = 0; changes && i < json_object_array_length(changes); i++)
            print_change(ctl, json_object_array_get_idx(changes, i), what == CHANGE_SET);
    (void)json_object_put(reply);
    return CTL_DONE;
}

/* Says where it was written, and whether the daemon will ever see it; JSON output stays JSON. */
static int commit(struct ctl *ctl, struct persist *p, const char *config_file)
{
    if (persist_commit(p) != CTL_DONE)
        return CTL_FAILED;
    if (ctl->json != CTL_JSON_OFF)
        return CTL_DONE;
    (void)fprintf(ctl->out, "written to %s\n", persist_path(p));
    if (!persist_place_is_read(persist_path(p), config_file))
        (void)fprintf(ctl->out, "note: RECLAIMD_CONFIG_DIRECTORY is set; the daemon itself reads %s.d\n",
                      config_file);
    return CTL_DONE;
}

/* A dry run writes nothing anywhere. */
static bool persists(const struct ctl *ctl)
{
    return (ctl->given & CTL_PERSIST) && !(ctl->given & CTL_DRY_RUN);
}

/* Splits NAME=VALUE... into keys, whose names are the caller's to free. */
static int split(int n, char **texts, struct persist_key *ret_keys)
{
    struct error_line why;
    char *name, *value;
    int r;

    for (int i = 0; i < n; i++) {
        r = parse_assignment(texts[i], &name, &value);
        if (r < 0) {
            parse_error_describe(PARSE_ASSIGNMENT, r, texts[i], &why);
            return ctl_usage("%s", why.text);
        }
        ret_keys[i] = (struct persist_key){name, value};
        for (int k = 0; k < i; k++)
            if (strcmp(ret_keys[k].name, name) == 0)
                return ctl_usage("%s is there twice", text_quote(name).text);
    }
    return CTL_DONE;
}

/* All in one call, which is what makes them change together or not at all. */
static struct json_object *set_parameters(const struct ctl *ctl, const struct persist_key *keys, int n)
{
    struct json_object *parameters = ctl_object("arena", ctl->arena), *values = json_object_new_object();

    for (int i = 0; i < n; i++)
        (void)json_object_object_add(values, keys[i].name, json_object_new_string(keys[i].value));
    (void)json_object_object_add(parameters, "values", values);
    return parameters;
}

/* Which configuration the daemon reads, when it accepts the change: a copy. */
static int ask_config(struct ctl *ctl, char ret[static PATH_MAX])
{
    struct json_object *reply;
    int status = ctl_call(ctl, CTL_INTERFACE ".GetStatus", NULL, &reply);

    if (status != CTL_DONE)
        return status;
    (void)snprintf(ret, PATH_MAX, "%s", ctl_text(reply, "status/configFile"));
    (void)json_object_put(reply);
    return CTL_DONE;
}

/* The file is written beside its place first, so that either both happen or neither. */
static int set_persistent(struct ctl *ctl, const struct persist_key *keys, int n)
{
    _cleanup_(persist_freep) struct persist *p = NULL;
    struct json_object *reply;
    char config_file[PATH_MAX];
    int status = call_change(ctl, CHANGE_SET, set_parameters(ctl, keys, n), true, &reply);

    if (status != CTL_DONE)
        return status;
    (void)json_object_put(reply);
    status = ask_config(ctl, config_file);
    if (status == CTL_DONE)
        status = persist_prepare(config_file, ctl->arena, keys, (size_t)n, &p);
    if (status == CTL_DONE)
        status = change(ctl, CHANGE_SET, set_parameters(ctl, keys, n));
    return status == CTL_DONE ? commit(ctl, p, config_file) : status;
}

/* The names and values of the keys share one allocation each, which is freed by the name. */
int verb_set(struct ctl *ctl, int argc, char **argv)
{
    struct persist_key *keys = calloc((size_t)argc, sizeof(*keys));
    int status;

    if (!keys)
        return ctl_fail("out of memory");
    status = split(argc, argv, keys);
    if (status == CTL_DONE && persists(ctl))
        status = set_persistent(ctl, keys, argc);
    else if (status == CTL_DONE)
        status = change(ctl, CHANGE_SET, set_parameters(ctl, keys, argc));
    for (int i = 0; i < argc; i++)
        free((char *)keys[i].name);
    free(keys);
    return status;
}

static struct json_object *reset_parameters(const struct ctl *ctl, int n, char **names)
{
    struct json_object *parameters = ctl_object("arena", ctl->arena);

    (void)json_object_object_add(parameters, "names", text_array(n, names));
    return parameters;
}

/* The drop-in without these names takes its place. */
static int forget_persistent(struct ctl *ctl, int n, char **names)
{
    _cleanup_(persist_freep) struct persist *p = NULL;
    struct persist_key *keys = calloc((size_t)n, sizeof(*keys));
    char config_file[PATH_MAX];
    int status = keys ? ask_config(ctl, config_file) : ctl_fail("out of memory");

    for (int i = 0; keys && i < n; i++)
        keys[i].name = names[i];
    if (status == CTL_DONE)
        status = persist_prepare(config_file, ctl->arena, keys, (size_t)n, &p);
    free(keys);
    return status == CTL_DONE ? commit(ctl, p, config_file) : status;
}

/* The daemon must have read the file before it can go back to it. */
static int reset_reloaded(struct ctl *ctl, int n, char **names)
{
    struct json_object *reply;
    int status = ctl_call(ctl, CTL_INTERFACE ".Reload", NULL, &reply);

    if (status != CTL_DONE)
        return status;
    (void)json_object_put(reply);
    return change(ctl, CHANGE_RESET, reset_parameters(ctl, n, names));
}

/* The file has changed and the daemon has not: what is true now, of each name. */
static void tell_half_reset(struct json_object *changes)
{
    for (size_t i = 0; changes && i < json_object_array_length(changes); i++) {
        struct json_object *c = json_object_array_get_idx(changes, i);

        (void)ctl_fail("%s: the drop-in no longer has it; the daemon keeps %s", ctl_text(c, "name"),
                       ctl_text(c, "old"));
    }
}

static int reset_persistent(struct ctl *ctl, int n, char **names)
{
    struct json_object *reply;
    int status = call_change(ctl, CHANGE_RESET, reset_parameters(ctl, n, names), true, &reply);

    if (status != CTL_DONE)
        return status;
    status = forget_persistent(ctl, n, names);
    if (status == CTL_DONE) {
        status = reset_reloaded(ctl, n, names);
        if (status != CTL_DONE)
            tell_half_reset(ctl_at(reply, "changes"));
    }
    (void)json_object_put(reply);
    return status;
}

/* Of each name that --persist wrote: the reset does not last, or the value did not change because of it. */
static int note_persistent(struct ctl *ctl, int n, char **names)
{
    char config_file[PATH_MAX], path[PATH_MAX];
    int status = ask_config(ctl, config_file);

    for (int i = 0; status == CTL_DONE && i < n; i++)
        if (persist_has(config_file, ctl->arena, names[i], path))
            (void)fprintf(ctl->out, "note: %s still has %s; reset --persist takes it out\n", path, names[i]);
    return status;
}

/*
 * With --persist the file goes first; when the daemon cannot read its files, nothing is reset. Without it a
 * value in the drop-in comes back with the next reload or start, which must not surprise.
 */
int verb_reset(struct ctl *ctl, int argc, char **argv)
{
    int status;

    if (persists(ctl))
        return reset_persistent(ctl, argc, argv);
    status = change(ctl, CHANGE_RESET, reset_parameters(ctl, argc, argv));
    if (status != CTL_DONE || ctl->json != CTL_JSON_OFF || (ctl->given & CTL_PERSIST))
        return status;
    return note_persistent(ctl, argc, argv);
}
