/* SPDX-License-Identifier: MIT */
/* What control shows and does: its operations on the manager. Main thread. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "abi.h"
#include "basic/cleanup.h"
#include "basic/macro.h"
#include "basic/ordering.h"
#include "clock.h"
#include "log.h"
#include "manager-internal.h"
#include "process-figures.h"

_Static_assert((int)CONTROL_DRAIN_DEATH == (int)DRAIN_DEATH &&
                   (int)_CONTROL_DRAIN_MAX == (int)DRAIN_CAUSE_MAX,
               "drain causes are the engine's, in its order");
_Static_assert(CONTROL_PAGE_HISTOGRAM == PENDING_HISTOGRAM, "the engine's buckets");

static gid_t op_admin_gid(void *userdata)
{
    return ((struct manager *)userdata)->admin_gid;
}

/* ---- Status ---- */

/* As others can find it, whatever their own directory is; the daemon never leaves its own. */
static const char *config_path(const char *file)
{
    static char path[PATH_MAX]; /* the main thread's, until it asks again */
    char directory[PATH_MAX];

    if (*file == '/' || !getcwd(directory, sizeof(directory)) ||
        (size_t)snprintf(path, sizeof(path), "%s/%s", directory, file) >= sizeof(path))
        return file;
    return path;
}

static int op_status(void *userdata, struct control_status *ret)
{
    struct manager *m = userdata;
    struct process_figures f;
    uint64_t n_arenas = 0;
    bool fence = !grace_has_membarrier();

    process_figures_read(&f);
    for (struct arena *a = m->arenas; a; a = a->next_arena)
        n_arenas++;
    *ret = (struct control_status){
        .version = RECLAIMD_VERSION,
        .state = m->stopping ? "stopping"
                 : fence     ? "degraded"
                             : "running",
        .pid = getpid(),
        .uid = geteuid(),
        .started_usec = m->started_usec,
        .uptime_usec = now_usec() - m->begun_usec,
        .arenas = n_arenas,
        .clients = connections_n_clients(m->connections),
        .clients_max = m->parameters.clients_max,
        .readers_must_fence = fence,
        .under_pressure = pressure_is_high(m->pressure),
        .n_pressures = pressure_n_acted(m->pressure),
        .n_pressures_passed = pressure_n_passed(m->pressure),
        .n_callbacks = load_relaxed(&m->callbacks->n_run), /* figures: late is harmless */
        .n_wakeups = f.voluntary_switches,
        .rss_bytes = f.rss_bytes,
        .n_membarriers = grace_n_membarriers(),
        .config_file = config_path(m->options->config_file),
    };
    ret->callbacks_waiting = callbacks_length(m->callbacks);
    return 0;
}

/* ---- Arenas ---- */

/* What lies in magazines, and who reads: looked at under the arena's lock, so between two passes. */
static void count_magazine(const struct lane *l, unsigned c, uint64_t object_bytes, struct control_figures *f)
{
    uint32_t head = l->state->magazine_head[c];

    for (uint32_t i = head - lane_magazine_level(l, c); i != head; i++) {
        uint64_t n = (uint64_t)__builtin_popcountll(l->state->shadow[c][i % ABI_MAGAZINE_WORDS] & UINT32_MAX);

        f->cached_objects += n;
        f->cached_bytes += n * object_bytes;
    }
}

static void count_lane(const struct client_lane *cl, struct control_figures *f)
{
    for (uint32_t classes = cl->lane.used; classes; classes &= classes - 1) {
        unsigned c = (unsigned)__builtin_ctz(classes);

        count_magazine(&cl->lane, c, abi_class_bytes(c), f);
    }
    /* all of the size that was asked for last, or the client has done what it should not */
    count_magazine(&cl->lane, ABI_CLASS_EXTENT, (uint64_t)cl->lane.extent_pages * ABI_PAGE_BYTES, f);
    if (load_relaxed(&cl->lane.slot->word) != 0)
        f->lanes_reading++;
}

static void count_lanes(struct arena *a, struct control_figures *f)
{
    (void)pthread_mutex_lock(&a->lock);
    for (uint32_t i = 0; i < a->n_lanes; i++)
        if (a->lanes[i]->life == LANE_LIVE)
            count_lane(a->lanes[i], f);
    (void)pthread_mutex_unlock(&a->lock);
}

