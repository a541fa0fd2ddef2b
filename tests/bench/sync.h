/* SPDX-License-Identifier: MIT */
/* sync: how long one synchronize takes, from the call to its return. One file a backend; latencies go to
 * shared memory. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "clock.h"
#include "run.h"

struct sync_job {
    struct bench_run *run;
    uint64_t n_calls; /* of each waiter */
    uint64_t n_callbacks;
    unsigned flags;
    uint64_t *latencies; /* n_calls of each thread, shared */
    uint64_t *passed;    /* with n_callbacks: time in which at least as many entries have run as were */
    uint64_t *ahead;     /* seen before each of these calls */
    void *shared;        /* the backend's own */
};

/* With --callbacks: what a waiter needs to fill the daemon's callback FIFO before each call. */
struct sync_flood;
int sync_flood_new(const struct sync_job *job, struct sync_flood **ret);
struct sync_flood *sync_flood_free(struct sync_flood *f);

/* Defers until at least n_callbacks entries wait; how many did, after asked_ns. -errno, with words_set(). */
int sync_flood_fill(struct sync_flood *f, struct reclaim_lane *lane, uint64_t *ret_ahead,
                    uint64_t *ret_asked_ns);

struct sync_backend {
    const char *name;
    struct team_ops ops;
    int (*prepare)(struct sync_job *job); /* before the fork; both may be NULL */
    void (*finish)(struct sync_job *job); /* after the team */
};

/* This thread's latencies. */
static inline uint64_t *sync_latencies(const struct team_thread *t, uint64_t *all)
{
    const struct sync_job *job = t->job;

    return all + t->index * job->n_calls;
}

extern const struct sync_backend sync_reclaim, sync_urcu_memb, sync_floor;
