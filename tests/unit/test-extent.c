/* SPDX-License-Identifier: MIT */
/*
 * Extents: where they are put, what is backed, how runs split and merge; and the holes that the purger gets.
 */
#include "heap-fixture.h"

#define N_CHUNKS 64u
#define ARENA (N_CHUNKS * ABI_CHUNK_BYTES)
#define PAGES(n_chunks) ((n_chunks)*ABI_PAGES_PER_CHUNK)
#define TOP_PAGE PAGES(N_CHUNKS)

static uint64_t word_page(uint64_t word)
{
    return word_offset(word) / ABI_PAGE_BYTES;
}

/* ---- Whole chunks -- */

static void test_extents_come_from_the_end(void **state)
{
    static const struct {
        uint64_t n_pages, first_page;
    } cases[] = {
        {16, TOP_PAGE - 16},
        {17, TOP_PAGE - 48}, /* two chunks, of which the last has 15 pages that nobody uses */
        {32, TOP_PAGE - 80},
        {1, TOP_PAGE - 81},  /* a new chunk for pieces */
        {15, TOP_PAGE - 96}, /* the rest of that chunk */
        {2, TOP_PAGE - 98},
        {33, TOP_PAGE - 160},
    };
    struct fixture f;

    fixture_init(&f, ARENA);
    for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
        uint64_t word = fixture_alloc_pages(&f, cases[i].n_pages);

        assert_int_equal(word_page(word), cases[i].first_page);
        assert_int_equal(heap_object_bytes(f.heap, abi_word_block(word)), cases[i].n_pages * ABI_PAGE_BYTES);
        assert_int_equal(heap_object_bytes(f.heap, abi_word_block(word) + 1), 0);
        for (uint64_t p = cases[i].first_page; p < cases[i].first_page + cases[i].n_pages; p++)
            assert_true(f.memory[p]);
        assert_audit_clean(&f);
    }
    assert_int_equal(fixture_figures(&f).backed_bytes, (16 + 17 + 32 + 1 + 15 + 2 + 33) * ABI_PAGE_BYTES);
    assert_int_equal(fixture_figures(&f).lazy_bytes, 0);
    fixture_deinit(&f);
}

static void test_lengths_that_cannot_be(void **state)
{
    static const struct {
        uint64_t n_pages;
        int error;
    } cases[] = {
        {0, -EINVAL},          {PAGES(N_CHUNKS - 1) + 1, -ENOSPC}, {PAGES(N_CHUNKS), -ENOSPC},
        {UINT64_MAX, -ENOSPC}, {UINT64_MAX - 14, -ENOSPC},
    };
    uint64_t word = 42;
    struct fixture f;

    fixture_init(&f, ARENA);
    for (unsigned i = 0; i < ARRAY_SIZE(cases); i++)
        assert_int_equal(heap_extent_reserve(f.heap, cases[i].n_pages, &word), cases[i].error);
    assert_int_equal(word, 42);
    assert_audit_clean(&f);
    fixture_deinit(&f);
}

static void test_the_whole_arena_is_one_extent(void **state)
{
    struct fixture f;
    uint64_t word, other;
    int error;

    fixture_init(&f, ARENA);
    for (unsigned round = 0; round < 3; round++) {
        word = fixture_alloc_pages(&f, PAGES(N_CHUNKS - 1));
        assert_int_equal(word_offset(word), ABI_CHUNK_BYTES);
        assert_int_equal(heap_extent_reserve(f.heap, 1, &other), -ENOSPC);
        assert_int_equal(heap_extent_reserve(f.heap, 16, &other), -ENOSPC);
        assert_int_equal(heap_reserve(f.heap, 0, &other, 1, 1, &error), 0);
        assert_audit_clean(&f);
        fixture_free(&f, word);
        assert_audit_clean(&f);
    }
    assert_int_equal(f.n_calls, 1); /* backed once, in one go */
    assert_int_equal(fixture_figures(&f).lazy_bytes, ARENA - ABI_CHUNK_BYTES);
    fixture_deinit(&f);
}

/*
 * Free runs of these chunks, from the arena's end down, with busy ones between; and where the next extent
 * goes.
 */
