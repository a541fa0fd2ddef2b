/* SPDX-License-Identifier: MIT */
/*
 * Purge: when free pages go back to the operating system, and what the purger's works come back with. Also
 * the pages that clients re-backed by touching them after they were given back. See arena-work.h.
 */
#include <stdlib.h>

#include "arena-work.h"
#include "basic/macro.h"
#include "clock.h"
#include "manager.h"
#include "segment.h"
#include "trace-events.h"

/* ---- When, and how much ---- */

static void purge_look(struct arena *a, const struct arena_parameters *p, uint64_t now,
                       struct purge_input *ret)
{
    struct heap_figures f;

    heap_figures(a->heap, &f);
    *ret = (struct purge_input){
        .now_usec = now,
        .lazy_bytes = f.lazy_bytes,
        .purging_bytes = f.purging_bytes,
        .threshold_bytes = p->purge_threshold_bytes == PARAMETER_AUTO ? manager_purge_threshold(a->manager)
                                                                      : p->purge_threshold_bytes,
        .delay_usec = p->purge_delay_usec == PARAMETER_OFF ? PURGE_NEVER : p->purge_delay_usec,
        .while_purging = p->purge_while_purging,
    };
}

static void purge_queue(struct arena *a, struct purge_work *work, enum purge_kind kind)
{
    work->kind = kind;
    work->arena = a;
    arena_ref(a);
    purger_queue(manager_purger(a->manager), work);
}

/* ---- A purge, in the purger's thread: worker's figures and heap are ours with the lock ---- */

/* The next holes of this round. False: it has no more. */
static bool work_fill_round(struct arena *a, struct purge_work *work, const struct purge_input *in)
{
    struct heap_purge_bounds bounds = {a->purge.min_bytes, purge_quota(&a->purge, in)};

    work->n_holes = heap_purge_begin(a->heap, work->holes, PURGE_HOLES, &bounds, &a->purge.cursor);
    return work->n_holes > 0 || (bounds.max_bytes > 0 && a->purge.cursor < a->bytes);
}

/* .. or of one that follows. */
static void work_fill(struct arena *a, struct purge_work *work)
{
    struct arena_parameters p;
    struct heap_figures before, after;
    struct purge_input in;

    arena_parameters_get(a, &p);
    heap_figures(a->heap, &before);
    purge_look(a, &p, now_usec(), &in);
    if (!work->begun)
        purge_begun(&a->purge, &in);
    work->begun = true;
    while (!work->over && !work_fill_round(a, work, &in))
        work->over = !purge_next_round(&a->purge, &in);
    heap_figures(a->heap, &after);
    work->bytes = before.backed_bytes - after.backed_bytes;
}

void arena_purge_begin(struct arena *a, struct purge_work *work)
{
    (void)pthread_mutex_lock(&a->lock);
    /* a work that was queued meanwhile waits until the one that runs has had its last turn */
    if (work->kind == PURGE_LAZY && (work->begun || a->purge.n_running == 0))
        work_fill(a, work);
    (void)pthread_mutex_unlock(&a->lock);
}

/* True: it is over. */
static bool work_end_holes(struct arena *a, struct purge_work *work)
{
    for (unsigned i = 0; i < work->n_holes; i++)
        heap_purge_end(a->heap, &work->holes[i]);
    arena_charge(a); /* now: an allocation that waits for it is tried before the pass publishes */
    a->figures.punched_bytes += work->bytes;
    a->figures.n_holes += work->n_holes;
    if (work->n_holes > 0)
        trace_purge(a, work->n_holes, work->bytes);
    if (work->kind == PURGE_LAZY && !work->over)
        return false;
    a->figures.n_purges_run++;
    if (work->kind == PURGE_LAZY) {
        purge_ended(&a->purge);
        a->sweep_due = true;
    } else {
        purge_ended_found(&a->purge);
    }
    return true;
}

/* What has holes left to find goes behind the works of other arenas. */
void arena_purge_done(struct arena *a, struct purge_work *work)
{
    bool over;

    (void)pthread_mutex_lock(&a->lock);
    over = work_end_holes(a, work);
    (void)pthread_mutex_unlock(&a->lock);
    if (!over) {
        purger_queue(manager_purger(a->manager), work);
        return;
    }
    free(work);
    arena_kick(a);
    arena_unref(a);
}

/* ---- Pages that clients re-backed by touching them after they were given back ---- */

static void work_claim(struct arena *a, struct purge_work *work, uint64_t offset, uint64_t bytes)
{
    struct heap_hole hole = {.offset = offset, .bytes = bytes};

    if (bytes == 0 || work->n_holes == PURGE_HOLES || !heap_purge_claim(a->heap, &hole))
        return;
    work->holes[work->n_holes++] = hole;
    work->bytes += bytes;
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

static void sweep_job(struct job *job, struct arena *a)
{
    struct purge_work *found = container_of(job, struct purge_work, job), *work = calloc(1, sizeof(*work));

    for (unsigned i = 0; work && !a->ending && i < found->n_holes; i++)
        work_claim_range(a, work, &found->holes[i]);
    if (work && work->n_holes > 0) {
        purge_begun_found(&a->purge);
        a->figures.n_purges_queued++;
        purge_queue(a, work, PURGE_FOUND);
    } else {
        free(work);
    }
    a->sweeping = found->from < a->bytes && !a->ending;
    if (a->sweeping)
        purge_queue(a, found, PURGE_SWEEP);
    else
        free(found);
    arena_unref(a);
}

void arena_sweep_found(struct arena *a, struct purge_work *work)
{
    arena_post(a, &work->job, sweep_job);
}

uint64_t arena_comparison_ask(struct arena *a)
{
    a->sweep_due = true;
    return a->n_comparisons + 1;
}

/* The next one begins only when all of the one before is over. */
bool arena_comparison_is_over(const struct arena *a, uint64_t comparison)
{
    if (a->n_comparisons == comparison)
        return !a->sweeping && a->purge.n_running == 0;
    return a->n_comparisons > comparison;
}

/*
 * The file holds more than the books say: somebody touched pages that were given back. While holes are being
 * punched nobody could tell.
 */
static void arena_compare_with_file(struct arena *a)
{
    struct purge_work *work;
    struct heap_figures f;
    uint64_t file_bytes;

    if (!a->sweep_due || a->sweeping || a->purge.n_running > 0)
        return;
    a->sweep_due = false;
    a->n_comparisons++;
    heap_figures(a->heap, &f);
    if (segment_backed_bytes(a->arena_fd, &file_bytes) < 0 || file_bytes <= f.backed_bytes)
        return;
    work = calloc(1, sizeof(*work));
    if (!work)
        return;
    a->sweeping = true;
    purge_queue(a, work, PURGE_SWEEP);
}

/* ---- The decision ---- */

void arena_purge(struct pass *pass)
{
    struct arena *a = pass->arena;
    struct purge_work *work;
    struct purge_decision d;
    struct purge_input in;

    arena_compare_with_file(a);
    a->purge.look = a->sweep_due || arena_operation_looks(a);
    purge_look(a, &pass->p, pass->now, &in);
    d = purge_decide(&a->purge, &in);
    pass_by(pass, d.deadline_usec);
    if (!d.purge)
        return;
    work = calloc(1, sizeof(*work));
    if (!work) /* no memory: the next pass tries again */
        return;
    purge_queued(&a->purge);
    a->figures.n_purges_queued++;
    purge_queue(a, work, PURGE_LAZY);
}
