/* SPDX-License-Identifier: MIT */
/*
 * A heap, pending pages, an arena that objects can be written to, and lanes with an honest client's hand on
 * their other side. Everything that a client or a successor would see is shared memory, so a test may fork,
 * be killed, and look at what was left. For the tests of lane, chain, pending and batch; they link with
 * --wrap=malloc.
 */
#ifndef RECLAIMD_TESTS_LANE_FIXTURE_H
#define RECLAIMD_TESTS_LANE_FIXTURE_H

#include "heap-fixture.h"

#include "engine/lane.h"

#define N_LANES 2
#define FIXTURE_ARENA_BYTES (16 * MIB)
#define RING_OF(index) ((index) & (ABI_RING_RECORDS - 1))
#define MAGAZINE_OF(index) ((index) & (ABI_MAGAZINE_WORDS - 1))

/* So many more calls of malloc() succeed; < 0: all. */
static int malloc_left = -1;

void *__real_malloc(size_t bytes);
void *__wrap_malloc(size_t bytes);

void *__wrap_malloc(size_t bytes)
{
    if (malloc_left == 0)
        return NULL;
    if (malloc_left > 0)
        malloc_left--;
    return __real_malloc(bytes);
}

struct lane_fixture {
    struct fixture f;
    struct pending pending;
    uint64_t started; /* what cookies are taken from */
    char *arena;
    struct abi_lane *shared; /* N_LANES of them */
    struct abi_slot slots[N_LANES];
    struct account accounts[N_LANES];
    struct lane lanes[N_LANES];
};

static inline uint64_t fixture_cookie(void *userdata)
{
    return ((struct lane_fixture *)userdata)->started + 1;
}

static inline void *fixture_anonymous(uint64_t bytes)
{
    void *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    assert_ptr_not_equal(map, MAP_FAILED);
    return map;
}

static inline void fixture_pending_init(struct lane_fixture *l)
{
    pending_init(&l->pending, &(struct pending_ops){.take_cookie = fixture_cookie, .userdata = l});
}

static inline void lane_fixture_init(struct lane_fixture *l)
{
    memset(l, 0, sizeof(*l));
    fixture_init(&l->f, FIXTURE_ARENA_BYTES);
    l->arena = fixture_anonymous(FIXTURE_ARENA_BYTES);
    l->shared = fixture_anonymous(N_LANES * sizeof(*l->shared));
    fixture_pending_init(l);
    for (uint32_t i = 0; i < N_LANES; i++)
        lane_init(&l->lanes[i], &l->shared[i], &l->slots[i], state_lane(l->f.state, i), i, &l->accounts[i]);
}

static inline void lane_fixture_deinit(struct lane_fixture *l)
{
    malloc_left = -1;
    pending_deinit(&l->pending);
    fixture_deinit(&l->f);
    assert_int_equal(munmap(l->arena, FIXTURE_ARENA_BYTES), 0);
    assert_int_equal(munmap(l->shared, N_LANES * sizeof(*l->shared)), 0);
}

/* What a new daemon does with what a killed one left: all that is private is made anew, lanes go on. */
static inline void lane_fixture_succeed(struct lane_fixture *l)
{
    pending_deinit(&l->pending);
    l->f.heap = heap_free(l->f.heap);
    assert_int_equal(fixture_start(&l->f), 0);
    fixture_pending_init(l);
    for (uint32_t i = 0; i < N_LANES; i++) {
        l->accounts[i] = (struct account){0};
        l->lanes[i] = (struct lane){.shared = &l->shared[i],
                                    .slot = &l->slots[i],
                                    .state = state_lane(l->f.state, i),
                                    .account = &l->accounts[i],
                                    .index = i};
    }
    if (l->f.state->intent)
        assert_int_equal(lane_intent_lane(l->f.state->intent), 0);
    lane_recover(&l->lanes[0], l->f.state, l->f.heap);
}

/* A grace period, and whatever waited for it is freed. */
static inline void lane_fixture_grace(struct lane_fixture *l)
{
    pending_close(&l->pending);
    l->started++;
    (void)pending_expire(&l->pending, l->f.heap, &l->pending.closed, l->started, UINT32_MAX, NULL);
    if (l->pending.starved)
        (void)pending_sweep(&l->pending, l->f.heap, NULL);
}

/* All pending bits, whoever took them: what a successor puts into its first batch. */
static inline void lane_fixture_expire_everything(struct lane_fixture *l)
{
    uint64_t word, cursor = 0;

    lane_fixture_grace(l);
    while (heap_pending(l->f.heap, &word, 1, &cursor) > 0)
        heap_expire(l->f.heap, word);
}

/* ---- An honest client ---- */

static inline void client_put(struct lane_fixture *l, unsigned lane, uint64_t record)
{
    struct abi_lane *s = &l->shared[lane];

    s->ring[RING_OF(s->head)] = record;
    s->head++;
}

static inline void client_defer(struct lane_fixture *l, unsigned lane, uint32_t block, uint32_t bit)
{
    struct abi_lane *s = &l->shared[lane];
    uint64_t *open = &s->ring[RING_OF(s->head - 1)];

    if (s->head != s->tail && abi_word_block(*open) == block && !(abi_word_mask(*open) & bit))
        *open |= bit;
    else
        client_put(l, lane, abi_word(block, bit));
}

/* One object of a class, as a one-bit word; 0: the magazine is empty. */
static inline uint64_t client_alloc(struct lane_fixture *l, unsigned lane, unsigned class_index)
{
    struct abi_lane *s = &l->shared[lane];
    struct abi_take *take = &s->take[class_index];
    uint32_t mask;

    if (!abi_word_mask(take->cur)) {
        if (take->tail == s->magazine_head[class_index])
            return 0;
        take->cur = s->magazine[class_index][MAGAZINE_OF(take->tail)];
        take->tail++;
    }
    mask = abi_word_mask(take->cur) & -abi_word_mask(take->cur);
    take->cur &= ~(uint64_t)mask;
    return abi_word(abi_word_block(take->cur), mask);
}

/* ---- The daemon's hand ---- */

static inline struct lane_look lane_fixture_collect(struct lane_fixture *l, unsigned lane)
{
    struct lane_look look;

    assert_int_equal(lane_collect(&l->lanes[lane], l->f.heap, &l->pending, UINT32_MAX, &look), 0);
    return look;
}

static inline unsigned lane_fixture_refill(struct lane_fixture *l, unsigned lane, unsigned class_index,
                                           unsigned n)
{
    uint64_t words[ABI_MAGAZINE_WORDS];
    int error;

    n = heap_reserve(l->f.heap, class_index, words, n, UINT64_MAX, &error);
    lane_refill(&l->lanes[lane], l->f.state, l->f.heap, class_index, words, n);
    return n;
}

static inline void fixture_bury(struct lane_fixture *l, unsigned lane)
{
    assert_int_equal(lane_bury(&l->lanes[lane], l->f.heap, &l->pending), 0);
    assert_int_equal(l->lanes[lane].state->returned, 1);
}

static inline bool word_is_pending(const struct lane_fixture *l, uint64_t word)
{
    uint32_t mask = abi_word_mask(word);

    return ((uint32_t)(state_truth(l->f.state)[abi_word_block(word)] >> 32) & mask) == mask;
}

static inline bool word_is_out(const struct lane_fixture *l, uint64_t word)
{
    uint32_t mask = abi_word_mask(word);

    return ((uint32_t)state_truth(l->f.state)[abi_word_block(word)] & mask) == mask;
}

#endif