static void test_best_fit(void **state)
{
    static const struct {
        uint64_t n_chunks;
        unsigned run; /* index in runs */
    } cases[] = {{1, 3}, {2, 1}, {3, 0}, {4, 2}, {5, 2}};
    static const unsigned runs[] = {3, 2, 6, 1, 4};

    for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
        uint64_t words[ARRAY_SIZE(runs)], word;
        struct fixture f;

        fixture_init(&f, ARENA);
        for (unsigned r = 0; r < ARRAY_SIZE(runs); r++) {
            words[r] = fixture_alloc_pages(&f, PAGES(runs[r]));
            (void)fixture_alloc_pages(&f, PAGES(1));
        }
        for (unsigned r = 0; r < ARRAY_SIZE(runs); r++)
            fixture_free(&f, words[r]);
        if (cases[i].n_chunks == 4) /* 6 is the next only when the run of 4 is gone */
            (void)fixture_alloc_pages(&f, PAGES(4));
        word = fixture_alloc_pages(&f, PAGES(cases[i].n_chunks));
        assert_int_equal(word_chunk(word),
                         word_chunk(words[cases[i].run]) + runs[cases[i].run] - cases[i].n_chunks);
        assert_audit_clean(&f);
        fixture_deinit(&f);
    }
}

static void test_of_equal_runs_the_highest(void **state)
{
    static const unsigned orders[][3] = {{0, 1, 2}, {2, 1, 0}, {1, 0, 2}, {1, 2, 0}};

    for (unsigned i = 0; i < ARRAY_SIZE(orders); i++) {
        uint64_t words[3];
        struct fixture f;

        fixture_init(&f, ARENA);
        for (unsigned w = 0; w < 3; w++) {
            words[w] = fixture_alloc_pages(&f, PAGES(4));
            (void)fixture_alloc_pages(&f, PAGES(1));
        }
        for (unsigned w = 0; w < 3; w++)
            fixture_free(&f, words[orders[i][w]]);
        for (unsigned w = 0; w < 3; w++)
            assert_int_equal(fixture_alloc_pages(&f, PAGES(4)), words[w]);
        fixture_deinit(&f);
    }
}

/* Neighbours freed in each order are one run in the end. */
static void test_runs_merge(void **state)
{
    static const unsigned orders[][4] = {
        {0, 1, 2, 3}, {3, 2, 1, 0}, {0, 2, 1, 3}, {1, 3, 0, 2}, {2, 0, 3, 1}};

    for (unsigned i = 0; i < ARRAY_SIZE(orders); i++) {
        uint64_t words[4];
        struct fixture f;

        fixture_init(&f, ARENA);
        (void)fixture_alloc_pages(&f, PAGES(1));
        for (unsigned w = 0; w < 4; w++)
            words[w] = fixture_alloc_pages(&f, PAGES(w + 1));
        (void)fixture_alloc_pages(&f, PAGES(N_CHUNKS - 2 - 10)); /* the rest */
        for (unsigned w = 0; w < 4; w++) {
            fixture_free(&f, words[orders[i][w]]);
            assert_audit_clean(&f);
        }
        assert_int_equal(word_chunk(fixture_alloc_pages(&f, PAGES(10))), word_chunk(words[3]));
        fixture_deinit(&f);
    }
}

static void test_long_lists_of_runs_are_searched_whole(void **state)
{
    enum { N = 100, LENGTH = 32 }; /* lengths 32 and 33 share a list */
    uint64_t words[N], longer, word;
    struct fixture f;

    fixture_init(&f, (N + 1) * (LENGTH + 1) * (uint64_t)ABI_CHUNK_BYTES + 2 * ABI_CHUNK_BYTES);
    longer = fixture_alloc_pages(&f, PAGES(LENGTH + 1));
    (void)fixture_alloc_pages(&f, PAGES(1));
    for (unsigned i = 0; i < N; i++) {
        words[i] = fixture_alloc_pages(&f, PAGES(LENGTH));
        if (i + 1 < N)
            (void)fixture_alloc_pages(&f, PAGES(1));
    }
    while (heap_extent_reserve(f.heap, PAGES(1), &word) == 0)
        continue;
    fixture_free(&f, longer);
    for (unsigned i = 0; i < N; i++)
        fixture_free(&f, words[i]); /* these stand before the longer one now */
    assert_int_equal(fixture_alloc_pages(&f, PAGES(LENGTH + 1)), longer);
    assert_audit_clean(&f);
    fixture_free(&f, longer); /* it stands first now, and is not the best for 32 */
    assert_int_not_equal(fixture_alloc_pages(&f, PAGES(LENGTH)), longer);
    assert_int_not_equal(fixture_alloc_pages(&f, PAGES(LENGTH)), longer + abi_word(ABI_BLOCKS_PER_CHUNK, 0));
    assert_int_equal(fixture_alloc_pages(&f, PAGES(LENGTH + 1)), longer);
    fixture_deinit(&f);
}

/* ---- Pieces -- */

