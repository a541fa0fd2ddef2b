/* SPDX-License-Identifier: MIT */
/* sync, backend reclaim: reclaim_synchronize(), through the daemon; with --callbacks behind a filled FIFO. */
#include <reclaim/reclaim.h>

#include "basic/macro.h"
#include "lane.h"
#include "sync.h"

static int synchronize_once(const struct sync_job *job, struct reclaim_lane *lane, uint64_t *latency)
{
    uint64_t start = clock_now_ns();
    int r = reclaim_synchronize(lane, job->flags, NULL);

    *latency = clock_now_ns() - start;
    return likely(r == 0) ? 0 : run_library_failed(r, "reclaim_synchronize");
}

static int run_plain(const struct sync_job *job, struct team_thread *t)
{
    uint64_t *latencies = sync_latencies(t, job->latencies);
    int r = 0;

    for (uint64_t i = 0; i < job->n_calls && r >= 0; i++)
        r = synchronize_once(job, t->data, &latencies[i]);
    return r;
}

static int run_behind_callbacks(const struct sync_job *job, struct team_thread *t)
{
    uint64_t *latencies = sync_latencies(t, job->latencies), *passed = sync_latencies(t, job->passed);
    uint64_t *ahead = sync_latencies(t, job->ahead), asked_ns;
    struct sync_flood *flood;
    int r = sync_flood_new(job, &flood);

    if (r < 0)
        return r;
    for (uint64_t i = 0; i < job->n_calls && r >= 0; i++) {
        r = sync_flood_fill(flood, t->data, &ahead[i], &asked_ns);
        if (r < 0)
            break;
        r = synchronize_once(job, t->data, &latencies[i]);
        passed[i] = clock_now_ns() - asked_ns;
    }
    (void)sync_flood_free(flood);
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
