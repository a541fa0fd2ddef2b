/* SPDX-License-Identifier: MIT */
/* The daemon's side of a lane: collecting, filling, answering, burying. Kills and chaos have test-lane-chaos.c. */
#include "lane-fixture.h"

#define CLASS_16 0u
#define CLASS_32 1u
#define CLASS_64 3u

/* Cursor and indices as after so many records. */
static void lane_start_at(struct lane_fixture *l, uint32_t index)
{
    l->shared[0].head = l->shared[0].tail = index;
    state_lane(l->f.state, 0)->cursor = (uint64_t)index << 32;
}

/* ---- Collect ---- */

/*
 * Six defers that join and close records, and a collect after any subset of them: whenever it happens, it
 * takes all that was deferred and nothing twice, and leaves the open record to the client.
 */
static void collect_in_one_order(uint32_t first_index, unsigned collects)
{
    static const struct {
        unsigned block, bit;
    } defers[] = {{0, 0}, {0, 5}, {1, 0}, {1, 31}, {0, 7}, {0, 8}};
    struct lane_fixture l;
    uint32_t n_taken = 0;
    uint64_t words[2];

    lane_fixture_init(&l);
    lane_start_at(&l, first_index);
    for (unsigned i = 0; i < 2; i++)
        words[i] = fixture_alloc_word(&l.f, CLASS_16, UINT64_MAX);
    for (unsigned i = 0; i < ARRAY_SIZE(defers); i++) {
        client_defer(&l, 0, abi_word_block(words[defers[i].block]), 1u << defers[i].bit);
        if (!(collects & 1u << i) && i + 1 < ARRAY_SIZE(defers))
            continue;
        assert_true(lane_has_records(&l.lanes[0]));
        n_taken += lane_fixture_collect(&l, 0).n_objects;
        assert_int_equal(n_taken, i + 1);
        assert_int_equal(l.shared[0].tail, l.shared[0].head - 1);
        assert_false(lane_has_records(&l.lanes[0]));
        assert_int_equal(lane_fixture_collect(&l, 0).n_objects, 0);
    }
    assert_int_equal(l.accounts[0].refused, 0);
    assert_int_equal(l.accounts[0].pending_objects, ARRAY_SIZE(defers));
    assert_audit_clean(&l.f);
    lane_fixture_deinit(&l);
}

static void test_collect_orders(void **state)
{
    static const uint32_t firsts[] = {0, 1, ABI_RING_RECORDS - 2, UINT32_MAX - 1, UINT32_MAX, 0x7fffffff};

    for (unsigned f = 0; f < ARRAY_SIZE(firsts); f++)
        for (unsigned collects = 0; collects < 32; collects++)
            collect_in_one_order(firsts[f], collects);
}

/* A full ring is a fine ring, wherever its indices stand; max_records bounds one look, and looks add up. */
static void full_ring(uint32_t first_index, uint32_t max_records)
{
    struct lane_fixture l;
    struct lane_look look;
    uint32_t n_objects = 0, n_records = 0, n_looks = 0;

    lane_fixture_init(&l);
    lane_start_at(&l, first_index);
    for (unsigned i = 0; i < ABI_RING_RECORDS; i++)
        client_put(&l, 0, fixture_alloc_word(&l.f, CLASS_64, 512));
    while (lane_has_records(&l.lanes[0])) {
        assert_int_equal(lane_collect(&l.lanes[0], l.f.heap, &l.pending, max_records, &look), 0);
        assert_true(look.n_records <= max_records);
        assert_true(l.shared[0].head - l.shared[0].tail >= 1);
        n_objects += look.n_objects;
        n_records += look.n_records;
        assert_true(++n_looks <= ABI_RING_RECORDS);
    }
    assert_int_equal(n_objects, ABI_RING_RECORDS * 8);
    assert_int_equal(n_records, ABI_RING_RECORDS - 1);
    assert_int_equal(l.shared[0].tail, l.shared[0].head - 1);
    assert_int_equal(l.accounts[0].refused, 0);
    lane_fixture_deinit(&l);
}