static void test_pieces_fit_best_and_from_the_end(void **state)
{
    static const unsigned lengths[] = {2, 1, 4, 1, 3, 5}; /* from the end down: one chunk */
    uint64_t words[6], other;
    struct fixture f;

    fixture_init(&f, ARENA);
    for (unsigned i = 0; i < 6; i++)
        words[i] = fixture_alloc_pages(&f, lengths[i]);
    assert_int_equal(word_page(words[5]), TOP_PAGE - 16);
    fixture_free(&f, words[0]);
    fixture_free(&f, words[2]);
    fixture_free(&f, words[4]);
    assert_audit_clean(&f);
    assert_int_equal(word_page(fixture_alloc_pages(&f, 3)), word_page(words[4])); /* not the hole of 4 */
    assert_int_equal(word_page(fixture_alloc_pages(&f, 1)),
                     word_page(words[0]) + 1); /* the end of the hole of 2 */
    assert_int_equal(word_page(fixture_alloc_pages(&f, 3)), word_page(words[2]) + 1);
    other = fixture_alloc_pages(&f, 5); /* another chunk */
    assert_int_equal(word_page(other), TOP_PAGE - 16 - 5);
    assert_int_equal(word_page(fixture_alloc_pages(&f, 1)), word_page(words[0])); /* the fuller chunk first */
    assert_audit_clean(&f);
    fixture_deinit(&f);
}

static void test_the_last_piece_frees_its_chunk(void **state)
{
    struct heap_figures figures;
    uint64_t words[15];
    struct fixture f;

    fixture_init(&f, ARENA);
    for (unsigned n = 1; n < 16; n++) {
        words[n - 1] = fixture_alloc_pages(&f, n);
        assert_audit_clean(&f);
    }
    for (unsigned i = 0; i < 15; i++) {
        fixture_free(&f, words[(i * 7) % 15]);
        assert_audit_clean(&f);
    }
    figures = fixture_figures(&f);
    assert_int_equal(figures.lazy_bytes, figures.backed_bytes);
    assert_int_equal(figures.backed_bytes, 120 * ABI_PAGE_BYTES);
    assert_int_equal(word_chunk(fixture_alloc_pages(&f, PAGES(N_CHUNKS - 1))), 1);
    fixture_deinit(&f);
}

static void test_the_lowest_extent_is_remembered(void **state)
{
    struct fixture f;
    uint64_t word;

    fixture_init(&f, ARENA);
    assert_int_equal(heap_extent_block(f.heap), UINT32_MAX);
    (void)fixture_alloc_word(&f, 0, 1);
    assert_int_equal(heap_extent_block(f.heap), UINT32_MAX);
    word = fixture_alloc_pages(&f, 100);
    (void)fixture_alloc_pages(&f, 1);
    assert_true(heap_extent_block(f.heap) <= abi_word_block(word));
    fixture_free(&f, word);
    assert_true(heap_extent_block(f.heap) <= abi_word_block(word));
    f.heap = heap_free(f.heap);
    assert_int_equal(fixture_start(&f), 0);
    assert_true(heap_extent_block(f.heap) < UINT32_MAX);
    fixture_deinit(&f);
}

/* ---- Backing -- */

static void test_only_gaps_are_backed(void **state)
{
    uint64_t words[3];
    struct fixture f;

    fixture_init(&f, ARENA);
    for (unsigned i = 0; i < 3; i++)
        words[i] =
            fixture_alloc_pages(&f, i == 1 ? 32 : 20); /* chunks of 20 pages have 12 that are not backed */
    for (unsigned i = 0; i < 3; i++)
        fixture_free(&f, words[i]);
    f.n_calls = 0;
    (void)fixture_alloc_pages(&f, PAGES(6));
    assert_int_equal(f.n_calls, 2);
    assert_int_equal(f.calls[0].offset, word_offset(words[2]) + 20 * ABI_PAGE_BYTES);
    assert_int_equal(f.calls[0].bytes, 12 * ABI_PAGE_BYTES);
    assert_int_equal(f.calls[1].offset, word_offset(words[0]) + 20 * ABI_PAGE_BYTES);
    assert_int_equal(fixture_figures(&f).backed_bytes, PAGES(6) * ABI_PAGE_BYTES);
    assert_audit_clean(&f);
    fixture_deinit(&f);
}

