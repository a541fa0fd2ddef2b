/* SPDX-License-Identifier: MIT */
/*
 * The plain client of reclaim: opens the run's arena in each process and gets each thread its lane. Functions
 * for team_ops; the job must begin with its struct bench_run *.
 */
#pragma once

#include "run.h"

int lane_process_init(void *job, void **ret_reclaim);
int lane_thread_init(struct team_thread *t); /* t->data: the lane */
int lane_process_barrier(struct team_thread *t);
void lane_thread_deinit(struct team_thread *t);
void lane_process_deinit(void *reclaim);

/* Team operations of such a client around its own run function. */
#define LANE_OPS(run)                                                                                        \
    {                                                                                                        \
        .process_init = lane_process_init, .thread_init = lane_thread_init, .thread_run = (run),             \
        .process_barrier = lane_process_barrier, .barrier_covers_all = true,                                 \
        .thread_deinit = lane_thread_deinit, .process_deinit = lane_process_deinit                           \
    }

/* reclaim_defer_free() that tries again while the daemon has no room, and counts that. -errno, with
 * words_set(). */
int lane_defer_failed(struct team_thread *t, void *p, int r) __attribute__((cold));

static inline int lane_defer(struct reclaim_lane *l, struct team_thread *t, void *p)
{
    int r = reclaim_defer_free(l, p);

    return likely(r == 0) ? 0 : lane_defer_failed(t, p, r);
}