static void test_full_ring(void **state)
{
    full_ring(0, UINT32_MAX);
    full_ring(UINT32_MAX - 100, UINT32_MAX);
    full_ring(UINT32_MAX - 100, 100);
    full_ring(0, ABI_RING_RECORDS);
    full_ring(7, ABI_RING_RECORDS - 1);
}

static void test_refused_bits_count_once(void **state)
{
    struct lane_fixture l;
    uint64_t mine, extent;

    lane_fixture_init(&l);
    mine = fixture_alloc_word(&l.f, CLASS_32, UINT64_MAX); /* starts at even granules */
    extent = fixture_alloc_pages(&l.f, 2);
    const struct {
        const char *what;
        uint32_t block, mask, n_refused, n_taken;
    } cases[] = {
        {"misaligned", abi_word_block(mine), 0x2, 1, 0},
        {"live and misaligned", abi_word_block(mine), 0x7, 1, 2},
        {"double", abi_word_block(mine), 0x5, 2, 0},
        {"live and double", abi_word_block(mine), 0x11, 1, 1},
        {"inside an extent", abi_word_block(extent) + 1, 0x1, 1, 0},
        {"an extent and beside its start", abi_word_block(extent), 0x3, 1, 1},
        {"never allocated", abi_word_block(mine) + 64, UINT32_MAX, 32, 0},
        {"in the chunk that holds nothing", 3, 0x10, 1, 0},
        {"chunk without objects", 5 * ABI_BLOCKS_PER_CHUNK, 0x1, 1, 0},
        {"first beyond the arena", FIXTURE_ARENA_BYTES / ABI_BLOCK_BYTES, 0x1, 1, 0},
        {"last block there could be", UINT32_MAX, UINT32_MAX, 32, 0},
        {"no bit at all", abi_word_block(mine), 0, 0, 0},
    };
    for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
        uint64_t before = l.accounts[0].refused;

        client_put(&l, 0, abi_word(cases[i].block, cases[i].mask));
        if (lane_fixture_collect(&l, 0).n_objects != cases[i].n_taken)
            fail_msg("%s: taken otherwise", cases[i].what);
        for (unsigned again = 0; again < 3; again++) /* it is still open, and was looked at */
            assert_int_equal(lane_fixture_collect(&l, 0).n_objects, 0);
        client_put(&l, 0, 0); /* closed by another */
        (void)lane_fixture_collect(&l, 0);
        if (l.accounts[0].refused - before != cases[i].n_refused)
            fail_msg("%s: %u refused", cases[i].what, (unsigned)(l.accounts[0].refused - before));
    }
    assert_audit_clean(&l.f);
    lane_fixture_deinit(&l);
}

static unsigned page_records(const struct lane_fixture *l)
{
    const struct bulk_page *page = l->pending.open[PENDING_SPANS];

    return page ? page->n_records : 0;
}

/* Closed records without a bit, beside good ones: these are taken, and nothing else gets on a page. */
static void test_closed_records_of_nothing(void **state)
{
    static const uint32_t blocks[] = {0,
                                      3,
                                      200 * ABI_BLOCKS_PER_CHUNK,
                                      FIXTURE_ARENA_BYTES / ABI_BLOCK_BYTES - 1,
                                      FIXTURE_ARENA_BYTES / ABI_BLOCK_BYTES,
                                      1u << 31,
                                      UINT32_MAX};
    struct lane_fixture l;

    lane_fixture_init(&l);
    for (unsigned i = 0; i < ARRAY_SIZE(blocks); i++) {
        unsigned before = page_records(&l);
        uint64_t word = fixture_alloc_word(&l.f, CLASS_64, 512);

        client_put(&l, 0, abi_word(blocks[i], 0));
        client_put(&l, 0, word);
        client_put(&l, 0, abi_word(blocks[i], 0));
        client_put(&l, 0, 0); /* the open one */
        assert_int_equal(lane_fixture_collect(&l, 0).n_objects, 8);
        assert_true(word_is_pending(&l, word));
        assert_int_equal(page_records(&l), before + 1);
        assert_int_equal(l.shared[0].tail, l.shared[0].head - 1);
    }
    assert_int_equal(l.accounts[0].refused, 0);
    lane_fixture_grace(&l);
    assert_int_equal(l.pending.freed_objects, 8 * ARRAY_SIZE(blocks));
    assert_audit_clean(&l.f);
    lane_fixture_deinit(&l);
}

