/* SPDX-License-Identifier: MIT */
/* sync: how long one synchronize takes, from the call to its return. One file a backend; latencies go to
 * shared memory. */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "clock.h"
#include "run.h"

struct sync_job {
    struct bench_run *run;
    uint64_t n_calls; /* of each waiter */
    uint64_t n_callbacks;
    unsigned flags;
    uint64_t *latencies;        /* n_calls of each thread, shared */
    uint64_t *ahead;            /* with n_callbacks: entries in the FIFO, for each of these calls */
    pthread_barrier_t *barrier; /* all waiters meet before each call; NULL: they need not */
    uint64_t stall_block; /* with a neighbour that stalls: it does in each other block of so many calls */
    void *shared;         /* the backend's own */
};

struct sync_backend {
    const char *name;
    struct team_ops ops;
    int (*prepare)(struct sync_job *job); /* before the fork; both may be NULL */
    void (*finish)(struct sync_job *job); /* after the team */
};

/* This thread's part of such an array. */
static inline uint64_t *sync_latencies(const struct team_thread *t, uint64_t *all)
{
    const struct sync_job *job = t->job;

    return all + t->index * job->n_calls;
}

/* Waits for all others: the next call is everybody's. */
static inline void sync_meet(const struct sync_job *job)
{
    if (job->barrier)
        (void)pthread_barrier_wait(job->barrier);
}

/* Whether the neighbour stalls during that call. */
static inline bool sync_is_stalled(const struct sync_job *job, uint64_t call)
{
    return job->stall_block && call / job->stall_block % 2;
}

extern const struct sync_backend sync_reclaim, sync_urcu_memb, sync_floor;