static void test_a_failed_backing_changes_nothing(void **state)
{
    static const uint64_t lengths[] = {1, 15, 16, 17, 100, PAGES(N_CHUNKS - 3)};

    for (unsigned i = 0; i < ARRAY_SIZE(lengths); i++) {
        struct heap_figures before, after;
        uint64_t word = 7;
        struct fixture f;

        fixture_init(&f, ARENA);
        (void)fixture_alloc_word(&f, 0, 1);
        (void)fixture_alloc_pages(&f, 2);
        before = fixture_figures(&f);
        f.fail = ENOMEM;
        assert_int_equal(heap_extent_reserve(f.heap, lengths[i], &word), -ENOMEM);
        after = fixture_figures(&f);
        assert_memory_equal(&before, &after, sizeof(before));
        assert_int_equal(word, 7);
        assert_audit_clean(&f);
        f.fail = 0;
        fixture_free(&f, fixture_alloc_pages(&f, lengths[i]));
        assert_audit_clean(&f);
        fixture_deinit(&f);
    }
}

static void test_a_later_gap_fails(void **state)
{
    struct heap_figures before, after;
    uint64_t words[2], word;
    struct fixture f;

    fixture_init(&f, ARENA);
    words[0] = fixture_alloc_pages(&f, 20);
    words[1] = fixture_alloc_pages(&f, 20);
    fixture_free(&f, words[0]);
    fixture_free(&f, words[1]);
    before = fixture_figures(&f);
    f.fail = ENOMEM;
    f.fail_after = 1;
    assert_int_equal(heap_extent_reserve(f.heap, PAGES(4), &word), -ENOMEM);
    after = fixture_figures(&f);
    assert_int_equal(after.backed_bytes,
                     before.backed_bytes + 12 * ABI_PAGE_BYTES); /* the first gap, free now */
    assert_int_equal(after.lazy_bytes, after.backed_bytes);
    assert_audit_clean(&f);
    fixture_deinit(&f);
}

static void test_unreserve_gives_pages_back(void **state)
{
    static const uint64_t lengths[] = {1, 15, 16, 40};

    for (unsigned i = 0; i < ARRAY_SIZE(lengths); i++) {
        struct fixture f;
        uint64_t word;

        fixture_init(&f, ARENA);
        assert_int_equal(heap_extent_reserve(f.heap, lengths[i], &word), 0);
        assert_int_equal(fixture_take(&f, word), 0);
        heap_unreserve(f.heap, word);
        assert_int_equal(fixture_figures(&f).extents, 0);
        assert_int_equal(fixture_figures(&f).lazy_bytes, lengths[i] * ABI_PAGE_BYTES);
        assert_audit_clean(&f);
        fixture_deinit(&f);
    }
}

/* ---- Holes -- */

static void test_neighbours_are_one_hole(void **state)
{
    uint64_t words[5], cursor = 0;
    struct heap_hole holes[4];
    struct fixture f;

    fixture_init(&f, ARENA);
    for (unsigned i = 0; i < 5; i++)
        words[i] = fixture_alloc_pages(&f, i == 3 ? 16 : 20);
    for (unsigned i = 0; i < 5; i++)
        if (i != 3)
            fixture_free(&f, words[i]);
    assert_int_equal(heap_purge_begin(f.heap, holes, 4, &heap_all, &cursor), 2);
    assert_int_equal(cursor, ARENA);
    assert_int_equal(holes[0].offset, word_offset(words[4]));
    assert_int_equal(holes[0].bytes, 20 * ABI_PAGE_BYTES); /* ends with its last backed page */
    assert_int_equal(holes[1].offset, word_offset(words[2]));
    assert_int_equal(holes[1].bytes, (PAGES(4) + 20) * ABI_PAGE_BYTES); /* over short gaps */
    assert_int_equal(fixture_figures(&f).lazy_bytes, 0);
    assert_int_equal(fixture_figures(&f).purging_bytes, 4 * 20 * ABI_PAGE_BYTES); /* the gaps give nothing */
    assert_audit_clean(&f);
    for (unsigned i = 0; i < 2; i++)
        heap_purge_end(f.heap, &holes[i]);
    assert_int_equal(fixture_figures(&f).purging_bytes, 0);
    assert_int_equal(fixture_figures(&f).backed_bytes, PAGES(1) * ABI_PAGE_BYTES);
    assert_audit_clean(&f);
    fixture_deinit(&f);
}

static void test_small_holes_are_left_and_the_cursor_goes_on(void **state)
{
    const struct heap_purge_bounds bounds = {2 * ABI_CHUNK_BYTES, UINT64_MAX};
    uint64_t words[8], cursor = 0, offset = 0;
    struct heap_hole hole;
    struct fixture f;
    unsigned n = 0;

    fixture_init(&f, ARENA);
    for (unsigned i = 0; i < 8; i++) {
        words[i] = fixture_alloc_pages(&f, i % 2 ? PAGES(2) : PAGES(1));
        (void)fixture_alloc_pages(&f, PAGES(1));
    }
    for (unsigned i = 0; i < 8; i++)
        fixture_free(&f, words[i]);
    while (heap_purge_begin(f.heap, &hole, 1, &bounds, &cursor) == 1) {
        assert_int_equal(hole.bytes, 2 * ABI_CHUNK_BYTES);
        assert_true(hole.offset > offset);
        offset = hole.offset;
        assert_audit_clean(&f);
        n++;
    }
    assert_int_equal(n, 4);
    assert_int_equal(fixture_figures(&f).lazy_bytes, 4 * ABI_CHUNK_BYTES);
    fixture_deinit(&f);
}

