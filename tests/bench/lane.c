/* SPDX-License-Identifier: MIT */
/* Attaching, and giving back, for every test of libreclaim. */
#include "lane.h"

#include <errno.h>

enum {
    BARRIER_SECONDS =
        300, /* a hang becomes a failure; the longest honest wait is a drain-interval and a flood's rest */
};

int lane_process_init(void *job, void **ret_reclaim)
{
    return run_open_arena(*(struct bench_run **)job, 0, (struct reclaim **)ret_reclaim);
}

int lane_thread_init(struct team_thread *t)
{
    struct reclaim_lane *lane;
    int r = reclaim_lane_get(t->process_data, &lane);

    if (r < 0)
        return run_library_failed(r, "reclaim_lane_get");
    t->data = lane;
    return 0;
}

int lane_process_barrier(struct team_thread *t)
{
    int r = reclaim_barrier(t->data, &(struct timespec){.tv_sec = BARRIER_SECONDS});

    return r < 0 ? run_library_failed(r, "reclaim_barrier") : 0;
}

void lane_thread_deinit(struct team_thread *t)
{
    reclaim_lane_put(t->data);
}

void lane_process_deinit(void *reclaim)
{
    reclaim_close(reclaim);
}

/* -EAGAIN: the ring stayed full. A flooder's only sensible answer is to try again, and to say so in its
 * figures. */
int lane_defer_failed(struct team_thread *t, void *p, int r)
{
    while (r == -EAGAIN) {
        t->retries++;
        r = reclaim_defer_free(t->data, p);
    }
    return r < 0 ? run_library_failed(r, "reclaim_defer_free") : 0;
}
