/* SPDX-License-Identifier: MIT */
/*
 * A daemon for the tests of control interface and control tool: the table of operations over two arenas,
 * three clients and three parameters, which notes what it is told to do. It is as simple as a daemon can be,
 * but what it says is consistent.
 */
#pragma once

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "basic/macro.h"
#include "basic/parse.h"
#include "control.h"

enum {
    FAKE_ADMIN_GID = 500,
    FAKE_OWNER_UID = 1001, /* of "routes" */
    FAKE_OTHER_UID = 1002,
    FAKE_ROUTES_GID = 600,
    FAKE_TASKS_MAX = 8,
};

struct fake_task {
    enum control_operation operation;
    char arena[ARENA_NAME_BYTES];
    control_done_fn done;
    void *done_data;
};

struct fake {
    char values[3][32]; /* of the daemon's parameters */
    struct control_arena_request created;
    char created_name[ARENA_NAME_BYTES];
    char removed[ARENA_NAME_BYTES];
    bool removed_by_force;
    uint64_t evicted;
    bool killed;
    unsigned n_sets, n_reloads;
    bool operations_wait; /* fake_finish() ends them; else they end at once */
    struct fake_task tasks[FAKE_TASKS_MAX];
    size_t n_tasks;
    const char *complaint; /* what audit finds in "routes" */
    size_t n_extra_clients;
    const char *config_file;
    uint64_t synchronizes; /* a figure that moves with each look */
};

static const char *const fake_names[] = {"drain-interval", "wake-from-gp", "callback-limit"};

static inline gid_t fake_admin_gid(void *userdata)
{
    return FAKE_ADMIN_GID;
}

static inline int fake_status(void *userdata, struct control_status *ret)
{
    struct fake *fake = userdata;

    *ret = (struct control_status){
        .version = "1.2.3",
        .state = "running",
        .pid = 4242,
        .uid = 990,
        .started_usec = UINT64_C(1700000000000000),
        .uptime_usec = 90 * USEC_PER_SEC,
        .arenas = 2,
        .clients = 3,
        .clients_max = 1024,
        .callbacks_waiting = 7,
        .n_pressures = 3,
        .n_pressures_passed = 4,
        .n_callbacks = 70,
        .n_wakeups = 12,
        .rss_bytes = 3 << 20,
        .n_membarriers = 21,
        .config_file = fake->config_file,
    };
    return 0;
}

static inline struct control_arena_info fake_routes(struct fake *fake)
{
    return (struct control_arena_info){
        .name = "routes",
        .state = "ready",
        .owner = FAKE_OWNER_UID,
        .group = FAKE_ROUTES_GID,
        .mode = 0640,
        .base_address = UINT64_C(0x550000000000),
        .created_usec = UINT64_C(1700000000000000),
        .figures = {.clients = 2,
                    .lanes = 3,
                    .lanes_reading = 1,
                    .size_bytes = 64 << 20,
                    .in_use_objects = 1000,
                    .in_use_bytes = 32000,
                    .pending_objects = 10,
                    .pending_bytes = 320,
                    .lazy_pages = 2,
                    .lazy_bytes = 8192,
                    .backed_bytes = 1 << 20,
                    .gp_started = 8,
                    .gp_completed = 7,
                    .gp_last_usec = 40,
                    .gp_max_usec = 900,
                    .n_drains = {[CONTROL_DRAIN_INTERVAL] = 5, [CONTROL_DRAIN_FLOOD_OBJECTS] = 2},
                    .n_pages = 4,
                    .n_page_objects = 10,
                    .page_histogram = {[0] = 2, [2] = 1, [CONTROL_PAGE_HISTOGRAM - 1] = 1},
                    .oldest_pending_usec = 2500,
                    .n_synchronizes = ++fake->synchronizes,
                    .n_direct_wakes = 11,
                    .n_worker_wakes = 12,
                    .n_fifo_wakes = 13,
                    .max_direct_wakes = 5,
                    .stalled_readers = 1,
                    .n_stalls = 4},
        .oldest_reader = {.found = true, .client = 1, .pid = 77, .tid = 78, .age_usec = 1500},
    };
}

static inline struct control_arena_info fake_tables(void)
{
    return (struct control_arena_info){
        .name = "tables",
        .state = "stalled",
        .owner = FAKE_OTHER_UID,
        .group = FAKE_OTHER_UID,
        .mode = 0600,
        .transient = true,
        .figures = {.clients = 1,
                    .size_bytes = 1 << 20,
                    .oldest_pending_usec = 100,
                    .gp_last_usec = 90,
                    .gp_max_usec = 100,
                    .n_direct_wakes = 100,
                    .n_worker_wakes = 200,
                    .n_fifo_wakes = 300,
                    .max_direct_wakes = 4},
    };
}

