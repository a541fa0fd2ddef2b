/* SPDX-License-Identifier: MIT */
/* Pages, batches, callbacks and purge: what happens to deferred objects after they were collected. See
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
#include "segment.h"

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

/* ---- Purge ---- */

static bool purge_queue(struct arena *a)
{
    struct purge_work *work = calloc(1, sizeof(*work));

    /* the next pass tries again */
    if (!work)
        return false;
    work->n_holes = heap_purge_begin(a->heap, work->holes, PURGE_HOLES, 0, &a->purge.cursor);
    if (work->n_holes == 0) {
        free(work);
        return false;
    }
    work->arena = a;
    arena_ref(a);
    purge_begun(&a->purge);
    a->figures.n_purges_queued++;
    purger_queue(manager_purger(a->manager), work);
    return true;
}

/* ---- Pages that clients re-backed by touching them after they were given back ---- */

static void work_claim(struct arena *a, struct purge_work *work, uint64_t offset, uint64_t bytes)
{
    struct heap_hole hole = {.offset = offset, .bytes = bytes};

    if (bytes > 0 && work->n_holes < PURGE_HOLES && heap_purge_claim(a->heap, &hole))
        work->holes[work->n_holes++] = hole;
}

/* The free pages among those that have data, neighbours together. */
static void work_claim_range(struct arena *a, struct purge_work *work, const struct heap_hole *range)
{
    uint64_t at = range->offset, end = range->offset + range->bytes, free_from = at;

    while (at < end) {
        uint64_t step =
            at % ABI_CHUNK_BYTES == 0 && end - at >= ABI_CHUNK_BYTES ? ABI_CHUNK_BYTES : ABI_PAGE_BYTES;

        if (step == ABI_CHUNK_BYTES && !heap_range_is_free(a->heap, at, step))
            step = ABI_PAGE_BYTES;
        if (!heap_range_is_free(a->heap, at, step)) {
            work_claim(a, work, free_from, at - free_from);
            free_from = at + step;
        }
        at += step;
    }
    work_claim(a, work, free_from, end - free_from);
}

static void sweep_queue(struct arena *a, struct purge_work *work)
{
    work->sweep = true;
    work->arena = a;
    arena_ref(a);
    a->sweeping = true;
    purger_queue(manager_purger(a->manager), work);
}

static void sweep_job(struct job *job, struct arena *a)
{
    struct purge_work *found = container_of(job, struct purge_work, job), *work = calloc(1, sizeof(*work));

    for (unsigned i = 0; work && !a->ending && i < found->n_holes; i++)
        work_claim_range(a, work, &found->holes[i]);
    if (work && work->n_holes > 0) {
        work->found = true;
        work->arena = a;
        arena_ref(a);
        purge_begun(&a->purge);
        a->figures.n_purges_queued++;
        purger_queue(manager_purger(a->manager), work);
    } else {
        free(work);
    }
    a->sweeping = false;
    if (found->from < a->bytes && !a->ending)
        sweep_queue(a, found);
    else
        free(found);
    arena_unref(a);
}

void arena_sweep_found(struct arena *a, struct purge_work *work)
{
    arena_post(a, &work->job, sweep_job);
}

/* The file holds more than the books say: somebody touched pages that were given back. */
static void arena_compare_with_file(struct arena *a)
{
    struct purge_work *work;
    struct heap_figures f;
    uint64_t file_bytes;

    if (!a->sweep_due || a->sweeping || a->purge.n_running > 0)
        return;
    a->sweep_due = false;
    heap_figures(a->heap, &f);
    if (segment_backed_bytes(a->arena_fd, &file_bytes) < 0 || file_bytes <= f.backed_bytes)
        return;
    work = calloc(1, sizeof(*work));
    if (work)
        sweep_queue(a, work);
}

void arena_purge(struct pass *pass)
{
    struct arena *a = pass->arena;
    struct heap_figures f;
    struct purge_decision d;

    arena_compare_with_file(a);
    heap_figures(a->heap, &f);
    d = purge_decide(
        &a->purge,
        &(struct purge_input){
            .now_usec = pass->now,
            .lazy_bytes = f.lazy_bytes,
            .threshold_bytes = pass->p.purge_threshold_bytes == PARAMETER_AUTO
                                   ? manager_purge_threshold(a->manager)
                                   : pass->p.purge_threshold_bytes,
            .delay_usec = pass->p.purge_delay_usec == PARAMETER_OFF ? PURGE_NEVER : pass->p.purge_delay_usec,
            .while_purging = pass->p.purge_while_purging,
        });
    pass_by(pass, d.deadline_usec);
    if (!d.purge)
        return;
    if (!purge_queue(a))
        /* no memory for the work, or nothing after all: as if it were new */
        a->purge = (struct purge_timer){.n_running = a->purge.n_running};
}

static void work_done(struct arena *a, struct purge_work *work)
{
    uint64_t bytes_before = a->figures.punched_bytes;

    for (unsigned i = 0; i < work->n_holes; i++) {
        heap_purge_end(a->heap, &work->holes[i]);
        a->figures.punched_bytes += work->holes[i].bytes;
    }
    a->figures.n_holes += work->n_holes;
    trace_purge(a, work->n_holes, a->figures.punched_bytes - bytes_before);
    a->figures.n_purges_run++;
    a->purge.n_running--;
    /* a full work may have left some: the same purge goes on */
    if (work->n_holes < PURGE_HOLES || !purge_queue(a)) {
        a->purge.n_running++;
        purge_ended(&a->purge);
        a->sweep_due = !work->found;
    }
}

void arena_purge_done(struct arena *a, struct purge_work *work)
{
    (void)pthread_mutex_lock(&a->lock);
    work_done(a, work);
    (void)pthread_mutex_unlock(&a->lock);
    free(work);
    arena_kick(a);
    arena_unref(a);
}
