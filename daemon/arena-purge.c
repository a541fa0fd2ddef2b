/* SPDX-License-Identifier: MIT */
/*
 * Purge: when free pages go back to the operating system, and what the purger's works come back with. Also
 * the pages that clients re-backed by touching them after they were given back. See arena-work.h.
 */
#include <stdlib.h>

#include "arena-work.h"
#include "basic/macro.h"
#include "manager.h"
#include "segment.h"
#include "trace-events.h"

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
