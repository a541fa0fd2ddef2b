/* SPDX-License-Identifier: MIT */
/* Pages, batches and callbacks: what happens to deferred objects after they were collected. See
 * arena-work.h. */
#include <errno.h>
#include <stdlib.h>

#include "arena-work.h"
#include "basic/macro.h"
#include "basic/ordering.h"
#include "clock.h"
#include "log.h"
#include "manager.h"
#include "trace-events.h"

void *arena_zero_base(const struct pass *pass)
{
    return pass->p.zero_on_free ? pass->arena->base : NULL;
}

void arena_want_cookie(struct arena *a, uint64_t cookie, bool expedited)
{
    if (cookie <= a->gp_asked && !expedited)
        return;
    a->gp_asked = MAX(a->gp_asked, cookie);
    grace_request(manager_grace(a->manager), a, cookie, expedited, true);
}

uint64_t arena_close_pages(struct arena *a)
{
    pending_close(&a->pending);
    return grace_take_cookie(a);
}

uint64_t arena_oldest_cookie(struct arena *a)
{
    uint64_t oldest = a->pending.closed.first ? a->pending.closed.first->cookie : UINT64_MAX;

    for (unsigned i = 0; i < BATCHES_MAX && a->batches.n_running > 0; i++)
        if (a->batches.all[i].stage != BATCH_IDLE && a->batches.all[i].pages.first)
            oldest = MIN(oldest, a->batches.all[i].pages.first->cookie);
    /* nobody knows: until the sweep */
    if (a->pending.starved)
        oldest = 0;
    return oldest;
}

/* ---- Expiry, drain, starvation ---- */

/* P3 of pending: every page is gone, one grace period has passed since the last bit was taken: free all
 * pending bits. */
static void arena_sweep(struct pass *pass)
{
    struct arena *a = pass->arena;

    if (!a->pending.starved)
        return;
    if (a->pending.sweep_cookie == 0) {
        log_warning("arena %s: no memory for pending pages; freeing by sweep", a->name);
        a->pending.sweep_cookie = arena_close_pages(a);
        a->drain.urgent = DRAIN_FULL; /* closed pages may leave only through a batch */
        arena_want_cookie(a, a->pending.sweep_cookie, false);
    }
    if (a->pending.sweep_cookie > pass->completed || a->batches.n_running > 0 || a->pending.closed.first ||
        a->n_single_run != a->n_single_pushed)
        return;
    (void)pending_sweep(&a->pending, a->heap, arena_zero_base(pass));
    a->figures.n_sweeps++;
    pass->found = true;
}

/* P5 of pending: never seen but after a bug or a broken memory, so whoever sees it should hear of it. */
static void tell_kept(struct pass *pass)
{
    struct arena *a = pass->arena;
    uint64_t n = a->pending.kept.n_objects;

    if (n > a->figures.n_kept_objects)
        log_error(
            "arena %s: %llu deferred objects cannot prove that their grace period is over; kept, not freed",
            a->name, (unsigned long long)(n - a->figures.n_kept_objects));
    a->figures.n_kept_objects = n;
}

void arena_expire(struct pass *pass)
{
    struct arena *a = pass->arena;
    uint64_t objects_before = a->pending.freed_objects, bytes_before = a->pending.freed_bytes;
    unsigned n;

    if (!pass->p.batching) {
        n = arena_expire_to_singles(pass);
    } else if (pass->p.gp_wait == GP_WAIT_CALLBACK) {
        n = arena_expire_to_callbacks(pass);
    } else {
        n = batches_expire(&a->batches, &a->pending, a->heap, pass->completed, ARENA_PAGES_A_PASS,
                           arena_zero_base(pass));
        n += pending_expire(&a->pending, a->heap, &a->pending.closed, pass->completed, ARENA_PAGES_A_PASS,
                            arena_zero_base(pass));
    }
    tell_kept(pass);
    if (n > 0)
        pass->found = true;
    if (n >= ARENA_PAGES_A_PASS)
        pass->again = true;
    arena_sweep(pass);
    arena_trace_freed(a, objects_before, bytes_before);
}

void arena_drain(struct pass *pass)
{
    struct arena *a = pass->arena;
    struct drain_input in = {
        .now_usec = pass->now,
        .n_objects = a->pending.n_objects,
        .n_bytes = a->pending.n_bytes,
        .batch_free = a->batches.n_running < pass->p.batches,
        .interval_usec = pass->p.drain_interval_usec,
        .flood_objects = pass->p.flood_objects,
        .flood_bytes = pass->p.flood_bytes,
        .flood_interval_usec = pass->p.flood_interval_usec,
    };
    struct drain_decision d = drain_decide(&a->drain, &in);
    struct batch *batch;

    pass_by(pass, d.deadline_usec);
    if (d.drain == DRAIN_NONE)
        return;
    batch = batch_begin(&a->batches, &a->pending, (unsigned)pass->p.batches);
    if (!batch)
        return;
    a->batch_first_usec[batch - a->batches.all] = a->drain.first_usec;
    drain_timer_done(&a->drain);
    a->figures.n_drains[d.drain]++;
    trace_drain(a, d.drain, &batch->pages); /* before the grace period that it asks for */
    arena_want_cookie(a, batch->cookie, false);
}
