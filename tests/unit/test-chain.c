/* SPDX-License-Identifier: MIT */
/* The chain of deferred frees through the objects: what is taken, where a walk ends, and what cuts it. */
#include "crash-fixture.h"

#define CLASS_64 3u
#define CLASS_128 7u
#define WORDS_MAX 64u

static uint64_t link_of(uint64_t word, uint64_t head_granules)
{
    return abi_chain_link(word_offset(word) / ABI_GRANULE_BYTES, head_granules);
}

static struct abi_chain_head *head_of(const struct lane_fixture *l, uint64_t link)
{
    return (void *)(l->arena + ((link >> 24) + (link & 0xffffff)) * ABI_GRANULE_BYTES);
}

/* As an honest client: next, seq, head, count. */
static void client_chain(struct lane_fixture *l, uint64_t word, uint64_t head_granules)
{
    struct abi_lane *s = &l->shared[0];
    uint64_t link = link_of(word, head_granules);

    *head_of(l, link) = (struct abi_chain_head){.next = s->chain_head, .seq = s->chain_count + 1};
    s->chain_head = link;
    s->chain_count++;
}

static struct lane_look chain_collect(struct lane_fixture *l, uint32_t max_objects)
{
    struct lane_look look;

    assert_int_equal(
        lane_chain_collect(&l->lanes[0], l->f.heap, &l->pending, l->arena, max_objects, &look), 0);
    return look;
}

/* n objects of a class, handed to the lane's thread. */
static void objects_get(struct lane_fixture *l, unsigned class_index, unsigned n, uint64_t *words)
{
    for (unsigned i = 0; i < n; i++)
        while (!(words[i] = client_alloc(l, 0, class_index)))
            assert_true(lane_fixture_refill(l, 0, class_index, 4) > 0);
}

/* Sequence numbers as after so many objects. */
static void chain_start_at(struct lane_fixture *l, uint32_t count)
{
    l->shared[0].chain_count = l->lanes[0].state->chain_seen = count;
}

/* All are taken, newest first, whatever the number begins with and wherever in the object the head is. */
static void test_chain_takes_all(void **state)
{
    static const uint32_t counts[] = {0, UINT32_MAX - 20, 0x7fffffff - 20};

    for (unsigned c = 0; c < ARRAY_SIZE(counts); c++)
        for (uint64_t head = 0; head < 8; head++) {
            struct lane_fixture l;
            uint64_t words[40], *records;

            lane_fixture_init(&l);
            chain_start_at(&l, counts[c]);
            assert_false(lane_has_chain(&l.lanes[0]));
            objects_get(&l, CLASS_128, ARRAY_SIZE(words), words);
            for (unsigned i = 0; i < ARRAY_SIZE(words); i++)
                client_chain(&l, words[i], head);
            assert_true(lane_has_chain(&l.lanes[0]));
            assert_int_equal(chain_collect(&l, UINT32_MAX).n_objects, ARRAY_SIZE(words));
            assert_false(lane_has_chain(&l.lanes[0]));
            assert_int_equal(l.accounts[0].refused, 0);
            records = l.pending.open[PENDING_SPANS]->records;
            for (unsigned i = 0; i < ARRAY_SIZE(words); i++)
                assert_int_equal(records[i], words[ARRAY_SIZE(words) - 1 - i]);
            assert_audit_clean(&l.f);
            lane_fixture_deinit(&l);
        }
}

/* An extent's head may stand far from its start. */
static void test_chain_of_extents(void **state)
{
    struct lane_fixture l;

    lane_fixture_init(&l);
    client_chain(&l, fixture_alloc_pages(&l.f, 1), 0);
    client_chain(&l, fixture_alloc_pages(&l.f, 40), 40 * ABI_PAGE_BYTES / ABI_GRANULE_BYTES - 1);
    assert_int_equal(chain_collect(&l, UINT32_MAX).n_objects, 2);
    assert_int_equal(l.pending.n_bytes, 41 * ABI_PAGE_BYTES);
    assert_int_equal(l.accounts[0].refused, 0);
    lane_fixture_deinit(&l);
}