static inline int fake_arenas(void *userdata, const char *name, control_arena_fn visit, void *data)
{
    struct fake *fake = userdata;
    struct control_arena_info arenas[] = {fake_routes(fake), fake_tables()};
    int r = name ? -ENOENT : 0;

    for (size_t i = 0; i < ARRAY_SIZE(arenas); i++) {
        if (name && strcmp(name, arenas[i].name) != 0)
            continue;
        r = visit(data, &arenas[i]);
        if (r != 0)
            return r;
    }
    return r;
}

/* One in each arena. */
static const struct control_stall fake_stalls[] = {
    {.client = 2,
     .uid = FAKE_OTHER_UID,
     .comm = "bad\x1b[31m",
     .arena = "routes",
     .gp = 8,
     .usec = 22 * USEC_PER_SEC,
     .n_objects = 10,
     .bytes = 320,
     .n_waiters = 1},
    {.client = 3,
     .pid = 80,
     .tid = 81,
     .uid = FAKE_OTHER_UID,
     .comm = "tabler",
     .arena = "tables",
     .gp = 5,
     .usec = 90 * USEC_PER_SEC,
     .n_objects = 3,
     .bytes = 48},
};

static inline int fake_visit_stalls(void *userdata, control_stall_fn visit, void *data)
{
    int r = 0;

    for (size_t i = 0; i < ARRAY_SIZE(fake_stalls) && r == 0; i++)
        r = visit(data, &fake_stalls[i]);
    return r < 0 ? r : 0;
}

static inline int fake_clients(void *userdata, const char *arena, uint64_t id, control_client_fn visit,
                               void *data)
{
    struct fake *fake = userdata;
    struct control_client_info clients[] = {
        {.id = 1,
         .pid = 77,
         .uid = FAKE_OWNER_UID,
         .comm = "router",
         .arena = "routes",
         .state = "attached",
         .lanes = 2},
        {.id = 2,
         .pid = 0,
         .uid = FAKE_OTHER_UID,
         .comm = "bad\x1b[31m",
         .arena = "routes",
         .state = "observer"},
        {.id = 3, .pid = 80, .uid = FAKE_OTHER_UID, .comm = "tabler", .arena = "tables", .state = "attached"},
    };
    int r = id ? -ESRCH : 0;

    clients[2].stalled_readers = 2;
    clients[2].stall = fake_stalls[1];
    for (size_t i = 0; i < ARRAY_SIZE(clients) + fake->n_extra_clients; i++) {
        struct control_client_info c = clients[MIN(i, ARRAY_SIZE(clients) - 1)];

        c.id = i + 1;
        if ((id && id != c.id) || (arena && strcmp(arena, c.arena) != 0))
            continue;
        r = visit(data, &c);
        if (r != 0)
            return r;
    }
    return r;
}

static inline int fake_parameters(void *userdata, const char *arena, control_parameter_fn visit, void *data)
{
    struct fake *fake = userdata;
    struct control_parameter_info rows[] = {
        {.type = "time",
         .range = "1ms..1h",
         .default_value = "1s",
         .doc = "Time from defer to drain.",
         .arena_scope = true},
        {.type = "choice",
         .range = "no, yes, auto",
         .default_value = "no",
         .doc = "Who wakes.",
         .arena_scope = true},
        {.type = "count",
         .unit = "entries",
         .range = "1..10000",
         .default_value = "10",
         .doc = "Entries a pass."},
    };
    int r = 0;

    for (size_t i = 0; i < ARRAY_SIZE(rows) && r == 0; i++) {
        rows[i].name = fake_names[i];
        rows[i].value = fake->values[i];
        rows[i].origin = strcmp(rows[i].value, rows[i].default_value) == 0 ? "built-in" : "runtime";
        r = visit(data, &rows[i]);
    }
    return r;
}

static inline int fake_find(const char *name, struct error_line *why)
{
    for (size_t i = 0; i < ARRAY_SIZE(fake_names); i++)
        if (strcmp(name, fake_names[i]) == 0)
            return (int)i;
    return error_line_set(why, -ENOKEY, "unknown parameter '%s'", text_quote(name).text);
}

static inline int fake_set(void *userdata, const char *arena, const struct control_assignment *assignments,
                           size_t n, bool dry_run, control_change_fn visit, void *data,
                           struct error_line *why)
{
    struct fake *fake = userdata;
    int k, r = 0;

    for (size_t i = 0; i < n; i++) {
        k = fake_find(assignments[i].name, why);
        if (k < 0)
            return k;
        if (strcmp(assignments[i].value, "5us") == 0)
            return error_line_set(why, -ERANGE, "%s: '5us' is below 1ms; range 1ms..1h", fake_names[k]);
    }
    for (size_t i = 0; i < n && r == 0; i++) {
        k = fake_find(assignments[i].name, why);
        r = visit(data, &(struct control_change){fake_names[k], arena, fake->values[k], assignments[i].value,
                                                 false});
        if (!dry_run)
            (void)snprintf(fake->values[k], sizeof(fake->values[k]), "%s", assignments[i].value);
    }
    fake->n_sets += !dry_run;
    return r;
}

