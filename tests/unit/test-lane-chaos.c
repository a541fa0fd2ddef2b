/* SPDX-License-Identifier: MIT */
/* The daemon's side of a lane when things go wrong: a successor after a kill at each named point, a hostile client. */
#include "crash-fixture.h"

#define CLASS_16 0u
#define CLASS_32 1u
#define CLASS_64 3u

/* ---- Killed at a point ---- */

static void scene_collect(struct lane_fixture *l)
{
    struct lane_look look;

    (void)lane_collect(&l->lanes[0], l->f.heap, &l->pending, UINT32_MAX, &look);
}

static void scene_refill(struct lane_fixture *l)
{
    (void)lane_fixture_refill(l, 0, CLASS_64, 5);
}

static void scene_refill_extent(struct lane_fixture *l)
{
    uint64_t word;

    if (heap_extent_reserve(l->f.heap, 3, &word) == 0)
        lane_refill(&l->lanes[0], l->f.state, l->f.heap, ABI_CLASS_EXTENT, &word, 1);
}

static void scene_bury(struct lane_fixture *l)
{
    (void)lane_bury(&l->lanes[0], l->f.heap, &l->pending);
}

/*
 * Some objects with the lane: deferred, in cur, in its magazine, held. Returns how many it holds for itself.
 */
static unsigned crash_prepare(struct lane_fixture *l)
{
    uint64_t extent = fixture_alloc_pages(&l->f, 2), word;

    (void)lane_fixture_refill(l, 0, CLASS_64, 3);
    (void)lane_fixture_refill(l, 1, CLASS_64, 3);
    for (unsigned i = 0; i < 11; i++) {
        word = client_alloc(l, 0, CLASS_64);
        client_defer(l, 0, abi_word_block(word), abi_word_mask(word));
    }
    client_put(l, 0, extent);
    word = client_alloc(l, 0, CLASS_64);
    client_put(l, 0, word);
    (void)client_alloc(l, 0, CLASS_64);
    return 1;
}

static unsigned lane_visible(const struct lane_fixture *l, unsigned lane, unsigned class_index)
{
    const struct abi_lane *s = &l->shared[lane];
    unsigned n = mask_count(abi_word_mask(s->take[class_index].cur));

    for (uint32_t i = s->take[class_index].tail; i != s->magazine_head[class_index]; i++) {
        uint64_t word = s->magazine[class_index][MAGAZINE_OF(i)];

        assert_true(word_is_out(l, word)); /* the client may use it */
        assert_false(word_is_pending(l, word));
        n += mask_count(abi_word_mask(word));
    }
    return n;
}

static unsigned all_visible(const struct lane_fixture *l)
{
    return lane_visible(l, 0, CLASS_64) + lane_visible(l, 0, ABI_CLASS_EXTENT) + lane_visible(l, 1, CLASS_64);
}

/*
 * A successor finds what the killed daemon left, goes on, and in the end exactly those objects are out that
 * somebody can still use: in a magazine, in cur, or held.
 */
static bool crash_at(const char *point, unsigned nth, void (*scene)(struct lane_fixture *l), bool bury)
{
    struct lane_fixture l;
    unsigned n_held;
    bool killed;

    lane_fixture_init(&l);
    n_held = crash_prepare(&l);
    killed = crash_child(&l, point, nth, scene);
    lane_fixture_succeed(&l);
    assert_int_equal(l.f.state->intent, 0);
    assert_audit_clean(&l.f);
    if (bury && !l.lanes[0].state->returned)
        fixture_bury(&l, 0);
    (void)lane_fixture_collect(&l, 0);
    lane_fixture_expire_everything(&l);
    if (bury) {
        assert_int_equal(fixture_figures(&l.f).out_objects, n_held + lane_visible(&l, 1, CLASS_64));
    } else {
        assert_int_equal(fixture_figures(&l.f).out_objects, n_held + all_visible(&l));
        (void)lane_fixture_refill(&l, 0, CLASS_64, 2); /* and goes on as ever */
        assert_int_equal(fixture_figures(&l.f).out_objects, n_held + all_visible(&l));
    }
    assert_audit_clean(&l.f);
    lane_fixture_deinit(&l);
    return killed;
}

