/* SPDX-License-Identifier: MIT */
/* A client of the test's own daemon, with one lane: what tests of allocating and freeing begin with. */
#pragma once

#include <sched.h>

#include "fake-daemon.h"

struct fixture {
    struct fake *f;
    struct reclaim *r;
    struct reclaim_lane *l;
    struct abi_lane *shared;
};

static int setup_flags(void **state, unsigned flags, bool fence)
{
    struct fixture *x = calloc(1, sizeof(*x));

    x->f = fake_start();
    x->f->domain->readers_must_fence = fence;
    assert_int_equal(fake_open_flags(x->f, flags, &x->r), 0);
    assert_int_equal(reclaim_lane_get(x->r, &x->l), 0);
    x->shared = fake_lane(x->f, 0);
    *state = x;
    return 0;
}

static int setup(void **state)
{
    return setup_flags(state, 0, false);
}

static inline int setup_fenced(void **state)
{
    return setup_flags(state, 0, true);
}

static inline int setup_read_only(void **state)
{
    return setup_flags(state, RECLAIM_READ_ONLY, false);
}

static int teardown(void **state)
{
    struct fixture *x = *state;

    reclaim_close(x->r);
    fake_free(x->f);
    free(x);
    return 0;
}

/* The address of a granule of a block. */
static inline void *at(uint32_t block, unsigned granule)
{
    return (char *)FAKE_BASE + (uint64_t)block * ABI_BLOCK_BYTES + granule * ABI_GRANULE_BYTES;
}

/* The daemon's word of a wait that is under way, by a thread that cannot tell us. */
static inline void until_waiting(const uint32_t *waiting)
{
    while (!load_acquire(waiting))
        sched_yield();
}
