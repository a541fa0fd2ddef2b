/* SPDX-License-Identifier: MIT */
/*
 * sync, backend reclaim: reclaim_synchronize(), through the daemon. With --callbacks a neighbour keeps the
 * callback FIFO filled (neighbour-fifo.c), and a waiter calls only when it sees as many entries there as it is
 * to queue behind.
 */
#include <errno.h>
#include <inttypes.h>
#include <reclaim/reclaim.h>
#include <stdlib.h>

#include "basic/macro.h"
#include "basic/varlink-frame.h"
#include "lane.h"
#include "sync.h"
#include "words.h"

enum {
    LOOKS_MAX = 100000, /* some ten seconds: then the neighbour cannot keep up */
    CALLS_MAX = 1000,   /* for one with as many entries ahead as asked for */
};

static int synchronize_once(const struct sync_job *job, struct reclaim_lane *lane, uint64_t *latency)
{
    uint64_t start = clock_now_ns();
    int r = reclaim_synchronize(lane, job->flags, NULL);

    *latency = clock_now_ns() - start;
    return likely(r == 0) ? 0 : run_library_failed(r, "reclaim_synchronize");
}

/* The neighbour's turn, at the beginning of a block: all others wait meanwhile. */
static int change_stall(const struct sync_job *job, struct team_thread *t, uint64_t call)
{
    int r = 0;

    if (!job->stall_block || call % job->stall_block != 0)
        return 0;
    sync_meet(job);
    if (t->index == 0)
        r = neighbour_stall(job->run->neighbours[NEIGHBOUR_STALL].shared, sync_is_stalled(job, call));
    return r;
}

static int run_plain(const struct sync_job *job, struct team_thread *t)
{
    uint64_t *latencies = sync_latencies(t, job->latencies);
    int r = 0;

    for (uint64_t i = 0; i < job->n_calls && r >= 0; i++) {
        r = change_stall(job, t, i);
        if (r < 0)
            break;
        sync_meet(job);
        r = synchronize_once(job, t->data, &latencies[i]);
    }
    return r;
}

struct waiter { /* behind callbacks */
    struct varlink_client *control;
    struct books books; /* after its last call */
};

/* Until as many wait as are to be ahead. */
static int await_callbacks(const struct sync_job *job, struct varlink_client *control)
{
    for (unsigned i = 0; i < LOOKS_MAX; i++) {
        struct daemon_books now;
        int r = books_read_daemon(control, &now);

        if (r < 0)
            return r;
        if (now.callbacks_waiting >= job->n_callbacks)
            return 0;
    }
    return words_set(-ETIMEDOUT, "the callback FIFO does not hold %" PRIu64 " entries", job->n_callbacks);
}

/*
 * One call, and how many entries the daemon found in the FIFO as its grace period ended: those that a waiter has
 * ahead if the FIFO wakes it. With several waiters the mean of those served since books.
 */
static int call_behind_some(const struct sync_job *job, struct team_thread *t, struct waiter *w,
                            uint64_t call)
{
    struct books before = w->books;
    uint64_t n;
    int r = await_callbacks(job, w->control);

    if (r < 0)
        return r;
    sync_meet(job);
    r = synchronize_once(job, t->data, &sync_latencies(t, job->latencies)[call]);
    if (r >= 0)
        r = books_read(w->control, job->run->arena, &w->books);
    if (r < 0)
        return r;
    n = w->books.synchronizes - before.synchronizes;
    sync_latencies(t, job->ahead)[call] = n ? (w->books.callbacks_ahead - before.callbacks_ahead) / n : 0;
    return 0;
}

/*
 * Calls until one was in the situation that is asked for: half to twice as many entries ahead. Whatever wakes
 * the waiters, it is looked at in the same way, and not at the time that the call took.
 */
static int call_behind(const struct sync_job *job, struct team_thread *t, struct waiter *w, uint64_t call)
{
    const uint64_t *ahead = &sync_latencies(t, job->ahead)[call];

    for (unsigned i = 0; i < CALLS_MAX; i++) {
        int r = call_behind_some(job, t, w, call);

        if (r < 0 || (*ahead >= job->n_callbacks / 2 && *ahead <= job->n_callbacks * 2))
            return r;
        t->retries++;
    }
    return words_set(-ETIMEDOUT, "the callback FIFO does not hold about %" PRIu64 " entries",
                     job->n_callbacks);
}

static int run_behind_callbacks(const struct sync_job *job, struct team_thread *t)
{
    struct waiter w = {0};
    int r = books_connect(job->run->service.paths.control, &w.control);

    if (r >= 0)
        r = books_read(w.control, job->run->arena, &w.books);
    for (uint64_t i = 0; i < job->n_calls && r >= 0; i++)
        r = call_behind(job, t, &w, i);
    (void)varlink_client_free(w.control);
    return r;
}

static int reclaim_thread_run(struct team_thread *t)
{
    const struct sync_job *job = t->job;

    t->n_done = job->n_calls;
    return job->n_callbacks ? run_behind_callbacks(job, t) : run_plain(job, t);
}

const struct sync_backend sync_reclaim = {
    .name = "reclaim",
    .ops = {.process_init = lane_process_init,
            .thread_init = lane_thread_init,
            .thread_run = reclaim_thread_run,
            .thread_deinit = lane_thread_deinit,
            .process_deinit = lane_process_deinit},
};