/* At each passage of each point. */
static void test_killed_at_points(void **state)
{
    static const struct {
        const char *point;
        void (*scene)(struct lane_fixture *l);
        bool bury;
    } cases[] = {
        {"collect-pending", scene_collect},
        {"collect-cursor", scene_collect},
        {"collect-many", scene_collect},
        {"refill-shadow", scene_refill},
        {"refill-intent", scene_refill},
        {"refill-out", scene_refill},
        {"refill-magazine", scene_refill},
        {"refill-state-head", scene_refill},
        {"refill-intent-clear", scene_refill},
        {"refill-shadow", scene_refill_extent},
        {"refill-intent", scene_refill_extent},
        {"refill-out", scene_refill_extent},
        {"refill-magazine", scene_refill_extent},
        {"refill-state-head", scene_refill_extent},
        {"refill-intent-clear", scene_refill_extent},
        {"bury-taken", scene_bury, true},
        {"bury-returned", scene_bury, true},
    };

    for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
        unsigned n = 1;

        while (crash_at(cases[i].point, n, cases[i].scene, cases[i].bury))
            n++;
        if (n == 1)
            fail_msg("%s is never passed", cases[i].point);
    }
}

/* An intent is a word of ours, but a state segment may be damaged: nothing without sense is acted upon. */
static void test_recover_ignores_nonsense(void **state)
{
    const intent_t intents[] = {
        1ull << 63 | (uint64_t)ABI_CLASSES << 32 | 1ull << 16,
        1ull << 63 | 0xffull << 32 | 1ull << 16,
        1ull << 63 | (uint64_t)(ABI_MAGAZINE_WORDS + 1) << 16,
        0,
    };
    struct lane_fixture l;

    lane_fixture_init(&l);
    for (unsigned i = 0; i < ARRAY_SIZE(intents); i++) {
        l.f.state->intent = intents[i];
        lane_recover(&l.lanes[0], l.f.state, l.f.heap);
        assert_int_equal(l.shared[0].magazine_head[0], 0);
        assert_int_equal(fixture_figures(&l.f).out_objects, 0);
    }
    lane_fixture_deinit(&l);
}

/* ---- A hostile client ---- */

/* Mostly near what makes sense, or nothing ever gets past the first check. */
static uint64_t hostile_word(uint64_t *seed)
{
    switch (fixture_random(seed, 4)) {
    case 0:
        return fixture_random(seed, UINT64_MAX);
    case 1:
        return abi_word((uint32_t)fixture_random(seed, 8 * ABI_BLOCKS_PER_CHUNK),
                        (uint32_t)fixture_random(seed, UINT32_MAX));
    case 2:
        return fixture_random(seed, 4096);
    default:
        return (fixture_random(seed, FIXTURE_ARENA_BYTES / ABI_GRANULE_BYTES) << 24) |
               fixture_random(seed, 4);
    }
}

static void hostile_write(struct lane_fixture *l, uint64_t *seed)
{
    struct abi_lane *s = &l->shared[0];
    uint64_t word = hostile_word(seed);

    switch (fixture_random(seed, 8)) {
    case 0: /* any word of what the client may write: all of it */
        ((uint64_t *)s)[fixture_random(seed, sizeof(*s) / 8)] = word;
        return;
    case 1:
        s->head += (uint32_t)fixture_random(seed, 5);
        return;
    case 2:
        s->take[fixture_random(seed, ABI_CLASSES)] = (struct abi_take){.cur = word, .tail = (uint32_t)word};
        return;
    case 3:
        s->take[CLASS_64].tail =
            l->lanes[0].state->magazine_head[CLASS_64] - (uint32_t)fixture_random(seed, 9);
        return;
    case 4:
        client_put(l, 0, word);
        return;
    case 5:
        ((uint64_t *)l->arena)[fixture_random(seed, FIXTURE_ARENA_BYTES / 8)] = word;
        return;
    case 6:
        s->chain_head = word;
        s->chain_count = (uint32_t)fixture_random(seed, 4);
        return;
    default: /* the lines of the client's and the daemon's words, which it can write too */
        ((uint64_t *)s)[fixture_random(seed, 24)] = word;
    }
}

