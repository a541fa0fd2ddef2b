/* SPDX-License-Identifier: MIT */
/* The neighbour that stalls: a read section in an arena of its own, with a grace period of that arena under way
 * that can only wait for it. */
#include <errno.h>
#include <stdio.h>

#include "basic/ordering.h"
#include "clock.h"
#include "futex.h"
#include "neighbour.h"
#include "run.h"
#include "words.h"

enum {
    ARENA_BYTES = 1 << 20,
    CHECK_MS = 100,
    STARTS_MS = 10000, /* for a grace period to begin */
};

/* In the section: asks for a grace period, which is stalled once it has begun. */
static int stall_begin(struct reclaim *reclaim, struct reclaim_lane *lane, uint64_t *ret_cookie)
{
    struct reclaim_stats stats = {.size = sizeof(stats)};
    int r = reclaim_read_lock(lane);

    if (r >= 0)
        r = reclaim_gp_start(lane, ret_cookie);
    for (unsigned i = 0; r >= 0 && i < STARTS_MS; i++) {
        r = reclaim_stats(reclaim, &stats);
        if (r >= 0 && stats.gp_started >= *ret_cookie)
            return stats.gp_completed < *ret_cookie
                       ? 0
                       : words_set(-EPROTO, "a grace period ended before its reader");
        clock_sleep_ms(1);
    }
    return r < 0 ? run_library_failed(r, "stalling") : words_set(-ETIMEDOUT, "no grace period begins");
}

static int stall_end(struct reclaim_lane *lane, uint64_t cookie)
{
    int r;

    reclaim_read_unlock(lane);
    r = reclaim_gp_wait(lane, cookie, NULL);
    return r < 0 ? run_library_failed(r, "reclaim_gp_wait") : 0;
}

/* Does as it is told until the end; it holds up nothing when it leaves. */
static int obey(struct reclaim *reclaim, struct reclaim_lane *lane, struct neighbour_shared *s)
{
    uint64_t cookie = 0;
    int r = 0;

    while (r >= 0 && neighbour_goes_on(s)) {
        uint32_t want = load_relaxed(&s->want_stall); /* a word alone */

        if (want == s->is_stalled) {
            futex_wait(&s->want_stall, want, CHECK_MS);
            continue;
        }
        r = want ? stall_begin(reclaim, lane, &cookie) : stall_end(lane, cookie);
        store_release(&s->is_stalled, want); /* after it is so; pairs with neighbour_stall() */
        futex_wake(&s->is_stalled, INT32_MAX);
    }
    if (s->is_stalled)
        reclaim_read_unlock(lane);
    return r;
}

int neighbour_stall_main(const struct bench_run *run, struct neighbour_shared *s)
{
    char name[ARENA_NAME_BYTES + 8];
    struct reclaim_lane *lane;
    struct reclaim *reclaim;
    int r;

    (void)snprintf(name, sizeof(name), "%s.stall", run->arena);
    r = run_open_arena_named(run, name, RECLAIM_CREATE | RECLAIM_EXCL | RECLAIM_TRANSIENT, ARENA_BYTES,
                             &reclaim);
    if (r < 0)
        return r;
    r = reclaim_lane_get(reclaim, &lane);
    if (r < 0)
        return run_library_failed(r, "reclaim_lane_get");
    neighbour_is_ready(s);
    r = obey(reclaim, lane, s);
    reclaim_close(reclaim);
    return r;
}
