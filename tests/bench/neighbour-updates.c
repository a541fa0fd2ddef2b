/* SPDX-License-Identifier: MIT */
/* The neighbour that updates the measured arena: so many deferred frees each millisecond, however busy the
 * machine is. */
#include <errno.h>

#include "clock.h"
#include "neighbour.h"
#include "run.h"

enum {
    TICK_NS = 1000000,
    OBJECT_BYTES = 32,
};

static int update(struct reclaim_lane *lane, uint64_t n)
{
    for (; n > 0; n--) {
        void *p = reclaim_alloc(lane, OBJECT_BYTES);
        int r = p ? reclaim_defer_free(lane, p) : run_library_failed(-errno, "reclaim_alloc");

        while (r == -EAGAIN) /* the daemon is behind: so is the tick */
            r = reclaim_defer_free(lane, p);
        if (r < 0)
            return run_library_failed(r, "reclaim_defer_free");
    }
    return 0;
}

/* By the clock: a tick that comes late is made good. */
int neighbour_updates_main(const struct bench_run *run, struct neighbour_shared *s)
{
    struct reclaim_lane *lane;
    struct reclaim *reclaim;
    uint64_t tick;
    int r = run_open_arena(run, 0, &reclaim);

    if (r < 0)
        return r;
    r = reclaim_lane_get(reclaim, &lane);
    if (r < 0)
        return run_library_failed(r, "reclaim_lane_get");
    neighbour_is_ready(s);
    for (tick = clock_now_ns(); r >= 0 && neighbour_goes_on(s); tick += TICK_NS) {
        r = update(lane, run->options->n_updates);
        clock_sleep_until_ns(tick + TICK_NS);
    }
    reclaim_close(reclaim);
    return r;
}