static void daemon_look(struct lane_fixture *l)
{
    struct lane *lane = &l->lanes[0];
    struct lane_look look;
    unsigned class_index, flags;
    uint32_t pages;
    uint16_t sequence;

    (void)lane_has_records(lane);
    (void)lane_is_low(lane);
    (void)lane_is_dead(lane);
    (void)lane_has_rung(lane);
    lane_rings_anew(lane);
    if (lane_ask(lane, &class_index, &pages, &flags, &sequence)) {
        uint64_t word;

        if (class_index != ABI_CLASS_EXTENT)
            lane_use_class(lane, class_index);
        else if (lane_magazine_room(lane, ABI_CLASS_EXTENT) > 0 &&
                 heap_extent_reserve(l->f.heap, pages, &word) == 0)
            lane_refill(lane, l->f.state, l->f.heap, ABI_CLASS_EXTENT, &word, 1);
        lane_answer(lane, sequence, 0);
    }
    (void)lane_collect(lane, l->f.heap, &l->pending, 100, &look);
    if (lane_has_chain(lane))
        (void)lane_chain_collect(lane, l->f.heap, &l->pending, l->arena, 100, &look);
}

/* Its thread is gone; the lane is given to the next. */
static void lane_dies(struct lane_fixture *l)
{
    if (lane_bury(&l->lanes[0], l->f.heap, &l->pending) < 0)
        return;
    lane_fixture_grace(l);
    lane_init(&l->lanes[0], &l->shared[0], &l->slots[0], l->lanes[0].state, 0, &l->accounts[0]);
    lane_use_class(&l->lanes[0], CLASS_64);
}

static void daemon_step(struct lane_fixture *l, uint64_t *seed)
{
    unsigned pace = 0;
    int error;

    switch (fixture_random(seed, 8)) {
    case 0:
        (void)lane_fill(&l->lanes[0], l->f.state, l->f.heap, 8 * ABI_BLOCK_BYTES, &error, &pace);
        return;
    case 1:
        lane_fixture_grace(l);
        return;
    case 2:
        if (l->lanes[0].quarantined || fixture_random(seed, 64) == 0)
            lane_dies(l);
        return;
    case 3:
        malloc_left = fixture_random(seed, 8) ? -1 : 0;
        return;
    default:
        daemon_look(l);
    }
}

static void test_hostile_client(void **state)
{
    struct lane_fixture l;
    uint64_t seed = 0x5eed1e55;

    lane_fixture_init(&l);
    lane_use_class(&l.lanes[0], CLASS_64);
    (void)lane_fixture_refill(&l, 1, CLASS_16, 64);
    for (unsigned i = 0; i < 100000; i++) {
        hostile_write(&l, &seed);
        daemon_step(&l, &seed);
        if (i % 1000 == 0)
            assert_audit_clean(&l.f);
    }
    lane_fixture_grace(&l);
    assert_audit_clean(&l.f);
    assert_true(l.pending.freed_objects > 10000); /* or nothing was tried */
    assert_int_equal(l.pending.total_objects, 0);
    assert_int_equal(l.accounts[0].pending_objects, 0);
    lane_fixture_deinit(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_killed_at_points),
        cmocka_unit_test(test_recover_ignores_nonsense),
        cmocka_unit_test(test_hostile_client),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
