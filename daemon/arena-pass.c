/* SPDX-License-Identifier: MIT */
/*
 * One pass over an arena: what its worker does in order, and when it comes back. See arena-work.h.
 *
 *   awake    something was found: look again after a nap, which follows how fast rings and magazines are used
 *   dozing   nothing for two looks, but objects are pending: until the drain timer, a flood, a low magazine or
 *            a waiter
 *   asleep   nothing is pending: until somebody rings; no timer but for lazy pages
 */
#include <string.h>

#include "arena-work.h"
#include "basic/macro.h"
#include "basic/ordering.h"
#include "basic/testpoint.h"
#include "clock.h"
#include "manager.h"
#include "user.h"

#define NAP_MIN_USEC 10u
#define NAP_MAX_USEC 500u
#define QUIET_PASSES 2u        /* so many looks without anything, then doze */
#define LANES_ALWAYS_ALL 64u   /* up to so many lanes, every pass looks at all of them */
#define LOOK_AT_ALL_USEC 1000u /* and with more at least this often while awake */

void arena_run_jobs(struct arena *a)
{
    struct cds_wfcq_node *node;

    while ((node = __cds_wfcq_dequeue_blocking(&a->jobs_head, &a->jobs_tail))) {
        struct job *job = container_of(node, struct job, node);

        job->run(job, a);
    }
}

static bool pass_looks_at_all(struct pass *pass)
{
    struct arena *a = pass->arena;
    bool asked = exchange_acq_rel(&a->look_at_all, 0); /* before looking; pairs with arena_kick_lanes() */

    if (!asked && a->n_lanes > LANES_ALWAYS_ALL && pass->now - a->all_looked_usec < LOOK_AT_ALL_USEC)
        return false;
    a->all_looked_usec = pass->now;
    return true;
}

/* Whoever rang may have lanes that were not looked at for long. */
void arena_take_rung(struct arena *a)
{
    struct cds_wfs_head *rung = __cds_wfs_pop_all(&a->rung);
    struct cds_wfs_node *node, *next;

    for (node = rung ? cds_wfs_first(rung) : NULL; node; node = next) {
        struct client *c = container_of(node, struct client, rung_node);

        next = cds_wfs_next_blocking(node);
        (void)exchange_acq_rel(&c->rung, 0); /* before its lanes are looked at; pairs with arena_ring() */
        for (uint32_t i = 0; i < c->n_marked; i++)
            if (client_lane_at(c, i))
                client_lane_at(c, i)->active = true;
        client_unref(c);
    }
}

static void arena_take_relief(struct arena *a)
{
    if (!exchange_acq_rel(&a->relieve, 0)) /* pairs with arena_relieve() */
        return;
    a->drain.urgent = DRAIN_PRESSURE;
    a->purge.asked = true;
    a->relief_cookie = arena_close_pages(a);
    arena_want_cookie(a, a->relief_cookie, false);
    pending_drop_spare(&a->pending);
}

/* What the urgent drain freed is given back too, not only what was free before. */
static void arena_end_relief(struct pass *pass)
{
    struct arena *a = pass->arena;

    if (a->relief_cookie == 0 || pass->completed < a->relief_cookie ||
        arena_oldest_cookie(a) <= a->relief_cookie)
        return;
    a->relief_cookie = 0;
    a->purge.asked = true;
}

/* What purging gave back is no longer counted for the arena's user. */
void arena_charge(struct arena *a)
{
    struct heap_figures f;
    uint64_t backed;

    heap_figures(a->heap, &f);
    backed = f.backed_bytes + f.purging_bytes;
    if (a->charged_bytes <= backed)
        return;
    /* a limit: late is harmless */
    (void)fetch_sub_relaxed(&a->user->backed_bytes, a->charged_bytes - backed);
    a->charged_bytes = backed;
}

/* Half full when we come is right: less often when little was used, more often when much was. */
static uint64_t nap(struct pass *pass)
{
    struct arena *a = pass->arena;

    if (pass->pace >= 128)
        a->nap_usec = MAX(a->nap_usec / 2, NAP_MIN_USEC);
    else if (pass->pace < 32)
        a->nap_usec = MIN(a->nap_usec + a->nap_usec / 4 + 1, NAP_MAX_USEC);
    return pass->now + a->nap_usec;
}

/*
 * Since when the oldest pending object waits, as the drain timer saw it: in a batch or not in one yet. What is in
 * neither is in the callback FIFO or waits for the sweep, and is no younger than what was told before.
 */
static uint64_t oldest_pending(const struct arena *a)
{
    uint64_t oldest = a->drain.first_usec > 0 ? a->drain.first_usec : UINT64_MAX;

    if (a->pending.total_objects == 0)
        return 0;
    for (unsigned i = 0; i < BATCHES_MAX && a->batches.n_running > 0; i++)
        if (a->batches.all[i].stage != BATCH_IDLE)
            oldest = MIN(oldest, a->batch_first_usec[i]);
    return oldest == UINT64_MAX ? a->figures.oldest_usec : oldest;
}