static void arena_control_figures(struct arena *a, struct control_figures *ret)
{
    struct arena_figures f;

    arena_published(a, &f);
    *ret = (struct control_figures){
        .clients = load_relaxed(&a->n_clients),
        .lanes = f.n_lanes,
        .size_bytes = a->bytes,
        .pending_objects = f.pending_objects,
        .pending_bytes = f.pending_bytes,
        .lazy_pages = f.heap.lazy_bytes / ABI_PAGE_BYTES,
        .lazy_bytes = f.heap.lazy_bytes,
        .backed_bytes = f.heap.backed_bytes,
        .gp_started = load_relaxed(&a->domain->started), /* figures */
        .gp_completed = load_relaxed(&a->domain->completed),
        .gp_last_usec = load_relaxed(&a->gp.last_usec),
        .gp_max_usec = load_relaxed(&a->gp.max_usec),
        .n_pages = f.n_pages,
        .n_page_objects = f.n_page_objects,
        .batches_running = f.batches_running,
        .n_batches = f.n_batches,
        .n_purges_queued = f.n_purges_queued,
        .n_purges_run = f.n_purges_run,
        .n_holes = f.n_holes,
        .punched_bytes = f.punched_bytes,
        .n_frees = f.n_frees,
        .freed_bytes = f.freed_bytes,
        .n_refused_records = f.n_refused_records,
        .n_refused_allocations = f.n_refused_allocations,
        .oldest_pending_usec = f.oldest_usec > 0 ? now_usec() - f.oldest_usec : 0,
        .n_chain_objects = f.n_chain_objects,
        .n_sweeps = f.n_sweeps,
        .n_kept_objects = f.n_kept_objects,
        .n_synchronizes = load_relaxed(&a->gp.n_synchronizes),
        .synchronizing = sync_load_waiters(load_relaxed(&a->gp.load)),
        .n_direct_wakes = load_relaxed(&a->gp.n_wakes[SYNC_DIRECT]),
        .n_worker_wakes = load_relaxed(&a->gp.n_wakes[SYNC_WORKER]),
        .n_fifo_wakes = load_relaxed(&a->gp.n_wakes[SYNC_FIFO]),
        .n_callbacks_ahead = load_relaxed(&a->gp.n_callbacks_ahead),
        .max_direct_wakes = load_relaxed(&a->gp.max_direct_wakes),
        .n_mutes = load_relaxed(&a->gp.n_mutes),
        .n_wakeups = f.n_wakeups,
        .stalled_readers = load_relaxed(&a->gp.n_stalled),
        .n_stalls = load_relaxed(&a->gp.n_stalls),
    };
    memcpy(ret->n_drains, f.n_drains, sizeof(f.n_drains));
    memcpy(ret->page_histogram, f.page_histogram, sizeof(f.page_histogram));
    count_lanes(a, ret);
    ret->in_use_objects =
        f.heap.out_objects - MIN(f.heap.out_objects, f.pending_objects + ret->cached_objects);
    ret->in_use_bytes = f.heap.out_bytes - MIN(f.heap.out_bytes, f.pending_bytes + ret->cached_bytes);
}

struct find_client {
    uint64_t id;
    struct client *found;
};

static int find_client(void *data, struct client *c)
{
    struct find_client *f = data;

    if (c->id != f->id)
        return 0;
    f->found = c;
    return 1;
}

static struct client *client_by_id(struct manager *m, uint64_t id)
{
    struct find_client f = {.id = id};

    (void)connections_visit(m->connections, find_client, &f);
    return f.found;
}

static void arena_oldest_reader(struct manager *m, struct arena *a, struct control_reader *ret)
{
    uint64_t id = load_relaxed(&a->gp.oldest_client);
    struct client *c = id ? client_by_id(m, id) : NULL;
    struct client_lane *cl =
        c ? client_lane_at(c, (uint32_t)load_relaxed(&a->gp.oldest_lane) % c->n_lanes) : NULL;

    *ret = (struct control_reader){0};
    if (!cl)
        return;
    ret->found = true;
    ret->client = id;
    ret->pid = c->pid;
    ret->tid = (pid_t)(load_relaxed(&cl->lane.shared->owner[0]) & ABI_OWNER_TID);
    ret->age_usec = now_usec() - load_relaxed(&a->gp.oldest_since_usec);
}

static int visit_arena(struct manager *m, struct arena *a, control_arena_fn visit, void *data)
{
    struct control_arena_info info = {
        .name = a->name,
        .owner = a->owner,
        .group = a->group,
        .mode = a->mode,
        .transient = a->transient,
        .base_address = (uint64_t)(uintptr_t)a->base,
        .created_usec = a->created_usec,
    };

    arena_control_figures(a, &info.figures);
    arena_oldest_reader(m, a, &info.oldest_reader);
    info.state = a->domain->readers_must_fence        ? "degraded"
                 : load_relaxed(&a->gp.n_stalled) > 0 ? "stalled" /* reported, so past stall-timeout */
                                                      : "ready";
    return visit(data, &info);
}