/*
 * Between two walks the client puts on more, among it objects that were freed and handed out again: each
 * walk takes what is new, and ends there although the link that follows is to an object that is back on the
 * chain.
 */
static void test_walks_add_up(void **state)
{
    struct lane_fixture l;
    uint64_t words[3], again;

    lane_fixture_init(&l);
    objects_get(&l, CLASS_64, 3, words);
    client_chain(&l, words[0], 0);
    client_chain(&l, words[1], 1);
    assert_int_equal(chain_collect(&l, UINT32_MAX).n_objects, 2);
    lane_fixture_grace(&l);
    for (unsigned round = 0; round < 100; round++) {
        do { /* the very object that was seen last */
            while (!(again = client_alloc(&l, 0, CLASS_64)))
                (void)lane_fixture_refill(&l, 0, CLASS_64, 1024);
            if (again != words[1])
                client_put(&l, 0, again);
            (void)lane_fixture_collect(&l, 0);
        } while (again != words[1]);
        lane_fixture_grace(&l);
        client_chain(&l, words[1], round % 4);
        assert_int_equal(chain_collect(&l, UINT32_MAX).n_objects, 1);
        assert_int_equal(l.accounts[0].refused, 0);
        lane_fixture_grace(&l);
    }
    client_chain(&l, words[2], 0);
    assert_int_equal(chain_collect(&l, UINT32_MAX).n_objects, 1);
    assert_audit_clean(&l.f);
    lane_fixture_deinit(&l);
}

/* Calls take max_objects each; what is chained meanwhile is the next walk's. */
static void test_budget(void **state)
{
    for (uint32_t max = 1; max <= 12; max++) {
        struct lane_fixture l;
        uint64_t words[20];
        unsigned n_taken = 0, n_calls = 0;

        lane_fixture_init(&l);
        objects_get(&l, CLASS_64, ARRAY_SIZE(words), words);
        for (unsigned i = 0; i < 10; i++)
            client_chain(&l, words[i], 2);
        assert_int_equal(chain_collect(&l, 0).n_objects, 0);
        for (unsigned i = 10; lane_has_chain(&l.lanes[0]); n_calls++) {
            unsigned n = chain_collect(&l, max).n_objects;

            assert_in_range(n, 1, max);
            n_taken += n;
            lane_fixture_grace(&l); /* what was taken may be gone before the walk goes on */
            if (i < ARRAY_SIZE(words))
                client_chain(&l, words[i++], 3);
        }
        assert_int_equal(n_taken, ARRAY_SIZE(words));
        assert_true(n_calls >= ARRAY_SIZE(words) / max);
        assert_int_equal(l.accounts[0].refused, 0);
        assert_int_equal(l.lanes[0].state->chain_seen, ARRAY_SIZE(words));
        assert_audit_clean(&l.f);
        lane_fixture_deinit(&l);
    }
}

static void test_starved_walk_goes_on(void **state)
{
    struct lane_fixture l;
    struct lane_look look;
    uint64_t words[WORDS_MAX];

    lane_fixture_init(&l);
    objects_get(&l, CLASS_64, ARRAY_SIZE(words), words);
    for (unsigned i = 0; i < ARRAY_SIZE(words); i++)
        client_chain(&l, words[i], 0);
    malloc_left = 0;
    assert_int_equal(lane_chain_collect(&l.lanes[0], l.f.heap, &l.pending, l.arena, UINT32_MAX, &look),
                     -ENOBUFS);
    assert_int_equal(look.n_objects, 1); /* the first found no page, but is pending */
    malloc_left = -1;
    assert_int_equal(lane_chain_collect(&l.lanes[0], l.f.heap, &l.pending, l.arena, UINT32_MAX, &look),
                     -ENOBUFS);
    assert_int_equal(look.n_objects, 0);
    lane_fixture_grace(&l);
    assert_int_equal(chain_collect(&l, UINT32_MAX).n_objects, ARRAY_SIZE(words) - 1);
    lane_fixture_grace(&l);
    assert_int_equal(l.pending.freed_objects, ARRAY_SIZE(words));
    assert_int_equal(l.accounts[0].refused, 0);
    lane_fixture_deinit(&l);
}