static void test_holes_have_a_longest_length(void **state)
{
    uint64_t cursor = 0, bytes = 200 * MIB;
    struct heap_hole holes[8];
    struct fixture f;
    unsigned n;

    fixture_init(&f, 256 * MIB);
    fixture_free(&f, fixture_alloc_pages(&f, bytes / ABI_PAGE_BYTES));
    n = heap_purge_begin(f.heap, holes, 8, &heap_all, &cursor);
    assert_int_equal(n, 4);
    for (unsigned i = 0; i < n; i++) {
        assert_true(holes[i].bytes <= 64 * MIB);
        assert_true(i == 0 || holes[i].offset == holes[i - 1].offset + holes[i - 1].bytes);
    }
    assert_int_equal(fixture_figures(&f).purging_bytes, bytes);
    fixture_deinit(&f);
}

/* At most so much is taken, off the end of a hole, and the next call goes on where it left off. */
static void test_holes_have_a_longest_sum(void **state)
{
    static const struct heap_purge_bounds bounds = {PAGES(2) * ABI_PAGE_BYTES, PAGES(5) * ABI_PAGE_BYTES - 1};
    static const uint64_t chunks[] = {4, 1, 3, 4};
    uint64_t words[ARRAY_SIZE(chunks)], cursor = 0;
    struct heap_hole holes[4];
    struct fixture f;

    fixture_init(&f, ARENA);
    for (unsigned i = 0; i < ARRAY_SIZE(chunks); i++) {
        words[i] = fixture_alloc_pages(&f, PAGES(chunks[i]));
        (void)fixture_alloc_pages(&f, PAGES(1));
    }
    for (unsigned i = 0; i < ARRAY_SIZE(chunks); i++)
        fixture_free(&f, words[i]);
    assert_int_equal(heap_purge_begin(f.heap, holes, 4, &bounds, &cursor), 2);
    assert_int_equal(holes[0].offset, word_offset(words[3]));
    assert_int_equal(holes[0].bytes, 4 * ABI_CHUNK_BYTES);
    assert_int_equal(holes[1].offset, word_offset(words[2]));
    assert_int_equal(holes[1].bytes, ABI_CHUNK_BYTES); /* though it is shorter than asked for by itself */
    assert_int_equal(fixture_figures(&f).lazy_bytes, 7 * ABI_CHUNK_BYTES);
    assert_audit_clean(&f);
    assert_int_equal(heap_purge_begin(f.heap, holes, 4, &bounds, &cursor), 2);
    assert_int_equal(holes[0].offset, word_offset(words[2]) + ABI_CHUNK_BYTES);
    assert_int_equal(holes[1].offset, word_offset(words[0])); /* not the one of a single chunk */
    assert_int_equal(holes[1].bytes, 3 * ABI_CHUNK_BYTES);
    fixture_deinit(&f);
}

/* What counts is what a hole gives back, not how far it reaches. */
static void test_gaps_do_not_make_a_hole_large(void **state)
{
    const struct heap_purge_bounds bounds = {3 * ABI_CHUNK_BYTES, UINT64_MAX};
    uint64_t low, high, word, cursor = 0;
    struct heap_hole hole;
    struct fixture f;

    fixture_init(&f, ARENA);
    high = fixture_alloc_pages(&f, PAGES(1));
    assert_int_equal(heap_extent_reserve(f.heap, PAGES(15), &word), 0);
    low = fixture_alloc_pages(&f, PAGES(1));
    heap_unreserve(f.heap, word);
    assert_int_equal(heap_purge_begin(f.heap, &hole, 1, &heap_all, &cursor), 1); /* the middle: punched */
    heap_purge_end(f.heap, &hole);
    fixture_free(&f, low);
    fixture_free(&f, high);
    cursor = 0;
    assert_int_equal(heap_purge_begin(f.heap, &hole, 1, &bounds, &cursor), 0);
    cursor = 0;
    assert_int_equal(heap_purge_begin(f.heap, &hole, 1, &heap_all, &cursor), 1);
    assert_int_equal(hole.offset, word_offset(low));
    assert_int_equal(hole.bytes, 17 * ABI_CHUNK_BYTES); /* one call: the gap is there already */
    assert_int_equal(fixture_figures(&f).purging_bytes, 2 * ABI_CHUNK_BYTES);
    assert_int_equal(hole.backed_bytes, 2 * ABI_CHUNK_BYTES);
    assert_audit_clean(&f);
    heap_purge_end(f.heap, &hole);
    assert_int_equal(fixture_figures(&f).purging_bytes, 0);
    fixture_deinit(&f);
}