static int op_arenas(void *userdata, const char *name, control_arena_fn visit, void *data)
{
    struct manager *m = userdata;
    struct arena *a = name ? manager_arena_find(m, name) : m->arenas;
    int r = 0;

    if (name)
        return a ? visit_arena(m, a, visit, data) : -ENOENT;
    for (; a && r == 0; a = a->next_arena)
        r = visit_arena(m, a, visit, data);
    return r;
}

/* ---- Clients ---- */

/* client-pending-max is reached: its defers wait. Told in its lanes, which it may write to: it fools itself only. */
static bool client_is_at_limit(const struct client *c)
{
    for (uint32_t i = 0; i < load_relaxed(&c->n_marked); i++)
        if (client_lane_at(c, i) && load_relaxed(&client_lane_at(c, i)->lane.shared->over_limit))
            return true;
    return false;
}

static const char *client_state(const struct client *c)
{
    if (load_relaxed(&c->dead)) /* flags for display */
        return "dying";
    if (load_relaxed(&c->evicted))
        return "evicted";
    if (load_relaxed(&c->quarantined))
        return "quarantined";
    if (load_relaxed(&c->muted))
        return "muted";
    if (client_is_at_limit(c))
        return "at-limit";
    return c->observer ? "observer" : "attached";
}

static uint64_t client_lanes_reading(const struct client *c)
{
    uint64_t n = 0;

    for (uint32_t i = 0; i < load_acquire(&c->n_marked); i++) /* pairs with arena_give_lane() */
        n += load_relaxed(&client_slot(c, i)->word) != 0;
    return n;
}

struct visit_clients {
    const char *arena;
    uint64_t id;
    control_client_fn visit;
    void *data;
    unsigned n;
};

static int visit_client(void *data, struct client *c)
{
    struct visit_clients *v = data;
    struct control_client_info info;

    if ((v->arena && strcmp(c->arena->name, v->arena) != 0) || (v->id != 0 && c->id != v->id))
        return 0;
    v->n++;
    info = (struct control_client_info){
        .id = c->id,
        .pid = c->pid,
        .uid = c->uid,
        .gid = c->gid,
        .comm = c->comm,
        .arena = c->arena->name,
        .state = client_state(c),
        .lanes = load_relaxed(&c->n_live),
        .lanes_reading = client_lanes_reading(c),
        .pending_objects = load_relaxed(&c->account.pending_objects),
        .pending_bytes = load_relaxed(&c->account.pending_bytes),
        .n_refused_records = load_relaxed(&c->account.refused),
        .since_usec = c->since_usec,
    };
    manager_client_stall(c, &info);
    return v->visit(v->data, &info);
}

static int op_clients(void *userdata, const char *arena, uint64_t id, control_client_fn visit, void *data)
{
    struct manager *m = userdata;
    struct visit_clients v = {.arena = arena, .id = id, .visit = visit, .data = data};
    int r;

    if (arena && !manager_arena_find(m, arena))
        return -ENOENT;
    r = connections_visit(m->connections, visit_client, &v);
    return r == 0 && id != 0 && v.n == 0 ? -ESRCH : r;
}

/* ---- Parameters ---- */

static int op_parameters(void *userdata, const char *arena, control_parameter_fn visit, void *data)
{
    struct manager *m = userdata;
    const struct parameter *p;
    int r = 0;

    if (arena && !manager_arena_find(m, arena))
        return -ENOENT;
    for (size_t i = 0; r == 0 && (p = parameter_get(i)); i++) {
        char value[PARAMETER_TEXT_BYTES], range[PARAMETER_RANGE_BYTES], where[PARAMETER_ORIGIN_BYTES];
        struct parameter_origin origin;
        struct control_parameter_info info = {
            .name = p->name,
            .type = parameter_type_to_string(p->type),
            .unit = p->unit,
            .range = parameter_range_format(p, range),
            .default_value = p->default_text,
            .doc = p->doc,
            .arena_scope = p->scope == PARAMETER_SCOPE_ARENA,
        };

        info.value = parameter_store_format(m->settings->store, arena, p, &origin, value);
        info.origin = parameter_origin_format(&origin, where);
        r = visit(data, &info);
    }
    return r;
}

