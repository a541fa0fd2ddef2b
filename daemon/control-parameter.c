/* SPDX-License-Identifier: MIT */
/*
 * ListParameters, SetParameters, ResetParameters and Reload: the table of parameters on the wire.
 *
 * Names and values pass through as text. Which names there are, what they may be set to, and that a set of
 * several is done as a whole, is the business of the operations, which have one table for it; so files, command
 * line and control interface agree without this file knowing any parameter.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "basic/cleanup.h"
#include "control-internal.h"

/* Values of the daemon are for who may do all, those of an arena for who may tune it. */
static int check_tune(struct control *c, struct varlink_call *call, const char *arena)
{
    if (arena)
        return control_call_check_arena(c, call, arena, CONTROL_TUNE);
    return control_call_check_admin(c, call, "setting the daemon's parameters");
}

/* An array of strings; answers the call if it is anything else. NULL and 0 when it is absent. */
static int names_decode(struct varlink_call *call, struct json_object *array, const char ***ret,
                        size_t *ret_n)
{
    size_t n = array ? json_object_array_length(array) : 0;
    _cleanup_free_ const char **names = calloc(n + 1, sizeof(*names));
    struct json_object *value;

    if (!names) {
        control_fail(call, -ENOMEM, NULL);
        return -ENOMEM;
    }
    for (size_t i = 0; i < n; i++) {
        value = json_object_array_get_idx(array, i);
        if (json_object_is_type(value, json_type_string) && varlink_set_string(value, &names[i]) >= 0)
            continue;
        (void)varlink_call_invalid(call, "names");
        return -EINVAL;
    }
    *ret = steal_pointer(names);
    *ret_n = n;
    return 0;
}

/* Gathers the rows by name. */
static int visit_parameter(void *data, const struct control_parameter_info *info)
{
    return json_object_object_add(data, info->name, control_json_parameter(info)) < 0 ? -ENOMEM : 0;
}

/* All rows in the table's order, which an object of json-c keeps. */
static struct json_object *rows_all(struct json_object *rows)
{
    struct json_object *list = json_object_new_array();

    json_object_object_foreach(rows, name, row)
    {
        (void)name;
        (void)json_object_array_add(list, json_object_get(row));
    }
    return list;
}

/* Those named, in their order; NULL and the name when there is no such parameter. */
static struct json_object *rows_named(struct json_object *rows, const char **names, size_t n,
                                      const char **ret_unknown)
{
    struct json_object *list = json_object_new_array(), *row;

    for (size_t i = 0; i < n; i++) {
        if (!json_object_object_get_ex(rows, names[i], &row)) {
            *ret_unknown = names[i];
            (void)json_object_put(list);
            return NULL;
        }
        (void)json_object_array_add(list, json_object_get(row));
    }
    return list;
}

static struct json_object *nearest_rows; /* for text_nearest(), which passes no data; main thread only */

/* Walks from the front each time: there are a few dozen. */
static const char *nearest_get(size_t i)
{
    json_object_object_foreach(nearest_rows, name, row)
    {
        (void)row;
        if (i-- == 0)
            return name;
    }
    return NULL;
}

/* The name that was meant, if one is near. */
static void fail_unknown_name(struct varlink_call *call, struct json_object *rows, const char *name)
{
    const char *near;

    nearest_rows = rows;
    near = text_nearest(name, nearest_get);
    nearest_rows = NULL;
    if (near)
        control_fail_with(call, -ENOKEY, "unknown parameter '%s'; did you mean %s?", text_quote(name).text,
                          near);
    else
        control_fail_with(call, -ENOKEY, "unknown parameter '%s'; list-parameters shows all of them",
                          text_quote(name).text);
}

/*
 * Values are no secret, those of a hidden arena excepted. All rows are made first, and the wanted ones
 * picked by name: the table is small, and its order is the operation's.
 */
void control_list_parameters(struct varlink_call *call, const void *parameters, void *userdata)
{
    const struct control_list_parameters *p = parameters;
    struct control *c = userdata;
    _cleanup_free_ const char **names = NULL;
    struct json_object *rows, *list;
    const char *unknown = NULL;
    size_t n;
    int r;

    if (names_decode(call, p->names, &names, &n) < 0)
        return;
    if (p->arena && control_call_check_arena(c, call, p->arena, CONTROL_SEE) < 0)
        return;
    rows = json_object_new_object();
    r = rows ? c->ops->parameters(c->userdata, p->arena, visit_parameter, rows) : -ENOMEM;
    if (r < 0) {
        control_fail(call, r, NULL);
    } else {
        list = p->names ? rows_named(rows, names, n, &unknown) : rows_all(rows);
        if (unknown)
            fail_unknown_name(call, rows, unknown);
        else
            (void)varlink_call_reply(call, control_json_wrap("parameters", list));
    }
    (void)json_object_put(rows);
}