static void test_nonsense_head_quarantines(void **state)
{
    static const uint32_t jumps[] = {ABI_RING_RECORDS + 1, 0x7fffffff, 0x80000000, UINT32_MAX - 5};

    for (unsigned i = 0; i < ARRAY_SIZE(jumps); i++) {
        struct lane_fixture l;
        struct lane_look look;
        uint64_t word;

        lane_fixture_init(&l);
        word = fixture_alloc_word(&l.f, CLASS_16, UINT64_MAX);
        client_put(&l, 0, abi_word(abi_word_block(word), 1));
        (void)lane_fixture_collect(&l, 0);
        client_put(&l, 0, abi_word(abi_word_block(word), 2));
        l.shared[0].head = l.shared[0].tail + jumps[i];
        assert_false(lane_has_records(&l.lanes[0]));
        assert_int_equal(lane_collect(&l.lanes[0], l.f.heap, &l.pending, UINT32_MAX, &look), -EPROTO);
        assert_int_equal(look.n_records + look.n_objects, 0);
        assert_true(l.lanes[0].quarantined);
        l.shared[0].head = l.shared[0].tail + 2; /* sense again: too late */
        assert_int_equal(lane_collect(&l.lanes[0], l.f.heap, &l.pending, UINT32_MAX, &look), -EPROTO);
        assert_false(lane_has_records(&l.lanes[0]));
        assert_int_equal(l.shared[0].tail, 0);
        assert_false(word_is_pending(&l, abi_word(abi_word_block(word), 2)));
        lane_fixture_deinit(&l);
    }
}

/* Without a page nothing is lost: what was taken is swept, the rest waits in the ring. */
static void test_collect_starved(void **state)
{
    struct lane_fixture l;
    struct lane_look look;
    enum { RECORDS = 600 }; /* more than a page holds */

    lane_fixture_init(&l);
    for (unsigned i = 0; i < RECORDS; i++)
        client_put(&l, 0, fixture_alloc_word(&l.f, CLASS_64, 512));
    malloc_left = 1;
    assert_int_equal(lane_collect(&l.lanes[0], l.f.heap, &l.pending, UINT32_MAX, &look), -ENOBUFS);
    assert_true(l.pending.starved);
    assert_int_equal(look.n_objects, (BULK_RECORDS + 1) * 8);
    assert_int_equal(l.shared[0].tail, BULK_RECORDS + 1);
    malloc_left = -1;
    assert_int_equal(lane_collect(&l.lanes[0], l.f.heap, &l.pending, UINT32_MAX, &look), -ENOBUFS);
    assert_int_equal(look.n_records, 0);
    lane_fixture_grace(&l);
    assert_false(l.pending.starved);
    assert_int_equal(lane_fixture_collect(&l, 0).n_objects, (RECORDS - BULK_RECORDS - 1) * 8);
    lane_fixture_grace(&l);
    assert_int_equal(l.pending.freed_objects, RECORDS * 8);
    assert_int_equal(fixture_figures(&l.f).out_objects, 0);
    assert_int_equal(l.accounts[0].refused, 0);
    assert_audit_clean(&l.f);
    lane_fixture_deinit(&l);
}

/* ---- Magazines ---- */

