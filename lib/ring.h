/* SPDX-License-Identifier: MIT */
/* An object's granule, the ring and the bell: what allocating, deferring and chaining share. */
#ifndef RECLAIM_RING_H
#define RECLAIM_RING_H

#include "handle.h"

#include "basic/ordering.h"

/* How many granules p lies above the first that can be an object's; of what is not aligned, more than there
   are. */
static inline uint64_t granule_of(const struct lane *l, const void *p)
{
    uint64_t distance = (uintptr_t)p - l->front.first;

    return distance >> 4 | distance << 60;
}

static inline uint64_t granule_block(uint64_t granule)
{
    return (granule >> 5) + ABI_FIRST_BLOCK;
}

/* What the daemon wants now, read after all that we stored. See B1 in wait.c. */
static inline uint32_t lane_want(const struct abi_lane *shared, bool fence)
{
    if (fence)
        full_fence(); /* B1: membarrier does not reach this lane; pairs with arena_sleep() */
    else
        compiler_fence(); /* B1: the daemon's membarrier makes it a full fence; pairs with arena_sleep() */
    return load_relaxed(&shared->want); /* stale: the daemon has yet to look at this lane */
}

/* After every record, bit or low magazine. */
static inline void lane_ring(struct lane *l)
{
    uint32_t want = lane_want(l->shared, l->front.fence);

    if (want != l->front.bell)
        (void)lane_ring_new(l, want);
}

static inline int defer_ring(struct lane *l)
{
    uint32_t want = lane_want(l->shared, l->front.fence); /* B1 */

    return unlikely(want != l->front.bell) ? lane_ring_new(l, want) : 0;
}

/* No room at all, as far as we have looked. */
static inline bool ring_is_full(const struct lane *l)
{
    return l->head - l->tail >= ABI_RING_RECORDS;
}

#define RING_EXTENTS 64u    /* each may be large, so few wait for a collect */
#define RING_OVER_LIMIT 16u /* client-pending-max is reached: what the ring holds comes on top of it */

/*
 * How many records it may hold, of which the next is for that block: the daemon knows how many lanes there are, and
 * what is large, and who has more pending than he may. Hints, so relaxed.
 */
static inline uint32_t ring_limit(const struct lane *l, uint32_t block)
{
    uint32_t limit = MIN(load_relaxed(&l->domain->ring_records), ABI_RING_RECORDS);

    if (unlikely(block >= load_relaxed(&l->domain->extent_block)))
        limit = MIN(limit, RING_EXTENTS);
    if (unlikely(load_relaxed(&l->shared->over_limit)))
        limit = MIN(limit, RING_OVER_LIMIT);
    return limit;
}

static inline bool ring_is_filled(const struct lane *l, uint32_t block)
{
    return l->head - l->tail >= ring_limit(l, block);
}

/* A bit of the open record, which it has not. See D1 in defer.c. */
static inline int defer_join(struct lane *l, uint64_t word)
{
    word |= l->front.open;
    l->front.open = word;
    store_release(l->front.record, word); /* D1, D2; pairs with lane_collect() */
    return defer_ring(l);
}

/*
 * ThreadSanitizer sees one process only, and what orders one owner's use of memory before the next one's goes
 * through the daemon. So what a thread did before unlock or free, another has seen when it gets memory or a
 * grace period.
 */
#ifdef RECLAIM_SANITIZE_THREAD
void __tsan_acquire(void *address);
#define SANITIZER_ACQUIRE(lane) __tsan_acquire((void *)(uintptr_t)(lane)->front.started)
#else
#define SANITIZER_ACQUIRE(lane) ((void)(lane))
#endif

#endif
