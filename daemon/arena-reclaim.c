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

#define PAGES_A_PASS 256u /* then others get their turn */

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

/* What was freed since the counters stood so. */
static void trace_freed(const struct arena *a, uint64_t objects_before, uint64_t bytes_before)
{
    if (a->pending.freed_objects != objects_before)
        trace_bulk_free(a, a->pending.freed_objects - objects_before, a->pending.freed_bytes - bytes_before);
}

/* ---- batching = no: one entry an object ---- */

struct single {
    struct callback callback;
    struct arena *arena; /* a reference */
    uint64_t word;       /* one bit */
    bool zero;
};

static void single_run(struct callback *callback)
{
    struct single *s = container_of(callback, struct single, callback);
    struct arena *a = s->arena;
    uint64_t bytes_before;

    (void)pthread_mutex_lock(&a->lock);
    bytes_before = a->pending.freed_bytes;
    pending_expire_object(&a->pending, a->heap, s->word, s->zero ? a->base : NULL);
    trace_bulk_free(a, 1, a->pending.freed_bytes - bytes_before);
    a->n_single_run++;
    if (a->n_single_run == a->n_single_pushed || a->barriers || a->operations)
        arena_kick(a);
    (void)pthread_mutex_unlock(&a->lock);
    arena_unref(a);
    free(s);
}

static void single_push(struct pass *pass, uint64_t word)
{
    struct arena *a = pass->arena;
    struct single *s = malloc(sizeof(*s));

    if (!s) { /* nothing is lost: free it here */
        pending_expire_object(&a->pending, a->heap, word, arena_zero_base(pass));
        return;
    }
    *s = (struct single){.arena = a, .word = word, .zero = pass->p.zero_on_free};
    arena_ref(a);
    a->n_single_pushed++;
    callbacks_push(manager_callbacks(a->manager), &s->callback, single_run);
}

/* The page goes, its objects go on one by one. */
static void page_to_singles(struct pass *pass, struct bulk_page *page)
{
    for (uint32_t i = 0; i < page->n_records; i++)
        for (uint32_t mask = abi_word_mask(page->records[i]); mask; mask &= mask - 1)
            single_push(pass, abi_word(abi_word_block(page->records[i]), mask & -mask));
    pending_drop_page(&pass->arena->pending, page);
}

static unsigned expire_to_singles(struct pass *pass)
{
    struct arena *a = pass->arena;
    struct batch *batch;
    unsigned n = 0;

    while (n < PAGES_A_PASS && (batch = batch_oldest(&a->batches, BATCH_WAITING))) {
        if (batch->pages.first && batch->pages.first->cookie > pass->completed)
            break;
        while (batch->pages.first && batch->pages.first->cookie <= pass->completed && n++ < PAGES_A_PASS)
            page_to_singles(pass, page_list_pop(&batch->pages));
        batch_end_if_empty(&a->batches, batch);
    }
    if (n > 0)
        reclaimer_kick_callbacks(manager_reclaimer(a->manager));
    return n;
}

/* ---- gp-wait = callback: one entry a batch ---- */

static void batch_run(struct callback *callback)
{
    struct arena_batch_callback *bc = container_of(callback, struct arena_batch_callback, callback);
    struct arena *a = bc->arena;
    uint64_t objects_before, bytes_before;

    (void)pthread_mutex_lock(&a->lock);
    objects_before = a->pending.freed_objects;
    bytes_before = a->pending.freed_bytes;
    (void)batch_expire_all(&a->batches, bc->batch, &a->pending, a->heap, bc->zero ? a->base : NULL);
    trace_freed(a, objects_before, bytes_before);
    (void)pthread_mutex_unlock(&a->lock);
    arena_kick(a);
    arena_unref(a);
}

static unsigned expire_to_callbacks(struct pass *pass)
{
    struct arena *a = pass->arena;
    struct batch *batch;
    unsigned n = 0;

    while ((batch = batch_oldest(&a->batches, BATCH_WAITING)) && batch->cookie <= pass->completed) {
        struct arena_batch_callback *bc = &a->batch_callbacks[batch - a->batches.all];

        *bc = (struct arena_batch_callback){.arena = a, .batch = batch, .zero = pass->p.zero_on_free};
        batch->stage = BATCH_QUEUED;
        arena_ref(a);
        callbacks_push(manager_callbacks(a->manager), &bc->callback, batch_run);
        n++;
    }
    if (n > 0)
        reclaimer_kick_callbacks(manager_reclaimer(a->manager));
    return n;
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
        arena_want_cookie(a, a->pending.sweep_cookie, false);
    }
    if (a->pending.sweep_cookie > pass->completed || a->batches.n_running > 0 || a->pending.closed.first ||
        a->n_single_run != a->n_single_pushed)
        return;
    (void)pending_sweep(&a->pending, a->heap, arena_zero_base(pass));
    a->figures.n_sweeps++;
    pass->found = true;
}

void arena_expire(struct pass *pass)
{
    struct arena *a = pass->arena;
    uint64_t objects_before = a->pending.freed_objects, bytes_before = a->pending.freed_bytes;
    unsigned n;

    if (!pass->p.batching) {
        n = expire_to_singles(pass);
    } else if (pass->p.gp_wait == GP_WAIT_CALLBACK) {
        n = expire_to_callbacks(pass);
    } else {
        n = batches_expire(&a->batches, &a->pending, a->heap, pass->completed, PAGES_A_PASS,
                           arena_zero_base(pass));
        n += pending_expire(&a->pending, a->heap, &a->pending.closed, pass->completed, PAGES_A_PASS,
                            arena_zero_base(pass));
    }
    if (n > 0)
        pass->found = true;
    if (n >= PAGES_A_PASS)
        pass->again = true;
    arena_sweep(pass);
    trace_freed(a, objects_before, bytes_before);
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