static void test_magazine_room(void **state)
{
    static const struct {
        uint32_t head, tail, room;
    } cases[] = {
        {500, 500, ABI_MAGAZINE_WORDS - 1}, /* the word in cur keeps its place in the shadow */
        {500, 501, 0},                      /* taken more than was given */
        {500, 0, ABI_MAGAZINE_WORDS - 501},
        {3, UINT32_MAX - 2, ABI_MAGAZINE_WORDS - 7}, /* wrapped */
        {ABI_MAGAZINE_WORDS - 1, 0, 0},
        {ABI_MAGAZINE_WORDS, 0, 0},
        {ABI_MAGAZINE_WORDS + 1, 0, 0},
        {5, 0x80000005, 0},
        {5, UINT32_MAX - ABI_MAGAZINE_WORDS, 0},
    };
    struct lane_fixture l;

    lane_fixture_init(&l);
    for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
        state_lane(l.f.state, 0)->magazine_head[CLASS_64] = cases[i].head;
        l.shared[0].take[CLASS_64].tail = cases[i].tail;
        assert_int_equal(lane_magazine_room(&l.lanes[0], CLASS_64), cases[i].room);
    }
    lane_fixture_deinit(&l);
}

/* The client gets what was put in, each object once, and none that somebody else has. */
static void test_refill_reaches_client(void **state)
{
    struct lane_fixture l;
    uint64_t words[N_LANES];
    unsigned n = 0;

    lane_fixture_init(&l);
    for (unsigned i = 0; i < 40; i++) { /* round the magazine several times */
        assert_int_equal(lane_fixture_refill(&l, 0, CLASS_64, 100), 100);
        assert_int_equal(lane_fixture_refill(&l, 1, CLASS_64, 3), 3);
        while ((words[0] = client_alloc(&l, 0, CLASS_64))) {
            assert_true(word_is_out(&l, words[0]));
            client_defer(&l, 0, abi_word_block(words[0]), abi_word_mask(words[0]));
            n++;
        }
        (void)lane_fixture_collect(&l, 0);
        while ((words[1] = client_alloc(&l, 1, CLASS_64)))
            assert_false(word_is_pending(&l, words[1]));
        lane_fixture_grace(&l);
    }
    assert_int_equal(n, 40 * 100 * 8);
    assert_int_equal(l.accounts[0].refused, 0);
    assert_int_equal(fixture_figures(&l.f).out_objects, 40 * 3 * 8);
    assert_audit_clean(&l.f);
    lane_fixture_deinit(&l);
}

static unsigned magazine_words(const struct lane_fixture *l, unsigned class_index)
{
    return l->shared[0].magazine_head[class_index] - l->shared[0].take[class_index].tail;
}

static unsigned fixture_fill(struct lane_fixture *l, uint64_t max_bytes, unsigned *ret_pace)
{
    int error;

    *ret_pace = 0;
    (void)lane_fill(&l->lanes[0], l->f.state, l->f.heap, max_bytes, &error, ret_pace);
    assert_int_equal(error, 0);
    return magazine_words(l, CLASS_64);
}

static void test_levels_follow_use(void **state)
{
    struct lane_fixture l;
    unsigned most = 0, n, pace;

    lane_fixture_init(&l);
    assert_int_equal(fixture_fill(&l, 64 * ABI_BLOCK_BYTES, &pace), 0); /* never asked for: nothing */
    lane_use_class(&l.lanes[0], CLASS_64);
    assert_true(lane_is_low(&l.lanes[0]));
    for (unsigned i = 0; i < 16; i++) {
        n = fixture_fill(&l, 64 * ABI_BLOCK_BYTES, &pace);
        assert_in_range(n, MAX(most, 1u), 64); /* grows, up to what max_bytes holds */
        assert_int_equal(pace, 256);
        assert_false(lane_is_low(&l.lanes[0]));
        most = n;
        while (client_alloc(&l, 0, CLASS_64)) /* all of it is used */
            ;
        assert_true(lane_is_low(&l.lanes[0]));
    }
    assert_int_equal(most, 64);
    for (unsigned i = 0; i < 10000; i++) /* nothing is used: less is kept, but what it has it keeps */
        assert_int_equal(fixture_fill(&l, 64 * ABI_BLOCK_BYTES, &pace), 64);
    assert_int_equal(pace, 0);
    while (client_alloc(&l, 0, CLASS_64))
        ;
    assert_true(fixture_fill(&l, 64 * ABI_BLOCK_BYTES, &pace) <= 16);
    lane_use_class(&l.lanes[0], CLASS_64); /* said again: nothing changes */
    assert_true(magazine_words(&l, CLASS_64) > 0);
    lane_fixture_deinit(&l);
}