static inline int fake_reset(void *userdata, const char *arena, const char *const *names, size_t n,
                             bool dry_run, control_change_fn visit, void *data, struct error_line *why)
{
    struct control_assignment defaults[] = {
        {fake_names[0], "1s"}, {fake_names[1], "no"}, {fake_names[2], "10"}};

    if (n == 0)
        return fake_set(userdata, arena, defaults, ARRAY_SIZE(defaults), dry_run, visit, data, why);
    for (size_t i = 0; i < n; i++) {
        int k = fake_find(names[i], why);
        int r = k < 0 ? k : fake_set(userdata, arena, &defaults[k], 1, dry_run, visit, data, why);

        if (r < 0)
            return r;
    }
    return 0;
}

static inline int fake_arena_create(void *userdata, const struct control_arena_request *request,
                                    struct error_line *why)
{
    struct fake *fake = userdata;

    if (strcmp(request->name, "routes") == 0)
        return -EEXIST;
    if (request->size_bytes > UINT64_C(1) << 36)
        return error_line_set(why, -EDQUOT, "64G is the most (arena-size-max)");
    fake->created = *request;
    (void)snprintf(fake->created_name, sizeof(fake->created_name), "%s", request->name);
    return 0;
}

static inline int fake_arena_remove(void *userdata, const char *arena, bool force, struct error_line *why)
{
    struct fake *fake = userdata;

    if (!force)
        return error_line_set(why, -EBUSY, "arena '%s' has 2 clients; --force removes it all the same",
                              arena);
    (void)snprintf(fake->removed, sizeof(fake->removed), "%s", arena);
    fake->removed_by_force = force;
    return 0;
}

/* Drain frees 10 objects of "routes"; a purge of "tables" fails; audit may find something. */
static inline void fake_finish_task(struct fake *fake, const struct fake_task *t)
{
    bool routes = strcmp(t->arena, "routes") == 0;
    bool complains = routes && fake->complaint && t->operation == CONTROL_OPERATION_AUDIT;
    struct control_result result = {
        .usec = routes ? 2500 : 100,
        .n_objects = routes ? 10 : 0,
        .bytes = routes ? 320 : 0,
        .complaints = &fake->complaint,
        .n_complaints = complains,
    };

    if (!routes && t->operation == CONTROL_OPERATION_PURGE)
        t->done(t->done_data, -EIO, NULL, "cannot punch a hole");
    else
        t->done(t->done_data, 0, &result, NULL);
}

/* The last one first, as the order shall not matter. */
static inline void fake_finish(struct fake *fake)
{
    while (fake->n_tasks > 0)
        fake_finish_task(fake, &fake->tasks[--fake->n_tasks]);
}

static inline int fake_operate(void *userdata, enum control_operation operation, const char *arena,
                               control_done_fn done, void *done_data, struct error_line *why)
{
    struct fake *fake = userdata;
    struct fake_task t = {.operation = operation, .done = done, .done_data = done_data};

    if (operation == CONTROL_OPERATION_SYNCHRONIZE && strcmp(arena, "tables") == 0)
        return error_line_set(why, -EAGAIN, "arena 'tables' is stalled");
    (void)snprintf(t.arena, sizeof(t.arena), "%s", arena);
    if (fake->operations_wait)
        fake->tasks[fake->n_tasks++] = t;
    else
        fake_finish_task(fake, &t);
    return 0;
}

static inline int fake_client_evict(void *userdata, uint64_t id, bool kill, struct error_line *why)
{
    struct fake *fake = userdata;

    fake->evicted = id;
    fake->killed = kill;
    return 0;
}

static inline int fake_reload(void *userdata, control_change_fn visit, void *data, struct error_line *why)
{
    struct fake *fake = userdata;

    if (fake->n_reloads++ > 0)
        return error_line_set(why, -EINVAL, "/etc/reclaimd/reclaimd.conf:3: unknown key 'drain'");
    (void)visit(data, &(struct control_change){"drain-interval", NULL, "1s", "2s", false});
    (void)visit(data, &(struct control_change){"wake-from-gp", NULL, "yes", "no", true});
    (void)visit(data, &(struct control_change){"size", "routes", "256M", "512M", true});
    return visit(data, &(struct control_change){"size", "n2", "", "64M", false});
}

static const struct control_ops fake_ops = {
    .admin_gid = fake_admin_gid,
    .status = fake_status,
    .arenas = fake_arenas,
    .clients = fake_clients,
    .stalls = fake_visit_stalls,
    .parameters = fake_parameters,
    .set = fake_set,
    .reset = fake_reset,
    .arena_create = fake_arena_create,
    .arena_remove = fake_arena_remove,
    .operate = fake_operate,
    .client_evict = fake_client_evict,
    .reload = fake_reload,
};

static inline void fake_init(struct fake *fake)
{
    *fake = (struct fake){.values = {"1s", "no", "10"}, .config_file = "/etc/reclaimd/reclaimd.conf"};
}
