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
    uint64_t *plain;     /* with n_callbacks: the same without entries ahead */
    void *shared;        /* the backend's own */
};

/* With --callbacks: a process of its own that keeps the callback FIFO filled. States: */
enum sync_flood_state {
    SYNC_FLOOD_IDLE,    /* the plain calls first */
    SYNC_FLOOD_FILLING, /* asked to begin; the flooder answers with */
    SYNC_FLOOD_FULL,    /* as many entries wait */
    SYNC_FLOOD_STOP,
};

struct sync_flood {
    uint32_t state;   /* waiters and flooder write in turn; a futex word */
    uint32_t n_plain; /* waiters that are through with the plain calls */
    uint32_t n_through;
    uint64_t n_samples, n_waiting; /* the flooder's: entries seen in the FIFO, and how often it looked */
    pid_t pid;
};

int sync_flood_start(struct sync_job *job, struct sync_flood **ret);
void sync_flood_end(struct sync_flood *f);

/* In a waiter, between the plain calls and the others: returns once the FIFO is full. -ETIMEDOUT, with
 * words_set(). */
int sync_flood_begin(struct sync_flood *f, uint32_t n_waiters);

/* In a waiter, after its last call. */
void sync_flood_leave(struct sync_flood *f, uint32_t n_waiters);

struct sync_backend {
    const char *name;
    struct team_ops ops;
    int (*prepare)(struct sync_job *job); /* before the fork; may be NULL */
    void (*finish)(struct sync_job *job); /* after the team; may be NULL */
};

/* This thread's latencies. */
static inline uint64_t *sync_latencies(const struct team_thread *t, uint64_t *all)
{
    const struct sync_job *job = t->job;

    return all + t->index * job->n_calls;
}

extern const struct sync_backend sync_reclaim, sync_urcu_memb, sync_floor;