/* The arena's owner waits while they are looked at, so not at all of them at once. */
static void test_many_small_holes_take_several_looks(void **state)
{
    const struct heap_purge_bounds bounds = {MIB, UINT64_MAX};
    uint64_t cursor = 0, before = 0;
    struct heap_hole hole;
    uint64_t words[5000];
    struct fixture f;
    unsigned n = 0;

    fixture_init(&f, 512 * MIB);
    for (unsigned i = 0; i < ARRAY_SIZE(words); i++) {
        words[i] = fixture_alloc_pages(&f, 8);
        (void)fixture_alloc_pages(&f, 8);
    }
    for (unsigned i = 0; i < ARRAY_SIZE(words); i++)
        fixture_free(&f, words[i]);
    for (; cursor < 512 * MIB; n++) {
        assert_int_equal(heap_purge_begin(f.heap, &hole, 1, &bounds, &cursor), 0);
        assert_true(cursor > before);
        before = cursor;
    }
    assert_in_range(n, 2, ARRAY_SIZE(words) / 100);
    fixture_deinit(&f);
}

/* Reuse before purge: a new chunk for pieces, and a place in an old one, are chosen where memory is. */
static void test_what_is_backed_is_handed_out_first(void **state)
{
    uint64_t words[3], cursor = 0;
    struct heap_hole hole;
    struct fixture f;

    fixture_init(&f, ARENA);
    for (unsigned i = 0; i < 3; i++)
        words[i] = fixture_alloc_pages(&f, PAGES(1));
    fixture_free(&f, words[0]);
    assert_int_equal(heap_purge_begin(f.heap, &hole, 1, &heap_all, &cursor), 1);
    heap_purge_end(f.heap, &hole);
    fixture_free(&f, words[2]);
    f.n_calls = 0;
    assert_int_equal(word_chunk(fixture_alloc_pages(&f, 13)), word_chunk(words[2])); /* not the higher one */
    assert_int_equal(f.n_calls, 0);
    fixture_deinit(&f);
}

static void test_a_backed_piece_is_handed_out_first(void **state)
{
    uint64_t words[4];
    struct heap_hole hole;
    struct fixture f;

    fixture_init(&f, ARENA);
    for (unsigned i = 0; i < 4; i++) /* two chunks, each with a place for four pages beside the twelve */
        words[i] = fixture_alloc_pages(&f, i < 2 ? 12 : 4);
    fixture_free(&f, words[2]);
    fixture_free(&f, words[3]);
    hole = (struct heap_hole){.offset = word_offset(words[2]), .bytes = 4 * ABI_PAGE_BYTES};
    assert_true(heap_purge_claim(f.heap, &hole));
    heap_purge_end(f.heap, &hole);
    f.n_calls = 0;
    assert_int_equal(fixture_alloc_pages(&f, 4), words[3]);
    assert_int_equal(f.n_calls, 0);
    assert_int_equal(fixture_alloc_pages(&f, 4), words[2]);
    assert_int_equal(f.n_calls, 1);
    assert_audit_clean(&f);
    fixture_deinit(&f);
}

static void test_what_is_being_purged_is_not_handed_out(void **state)
{
    uint64_t words[3], cursor = 0, word;
    struct heap_hole hole;
    struct fixture f;
    int error = 0;

    fixture_init(&f, ARENA);
    words[0] = fixture_alloc_pages(&f, 4); /* pieces: pages 12..15 of the last chunk */
    words[1] = fixture_alloc_pages(&f, 4);
    words[2] = fixture_alloc_pages(&f, PAGES(N_CHUNKS - 2));
    fixture_free(&f, words[1]);
    fixture_free(&f, words[2]);
    assert_int_equal(heap_purge_begin(f.heap, &hole, 1, &heap_all, &cursor), 1);
    assert_int_equal(hole.offset, ABI_CHUNK_BYTES);
    assert_int_equal(hole.offset + hole.bytes,
                     word_offset(words[0])); /* over eight pages that were never backed */
    assert_int_equal(heap_extent_reserve(f.heap, 1, &word), -ENOSPC);
    assert_int_equal(heap_extent_reserve(f.heap, 16, &word), -ENOSPC);
    assert_int_equal(heap_reserve(f.heap, 0, &word, 1, 1, &error), 0);
    assert_int_equal(error, -ENOSPC);
    assert_audit_clean(&f);
    heap_purge_end(f.heap, &hole);
    fixture_punch(&f, &hole);
    word = fixture_alloc_pages(&f, 12);
    assert_int_equal(word_page(word), TOP_PAGE - 16);
    assert_true(f.memory[TOP_PAGE - 16] && f.memory[TOP_PAGE - 5]); /* backed again */
    assert_audit_clean(&f);
    fixture_deinit(&f);
}