static void publish(struct pass *pass)
{
    struct arena *a = pass->arena;
    struct arena_figures *f = &a->figures;

    heap_figures(a->heap, &f->heap);
    f->pending_objects = a->pending.total_objects;
    f->pending_bytes = a->pending.total_bytes;
    f->n_lanes = a->n_lanes;
    f->n_pages = a->pending.n_pages_closed;
    f->n_page_objects = a->pending.n_page_objects;
    memcpy(f->page_histogram, a->pending.histogram, sizeof(f->page_histogram));
    f->oldest_usec = oldest_pending(a);
    f->batches_running = a->batches.n_running;
    f->n_batches = a->batches.n_begun;
    f->n_frees = a->pending.freed_objects;
    f->freed_bytes = a->pending.freed_bytes;
    a->state->freed_objects = f->n_frees;
    arena_charge(a);
    (void)pthread_mutex_lock(&a->published_lock);
    a->published = *f;
    (void)pthread_mutex_unlock(&a->published_lock);
}

static void set_sleeps(struct arena *a, enum abi_sleeps sleeps)
{
    if (a->domain->sleeps != sleeps)
        /* when it matters a membarrier follows; pairs with lane_ring() */
        store_relaxed(&a->domain->sleeps, sleeps);
}

/* Tells the clients, makes sure that they know, and looks once more. True: nothing came meanwhile. */
static bool arena_sleep(struct arena *a)
{
    bool asleep =
        a->pending.n_objects == 0; /* else the drain timer is armed, or a batch's end asks for a drain */

    if (asleep)
        for (uint32_t i = 0; i < a->n_lanes; i++)
            lane_rings_anew(&a->lanes[i]->lane);
    set_sleeps(a, asleep ? ABI_ASLEEP : ABI_DOZING);
    RECLAIM_TEST_POINT("sleep-stored");
    grace_membarrier(); /* pairs with the compiler fence between a client's store and its load of sleeps:
                           lane_ring() */
    RECLAIM_TEST_POINT("sleep-membarrier");
    if (!arena_lanes_want_more(a, asleep))
        return true;
    set_sleeps(a, ABI_AWAKE);
    return false;
}

/* When to come back. */
static uint64_t pass_end(struct pass *pass)
{
    struct arena *a = pass->arena;

    if (pass->again)
        return RUN_AGAIN;
    if (pass->found)
        a->quiet_passes = 0;
    else
        a->quiet_passes++;
    if (a->quiet_passes < QUIET_PASSES)
        return MIN(nap(pass), pass->deadline);
    if (a->domain->sleeps == ABI_AWAKE && !arena_sleep(a)) {
        a->quiet_passes = 0;
        return RUN_AGAIN;
    }
    return pass->deadline;
}

/* Then the pass that follows the grace period empties the rings; until then it naps, and does not fall asleep. */
static void arena_hold_back(struct pass *pass)
{
    struct arena *a = pass->arena;
    /* started: relaxed, as a view of a moment ago is one pass late */
    struct drain_gp gp = {a->gp_asked, load_relaxed(&a->domain->started), pass->completed};

    pass->holds_back =
        drain_holds_back(&a->hold, pass->now, a->pending.total_bytes, pass->p.flood_bytes, &gp);
    pass->found |= pass->holds_back;
}

static uint64_t arena_pass(struct arena *a)
{
    struct pass pass = {.arena = a, .now = now_usec(), .deadline = RUN_NEVER};

    a->figures.n_passes++;
    if (a->domain->sleeps != ABI_AWAKE) {
        a->figures.n_wakeups++;
        set_sleeps(a, ABI_AWAKE);
    }
    arena_parameters_get(a, &pass.p);
    pass.pending_max = parameter_share_bytes(pass.p.client_pending_max, a->bytes);
    /* Acquire: readers were done with what expires now; pairs with grace_complete(). */
    pass.completed = load_acquire(&a->domain->completed);
    arena_run_jobs(a);
    arena_take_rung(a);
    arena_take_relief(a);
    arena_hold_back(&pass);
    arena_look_at_lanes(&pass, pass_looks_at_all(&pass));
    arena_expire(&pass);
    arena_fill_lanes(&pass);
    publish(&pass); /* whoever is told that a barrier is over may look */
    arena_serve_operations(&pass);
    arena_drain(&pass);
    arena_end_relief(&pass);
    arena_purge(&pass);
    arena_serve_operations(&pass); /* those that waited for just that */
    arena_wake_lanes(&pass);
    publish(&pass);
    return pass_end(&pass);
}

uint64_t arena_run(struct runnable *r)
{
    struct arena *a = container_of(r, struct arena, runnable);
    uint64_t next;

    (void)pthread_mutex_lock(&a->lock);
    next = arena_pass(a);
    (void)pthread_mutex_unlock(&a->lock);
    return next;
}
