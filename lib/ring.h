/* SPDX-License-Identifier: MIT */
/* The inline parts of the fast paths: an object's granule, and the bell. */
#ifndef RECLAIM_RING_H
#define RECLAIM_RING_H

#include "client.h"

#include "basic/ordering.h"

/*
 * How many granules p lies above the first that can be an object's. Turned right by four bits, so that one comparison
 * with the number of granules refuses what lies outside and what is not aligned.
 */
static inline uint64_t granule_of(const struct lane *l, const void *p)
{
    uint64_t distance = (uintptr_t)p - l->first;

    return distance >> 4 | distance << 60;
}

static inline uint64_t granule_block(uint64_t granule)
{
    return (granule >> 5) + ABI_FIRST_BLOCK;
}

/* After every record, bit or low magazine. See B1 in wait.c. */
static inline void lane_ring_ordered(struct lane *l, bool fence)
{
    uint32_t want;

    if (fence)
        full_fence(); /* B1: membarrier does not reach this lane; pairs with arena_sleep() */
    else
        compiler_fence(); /* B1: the daemon's membarrier makes it a full fence; pairs with arena_sleep() */
    want = load_relaxed(&l->shared->want); /* stale: the daemon has not got to its look at this lane yet */
    if (unlikely(want != l->bell))
        lane_ring_new(l, want);
}

static inline void lane_ring(struct lane *l)
{
    lane_ring_ordered(l, l->reader.fence);
}

#endif