/* Neither a full arena nor a tail without sense makes a fill more than it may be. */
static void test_fill_says_why_not(void **state)
{
    struct lane_fixture l;
    unsigned pace = 0;
    uint64_t word;
    int error;

    lane_fixture_init(&l);
    while (heap_extent_reserve(l.f.heap, ABI_PAGES_PER_CHUNK, &word) == 0)
        heap_commit(l.f.heap, word);
    lane_use_class(&l.lanes[0], CLASS_64);
    assert_int_equal(lane_fill(&l.lanes[0], l.f.state, l.f.heap, MIB, &error, &pace), 0);
    assert_int_equal(error, -ENOSPC);
    l.shared[0].take[CLASS_64].tail = 77;
    assert_int_equal(lane_fill(&l.lanes[0], l.f.state, l.f.heap, MIB, &error, &pace), 0);
    assert_int_equal(error, 0);
    lane_fixture_deinit(&l);
}

/* ---- Ask, owner, bell ---- */

/* One at first, twice what was given for who goes on asking, within a number of bytes; after none it begins anew. */
static void test_extent_run(void **state)
{
    static const struct {
        uint32_t pages;
        uint64_t max_bytes;
        uint32_t n, given;
    } asks[] = {
        {4, MIB, 1, 1}, {4, MIB, 2, 2},          {4, MIB, 4, 4},          {5, MIB, 1, 1},
        {4, MIB, 1, 1}, {4, MIB, 2, 2},          {4, 3 * 16384, 3, 3},    {4, 0, 1, 1},
        {4, MIB, 2, 1}, {4, MIB, 2, 0},          {4, MIB, 1, 0},          {4, MIB, 1, 1},
        {4, MIB, 2, 2}, {UINT32_MAX, MIB, 1, 1}, {UINT32_MAX, MIB, 1, 1},
    };
    struct lane l = {0};

    for (unsigned i = 0; i < ARRAY_SIZE(asks); i++) {
        for (int again = 0; again < 3; again++) /* a question that waits is looked at more than once */
            if (lane_extent_run(&l, asks[i].pages, asks[i].max_bytes) != asks[i].n)
                fail_msg("question %u", i);
        lane_extents_given(&l, asks[i].pages, asks[i].given);
    }
    for (unsigned i = 0; i < 40; i++) {
        uint32_t n = lane_extent_run(&l, 1, UINT64_MAX);

        assert_true(n <= ABI_MAGAZINE_WORDS / 2); /* they fit in an empty magazine */
        lane_extents_given(&l, 1, n);
    }
}

/* Whoever has the lane next begins with one, whatever the former owner asked for. */
static void test_new_owner_has_no_run(void **state)
{
    struct lane_fixture l;

    lane_fixture_init(&l);
    lane_extents_given(&l.lanes[0], 4, 8);
    assert_int_equal(lane_extent_run(&l.lanes[0], 4, MIB), 16);
    lane_init(&l.lanes[0], &l.shared[0], &l.slots[0], l.lanes[0].state, 0, &l.accounts[0]);
    assert_int_equal(lane_extent_run(&l.lanes[0], 4, MIB), 1);
    lane_fixture_deinit(&l);
}

