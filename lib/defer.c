/* SPDX-License-Identifier: MIT */
/*
 * Deferred frees: into the lane's ring, from which the daemon collects them.
 *
 * Guarantees (spin: tests/model/lane.pml)
 *  D1 Every accepted free is seen by the daemon once: each bit is a store of its own to the open record, or a
 *     new record that the head covers; a bit that is already there closes the record.
 *  D2 What the caller did before the call, above all its unlinking of p, is visible to whoever sees the bit.
 *  D3 A record that the daemon has not read is never overwritten: the ring is full first.
 *  D4 The call waits only for a collect, never for a grace period, unless the client's pending limit is
 *     reached; then not in a read section.
 *
 * Together   defer of this lane   of another lane   collect   bury
 * defer      no: one thread       yes               yes       no: the thread is gone
 *
 * Progress: wait-free while the ring has room, without a read-modify-write or a system call; else it sleeps.
 */
#include "handle.h"

#include "basic/ordering.h"
#include "basic/testpoint.h"
#include "ring.h"

#define RING_MASK (ABI_RING_RECORDS - 1)
#define ROOM_TIMEOUT_NS (10 * 1000000000ull)

/* block: of the record to come. In a section: whoever may be waited for by others fills its ring to the end first. */
static bool room_is_there(struct lane *l, unsigned block)
{
    /* D3: the daemon has read what is below; pairs with lane_collect() */
    l->tail = load_acquire(&l->shared->tail);
    if (!thread_in_section())
        return !ring_is_filled(l, block);
    return !ring_is_full(l) || load_relaxed(&l->shared->over_limit); /* stale: one more turn */
}

/* D4 */
static int defer_wait_room(struct lane *l, uint32_t block)
{
    int r;

    if (load_relaxed(&l->shared->evicted)) /* one record late is harmless */
        return -ESHUTDOWN;
    if (room_is_there(l, block) && !ring_is_full(l))
        return 0;
    r = lane_wait(l, LANE_WAITS_WAKE, room_is_there, block, clock_ns() + ROOM_TIMEOUT_NS);
    if (r < 0)
        return r == -ETIMEDOUT ? -EAGAIN : r;
    return ring_is_full(l) ? -EDEADLK : 0;
}

/* Objects in a mask. Mostly one, and not every machine that we build for has an instruction for more. */
static inline uint32_t mask_count(uint32_t mask)
{
    if (!(mask & (mask - 1)))
        return mask != 0;
    mask -= mask >> 1 & 0x55555555u;
    mask = (mask & 0x33333333u) + (mask >> 2 & 0x33333333u);
    return ((mask + (mask >> 4)) & 0x0f0f0f0fu) * 0x01010101u >> 24;
}

/*
 * Below, each function ends in a call of the next or in 0: the usual ways keep nothing on the stack.
 * A daemon that dozes learns of a flood and of extents at once.
 */
__attribute__((noinline, cold)) int defer_flood(struct lane *l)
{
    l->queued = 0;
    lane_ring_dozing(l);
    return defer_ring(l);
}

static inline int ring_put(struct lane *l, uint64_t word)
{
    struct abi_lane *shared = l->shared;
    uint32_t head = l->head, closed = abi_word_mask(l->front.open);

    store_relaxed(&shared->ring[head & RING_MASK], word); /* published by head */
    RECLAIM_TEST_POINT("defer-record");
    l->front.open = word;
    l->front.record = &shared->ring[head & RING_MASK];
    l->head = head + 1;
    store_release(&shared->head, head + 1); /* D1, D2; pairs with lane_collect() */
    RECLAIM_TEST_POINT("defer-head");
    l->queued += mask_count(closed);
    /* Relaxed: parameters, whose age does not matter. */
    if (unlikely(l->queued >= load_relaxed(&l->domain->flood_objects) ||
                 abi_word_block(word) >= load_relaxed(&l->domain->extent_block)))
        return defer_flood(l);
    return defer_ring(l);
}

/* Closes the open record and begins another, for which there is room: never waits. */
__attribute__((noinline)) int defer_put(struct lane *l, uint64_t word)
{
    return ring_put(l, word);
}

/* The ring looks filled, or the client was evicted. */
static __attribute__((noinline, cold)) int defer_append_later(struct lane *l, uint64_t word)
{
    int r = defer_wait_room(l, abi_word_block(word));

    return r < 0 ? r : defer_put(l, word);
}

/* The same, once there is room. */
__attribute__((noinline)) int defer_append(struct lane *l, uint64_t word)
{
    /* as in defer_wait_room() */
    if (unlikely(ring_is_filled(l, abi_word_block(word)) || load_relaxed(&l->shared->evicted)))
        return defer_append_later(l, word);
    return ring_put(l, word);
}

/* Saying no, or nothing. */
static __attribute__((noinline, cold)) int defer_other(struct lane *l, const void *p)
{
    if (lane_is_stale(l))
        return -ESTALE;
    if (!p)
        return l->r->read_only ? 0 : defer_ring(l);
    return l->r->read_only ? -EROFS : -EINVAL;
}

/* What reclaim_defer_free() does not do by itself. NULL: rings. */
int reclaim_defer_slow(struct reclaim_lane *lane, void *p)
{
    struct lane *l = lane_of(lane);
    uint64_t granule = granule_of(l, p), word = granule_block(granule) << 32 | 1ull << (granule & 31),
             open = l->front.open;

    if (unlikely(granule >= l->n_granules)) /* stale and read-only lanes too */
        return defer_other(l, p);
    if (abi_word_block(open) != abi_word_block(word) || (abi_word_mask(open) & abi_word_mask(word)))
        return defer_append(l, word);
    return defer_join(l, word); /* a lane that fences */
}

int reclaim_defer_free(struct reclaim_lane *l, void *p)
{
    int r = reclaim_defer_quick_(l, p);

    RECLAIM_TEST_POINT("defer-done");
    return r;
}
