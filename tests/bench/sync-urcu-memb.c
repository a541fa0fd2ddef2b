/* SPDX-License-Identifier: MIT */
/* sync, backend urcu-memb: synchronize_rcu of liburcu's membarrier flavour, within one process. */
#include "urcu-inline.h"

#include "sync.h"

static int urcu_thread_init(struct team_thread *t)
{
    urcu_memb_register_thread();
    return 0;
}

static int urcu_thread_run(struct team_thread *t)
{
    const struct sync_job *job = t->job;
    uint64_t *latencies = sync_latencies(t, job->latencies);

    for (uint64_t i = 0; i < job->n_calls; i++) {
        uint64_t start;

        sync_meet(job);
        start = clock_now_ns();
        urcu_memb_synchronize_rcu();
        latencies[i] = clock_now_ns() - start;
    }
    t->n_done = job->n_calls;
    return 0;
}

static void urcu_thread_deinit(struct team_thread *t)
{
    urcu_memb_unregister_thread();
}

const struct sync_backend sync_urcu_memb = {
    .name = "urcu-memb",
    .ops = {.thread_init = urcu_thread_init,
            .thread_run = urcu_thread_run,
            .thread_deinit = urcu_thread_deinit},
};