static void test_ask(void **state)
{
    const struct {
        uint64_t ask;
        bool good;
    } cases[] = {
        {0, false},
        {abi_ask(1, 0, 0, 0), true},
        {abi_ask(2, ABI_ASK_IN_SECTION, ABI_CLASS_EXTENT - 1, 0), true},
        {abi_ask(3, 0, ABI_CLASS_EXTENT, 1), true},
        {abi_ask(4, 0, ABI_CLASS_EXTENT, UINT32_MAX), true}, /* the heap says no */
        {abi_ask(5, 0, ABI_CLASS_EXTENT, 0), false},
        {abi_ask(6, 0, 0, 1), false},
        {abi_ask(7, 0, ABI_CLASSES, 0), false},
        {abi_ask(8, 0, 0xff, 9), false},
        {UINT64_MAX, false},
        {abi_ask(0, 0, 3, 0), false}, /* sequence 0 was seen before anything */
    };
    struct lane_fixture l;
    unsigned class_index, flags;
    uint32_t pages;
    uint16_t sequence;

    lane_fixture_init(&l);
    for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
        l.shared[0].ask = cases[i].ask;
        class_index = flags = pages = sequence = 99;
        assert_int_equal(lane_ask(&l.lanes[0], &class_index, &pages, &flags, &sequence), cases[i].good);
        if (cases[i].good)
            assert_int_equal(abi_ask(sequence, flags, class_index, pages), cases[i].ask);
        else
            assert_true(class_index == 99 && flags == 99 && pages == 99 && sequence == 99);
    }
    l.shared[0].ask = abi_ask(10, 0, 5, 0);
    assert_true(lane_ask(&l.lanes[0], &class_index, &pages, &flags, &sequence));
    lane_answer(&l.lanes[0], sequence, -ENOMEM);
    assert_int_equal(l.shared[0].answer, 10ull << 48 | ENOMEM);
    assert_false(lane_ask(&l.lanes[0], &class_index, &pages, &flags, &sequence)); /* answered once */
    lane_answer(&l.lanes[0], 11, 0);
    assert_int_equal(l.shared[0].answer, 11ull << 48);
    lane_fixture_deinit(&l);
}

static void test_owner_words(void **state)
{
    static const struct {
        uint32_t phase, generation, owner;
        bool dead;
    } cases[] = {
        {0, 1, 0, false},                 /* given, its thread has not locked it yet */
        {0, 1, 0x40000000, false},        /* whatever an earlier owner left */
        {1, 1, 4711, false},              /* lives */
        {1, 1, 4711 | 0x80000000, false}, /* lives, somebody waits for it */
        {1, 1, 0, true},                  /* given back */
        {1, 1, 0x80000000, true},
        {1, 1, 0x40000000, true}, /* the kernel says so */
        {1, 1, 0x40000000 | 4711, true},
        {1, 1, 0xc0000000, true},
        {2, 1, 0, false}, /* a phase without sense never ends a lane by itself */
        {7, 7, UINT32_MAX, true},
    };
    struct lane_fixture l;

    lane_fixture_init(&l);
    for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
        l.shared[0].phase = cases[i].phase;
        l.shared[0].generation = cases[i].generation;
        l.shared[0].owner[0] = cases[i].owner;
        assert_int_equal(lane_is_dead(&l.lanes[0]), cases[i].dead);
    }
    lane_fixture_deinit(&l);
}

static void test_bells(void **state)
{
    struct lane_fixture l;
    uint32_t want;

    lane_fixture_init(&l);
    assert_false(lane_has_rung(&l.lanes[0])); /* so the first defer rings */
    want = l.shared[0].want;
    lane_rings_anew(&l.lanes[0]);
    assert_int_equal(l.shared[0].want, want); /* not rung: it may still */
    l.shared[0].bell = want;
    assert_true(lane_has_rung(&l.lanes[0]));
    lane_rings_anew(&l.lanes[0]);
    assert_false(lane_has_rung(&l.lanes[0]));
    assert_int_equal(l.shared[0].bell, want); /* the client's word is the client's */
    lane_fixture_deinit(&l);
}

/* ---- Bury ---- */