static void test_a_chunk_emptied_while_purged_waits(void **state)
{
    uint64_t kept, freed, cursor = 0, word;
    struct heap_hole hole;
    struct fixture f;

    fixture_init(&f, ARENA);
    kept = fixture_alloc_pages(&f, 8);
    freed = fixture_alloc_pages(&f, 4);
    fixture_free(&f, freed);
    assert_int_equal(heap_purge_begin(f.heap, &hole, 1, &heap_all, &cursor), 1);
    assert_int_equal(hole.offset, word_offset(freed));
    assert_int_equal(hole.bytes, 4 * ABI_PAGE_BYTES);
    word = fixture_alloc_pages(&f, 4); /* beside it */
    assert_int_equal(word_page(word), TOP_PAGE - 16);
    fixture_free(&f, word);
    fixture_free(&f, kept);
    assert_audit_clean(&f);
    assert_int_equal(word_chunk(fixture_alloc_pages(&f, 4)), N_CHUNKS - 2);
    heap_purge_end(f.heap, &hole);
    assert_audit_clean(&f);
    assert_int_equal(word_chunk(fixture_alloc_pages(&f, 16)), N_CHUNKS - 1);
    fixture_deinit(&f);
}

static void test_two_holes_of_a_chunk_end_apart(void **state)
{
    uint64_t words[4], cursor = 0;
    struct heap_hole holes[2];
    struct fixture f;

    fixture_init(&f, ARENA);
    for (unsigned i = 0; i < 4; i++)
        words[i] = fixture_alloc_pages(&f, 4);
    fixture_free(&f, words[0]);
    fixture_free(&f, words[2]);
    assert_int_equal(heap_purge_begin(f.heap, holes, 2, &heap_all, &cursor), 2);
    fixture_free(&f, words[1]);
    fixture_free(&f, words[3]); /* the chunk has no extent any more */
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(word_chunk(fixture_alloc_pages(&f, 16)), N_CHUNKS - 2 - i);
        heap_purge_end(f.heap, &holes[i]);
        assert_audit_clean(&f);
    }
    assert_int_equal(word_chunk(fixture_alloc_pages(&f, 16)), N_CHUNKS - 1);
    fixture_deinit(&f);
}

static void test_purging_is_forgotten_by_a_start(void **state)
{
    uint64_t cursor = 0;
    struct heap_hole hole;
    struct fixture f;

    fixture_init(&f, ARENA);
    fixture_free(&f, fixture_alloc_pages(&f, 40));
    assert_int_equal(heap_purge_begin(f.heap, &hole, 1, &heap_all, &cursor), 1);
    state_chunks(f.state)[hole.offset / ABI_CHUNK_BYTES].backed = 0xffff; /* killed before that was cleared */
    f.heap = heap_free(f.heap);
    assert_int_equal(fixture_start(&f), 0);
    assert_int_equal(fixture_figures(&f).backed_bytes, 0);
    assert_int_equal(fixture_figures(&f).purging_bytes, 0);
    assert_audit_clean(&f);
    f.n_calls = 0;
    (void)fixture_alloc_pages(&f, 40);
    assert_int_equal(f.n_calls, 1); /* backed anew: who knows what was punched */
    fixture_deinit(&f);
}