static int op_set(void *userdata, const char *arena, const struct control_assignment *assignments, size_t n,
                  bool dry_run, control_change_fn visit, void *data, struct error_line *why)
{
    struct manager *m = userdata;
    _cleanup_free_ struct parameter_assignment *copy = NULL;
    struct parameter_changes changes = {0};
    int r;

    if (arena && !manager_arena_find(m, arena))
        return -ENOENT;
    copy = calloc(n + 1, sizeof(*copy));
    if (!copy)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++)
        copy[i] = (struct parameter_assignment){.name = assignments[i].name, .value = assignments[i].value};
    r = parameter_store_set(m->settings->store, PARAMETER_RUNTIME, arena, copy, n, dry_run, &changes, why);
    if (r < 0)
        return r;
    if (!dry_run)
        manager_apply_parameters(m);
    r = manager_visit_changes(&changes, !dry_run, visit, data);
    parameter_changes_deinit(&changes);
    return r;
}

static int op_reset(void *userdata, const char *arena, const char *const *names, size_t n, bool dry_run,
                    control_change_fn visit, void *data, struct error_line *why)
{
    struct manager *m = userdata;
    struct parameter_changes changes = {0};
    int r;

    if (arena && !manager_arena_find(m, arena))
        return -ENOENT;
    r = parameter_store_reset(m->settings->store, arena, names, n, dry_run, &changes, why);
    if (r < 0)
        return r;
    if (!dry_run)
        manager_apply_parameters(m);
    r = manager_visit_changes(&changes, !dry_run, visit, data);
    parameter_changes_deinit(&changes);
    return r;
}

static int op_reload(void *userdata, control_change_fn visit, void *data, struct error_line *why)
{
    return manager_reload(userdata, visit, data, why);
}

/* ---- Deeds ---- */

static int op_arena_create(void *userdata, const struct control_arena_request *request,
                           struct error_line *why)
{
    struct arena_request r = {
        .name = request->name,
        .bytes = request->size_bytes,
        .owner = request->owner,
        .group = request->group,
        .mode = request->mode,
        .transient = request->transient,
    };

    return manager_arena_create(userdata, &r, request->asked_by, NULL, why);
}

static int op_arena_remove(void *userdata, const char *arena, bool force, struct error_line *why)
{
    struct manager *m = userdata;
    struct arena *a = manager_arena_find(m, arena);
    uint32_t n;

    if (!a)
        return -ENOENT;
    n = load_relaxed(&a->n_clients); /* main adds; a worker's late removal is harmless */
    if (n > 0 && !force)
        return error_line_set(why, -EBUSY, "arena %s has %u %s; --force cuts %s off, list-clients shows who",
                              arena, n, n == 1 ? "client" : "clients", n == 1 ? "it" : "them");
    manager_arena_remove(m, a);
    return 0;
}

struct operate {
    control_done_fn done;
    void *data;
};

static void operate_done(struct operation *op)
{
    struct operate *o = op->userdata;

    o->done(o->data, op->error,
            &(struct control_result){
                .usec = op->usec,
                .n_objects = op->n_objects,
                .bytes = op->bytes,
                .complaints = (const char *const *)op->complaints,
                .n_complaints = op->n_complaints,
            },
            NULL);
    free(o);
    operation_free(op);
}

static int op_operate(void *userdata, enum control_operation operation, const char *arena,
                      control_done_fn done, void *done_data, struct error_line *why)
{
    struct arena *a = manager_arena_find(userdata, arena);
    struct operate *o;
    int r;

    (void)why;
    if (!a)
        return -ENOENT;
    o = calloc(1, sizeof(*o));
    if (!o)
        return -ENOMEM;
    *o = (struct operate){.done = done, .data = done_data};
    r = arena_operate(a, operation, operate_done, o);
    if (r < 0)
        free(o);
    return r;
}

static int op_client_evict(void *userdata, uint64_t id, bool kill, struct error_line *why)
{
    struct manager *m = userdata;
    struct client *c = client_by_id(m, id);

    if (!c)
        return -ESRCH;
    log_notice("arena %s: client %" PRIu64 " (pid %d, uid %u, %s) is evicted%s", c->arena->name, id,
               (int)c->pid, (unsigned)c->uid, c->comm, kill ? " and killed" : "");
    connections_evict(m->connections, c);
    if (kill && syscall(SYS_pidfd_send_signal, c->pidfd, SIGKILL, NULL, 0) < 0)
        return error_line_set(why, -errno, "evicted, but its process cannot be killed: %s", strerror(errno));
    return 0;
}

const struct control_ops manager_control_ops = {
    .admin_gid = op_admin_gid,
    .status = op_status,
    .arenas = op_arenas,
    .clients = op_clients,
    .stalls = manager_visit_stalls,
    .parameters = op_parameters,
    .set = op_set,
    .reset = op_reset,
    .arena_create = op_arena_create,
    .arena_remove = op_arena_remove,
    .operate = op_operate,
    .client_evict = op_client_evict,
    .reload = op_reload,
};
