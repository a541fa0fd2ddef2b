/* SPDX-License-Identifier: MIT */
/*
 * Allocation from the lane's magazines, and giving back what was never published.
 *
 * Guarantees (spin: tests/model/mag.pml)
 *  A1 A word of a magazine is copied to `cur` before the tail passes it, so that at every instant each object
 *     that is not handed out stands in the magazine or in `cur`: a killed thread loses only what it held
 *     privately.
 *  A2 Its bit leaves the shared words before an object is used.
 *  A3 The words that the daemon put there, and all that former owners did to that memory, are visible to the
 *     new one.
 *
 * Together       alloc of this lane   of another lane   refill   bury
 * alloc, free    no: one thread       yes               yes      no: the thread is gone
 *
 * Progress: wait-free while the magazine has something; else it sleeps until the daemon has answered.
 */
#include "handle.h"

#include "basic/ordering.h"
#include "basic/testpoint.h"
#include "ring.h"

#define MAGAZINE_MASK (ABI_MAGAZINE_WORDS - 1)
/* an answer that leaves the magazine empty is not ours to explain, but not to loop on either */
#define ASK_ATTEMPTS 3

static inline void *object_of(const struct lane *l, uint64_t word)
{
    uintptr_t base = (uintptr_t)l->front.first - ARENA_FIRST_BYTES;

    return (void *)(base + (uintptr_t)abi_word_block(word) * ABI_BLOCK_BYTES +
                    (unsigned)__builtin_ctzll(word) * ABI_GRANULE_BYTES);
}

/* The magazine gets low: tell the daemon once for each time that it was filled. */
static void magazine_check_low(struct lane *l, unsigned class_index, uint32_t head, uint32_t left)
{
    struct lane_class *class = &l->classes[class_index];

    class->high = MAX(class->high, left);
    if (left > MAX(class->high / 4, 1u) || class->rang_for == head)
        return;
    class->rang_for = head;
    class->high = 0;
    lane_ring(l);
    lane_ring_dozing(l);
}

/* The next word's first object; NULL: the magazine is empty. */
static void *magazine_next(struct lane *l, unsigned class_index)
{
    struct abi_take *take = &l->shared->take[class_index];
    uint32_t tail = take->tail, head;
    uint64_t word;

    head = load_acquire(&l->shared->magazine_head[class_index]); /* A3; pairs with lane_refill() */
    if (head == tail)
        return NULL;
    SANITIZER_ACQUIRE(l);
    word = load_relaxed(&l->shared->magazine[class_index][tail & MAGAZINE_MASK]); /* ordered by head */
    if (!abi_word_mask(word))
        return NULL;                     /* no word of a sound daemon's; the caller asks, and then gives up */
    if (class_index != ABI_CLASS_EXTENT) /* extents are whole words: none is put back into `cur` */
        l->classes[class_index].origin = word;
    l->front.last = class_index;
    store_relaxed(&take->cur, word & (word - 1)); /* A2: its first bit is handed out below */
    RECLAIM_TEST_POINT("alloc-cur");
    /* A1; the word is read: it may be overwritten; pairs with lane_magazine_room() */
    store_release(&take->tail, tail + 1);
    RECLAIM_TEST_POINT("alloc-tail");
    if (class_index != ABI_CLASS_EXTENT) /* asked for, never filled up by itself */
        magazine_check_low(l, class_index, head, head - tail - 1);
    return object_of(l, word);
}

static bool answer_is_there(struct lane *l, unsigned class_index)
{
    /* Acquire: what was put into the magazine before the answer; pairs with lane_answer(). */
    return load_acquire(&l->shared->answer) >> 48 == l->ask_sequence;
}

static bool memory_is_there(struct lane *l, unsigned class_index)
{
    /* A3 */
    return load_acquire(&l->shared->magazine_head[class_index]) != l->shared->take[class_index].tail ||
           answer_is_there(l, class_index);
}

/* One question and its answer: 0 or negative errno. An extent is made to measure, so only the answer itself
   will do. */
static int magazine_ask(struct lane *l, unsigned class_index, uint32_t pages)
{
    unsigned flags = thread_in_section() ? ABI_ASK_IN_SECTION : 0;
    int r;

    l->ask_sequence++;
    /* pairs with lane_ask() */
    store_release(&l->shared->ask, abi_ask(l->ask_sequence, flags, class_index, pages));
    RECLAIM_TEST_POINT("alloc-ask");
    r = lane_wait(l, LANE_WAITS_WAKE, pages ? answer_is_there : memory_is_there, class_index, FOREVER_NS);
    if (r < 0)
        return r;
    return answer_is_there(l, class_index) ? -(int)(load_relaxed(&l->shared->answer) & 0xffff) : 0;
}

static void *alloc_failed(int error)
{
    errno = -error;
    return NULL;
}