/* ---- Hostile ---- */

enum where { IN_HEAD, IN_NEXT };

/*
 * A link that leads nowhere: nothing behind it is taken, it is counted, and the chain can be used
 * afterwards.
 */
static void bad_link(struct lane_fixture *l, const char *what, uint64_t link, enum where where)
{
    uint64_t words[3], before = l->accounts[0].refused;

    objects_get(l, CLASS_64, ARRAY_SIZE(words), words);
    for (unsigned i = 0; i < ARRAY_SIZE(words); i++)
        client_chain(l, words[i], 0);
    if (where == IN_HEAD)
        l->shared[0].chain_head = link;
    else
        head_of(l, l->shared[0].chain_head)->next = link;
    if (chain_collect(l, UINT32_MAX).n_objects != (where == IN_HEAD ? 0 : 1))
        fail_msg("%s: taken otherwise", what);
    if (l->accounts[0].refused == before || lane_has_chain(&l->lanes[0]))
        fail_msg("%s: not cut", what);
    client_chain(l, words[0], 0);
    if (chain_collect(l, UINT32_MAX).n_objects != 1 || lane_has_chain(&l->lanes[0]))
        fail_msg("%s: does not go on", what);
    lane_fixture_grace(l);
}

static void test_bad_links(void **state)
{
    struct lane_fixture l;
    uint64_t mine, extent, freed;

    lane_fixture_init(&l);
    mine = fixture_alloc_word(&l.f, CLASS_64, 64);
    mine = abi_word(abi_word_block(mine), 1);
    extent = fixture_alloc_pages(&l.f, 1);
    freed = fixture_alloc_pages(&l.f, 1);
    fixture_free(&l.f, freed);
    const struct {
        const char *what;
        uint64_t link;
    } cases[] = {
        {"none", 0},
        {"all ones", UINT64_MAX},
        {"beyond the arena", abi_chain_link(FIXTURE_ARENA_BYTES / ABI_GRANULE_BYTES, 0)},
        {"block of 33 bits", abi_chain_link((1ull << 37) + word_offset(mine) / ABI_GRANULE_BYTES, 0)},
        {"misaligned", abi_chain_link(word_offset(mine) / ABI_GRANULE_BYTES + 1, 0)},
        {"in the first chunk", abi_chain_link(5, 0)},
        {"in a chunk that is free", abi_chain_link(7 * ABI_CHUNK_BYTES / ABI_GRANULE_BYTES, 0)},
        {"freed", link_of(freed, 0)},
        {"head just outside the object", link_of(mine, 64 / ABI_GRANULE_BYTES)},
        {"head far outside the object", link_of(mine, 0xffffff)},
        {"head behind the extent", link_of(extent, ABI_PAGE_BYTES / ABI_GRANULE_BYTES)},
        {"inside the extent", abi_chain_link(word_offset(extent) / ABI_GRANULE_BYTES + 32, 0)},
    };
    for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
        bad_link(&l, cases[i].what, cases[i].link, IN_HEAD);
        bad_link(&l, cases[i].what, cases[i].link, IN_NEXT);
        assert_true(word_is_out(&l, mine) && !word_is_pending(&l, mine));
        assert_true(word_is_out(&l, extent) && !word_is_pending(&l, extent));
        assert_audit_clean(&l.f);
    }
    lane_fixture_deinit(&l);
}

