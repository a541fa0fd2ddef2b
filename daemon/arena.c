/* SPDX-License-Identifier: MIT */
/* An arena's segments and life; see arena.h. */
#include "arena.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include "basic/cleanup.h"
#include "basic/macro.h"
#include "basic/ordering.h"
#include "clock.h"
#include "log.h"
#include "manager.h"
#include "segment.h"
#include "trace-events.h"
#include "user.h"

#define NAP_FIRST_USEC 30

/* H3 of the heap: memory is behind a page before anybody gets it, and only where there is headroom. */
static int arena_back(void *userdata, uint64_t offset, uint64_t bytes)
{
    struct arena *a = userdata;
    /* a limit, not a lock: late by one step is harmless */
    uint64_t others = fetch_add_relaxed(&a->user->backed_bytes, bytes);
    int r = others + bytes > load_relaxed(&a->user->limit_bytes) ? -ENOMEM : memory_take(bytes);

    while (r == 0 && fallocate(a->arena_fd, 0, (off_t)offset, (off_t)bytes) < 0)
        if (errno != EINTR)
            r = -ENOMEM;
    if (r < 0)
        (void)fetch_sub_relaxed(&a->user->backed_bytes, bytes);
    else
        a->charged_bytes += bytes;
    return r;
}

static uint64_t arena_take_cookie(void *userdata)
{
    return grace_take_cookie(userdata);
}

static int arena_open_domain(struct arena *a)
{
    void *p;
    int r = segment_new("reclaimd:domain", ABI_PAGE_BYTES, &a->domain_fd);

    if (r == 0)
        r = segment_reopen_read_only(a->domain_fd, &a->domain_ro_fd);
    if (r == 0)
        r = segment_map(a->domain_fd, ABI_PAGE_BYTES, NULL, true, &p);
    if (r < 0)
        return r;
    a->domain = p;
    *a->domain = (struct abi_domain){
        .magic = ABI_MAGIC_DOMAIN,
        .major = ABI_MAJOR,
        .minor = ABI_MINOR,
        .fingerprint = ABI_FINGERPRINT,
        .arena_bytes = a->bytes,
        .page_bytes = ABI_PAGE_BYTES,
        .readers_must_fence = !grace_has_membarrier(),
        .ring_records = ABI_RING_RECORDS,
        .extent_block = UINT32_MAX,
    };
    return 0;
}

static int arena_open_objects(struct arena *a)
{
    int r = segment_new("reclaimd:arena", a->bytes, &a->arena_fd);

    if (r == 0)
        r = segment_reopen_read_only(a->arena_fd, &a->arena_ro_fd);
    if (r == 0)
        r = segment_map_arena(a->arena_fd, a->bytes, &a->base);
    if (r < 0)
        return r;
    (void)madvise(a->base, a->bytes, MADV_DONTDUMP);
    a->domain->base = (uint64_t)(uintptr_t)a->base;
    return 0;
}

static int arena_open_state(struct arena *a)
{
    struct heap_ops ops = {.back = arena_back, .userdata = a};
    void *p;
    int r = segment_new("reclaimd:state", state_bytes(a->bytes), &a->state_fd);

    if (r == 0)
        r = segment_map(a->state_fd, state_bytes(a->bytes), NULL, true, &p);
    if (r < 0)
        return r;
    (void)madvise(p, state_bytes(a->bytes), MADV_DONTDUMP);
    a->state = p;
    state_init(a->state, a->bytes, a->domain->base);
    if (getrandom(&a->state->arena_id, sizeof(a->state->arena_id), 0) < 0)
        return -errno;
    a->state->owner_uid = a->owner;
    a->state->owner_gid = a->group;
    a->state->mode = a->mode;
    a->state->flags = a->transient ? STATE_TRANSIENT : 0;
    (void)snprintf(a->state->name, sizeof(a->state->name), "%s", a->name);
    return heap_new(a->state, &ops, &a->heap);
}