/* Two lists: what changed, and, by a reload, what was kept. */
struct changes {
    struct json_object *changed;
    struct json_object *kept;
    struct json_object *origins; /* by name, from before the change; empty: nobody is told of them */
};

/* Sorts into the two lists. */
static int visit_change(void *data, const struct control_change *change)
{
    struct changes *c = data;
    struct json_object *o = control_json_change(change), *origin;

    if (o && json_object_object_get_ex(c->origins, change->name, &origin))
        (void)json_object_object_add(o, "oldOrigin", json_object_get(origin));
    return json_object_array_add(change->kept ? c->kept : c->changed, o) < 0 ? -ENOMEM : 0;
}

/* Without memory the lists are NULL, and the first visit fails for it. */
static struct changes changes_new(void)
{
    return (struct changes){json_object_new_array(), json_object_new_array(), json_object_new_object()};
}

/* For note_origins(). */
static int visit_origin(void *data, const struct control_parameter_info *info)
{
    return json_object_object_add(data, info->name, json_object_new_string(info->origin)) < 0 ? -ENOMEM : 0;
}

/*
 * Where the values come from now: a value that stays the same may still come from elsewhere afterwards. An
 * arena that is not there is the operation's to complain of.
 */
static void note_origins(struct control *c, const char *arena, struct changes *changes)
{
    if (changes->origins)
        (void)c->ops->parameters(c->userdata, arena, visit_origin, changes->origins);
}

/* Answers the call: with the changes, or with the error. */
static void changes_finish(struct changes *changes, struct varlink_call *call, int r, bool with_kept,
                           const struct error_line *why)
{
    struct json_object *reply;

    if (r < 0) {
        control_fail(call, r, why);
    } else {
        reply = control_json_wrap("changes", json_object_get(changes->changed));
        if (reply && with_kept)
            (void)json_object_object_add(reply, "kept", json_object_get(changes->kept));
        (void)varlink_call_reply(call, reply);
    }
    (void)json_object_put(changes->changed);
    (void)json_object_put(changes->kept);
    (void)json_object_put(changes->origins);
}

/* {name: value, ...}, all of them strings; answers the call if it is anything else. */
static int assignments_decode(struct varlink_call *call, struct json_object *values,
                              struct control_assignment **ret, size_t *ret_n)
{
    size_t n = 0, n_members = (size_t)json_object_object_length(values);
    struct control_assignment *list = calloc(n_members + 1, sizeof(*list));

    if (!list) {
        control_fail(call, -ENOMEM, NULL);
        return -ENOMEM;
    }
    json_object_object_foreach(values, name, value)
    {
        if (json_object_is_type(value, json_type_string) && varlink_set_string(value, &list[n].value) >= 0)
            list[n++].name = name;
    }
    if (n == 0 || n < n_members) {
        (void)varlink_call_invalid(call, "values");
        free(list);
        return -EINVAL;
    }
    *ret = list;
    *ret_n = n;
    return 0;
}

/*
 * Types and ranges are for the table of parameters to know; here only the form of the call is checked.
 */
void control_set_parameters(struct varlink_call *call, const void *parameters, void *userdata)
{
    const struct control_set_parameters *p = parameters;
    struct control *c = userdata;
    _cleanup_free_ struct control_assignment *assignments = NULL;
    struct error_line why = {};
    struct changes changes;
    size_t n;
    int r;

    if (assignments_decode(call, p->values, &assignments, &n) < 0 || check_tune(c, call, p->arena) < 0)
        return;
    changes = changes_new();
    note_origins(c, p->arena, &changes);
    r = c->ops->set(c->userdata, p->arena, assignments, n, p->dry_run, visit_change, &changes, &why);
    changes_finish(&changes, call, r, false, &why);
}

/* No names means all of them, also when the list is there and empty. */
void control_reset_parameters(struct varlink_call *call, const void *parameters, void *userdata)
{
    const struct control_reset_parameters *p = parameters;
    struct control *c = userdata;
    _cleanup_free_ const char **names = NULL;
    struct error_line why = {};
    struct changes changes;
    size_t n;
    int r;

    if (names_decode(call, p->names, &names, &n) < 0 || check_tune(c, call, p->arena) < 0)
        return;
    changes = changes_new();
    note_origins(c, p->arena, &changes);
    r = c->ops->reset(c->userdata, p->arena, names, n, p->dry_run, visit_change, &changes, &why);
    changes_finish(&changes, call, r, false, &why);
}

/* Only for those who may do all: files can change everything. */
void control_reload(struct varlink_call *call, const void *parameters, void *userdata)
{
    struct control *c = userdata;
    struct error_line why = {};
    struct changes changes;
    int r;

    if (control_call_check_admin(c, call, "a reload") < 0)
        return;
    changes = changes_new();
    r = c->ops->reload(c->userdata, visit_change, &changes, &why);
    changes_finish(&changes, call, r, true, &why);
}
