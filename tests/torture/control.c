/* SPDX-License-Identifier: MIT */
/* Calls of org.reclaimd.Control, one connection each. */
#include "control.h"

#include <errno.h>
#include <json-c/json.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "basic/cleanup.h"
#include "basic/macro.h"
#include "basic/varlink-frame.h"
#include "bench/words.h"

enum {
    ANSWER_USEC = 60000000, /* an audit waits for a pass, and machines are busy */
    MESSAGE_BYTES = 1024,
};

static void json_freep(struct json_object **object)
{
    json_object_put(*object);
}

/* Calls a method; *ret is its parameters, which the caller puts. */
_printf_(4, 5) static int call(const char *path, const char *method, struct json_object **ret,
                               const char *format, ...)
{
    _cleanup_(varlink_client_freep) struct varlink_client *client = NULL;
    _cleanup_(json_freep) struct json_object *answer = NULL;
    char parameters[MESSAGE_BYTES / 2], message[MESSAGE_BYTES];
    struct json_object *value;
    const char *text = "";
    va_list ap;
    int r;

    va_start(ap, format);
    (void)vsnprintf(parameters, sizeof(parameters), format, ap);
    va_end(ap);
    (void)snprintf(message, sizeof(message), "{\"method\":\"org.reclaimd.Control.%s\",\"parameters\":%s}",
                   method, parameters);
    r = varlink_client_connect(path, &client);
    if (r >= 0)
        r = varlink_client_send(client, message);
    if (r >= 0)
        r = varlink_client_receive(client, ANSWER_USEC, &text);
    if (r < 0)
        return words_set(r, "the daemon's control socket, %s: %s", method, strerror(-r));
    answer = json_tokener_parse(text);
    if (json_object_object_get_ex(answer, "error", NULL) ||
        !json_object_object_get_ex(answer, "parameters", &value))
        return words_set(-EREMOTEIO, "the daemon does not do %s: %.300s", method, text);
    *ret = json_object_get(value);
    return 0;
}

/* A member of the only element of a list; NULL: it is not there. */
static struct json_object *first_member(struct json_object *parameters, const char *list, const char *name)
{
    struct json_object *array, *value;

    if (!json_object_object_get_ex(parameters, list, &array) ||
        !json_object_object_get_ex(json_object_array_get_idx(array, 0), name, &value))
        return NULL;
    return value;
}

static const struct {
    const char *name;
    size_t offset;
} figure_table[] = {
    {"clients", offsetof(struct control_figures, clients)},
    {"lanes", offsetof(struct control_figures, lanes)},
    {"inUseObjects", offsetof(struct control_figures, in_use_objects)},
    {"inUseBytes", offsetof(struct control_figures, in_use_bytes)},
    {"cachedObjects", offsetof(struct control_figures, cached_objects)},
    {"pendingObjects", offsetof(struct control_figures, pending_objects)},
    {"refusedRecords", offsetof(struct control_figures, refused_records)},
    {"frees", offsetof(struct control_figures, frees)},
    {"gracePeriodsCompleted", offsetof(struct control_figures, grace_periods)},
};

int control_figures(const char *path, const char *arena, struct control_figures *ret)
{
    _cleanup_(json_freep) struct json_object *parameters = NULL;
    struct json_object *figures, *value;
    int r = call(path, "ListArenas", &parameters, "{\"arena\":\"%s\"}", arena);

    if (r < 0)
        return r;
    figures = first_member(parameters, "arenas", "figures");
    for (size_t i = 0; i < ARRAY_SIZE(figure_table); i++) {
        if (!json_object_object_get_ex(figures, figure_table[i].name, &value))
            return words_set(-EPROTO, "the daemon's ListArenas has no '%s'", figure_table[i].name);
        *(uint64_t *)(void *)((char *)ret + figure_table[i].offset) = json_object_get_uint64(value);
    }
    return 0;
}

int control_audit(const char *path, const char *arena)
{
    _cleanup_(json_freep) struct json_object *parameters = NULL;
    struct json_object *complaints, *failure;
    int r = call(path, "Audit", &parameters, "{\"arena\":\"%s\"}", arena);

    if (r < 0)
        return r;
    failure = first_member(parameters, "results", "failure");
    complaints = first_member(parameters, "results", "complaints");
    if (failure || !complaints)
        return words_set(-EREMOTEIO, "the audit failed: %s",
                         failure ? json_object_get_string(failure) : "no result");
    if (json_object_array_length(complaints) > 0)
        return words_set(-EBADMSG, "the audit has %zu complaints; the first: %s",
                         json_object_array_length(complaints),
                         json_object_get_string(json_object_array_get_idx(complaints, 0)));
    return 0;
}

int control_set(const char *path, const char *arena, const char *values)
{
    _cleanup_(json_freep) struct json_object *parameters = NULL;

    if (!arena)
        return call(path, "SetParameters", &parameters, "{\"values\":%s}", values);
    return call(path, "SetParameters", &parameters, "{\"arena\":\"%s\",\"values\":%s}", arena, values);
}

static bool member_copy(struct json_object *o, const char *name, char ret[static TUNE_TEXT_BYTES])
{
    struct json_object *value;

    if (!json_object_object_get_ex(o, name, &value))
        return false;
    return snprintf(ret, TUNE_TEXT_BYTES, "%s", json_object_get_string(value)) < TUNE_TEXT_BYTES;
}

static bool tunable_read(struct json_object *o, struct tunable *ret)
{
    char scope[TUNE_TEXT_BYTES];

    *ret = (struct tunable){.n_changes = 0};
    if (!member_copy(o, "name", ret->name) || !member_copy(o, "type", ret->type) ||
        !member_copy(o, "range", ret->range) || !member_copy(o, "default", ret->standard) ||
        !member_copy(o, "scope", scope))
        return false;
    ret->of_arena = strcmp(scope, "arena") == 0;
    return true;
}

int control_tunables(const char *path, bool with_daemon, struct tunable *tunables, unsigned max,
                     unsigned *ret_n)
{
    _cleanup_(json_freep) struct json_object *parameters = NULL;
    struct json_object *list = NULL;
    unsigned n = 0;
    int r = call(path, "ListParameters", &parameters, "{}");

    if (r < 0)
        return r;
    (void)json_object_object_get_ex(parameters, "parameters", &list);
    for (size_t i = 0; list && i < json_object_array_length(list); i++) {
        if (n == max || !tunable_read(json_object_array_get_idx(list, i), &tunables[n]))
            return words_set(-EPROTO, "the daemon's ListParameters: entry %zu cannot be understood", i);
        n += with_daemon || tunables[n].of_arena;
    }
    if (n == 0)
        return words_set(-EPROTO, "the daemon's ListParameters has none");
    *ret_n = n;
    return 0;
}