/* Numbers go down one by one, or the chain is cut there. */
static void test_wrong_sequence(void **state)
{
    static const uint32_t seqs[] = {0, 1, 3, 4, 5, 6, UINT32_MAX, 0x80000000};

    for (unsigned i = 0; i < ARRAY_SIZE(seqs); i++) {
        struct lane_fixture l;
        uint64_t words[5];

        lane_fixture_init(&l);
        objects_get(&l, CLASS_64, ARRAY_SIZE(words), words);
        for (unsigned k = 0; k < ARRAY_SIZE(words); k++)
            client_chain(&l, words[k], 0);
        head_of(&l, link_of(words[1], 0))->seq = seqs[i]; /* it was 2 */
        assert_int_equal(chain_collect(&l, UINT32_MAX).n_objects, 3);
        assert_int_equal(l.accounts[0].refused, 1);
        assert_false(lane_has_chain(&l.lanes[0]));
        assert_false(word_is_pending(&l, words[1]));
        lane_fixture_deinit(&l);
    }
}

/*
 * A newest object with a number that was seen before: cut like any other nonsense. Who calls until
 * lane_has_chain() says no must come to an end.
 */
static void test_head_seen_before(void **state)
{
    static const uint32_t seqs[] = {0, 3, 4, 5, 0x80000005, UINT32_MAX};

    for (unsigned i = 0; i < ARRAY_SIZE(seqs); i++) {
        struct lane_fixture l;
        uint64_t word;

        lane_fixture_init(&l);
        chain_start_at(&l, 5);
        objects_get(&l, CLASS_64, 1, &word);
        client_chain(&l, word, 0);
        head_of(&l, l.shared[0].chain_head)->seq = seqs[i];
        (void)chain_collect(&l, UINT32_MAX);
        assert_false(lane_has_chain(&l.lanes[0]));
        assert_int_equal(l.accounts[0].refused, 1);
        client_chain(&l, word, 0); /* and it can be used */
        assert_int_equal(chain_collect(&l, UINT32_MAX).n_objects, 1);
        assert_false(lane_has_chain(&l.lanes[0]));
        lane_fixture_deinit(&l);
    }
}

/* A walk that was interrupted comes to nothing: its numbers hold nobody up either. */
static void test_interrupted_walk_is_cut(void **state)
{
    struct lane_fixture l;
    uint64_t words[3];

    lane_fixture_init(&l);
    objects_get(&l, CLASS_64, ARRAY_SIZE(words), words);
    for (unsigned i = 0; i < 2; i++)
        client_chain(&l, words[i], 0);
    for (unsigned i = 0; i < 2; i++) /* as if there were a thousand */
        head_of(&l, link_of(words[i], 0))->seq += 1000;
    assert_int_equal(chain_collect(&l, 1).n_objects, 1);
    head_of(&l, link_of(words[0], 0))->seq = 0;
    for (unsigned i = 0; i < 3; i++)
        (void)chain_collect(&l, UINT32_MAX);
    assert_false(lane_has_chain(&l.lanes[0]));
    client_chain(&l, words[2], 0);
    assert_int_equal(chain_collect(&l, UINT32_MAX).n_objects, 1);
    assert_false(lane_has_chain(&l.lanes[0]));
    lane_fixture_deinit(&l);
}

/* A ring of links ends: each step must find a number less. */
static void test_cycles(void **state)
{
    for (unsigned length = 1; length <= 4; length++) {
        struct lane_fixture l;
        uint64_t words[4];

        lane_fixture_init(&l);
        objects_get(&l, CLASS_64, length, words);
        for (unsigned i = 0; i < length; i++)
            client_chain(&l, words[i], 0);
        head_of(&l, link_of(words[0], 0))->next = l.shared[0].chain_head;
        l.shared[0].chain_count += 1000;
        head_of(&l, l.shared[0].chain_head)->seq += 1000;
        assert_true(chain_collect(&l, UINT32_MAX).n_objects <= length);
        assert_false(lane_has_chain(&l.lanes[0]));
        assert_true(l.accounts[0].refused > 0);
        lane_fixture_deinit(&l);
    }
}