/* Wherever the client was killed, what lay in cur and in the magazine comes back, what it held does not. */
static void test_bury_honest(void **state)
{
    for (unsigned n_taken = 0; n_taken <= 4 * 8; n_taken++)
        for (unsigned between = 0; between < 2; between++) {
            struct lane_fixture l;
            struct abi_take *take;
            uint64_t held[4 * 8];

            lane_fixture_init(&l);
            take = &l.shared[0].take[CLASS_64];
            (void)lane_fixture_refill(&l, 0, CLASS_64, 4);
            for (unsigned i = 0; i < n_taken; i++)
                held[i] = client_alloc(&l, 0, CLASS_64);
            if (between && !abi_word_mask(take->cur) && take->tail != 4) /* killed between cur and tail */
                take->cur = l.shared[0].magazine[CLASS_64][take->tail];
            fixture_bury(&l, 0);
            assert_int_equal(l.accounts[0].pending_objects, 4 * 8 - n_taken);
            assert_int_equal(l.accounts[0].refused, 0);
            lane_fixture_grace(&l);
            assert_int_equal(fixture_figures(&l.f).out_objects, n_taken);
            for (unsigned i = 0; i < n_taken; i++)
                assert_true(word_is_out(&l, held[i]) && !word_is_pending(&l, held[i]));
            assert_audit_clean(&l.f);
            lane_fixture_deinit(&l);
        }
}

/* The other lane holds some objects of the block whose rest is handed out next. */
static uint64_t share_block(struct lane_fixture *l)
{
    (void)lane_fixture_refill(l, 1, CLASS_64, 1);
    for (unsigned i = 0; i < 3; i++) {
        uint64_t word = client_alloc(l, 1, CLASS_64);

        client_defer(l, 1, abi_word_block(word), abi_word_mask(word));
    }
    (void)lane_fixture_collect(l, 1);
    lane_fixture_grace(l);
    return l->shared[1].take[CLASS_64].cur;
}

/* A refill up to the brim overwrites nothing that a burial needs. */
static void test_bury_after_full_refill(void **state)
{
    struct lane_fixture l;

    lane_fixture_init(&l);
    (void)lane_fixture_refill(&l, 0, CLASS_64, 1);
    (void)client_alloc(&l, 0, CLASS_64); /* seven are left in cur */
    (void)lane_fixture_refill(&l, 0, CLASS_64, lane_magazine_room(&l.lanes[0], CLASS_64));
    fixture_bury(&l, 0);
    lane_fixture_grace(&l);
    assert_int_equal(fixture_figures(&l.f).out_objects, 1);
    lane_fixture_deinit(&l);
}

/* A word that the client writes frees nothing of another lane, and makes no burial fail. */
static void test_bury_hostile(void **state)
{
    static const uint32_t tails[] = {0,
                                     1,
                                     3,
                                     4,
                                     5,
                                     1023,
                                     1024,
                                     1025,
                                     0x7fffffff,
                                     0x80000000,
                                     UINT32_MAX,
                                     UINT32_MAX - 1020,
                                     UINT32_MAX - 1019};

    for (unsigned t = 0; t < ARRAY_SIZE(tails); t++)
        for (unsigned c = 0; c < 4; c++) {
            struct lane_fixture l;
            uint64_t theirs, mine, curs[4];

            lane_fixture_init(&l);
            theirs = share_block(&l);
            (void)lane_fixture_refill(&l, 0, CLASS_64, 4);
            mine = l.shared[0].magazine[CLASS_64][0];
            assert_int_equal(abi_word_block(mine), abi_word_block(theirs));
            curs[0] = theirs;
            curs[1] = abi_word(abi_word_block(mine), UINT32_MAX);
            curs[2] = UINT64_MAX;
            curs[3] = abi_word(0, UINT32_MAX); /* as never used shadow words */
            l.shared[0].take[CLASS_64] = (struct abi_take){.cur = curs[c], .tail = tails[t]};
            l.shared[0].magazine[CLASS_64][1] = theirs; /* the client can write there too */
            fixture_bury(&l, 0);
            assert_true(l.accounts[0].pending_objects <= 4 * 8);
            assert_false(state_truth(l.f.state)[abi_word_block(theirs)] >> 32 & abi_word_mask(theirs));
            lane_fixture_grace(&l);
            assert_true(word_is_out(&l, theirs));
            assert_audit_clean(&l.f);
            lane_fixture_deinit(&l);
        }
}