static void arena_init(struct arena *a)
{
    struct pending_ops ops = {.take_cookie = arena_take_cookie, .userdata = a};

    a->refs = 1;
    a->domain_fd = a->domain_ro_fd = a->arena_fd = a->arena_ro_fd = a->state_fd = -EBADF;
    a->created_usec = clock_usec(CLOCK_REALTIME);
    a->nap_usec = NAP_FIRST_USEC;
    runnable_init(&a->runnable, arena_run);
    (void)pthread_mutex_init(&a->clients_lock, NULL);
    (void)pthread_mutex_init(&a->lock, NULL);
    (void)pthread_mutex_init(&a->published_lock, NULL);
    __cds_wfcq_init(&a->jobs_head, &a->jobs_tail);
    __cds_wfs_init(&a->rung);
    gp_init(&a->gp, 0, 0);
    pending_init(&a->pending, &ops);
    drain_timer_init(&a->drain);
}

void arena_drop_pages(struct arena *a)
{
    for (unsigned i = 0; i < BATCHES_MAX; i++)
        if (a->batches.all[i].stage != BATCH_IDLE)
            batch_drop(&a->batches.all[i], &a->pending);
    pending_deinit(&a->pending);
}

static void arena_free(struct arena *a)
{
    arena_drop_pages(a);
    if (a->heap)
        a->heap = heap_free(a->heap);
    gp_deinit(&a->gp);
    segment_unmap(a->base, a->bytes);
    if (a->state)
        segment_unmap(a->state, state_bytes(a->bytes));
    segment_unmap(a->domain, ABI_PAGE_BYTES);
    (void)fd_close(a->domain_fd);
    (void)fd_close(a->domain_ro_fd);
    (void)fd_close(a->arena_fd);
    (void)fd_close(a->arena_ro_fd);
    (void)fd_close(a->state_fd);
    (void)pthread_mutex_destroy(&a->clients_lock);
    (void)pthread_mutex_destroy(&a->lock);
    (void)pthread_mutex_destroy(&a->published_lock);
    free(a->clients);
    free(a->lanes);
    free(a->free_states);
    free(a->snapshot);
    free(a);
}

static void arena_free_rcu(struct rcu_head *head)
{
    arena_free(container_of(head, struct arena, rcu));
}

/* Main thread: nobody has it any more, but for lookups under RCU. */
static void arena_last_unref(struct main_post *post)
{
    struct arena *a = container_of(post, struct arena, free_post);

    reclaimer_remove(manager_reclaimer(a->manager), &a->runnable);
    (void)fetch_sub_relaxed(&a->user->backed_bytes, a->charged_bytes);
    manager_arena_gone(a->manager, a);
    urcu_memb_call_rcu(&a->rcu, arena_free_rcu);
}

void arena_ref(struct arena *a)
{
    (void)fetch_add_relaxed(&a->refs, 1);
}

void arena_unref(struct arena *a)
{
    if (fetch_sub_acq_rel(&a->refs, 1) == 1) /* the last one sees all that the others did */
        mainqueue_post(manager_mainqueue(a->manager), &a->free_post, arena_last_unref);
}

int arena_new(struct manager *m, const struct arena_request *request, const struct arena_parameters *p,
              struct user *user, struct arena **ret)
{
    struct arena *a = aligned_alloc(ABI_CACHE_LINE, ALIGN_UP(sizeof(*a), ABI_CACHE_LINE));
    int r;

    if (!a)
        return -ENOMEM;
    memset(a, 0, sizeof(*a));
    arena_init(a);
    a->manager = m;
    a->user = user;
    (void)snprintf(a->name, sizeof(a->name), "%s", request->name);
    a->bytes = request->bytes;
    a->owner = request->owner;
    a->group = request->group;
    a->mode = request->mode;
    a->transient = request->transient;
    a->snapshot = calloc(1, sizeof(*a->snapshot));
    r = a->snapshot ? arena_open_domain(a) : -ENOMEM;
    if (r == 0)
        r = arena_open_objects(a);
    if (r == 0)
        r = arena_open_state(a);
    if (r < 0) {
        arena_free(a);
        return r;
    }
    a->snapshot->p = *p;
    store_relaxed(&a->domain->flood_objects, (uint32_t)p->flood_objects); /* no client yet */
    *ret = a;
    return 0;
}

