/* SPDX-License-Identifier: MIT */
/*
 * Deferred frees that never wait: into the ring while it has room, else threaded through the objects
 * themselves.
 *
 * Each object carries the link to the one that was chained before it, and its own number. The daemon begins
 * at chain_head, goes from number to number down, and stops above the last number that it took before. So it
 * needs no room of ours, and no word here is ever written by both.
 *
 * Guarantees (spin: tests/model/chain.pml)
 *  C1 Every accepted free is seen by the daemon once: chain_count says that there is something, and whoever
 *     sees that number sees a chain_head at least as new, all heads behind it, and what the caller did
 *     before.
 *  C2 A head is written before chain_head leads to it, and never again while the daemon may read it: the
 *     object is the daemon's from then on.
 *  C3 Numbers are consecutive, so a walk ends by counting. The object it ends above may be long freed, in
 *     use again or on the chain once more: its number tells nothing, and it is not looked at.
 *  C4 The call never waits and makes no system call but a write to the eventfd: not for a collect, not for a
 *     grace period, not when the pending limit is reached.
 *  C5 A daemon that dozes is told once each time that the ring overflows, and of floods and extents as of
 *     records.
 *
 * Together          defer_free_head of this lane   of another lane   collect   bury
 * defer_free_head   no: one thread                 yes               yes       no: the thread is gone
 *
 * Progress: wait-free, O(1).
 */
#include "handle.h"

#include "basic/ordering.h"
#include "basic/testpoint.h"
#include "ring.h"

#define HEAD_GRANULES_MAX 0xffffffu /* what abi_chain_link() has bits for */
#define FIRST_GRANULE (ARENA_FIRST_BYTES / ABI_GRANULE_BYTES)

assert_cc(sizeof(struct reclaim_head) == sizeof(struct abi_chain_head));
assert_cc(sizeof(struct reclaim_head) == ABI_GRANULE_BYTES);
assert_cc(offsetof(struct reclaim_head, next) == offsetof(struct abi_chain_head, next));
assert_cc(offsetof(struct reclaim_head, seq) == offsetof(struct abi_chain_head, seq));

/* Room for one more record. */
static inline bool ring_has_room(struct lane *l)
{
    if (likely(!ring_is_full(l)))
        return true;
    l->tail = load_acquire(&l->shared->tail); /* D3 in defer.c; pairs with lane_collect() */
    return !ring_is_full(l);
}

/* C5. Whatever brings no news is an ordinary bell. */
static int chain_ring(struct lane *l, uint32_t block)
{
    bool news = l->overflow_head != l->head; /* the ring has had room since it last overflowed */

    l->overflow_head = l->head;
    l->queued++;
    /* Relaxed: parameters, whose age does not matter. */
    if (news || l->queued >= load_relaxed(&l->domain->flood_objects) ||
        block >= load_relaxed(&l->domain->extent_block))
        return defer_flood(l);
    return defer_ring(l);
}

/* The steps of C1 to C3 in their order. */
static __attribute__((noinline)) int chain_push(struct lane *l, uint64_t granule, uint64_t head_granules,
                                                struct reclaim_head *head)
{
    struct abi_lane *shared = l->shared;

    if (unlikely(load_relaxed(&shared->evicted))) /* as in defer_wait_room() */
        return -ESHUTDOWN;
    /* Relaxed: published by chain_head. Atomic, as a hostile neighbour may have led the daemon here. */
    store_relaxed(&head->next, l->chain_link);
    store_relaxed(&head->seq, l->chain_count + 1);
    store_relaxed(&head->reserved, 0u);
    RECLAIM_TEST_POINT("chain-link");
    l->chain_link = abi_chain_link(FIRST_GRANULE + granule, head_granules);
    l->chain_count++;
    /* C2: the head, and what the caller unlinked, before the link; pairs with lane_chain_collect() */
    store_release(&shared->chain_head, l->chain_link);
    RECLAIM_TEST_POINT("chain-head");
    /* C1: a number is never ahead of the link that leads to its object; pairs with lane_chain_collect() */
    store_release(&shared->chain_count, l->chain_count);
    RECLAIM_TEST_POINT("chain-count");
    return chain_ring(l, (uint32_t)granule_block(granule));
}

/*
 * The head is checked also when the ring has room, so that a wrong one shows at once. Whether it lies in the
 * object only the daemon knows: it looks at an object's size before it looks at the head.
 */
int reclaim_defer_free_head(struct reclaim_lane *lane, void *p, struct reclaim_head *head_in_p)
{
    struct lane *l = lane_of(lane);
    uint64_t granule, head_granule, word, open;

    if (unlikely(!l))
        return -EINVAL;
    granule = granule_of(l, p);
    head_granule = granule_of(l, head_in_p);
    word = abi_word((uint32_t)granule_block(granule), 1u << (granule & 31));
    open = l->front.open;
    if (unlikely(granule >= l->n_granules)) /* NULL, stale and read-only lanes too */
        return reclaim_defer_slow(lane, p);
    if (unlikely(head_granule >= l->n_granules || head_granule - granule > HEAD_GRANULES_MAX))
        return -EINVAL; /* below p it wraps */
    RECLAIM_SANITIZER_RELEASE(lane);
    if (abi_word_block(open) == abi_word_block(word) && !(abi_word_mask(open) & abi_word_mask(word)))
        return defer_join(l, word);
    if (likely(ring_has_room(l))) /* to the end: C4, no wait for what the daemon would rather have */
        return unlikely(load_relaxed(&l->shared->evicted)) ? -ESHUTDOWN : defer_put(l, word);
    return chain_push(l, granule, head_granule - granule, head_in_p);
}
