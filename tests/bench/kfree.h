/* SPDX-License-Identifier: MIT */
/*
 * kfree: allocate objects, defer-free them, until all are freed; the kernel's own test of this shape, over
 * processes.
 *
 * Every backend is one file that defines its allocation and deferral as macros and includes kfree-loop.h, so
 * that the measured loops are compiled anew around each of them: no peer pays for a call that another does
 * not make.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "run.h"

enum {
    KFREE_OBJECT_BYTES = 32, /* times --kfree-mult: the sources' struct */
};

/* What every object begins with. Peers that thread a list through objects keep their head behind it. */
struct kfree_object {
    uint64_t word;
    uint64_t reserved;
    uint64_t head[2];
};

enum kfree_shape {
    KFREE_BATCHES,     /* n_alloc allocations, then as many frees */
    KFREE_INTERLEAVED, /* one and one */
    KFREE_RANDOM,      /* replaces a random one of `window` live objects */
};

struct kfree_job {
    struct bench_run *run;
    enum kfree_shape shape;
    uint64_t n_loops, n_alloc, window;
    size_t bytes;                 /* of one object */
    struct kfree_object **arrays; /* of all threads, shared memory; max(n_alloc, window) each */
    size_t n_array;
};

struct kfree_backend {
    const char *name;
    struct team_ops ops;
    struct team_ops head_ops; /* with --head: of the daemon's backend */
};

/* This thread's array. */
static inline struct kfree_object **kfree_array(const struct team_thread *t)
{
    const struct kfree_job *job = t->job;

    return job->arrays + (size_t)t->index * job->n_array;
}

/* No memory for an object: why, in words. */
int kfree_alloc_failed(const struct team_thread *t, int error);

extern const struct kfree_backend kfree_reclaim, kfree_malloc, kfree_urcu_call_rcu, kfree_urcu_defer,
    kfree_ck_epoch;
#if HAVE_DPDK
extern const struct kfree_backend kfree_dpdk_dq;
#endif

extern const struct bench_test test_kfree;
