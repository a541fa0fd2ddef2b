/* SPDX-License-Identifier: MIT */
/* sync, backend reclaim: reclaim_synchronize(), through the daemon; with --callbacks behind a filled FIFO. */
#include <reclaim/reclaim.h>

#include "basic/macro.h"
#include "lane.h"
#include "sync.h"

static int synchronize_all(struct team_thread *t, uint64_t *latencies)
{
    const struct sync_job *job = t->job;

    for (uint64_t i = 0; i < job->n_calls; i++) {
        uint64_t start = clock_now_ns();
        int r = reclaim_synchronize(t->data, job->flags, NULL);

        if (unlikely(r < 0))
            return run_library_failed(r, "reclaim_synchronize");
        latencies[i] = clock_now_ns() - start;
    }
    t->n_done += job->n_calls;
    return 0;
}

static int reclaim_thread_run(struct team_thread *t)
{
    const struct sync_job *job = t->job;
    uint32_t n_waiters = (uint32_t)job->run->options->n_threads;
    int r;

    if (!job->n_callbacks)
        return synchronize_all(t, sync_latencies(t, job->latencies));
    r = synchronize_all(t, sync_latencies(t, job->plain));
    if (r >= 0)
        r = sync_flood_begin(job->shared, n_waiters);
    if (r >= 0)
        r = synchronize_all(t, sync_latencies(t, job->latencies));
    sync_flood_leave(job->shared, n_waiters);
    return r;
}

static int reclaim_prepare(struct sync_job *job)
{
    return job->n_callbacks ? sync_flood_start(job, (struct sync_flood **)&job->shared) : 0;
}

static void reclaim_finish(struct sync_job *job)
{
    if (job->shared)
        sync_flood_end(job->shared);
}

const struct sync_backend sync_reclaim = {
    .name = "reclaim",
    .ops = {.process_init = lane_process_init,
            .thread_init = lane_thread_init,
            .thread_run = reclaim_thread_run,
            .thread_deinit = lane_thread_deinit,
            .process_deinit = lane_process_deinit},
    .prepare = reclaim_prepare,
    .finish = reclaim_finish,
};