/* An object that was deferred by the ring as well is freed once. */
static void test_double_by_ring_and_chain(void **state)
{
    struct lane_fixture l;
    uint64_t words[3];

    lane_fixture_init(&l);
    objects_get(&l, CLASS_64, ARRAY_SIZE(words), words);
    for (unsigned i = 0; i < ARRAY_SIZE(words); i++)
        client_chain(&l, words[i], 0);
    client_put(&l, 0, words[1]);
    assert_int_equal(lane_fixture_collect(&l, 0).n_objects, 1);
    assert_int_equal(chain_collect(&l, UINT32_MAX).n_objects, 2);
    assert_int_equal(l.accounts[0].refused, 1);
    assert_false(lane_has_chain(&l.lanes[0]));
    assert_audit_clean(&l.f);
    lane_fixture_deinit(&l);
}

static void test_quarantined_lane_has_no_walk(void **state)
{
    struct lane_fixture l;
    struct lane_look look;
    uint64_t word;

    lane_fixture_init(&l);
    objects_get(&l, CLASS_64, 1, &word);
    client_chain(&l, word, 0);
    l.lanes[0].quarantined = true;
    assert_int_equal(lane_chain_collect(&l.lanes[0], l.f.heap, &l.pending, l.arena, 9, &look), -EPROTO);
    assert_false(word_is_pending(&l, word));
    lane_fixture_deinit(&l);
}

/* ---- Killed at a point ---- */

/* Two objects a call, and a grace period between calls, so that what was taken may be anybody's. */
static void walk_in_steps(struct lane_fixture *l)
{
    while (lane_has_chain(&l->lanes[0])) {
        (void)chain_collect(l, 2);
        lane_fixture_grace(l);
    }
}

/* A walk that is cut short by the daemon's death goes on in its successor: all is freed, once. */
static bool chain_crash(const char *point, unsigned nth)
{
    struct lane_fixture l;
    uint64_t words[7], held;
    bool killed;

    lane_fixture_init(&l);
    objects_get(&l, CLASS_64, ARRAY_SIZE(words), words);
    objects_get(&l, CLASS_64, 1, &held);
    for (unsigned i = 0; i < ARRAY_SIZE(words); i++) {
        client_chain(&l, words[i], 1);
        if (i == 1)
            assert_int_equal(chain_collect(&l, UINT32_MAX).n_objects, 2);
    }
    killed = crash_child(&l, point, nth, walk_in_steps);
    lane_fixture_succeed(&l);
    (void)chain_collect(&l, UINT32_MAX);
    assert_false(lane_has_chain(&l.lanes[0]));
    assert_audit_clean(&l.f);
    lane_fixture_expire_everything(&l);
    assert_true(word_is_out(&l, held) && !word_is_pending(&l, held));
    for (unsigned i = 0; i < ARRAY_SIZE(words); i++)
        assert_false(word_is_out(&l, words[i]));
    client_chain(&l, held, 0); /* and goes on as ever */
    assert_int_equal(chain_collect(&l, UINT32_MAX).n_objects, 1);
    assert_audit_clean(&l.f);
    lane_fixture_deinit(&l);
    return killed;
}

/* At each passage of each point. */
static void test_killed_at_points(void **state)
{
    static const char *points[] = {"chain-pending", "chain-interrupted", "chain-seen"};

    for (unsigned i = 0; i < ARRAY_SIZE(points); i++) {
        unsigned n = 1;

        while (chain_crash(points[i], n))
            n++;
        if (n == 1)
            fail_msg("%s is never passed", points[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chain_takes_all),
        cmocka_unit_test(test_chain_of_extents),
        cmocka_unit_test(test_walks_add_up),
        cmocka_unit_test(test_budget),
        cmocka_unit_test(test_starved_walk_goes_on),
        cmocka_unit_test(test_bad_links),
        cmocka_unit_test(test_wrong_sequence),
        cmocka_unit_test(test_head_seen_before),
        cmocka_unit_test(test_interrupted_walk_is_cut),
        cmocka_unit_test(test_cycles),
        cmocka_unit_test(test_double_by_ring_and_chain),
        cmocka_unit_test(test_quarantined_lane_has_no_walk),
        cmocka_unit_test(test_killed_at_points),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
