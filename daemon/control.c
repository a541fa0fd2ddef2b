/* SPDX-License-Identifier: MIT */
/*
 * org.reclaimd.Control: the table of its methods, the names and words of its errors, and the object that ties
 * the Varlink server to the operations of the daemon.
 *
 * A call's way: varlink-connection.c cuts it out of the bytes, varlink-call.c finds its row below and decodes its
 * parameters by the row's fields, the handler (control-*.c) checks the rights and calls the operation, and its
 * struct becomes JSON in control-json.c. So whatever a peer can get wrong about the form of a call is refused
 * before any code of ours for it runs, and the description, which a test compares with this table, is what is
 * served.
 *
 * Errors are made from the errno of the operation: the table at the end is the only place that knows both.
 */
#include "control.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "basic/macro.h"
#include "control-internal.h"

/* The .varlink file, each line of it as a string literal: made when this is built. */
static const char control_description[] =
#include "org.reclaimd.Control.varlink.inc"
    ;

#define FIELD(name, kind, setter, parameters, member, required)                                              \
    {                                                                                                        \
        name, VARLINK_##kind, varlink_set_##setter,                                                          \
            offsetof(struct control_##parameters##_parameters, member), required                             \
    }

static const struct varlink_field arena_fields[] = {
    FIELD("arena", STRING, string, arena, arena, false),
    {},
};

static const struct varlink_field list_fields[] = {
    FIELD("arena", STRING, string, list, arena, false),
    FIELD("names", ARRAY, json, list, names, false),
    {},
};

static const struct varlink_field set_fields[] = {
    FIELD("arena", STRING, string, set, arena, false),
    FIELD("values", OBJECT, json, set, values, true),
    FIELD("dryRun", BOOLEAN, boolean, set, dry_run, false),
    {},
};

static const struct varlink_field reset_fields[] = {
    FIELD("arena", STRING, string, reset, arena, false),
    FIELD("names", ARRAY, json, reset, names, false),
    FIELD("dryRun", BOOLEAN, boolean, reset, dry_run, false),
    {},
};

static const struct varlink_field create_fields[] = {
    FIELD("name", STRING, string, create, name, true),
    FIELD("sizeBytes", INTEGER, unsigned, create, size_bytes, true),
    FIELD("owner", INTEGER, optional, create, owner, false),
    FIELD("group", INTEGER, optional, create, group, false),
    FIELD("mode", INTEGER, optional, create, mode, false),
    FIELD("transient", BOOLEAN, boolean, create, transient, false),
    {},
};

static const struct varlink_field remove_fields[] = {
    FIELD("arena", STRING, string, remove, arena, true),
    FIELD("force", BOOLEAN, boolean, remove, force, false),
    {},
};

static const struct varlink_field evict_fields[] = {
    FIELD("client", INTEGER, unsigned, evict, client, true),
    FIELD("kill", BOOLEAN, boolean, evict, kill, false),
    {},
};

static const struct varlink_field monitor_fields[] = {
    FIELD("arena", STRING, string, monitor, arena, false),
    FIELD("intervalUSec", INTEGER, optional, monitor, interval_usec, false),
    {},
};

static const struct varlink_field trace_fields[] = {
    FIELD("arena", STRING, string, trace, arena, false),
    FIELD("events", ARRAY, json, trace, events, false),
    {},
};

#define METHOD(name, parameters, handler)                                                                    \
    {                                                                                                        \
        name, parameters##_fields, sizeof(struct control_##parameters##_parameters), false, handler          \
    }

static const struct varlink_method control_methods[] = {
    {"GetStatus", NULL, 0, false, control_get_status},
    METHOD("ListArenas", arena, control_list_arenas),
    METHOD("ListClients", arena, control_list_clients),
    METHOD("ListParameters", list, control_list_parameters),
    METHOD("SetParameters", set, control_set_parameters),
    METHOD("ResetParameters", reset, control_reset_parameters),
    METHOD("CreateArena", create, control_create_arena),
    METHOD("RemoveArena", remove, control_remove_arena),
    METHOD("Drain", arena, control_drain),
    METHOD("Purge", arena, control_purge),
    METHOD("Synchronize", arena, control_synchronize),
    METHOD("Barrier", arena, control_barrier),
    METHOD("Audit", arena, control_audit),
    METHOD("EvictClient", evict, control_evict_client),
    {"Reload", NULL, 0, false, control_reload},
    {"Monitor", monitor_fields, sizeof(struct control_monitor_parameters), true, control_monitor},
    {"Trace", trace_fields, sizeof(struct control_trace_parameters), true, control_trace},
    {},
};

static const struct varlink_interface control_interface = {
    .name = CONTROL_INTERFACE,
    .description = control_description,
    .methods = control_methods,
};

static const struct varlink_service control_service = {
    .vendor = "The reclaimd authors",
    .product = "reclaimd",
    .version = RECLAIMD_VERSION,
    .url = "https://varlink.org/",
};

/* The names of the members of type Drains. */
const char *control_drain_cause_to_string(enum control_drain_cause cause)
{
    static const char *const table[_CONTROL_DRAIN_MAX] = {
        [CONTROL_DRAIN_INTERVAL] = "interval",
        [CONTROL_DRAIN_FLOOD_OBJECTS] = "floodObjects",
        [CONTROL_DRAIN_FLOOD_BYTES] = "floodBytes",
        [CONTROL_DRAIN_FULL] = "full",
        [CONTROL_DRAIN_PRESSURE] = "pressure",
        [CONTROL_DRAIN_REQUEST] = "request",
        [CONTROL_DRAIN_BARRIER] = "barrier",
        [CONTROL_DRAIN_DEATH] = "death",
    };

    return cause >= 0 && cause < _CONTROL_DRAIN_MAX ? table[cause] : NULL;
}

struct error_row {
    int error; /* positive */
    const char *name;
    const char *words;
};

static const struct error_row error_rows[] = {
    {ENOENT, CONTROL_INTERFACE ".NoSuchArena", "no such arena; list-arenas shows those that you may see"},
    {ESRCH, CONTROL_INTERFACE ".NoSuchClient", "no such client; list-clients shows their numbers"},
    {ENOKEY, CONTROL_INTERFACE ".NoSuchParameter", "no such parameter; list-parameters shows all of them"},
    {EINVAL, CONTROL_INTERFACE ".InvalidValue", "the value makes no sense here"},
    {ERANGE, CONTROL_INTERFACE ".InvalidValue", "the value is out of range"},
    {EEXIST, CONTROL_INTERFACE ".ArenaExists", "there is an arena of that name already"},
    {EBUSY, CONTROL_INTERFACE ".ArenaBusy", "the arena is in use"},
    {ENOSPC, CONTROL_INTERFACE ".LimitReached", "no space is left for that"},
    {EDQUOT, CONTROL_INTERFACE ".LimitReached", "a limit for your user is reached"},
    {EMFILE, CONTROL_INTERFACE ".LimitReached", "the daemon has no file descriptor left"},
    {ENFILE, CONTROL_INTERFACE ".LimitReached", "the system has no file descriptor left"},
    {EMSGSIZE, CONTROL_INTERFACE ".LimitReached", "the list is too long for one reply; call with more"},
    {ENOMEM, CONTROL_INTERFACE ".NoMemory", "the daemon has no memory left for that"},
    {EPERM, VARLINK_ERROR_PERMISSION_DENIED, "you may not do that"},
    {EACCES, VARLINK_ERROR_PERMISSION_DENIED, "you may not do that"},
};

/* NULL: it is Failed, and the number itself is told. */
static const struct error_row *error_row_find(int r)
{
    for (size_t i = 0; i < ARRAY_SIZE(error_rows); i++)
        if (error_rows[i].error == -r)
            return &error_rows[i];
    return NULL;
}

/* The name with its interface, as it goes over the wire. */
const char *control_error_name(int r)
{
    const struct error_row *row = error_row_find(r);

    return row ? row->name : CONTROL_INTERFACE ".Failed";
}

/* Better than nothing: whoever failed should have said it in his own words. */
const char *control_error_words(int r)
{
    const struct error_row *row = error_row_find(r);

    return row ? row->words : strerror(-r);
}

/* Every error of ours has its text; only those without a name of their own have a number too. */
void control_fail(struct varlink_call *call, int r, const struct error_line *why)
{
    const char *text = why && why->text[0] ? why->text : control_error_words(r);
    struct json_object *o = control_json_wrap("text", json_object_new_string(text));

    if (o && !error_row_find(r))
        (void)json_object_object_add(o, "errno", json_object_new_int(-r));
    (void)varlink_call_error(call, control_error_name(r), o);
}

/* For what is known where it fails. */
void control_fail_with(struct varlink_call *call, int r, const char *format, ...)
{
    struct error_line why;
    va_list arguments;

    va_start(arguments, format);
    (void)vsnprintf(why.text, sizeof(why.text), format, arguments);
    va_end(arguments);
    control_fail(call, r, &why);
}

/* Half-built things go through control_free() too. */
int control_new(struct event_base *base, const struct control_ops *ops, void *userdata, struct control **ret)
{
    struct control *c = calloc(1, sizeof(*c));
    int r;

    if (!c)
        return -ENOMEM;
    *c = (struct control){.base = base, .ops = ops, .userdata = userdata};
    r = varlink_server_new(base, &control_service, &c->server);
    if (r >= 0)
        r = varlink_server_add_interface(c->server, &control_interface, c);
    if (r < 0) {
        (void)control_free(c);
        return r;
    }
    *ret = c;
    return 0;
}

/*
 * The server goes first: it tells monitors and waiting calls that their callers are gone while the
 * control is still there.
 */
struct control *control_free(struct control *c)
{
    if (!c)
        return NULL;
    c->server = varlink_server_free(c->server);
    free(c);
    return NULL;
}

/* The server makes no difference between sockets: rights come from who connects. */
int control_listen(struct control *c, int fd)
{
    return varlink_server_listen(c->server, fd);
}