static void test_which_ranges_are_free(void **state)
{
    uint64_t piece, large, span, cursor = 0;
    struct heap_hole hole;
    struct fixture f;

    fixture_init(&f, ARENA);
    span = fixture_alloc_word(&f, 0, 1); /* chunk 1 */
    piece = fixture_alloc_pages(&f, 4);  /* the last four pages */
    large = fixture_alloc_pages(&f, 16); /* the chunk before */
    {
        const struct {
            uint64_t page, n_pages;
            bool free;
        } cases[] = {
            {0, 1, false}, /* chunk 0 */
            {word_page(span), 1, false},
            {PAGES(1) + 15, 1, false},
            {PAGES(2), 1, true},
            {PAGES(2), 0, false},
            {PAGES(1) + 15, 2, false},
            {PAGES(2), PAGES(N_CHUNKS - 4), true}, /* all between */
            {PAGES(2), PAGES(N_CHUNKS - 4) + 1, false},
            {word_page(large), 1, false},
            {word_page(piece) - 12, 12, true}, /* the rest of its chunk */
            {word_page(piece) - 12, 13, false},
            {word_page(piece) - 1, 1, true},
            {word_page(piece) - 13, 2, false},
            {TOP_PAGE - 1, 1, false},
            {TOP_PAGE, 1, false}, /* outside */
            {UINT64_MAX / ABI_PAGE_BYTES, 2, false},
        };

        for (unsigned i = 0; i < ARRAY_SIZE(cases); i++)
            if (heap_range_is_free(f.heap, cases[i].page * ABI_PAGE_BYTES,
                                   cases[i].n_pages * ABI_PAGE_BYTES) != cases[i].free)
                fail_msg("case %u", i);
    }
    fixture_free(&f, large);
    assert_true(heap_range_is_free(f.heap, word_offset(large), ABI_CHUNK_BYTES));
    assert_int_equal(heap_purge_begin(f.heap, &hole, 1, &heap_all, &cursor), 1);
    assert_false(heap_range_is_free(f.heap, word_offset(large), ABI_PAGE_BYTES));
    assert_false(heap_purge_claim(f.heap, &hole)); /* once */
    heap_purge_end(f.heap, &hole);
    assert_true(heap_range_is_free(f.heap, word_offset(large), ABI_CHUNK_BYTES));
    fixture_deinit(&f);
}

static void test_a_claimed_hole_is_out_of_reach(void **state)
{
    struct heap_hole hole = {.offset = PAGES(10) * ABI_PAGE_BYTES + 8192, .bytes = 3 * ABI_CHUNK_BYTES};
    struct fixture f;
    uint64_t word;

    fixture_init(&f, ARENA);
    assert_true(heap_purge_claim(f.heap, &hole));
    assert_int_equal(fixture_figures(&f).purging_bytes, 0); /* backed without the books knowing */
    assert_audit_clean(&f);
    assert_int_equal(heap_extent_reserve(f.heap, PAGES(N_CHUNKS - 14) + 1, &word), -ENOSPC);
    assert_int_equal(word_chunk(fixture_alloc_pages(&f, PAGES(N_CHUNKS - 14))), 14);
    heap_purge_end(f.heap, &hole);
    assert_audit_clean(&f);
    assert_int_equal(word_chunk(fixture_alloc_pages(&f, PAGES(13))), 1);
    hole.offset = 0;
    assert_false(heap_purge_claim(f.heap, &hole));
    fixture_deinit(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_extents_come_from_the_end),
        cmocka_unit_test(test_lengths_that_cannot_be),
        cmocka_unit_test(test_the_whole_arena_is_one_extent),
        cmocka_unit_test(test_best_fit),
        cmocka_unit_test(test_of_equal_runs_the_highest),
        cmocka_unit_test(test_runs_merge),
        cmocka_unit_test(test_long_lists_of_runs_are_searched_whole),
        cmocka_unit_test(test_pieces_fit_best_and_from_the_end),
        cmocka_unit_test(test_the_last_piece_frees_its_chunk),
        cmocka_unit_test(test_the_lowest_extent_is_remembered),
        cmocka_unit_test(test_only_gaps_are_backed),
        cmocka_unit_test(test_a_failed_backing_changes_nothing),
        cmocka_unit_test(test_a_later_gap_fails),
        cmocka_unit_test(test_unreserve_gives_pages_back),
        cmocka_unit_test(test_neighbours_are_one_hole),
        cmocka_unit_test(test_small_holes_are_left_and_the_cursor_goes_on),
        cmocka_unit_test(test_holes_have_a_longest_length),
        cmocka_unit_test(test_holes_have_a_longest_sum),
        cmocka_unit_test(test_gaps_do_not_make_a_hole_large),
        cmocka_unit_test(test_many_small_holes_take_several_looks),
        cmocka_unit_test(test_what_is_backed_is_handed_out_first),
        cmocka_unit_test(test_a_backed_piece_is_handed_out_first),
        cmocka_unit_test(test_what_is_being_purged_is_not_handed_out),
        cmocka_unit_test(test_a_chunk_emptied_while_purged_waits),
        cmocka_unit_test(test_two_holes_of_a_chunk_end_apart),
        cmocka_unit_test(test_purging_is_forgotten_by_a_start),
        cmocka_unit_test(test_which_ranges_are_free),
        cmocka_unit_test(test_a_claimed_hole_is_out_of_reach),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
