/* SPDX-License-Identifier: MIT */
/*
 * What the files behind org.reclaimd.Control share.
 */
#pragma once

#include <json-c/json.h>
#include <sys/queue.h>

#include "control.h"
#include "varlink.h"

#define CONTROL_INTERFACE "org.reclaimd.Control"

enum {
    CONTROL_STALLS_MAX = 64,                /* in a status */
    CONTROL_CHUNK_ENTRIES = 64,             /* of a list in one reply, when more is wanted: some 100 KiB */
    CONTROL_MONITOR_INTERVAL_MIN_MSEC = 10, /* faster is a load, not a look */
};

struct control {
    struct event_base *base;
    const struct control_ops *ops;
    void *userdata;
    struct varlink_server *server;
    LIST_HEAD(, tracer) tracers; /* callers of Trace */
    struct event *trace_timer;   /* while there are any */
};

/* Handlers; each answers its call. `userdata` is the control. */
void control_get_status(struct varlink_call *call, const void *parameters, void *userdata);
void control_list_arenas(struct varlink_call *call, const void *parameters, void *userdata);
void control_list_clients(struct varlink_call *call, const void *parameters, void *userdata);
void control_list_parameters(struct varlink_call *call, const void *parameters, void *userdata);
void control_set_parameters(struct varlink_call *call, const void *parameters, void *userdata);
void control_reset_parameters(struct varlink_call *call, const void *parameters, void *userdata);
void control_create_arena(struct varlink_call *call, const void *parameters, void *userdata);
void control_remove_arena(struct varlink_call *call, const void *parameters, void *userdata);
void control_drain(struct varlink_call *call, const void *parameters, void *userdata);
void control_purge(struct varlink_call *call, const void *parameters, void *userdata);
void control_synchronize(struct varlink_call *call, const void *parameters, void *userdata);
void control_barrier(struct varlink_call *call, const void *parameters, void *userdata);
void control_audit(struct varlink_call *call, const void *parameters, void *userdata);
void control_evict_client(struct varlink_call *call, const void *parameters, void *userdata);
void control_reload(struct varlink_call *call, const void *parameters, void *userdata);
void control_monitor(struct varlink_call *call, const void *parameters, void *userdata);
void control_trace(struct varlink_call *call, const void *parameters, void *userdata);

/* What the handlers get as their parameters. */
struct control_arena_parameters { /* ListArenas, ListClients, Drain, Purge, Synchronize, Barrier, Audit */
    const char *arena;
};

struct control_list_parameters {
    const char *arena;
    struct json_object *names;
};

struct control_set_parameters {
    const char *arena;
    struct json_object *values;
    bool dry_run;
};

struct control_reset_parameters {
    const char *arena;
    struct json_object *names;
    bool dry_run;
};

struct control_create_parameters {
    const char *name;
    uint64_t size_bytes;
    struct varlink_optional owner, group, mode;
    bool transient;
};

struct control_remove_parameters {
    const char *arena;
    bool force;
};

struct control_evict_parameters {
    uint64_t client;
    bool kill;
};

struct control_monitor_parameters {
    const char *arena;
    struct varlink_optional interval_usec;
};

struct control_trace_parameters {
    const char *arena;
    struct json_object *events;
};

/* Answers with the error that belongs to the errno; with the words of `why`, or general ones if it has none.
 */
void control_fail(struct varlink_call *call, int r, const struct error_line *why);

/* The same with words of one's own. */
void control_fail_with(struct varlink_call *call, int r, const char *format, ...) _printf_(3, 4);

/* The name of the error on the wire, and what to say when nobody said it better. */
const char *control_error_name(int r);
const char *control_error_words(int r);

/* Rights (control-rights.c) */
enum control_right {
    CONTROL_SEE,
    CONTROL_TUNE, /* and make it work, and remove it */
};

bool control_peer_in_group(const struct varlink_peer *peer, gid_t gid);
bool control_peer_is_admin(const struct varlink_peer *peer, uid_t daemon_uid, gid_t admin_gid);
bool control_peer_may(const struct varlink_peer *peer, bool is_admin, enum control_right right,
                      const struct control_arena_info *arena);

/* Whether the caller may do all. */
bool control_call_is_admin(const struct control *c, const struct varlink_call *call);

/*
 * 0: the arena is there and the caller has that right on it. Else the call has been answered, so that an
 * arena that he may not see looks exactly like one that is not there.
 */
int control_call_check_arena(struct control *c, struct varlink_call *call, const char *arena,
                             enum control_right right);

/* The same for all arenas (NULL), on which only who may do all has rights. */
int control_call_check_admin(struct control *c, struct varlink_call *call, const char *what);

/* Visits the arenas on which the caller has that right; the name as in ops->arenas(). */
int control_call_visit_arenas(struct control *c, const struct varlink_call *call, const char *name,
                              enum control_right right, control_arena_fn visit, void *data);

/* Encoding (control-json.c): each a new object, or NULL without memory */
struct json_object *control_json_arena(const struct control_arena_info *info);
struct json_object *control_json_stall(const struct control_stall *stall);
struct json_object *control_json_client(const struct control_client_info *info);
struct json_object *control_json_status(const struct control_status *status,
                                        const struct control_figures *sum, struct json_object *stalls);
struct json_object *control_json_figures(const struct control_figures *figures);
struct json_object *control_json_parameter(const struct control_parameter_info *info);
struct json_object *control_json_change(const struct control_change *change);
struct json_object *control_json_result(const char *arena, const struct control_result *result,
                                        const char *failure);

/* {name: value}; takes the value. */
struct json_object *control_json_wrap(const char *name, struct json_object *value);

/* Sums up; the longest time is the longest of all. */
void control_figures_add(struct control_figures *sum, const struct control_figures *figures);

/* The figures of one arena or the sum of all that the caller may see. */
int control_call_sum_figures(struct control *c, const struct varlink_call *call, const char *arena,
                             struct control_figures *ret);