static void *alloc_asking(struct lane *l, unsigned class_index, uint32_t pages)
{
    for (int i = 0; i < ASK_ATTEMPTS; i++) {
        int r = magazine_ask(l, class_index, pages);
        void *p = r == 0 || !pages ? magazine_next(l, class_index) : NULL;

        if (p)
            return p;
        if (r < 0)
            return alloc_failed(r);
    }
    return alloc_failed(-ENOMEM);
}

/* `cur` is used up. */
static void *alloc_next(struct lane *l, unsigned class_index)
{
    void *p = magazine_next(l, class_index);

    return p ? p : alloc_asking(l, class_index, 0);
}

/* The next extent of the magazine, or one that could not be given back; NULL: there is none. */
static void *extent_next(struct lane *l)
{
    struct abi_take *take = &l->shared->take[ABI_CLASS_EXTENT];
    uint64_t cur = load_relaxed(&take->cur); /* this thread wrote it */

    if (!abi_word_mask(cur))
        return magazine_next(l, ABI_CLASS_EXTENT);
    store_relaxed(&take->cur, 0);
    compiler_fence(); /* A2; pairs with lane_bury() */
    return object_of(l, cur);
}

/*
 * The extents left in the magazine go back, as any object does. Where that fails, the one in hand is put into
 * `cur`, as reclaim_free() would: it is not handed out.
 */
static int extents_give_back(struct lane *l)
{
    void *left;

    while ((left = extent_next(l))) {
        int r = reclaim_defer_slow(&l->front, left);

        if (r < 0) {
            uint32_t block = (uint32_t)granule_block(granule_of(l, left));

            store_relaxed(&l->shared->take[ABI_CLASS_EXTENT].cur, abi_word(block, 1));
            return r;
        }
    }
    return 0;
}

/*
 * An extent for as many pages as asked. The daemon answers with several to who asks for the same again and again
 * (and one that is killed between filling and answering leaves its successor to answer once more), so there may be
 * some of the last question's size. For another size they are freed first: the magazine never holds two sizes.
 */
static void *alloc_extent(struct lane *l, size_t bytes)
{
    uint32_t pages = (uint32_t)DIV_ROUND_UP(bytes, (size_t)ABI_PAGE_BYTES);
    void *p;
    int r;

    if (pages != l->extent_pages) {
        r = extents_give_back(l);
        if (r < 0) /* they are still ours, so there is no room for others */
            return alloc_failed(r == -EAGAIN || r == -EDEADLK ? -ENOMEM : r);
        l->extent_pages = pages;
    }
    p = extent_next(l);
    return p ? p : alloc_asking(l, ABI_CLASS_EXTENT, pages);
}

/* What reclaim_alloc() does not do by itself: the next word, extents, saying no. */
void *reclaim_alloc_slow(struct reclaim_lane *lane, size_t bytes)
{
    struct lane *l = lane_of(lane);

    if (lane_is_stale(l))
        return alloc_failed(-ESTALE);
    if (l->r->read_only)
        return alloc_failed(-EROFS);
    if (bytes == 0 || bytes > l->r->arena_bytes)
        return alloc_failed(-EINVAL);
    if (load_relaxed(&l->shared->evicted)) /* one word of objects late is harmless */
        return alloc_failed(-ESHUTDOWN);
    return bytes <= SMALL_BYTES_MAX ? alloc_next(l, abi_class_of(bytes)) : alloc_extent(l, bytes);
}

void *reclaim_alloc(struct reclaim_lane *l, size_t bytes)
{
    void *p = reclaim_alloc_quick_(l, bytes); /* A2 */

    RECLAIM_TEST_POINT("alloc-bit");
    return p;
}

/*
 * Back into `cur`, when p came from the word that `cur` did (the usual case of a failed compare-and-swap);
 * all else takes the way of every free.
 */
int reclaim_free(struct reclaim_lane *lane, void *p)
{
    struct lane *l = lane_of(lane);
    uint64_t granule, bit, origin, cur;

    if (!l)
        return -EINVAL;
    granule = granule_of(l, p);
    bit = 1ull << (granule & 31);
    if (granule >= l->front.n_granules)
        return reclaim_defer_free(lane, p); /* which says what is wrong, or does it fenced */
    origin = l->classes[l->front.last].origin;
    if (abi_word_block(origin) != granule_block(granule) || !(origin & bit))
        return reclaim_defer_free(lane, p);
    cur = load_relaxed(&l->shared->take[l->front.last].cur); /* this thread wrote it */
    if (cur & bit)
        return -EINVAL;
    compiler_fence(); /* after the caller's last use, should we be killed here; pairs with lane_bury() */
    store_relaxed(&l->shared->take[l->front.last].cur, cur | bit);
    RECLAIM_TEST_POINT("free-bit");
    return 0;
}