/* The next owner of a lane cannot return what its former owner had. */
static void test_new_owner_has_no_shadow(void **state)
{
    struct lane_fixture l;
    uint64_t word;

    lane_fixture_init(&l);
    (void)lane_fixture_refill(&l, 0, CLASS_64, 1);
    word = l.shared[0].magazine[CLASS_64][0];
    (void)client_alloc(&l, 0, CLASS_64);
    fixture_bury(&l, 0);
    lane_fixture_grace(&l);
    lane_init(&l.lanes[0], &l.shared[0], &l.slots[0], l.lanes[0].state, 0, &l.accounts[0]);
    assert_int_equal(l.shared[0].magazine_head[CLASS_64], 0);
    assert_int_equal(l.lanes[0].state->returned, 0);
    (void)lane_fixture_refill(&l, 1, CLASS_64, 4); /* the objects are another lane's now */
    (void)lane_fixture_refill(&l, 0, CLASS_32, 1);
    l.shared[0].take[CLASS_64] = (struct abi_take){.cur = word, .tail = 1};
    state_lane(l.f.state, 0)->magazine_head[CLASS_64] = 1;
    fixture_bury(&l, 0);
    assert_int_equal(state_truth(l.f.state)[abi_word_block(word)] >> 32, 0);
    lane_fixture_deinit(&l);
}

/*
 * No memory for a page in the middle of a burial: what it returned so far may be freed and another lane's before anybody
 * could call it again, so it returns all at once.
 */
static void test_bury_starved(void **state)
{
    struct lane_fixture l;
    uint64_t word;
    unsigned n_theirs = 0;

    lane_fixture_init(&l);
    (void)lane_fixture_refill(&l, 0, CLASS_32, 2);
    (void)lane_fixture_refill(&l, 0, CLASS_64, 2);
    (void)client_alloc(&l, 0, CLASS_64);
    malloc_left = 0;
    while (lane_bury(&l.lanes[0], l.f.heap, &l.pending) < 0) { /* as its caller does */
        malloc_left = -1;
        lane_fixture_grace(&l);
        (void)lane_fixture_refill(&l, 1, CLASS_32, 2);
    }
    malloc_left = -1;
    lane_fixture_grace(&l);
    (void)lane_fixture_refill(&l, 1, CLASS_32, 2);
    while ((word = client_alloc(&l, 1, CLASS_32))) {
        assert_true(word_is_out(&l, word) && !word_is_pending(&l, word));
        n_theirs++;
    }
    assert_int_equal(fixture_figures(&l.f).out_objects, n_theirs + 1);
    assert_int_equal(l.lanes[0].state->returned, 1);
    assert_audit_clean(&l.f);
    lane_fixture_deinit(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_collect_orders),
        cmocka_unit_test(test_full_ring),
        cmocka_unit_test(test_refused_bits_count_once),
        cmocka_unit_test(test_closed_records_of_nothing),
        cmocka_unit_test(test_nonsense_head_quarantines),
        cmocka_unit_test(test_collect_starved),
        cmocka_unit_test(test_magazine_room),
        cmocka_unit_test(test_refill_reaches_client),
        cmocka_unit_test(test_levels_follow_use),
        cmocka_unit_test(test_fill_says_why_not),
        cmocka_unit_test(test_extent_run),
        cmocka_unit_test(test_new_owner_has_no_run),
        cmocka_unit_test(test_ask),
        cmocka_unit_test(test_owner_words),
        cmocka_unit_test(test_bells),
        cmocka_unit_test(test_bury_honest),
        cmocka_unit_test(test_bury_after_full_refill),
        cmocka_unit_test(test_bury_hostile),
        cmocka_unit_test(test_new_owner_has_no_shadow),
        cmocka_unit_test(test_bury_starved),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