void arena_post(struct arena *a, struct job *job, void (*run)(struct job *job, struct arena *a))
{
    job->run = run;
    cds_wfcq_node_init(&job->node);
    (void)cds_wfcq_enqueue(&a->jobs_head, &a->jobs_tail, &job->node);
    arena_kick(a);
}

void arena_kick(struct arena *a)
{
    reclaimer_kick(manager_reclaimer(a->manager), &a->runnable);
}

void arena_kick_lanes(struct arena *a)
{
    store_relaxed(&a->look_at_all, 1); /* the kick's lock orders it before the pass that follows */
    arena_kick(a);
}

void arena_ring(struct arena *a, struct client *c)
{
    if (exchange_acq_rel(&c->rung, 1) == 0) { /* else it is on the stack; pairs with arena_take_rung() */
        client_ref(c);
        cds_wfs_node_init(&c->rung_node);
        (void)cds_wfs_push(&a->rung, &c->rung_node);
    }
    arena_kick(a);
}

void arena_relieve(struct arena *a)
{
    store_relaxed(&a->relieve, 1); /* the kick's lock orders it before the pass that follows */
    arena_kick(a);
}

static void snapshot_free(struct rcu_head *head)
{
    free(container_of(head, struct arena_snapshot, rcu));
}

int arena_set_parameters(struct arena *a, const struct arena_parameters *p)
{
    struct arena_snapshot *fresh = calloc(1, sizeof(*fresh)), *old;

    if (!fresh)
        return -ENOMEM;
    fresh->p = *p;
    old = rcu_xchg_pointer(&a->snapshot, fresh);
    urcu_memb_call_rcu(&old->rcu, snapshot_free);
    /* a hint: late is harmless */
    store_relaxed(&a->domain->flood_objects, (uint32_t)MIN(p->flood_objects, UINT32_MAX));
    arena_kick(a); /* armed timers follow at once */
    return 0;
}

void arena_parameters_get(struct arena *a, struct arena_parameters *ret)
{
    urcu_memb_read_lock();
    *ret = rcu_dereference(a->snapshot)->p;
    urcu_memb_read_unlock();
}

void arena_published(struct arena *a, struct arena_figures *ret)
{
    (void)pthread_mutex_lock(&a->published_lock);
    *ret = a->published;
    (void)pthread_mutex_unlock(&a->published_lock);
}

int arena_add_client(struct arena *a, struct client *c)
{
    struct client **bigger = a->clients;

    (void)pthread_mutex_lock(&a->clients_lock);
    if (a->n_clients == a->n_clients_room) {
        uint32_t room = a->n_clients_room ? a->n_clients_room * 2 : 8;

        bigger = realloc(a->clients, room * sizeof(*bigger));
        if (bigger) {
            a->clients = bigger;
            a->n_clients_room = room;
        }
    }
    if (bigger) {
        client_ref(c); /* the list's */
        client_ref(c); /* the account's, until account_close() and the last page that charges it */
        a->clients[a->n_clients] = c;
        store_relaxed(&a->n_clients, a->n_clients + 1); /* read for display without the lock */
    }
    (void)pthread_mutex_unlock(&a->clients_lock);
    if (!bigger)
        return -ENOMEM;
    trace_attach(a, c);
    return 0;
}

void arena_remove_client(struct arena *a, struct client *c)
{
    bool found = false;

    (void)pthread_mutex_lock(&a->clients_lock);
    for (uint32_t i = 0; i < a->n_clients && !found; i++) {
        if (a->clients[i] != c)
            continue;
        a->clients[i] = a->clients[a->n_clients - 1];
        store_relaxed(&a->n_clients, a->n_clients - 1);
        found = true;
    }
    (void)pthread_mutex_unlock(&a->clients_lock);
    if (!found)
        return;
    trace_detach(a, c);
    client_unref(c);
}
