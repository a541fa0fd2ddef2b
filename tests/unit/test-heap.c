/* SPDX-License-Identifier: MIT */
/* Spans and truth words of the heap; extents and holes have test-extent.c, starts and the audit test-heap-state.c. */
#include "heap-fixture.h"

#define SMALL_ARENA (4 * MIB)
#define CLASS_OF_64 3u
#define CLASS_OF_3584 26u

/* ---- Classes -- */

static void test_patterns_have_each_object_once(void **state)
{
    for (unsigned c = 0; c < ABI_CLASS_EXTENT; c++) {
        uint32_t bytes = abi_class_bytes(c), n = 0;

        for (unsigned b = 0; b < ABI_BLOCKS_PER_CHUNK; b++)
            for (uint32_t mask = heap_class_pattern(c, b); mask; mask &= mask - 1, n++)
                assert_int_equal(b * ABI_BLOCK_BYTES + (unsigned)__builtin_ctz(mask) * ABI_GRANULE_BYTES,
                                 n * bytes);
        assert_int_equal(n, ABI_CHUNK_BYTES / bytes);
    }
}

/* Takes all of one span and notes each granule; what comes next is in another chunk. */
static void fill_a_span(unsigned class_index)
{
    uint32_t bytes = abi_class_bytes(class_index), n_objects = 0;
    bool granules[ABI_CHUNK_BYTES / ABI_GRANULE_BYTES] = {false};
    uint64_t words[ABI_BLOCKS_PER_CHUNK];
    struct fixture f;
    unsigned n;
    int error;

    fixture_init(&f, SMALL_ARENA);
    n = heap_reserve(f.heap, class_index, words, ABI_BLOCKS_PER_CHUNK, (ABI_CHUNK_BYTES / bytes) * bytes,
                     &error);
    for (unsigned i = 0; i < n; i++) {
        assert_int_equal(word_chunk(words[i]), word_chunk(words[0]));
        heap_commit(f.heap, words[i]);
        for (uint32_t mask = abi_word_mask(words[i]); mask; mask &= mask - 1, n_objects++) {
            uint64_t start = word_offset(abi_word(abi_word_block(words[i]), mask)) % ABI_CHUNK_BYTES;

            assert_int_equal(start % bytes, 0);
            for (uint64_t g = start; g < start + bytes; g += ABI_GRANULE_BYTES) {
                assert_false(granules[g / ABI_GRANULE_BYTES]);
                granules[g / ABI_GRANULE_BYTES] = true;
            }
            assert_int_equal(heap_object_bytes(f.heap, abi_word_block(words[i])), bytes);
        }
    }
    assert_int_equal(n_objects, ABI_CHUNK_BYTES / bytes);
    assert_int_equal(fixture_figures(&f).span_chunks, 1);
    assert_int_equal(fixture_figures(&f).out_bytes, n_objects * bytes);
    assert_int_not_equal(word_chunk(fixture_alloc_word(&f, class_index, 1)), word_chunk(words[0]));
    assert_audit_clean(&f);
    for (unsigned i = 0; i < n; i++)
        fixture_free(&f, words[i]);
    assert_audit_clean(&f);
    fixture_deinit(&f);
}

static void test_every_class_fills_a_span(void **state)
{
    for (unsigned c = 0; c < ABI_CLASS_EXTENT; c++)
        fill_a_span(c);
}

/* ---- Choosing -- */

static void test_reserve_keeps_its_limits(void **state)
{
    static const struct {
        unsigned n_words;
        uint64_t max_bytes;
        unsigned n;
    } cases[] = {
        {1, UINT64_MAX, 1},
        {5, UINT64_MAX, 5},
        {5, 1024, 2}, /* a block of 64-byte objects is 512 bytes */
        {5, 1023, 1},
        {5, 1, 1},
        {5, 0, 1},
        {0, UINT64_MAX, 0},
        {300, ABI_CHUNK_BYTES, 128},       /* a span, and no second one for nothing */
        {300, ABI_CHUNK_BYTES + 511, 128}, /* the same */
        {300, UINT64_MAX, 300},            /* more than two spans */
    };
    uint64_t words[300];
    struct fixture f;

    fixture_init(&f, SMALL_ARENA);
    for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
        int error = 0;
        unsigned n = heap_reserve(f.heap, CLASS_OF_64, words, cases[i].n_words, cases[i].max_bytes, &error);

        assert_int_equal(n, cases[i].n);
        for (unsigned w = 0; w < n; w++)
            heap_unreserve(f.heap, words[w]);
        assert_audit_clean(&f);
    }
    fixture_deinit(&f);
}

static void test_reserve_says_why_there_is_nothing(void **state)
{
    uint64_t words[ABI_BLOCKS_PER_CHUNK];
    struct fixture f;
    int error = 0;

    fixture_init(&f, ABI_ARENA_BYTES_MIN);
    assert_int_equal(heap_reserve(f.heap, ABI_CLASS_EXTENT, words, 1, 1, &error), 0);
    assert_int_equal(error, -EINVAL);
    f.fail = ENOMEM;
    assert_int_equal(heap_reserve(f.heap, 0, words, 1, 1, &error), 0);
    assert_int_equal(error, -ENOMEM);
    assert_int_equal(fixture_figures(&f).span_chunks, 0);
    assert_int_equal(fixture_figures(&f).backed_bytes, 0);
    assert_audit_clean(&f);
    f.fail = 0;
    while (heap_reserve(f.heap, CLASS_OF_3584, words, ABI_BLOCKS_PER_CHUNK, UINT64_MAX, &error) > 0)
        continue;
    assert_int_equal(error, -ENOSPC);
    assert_int_equal(fixture_figures(&f).span_chunks, ABI_ARENA_BYTES_MIN / ABI_CHUNK_BYTES - 1);
    assert_audit_clean(&f);
    fixture_deinit(&f);
}

static void test_what_is_reserved_is_not_chosen_twice(void **state)
{
    uint64_t a[100], b[100];
    struct fixture f;
    int error;

    fixture_init(&f, SMALL_ARENA);
    assert_int_equal(heap_reserve(f.heap, 0, a, 100, UINT64_MAX, &error), 100);
    assert_int_equal(heap_reserve(f.heap, 0, b, 100, UINT64_MAX, &error), 100);
    for (unsigned i = 0; i < 100; i++)
        for (unsigned j = 0; j < 100; j++)
            assert_int_not_equal(abi_word_block(a[i]), abi_word_block(b[j]));
    assert_int_equal(fixture_figures(&f).out_objects, 0);
    assert_int_equal(fixture_take(&f, a[0]), 0); /* chosen is not out */
    fixture_deinit(&f);
}

static void test_a_words_free_part_is_whole(void **state)
{
    struct fixture f;
    uint64_t word, again;

    fixture_init(&f, SMALL_ARENA);
    word = fixture_alloc_word(&f, 0, 1);
    assert_int_equal(abi_word_mask(word), 0xffffffff);
    for (unsigned bit = 0; bit < 32; bit += 3)
        fixture_free(&f, abi_word(abi_word_block(word), 1u << bit));
    again = fixture_alloc_word(&f, 0, 1);
    assert_int_equal(abi_word_block(again), abi_word_block(word));
    assert_int_equal(abi_word_mask(again), 0x49249249); /* every third again, in one word */
    assert_audit_clean(&f);
    fixture_deinit(&f);
}

/* All of n spans of 64-byte objects, out. */
static void fill_spans(struct fixture *f, uint64_t words[][ABI_BLOCKS_PER_CHUNK], unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        for (unsigned b = 0; b < ABI_BLOCKS_PER_CHUNK; b++)
            words[i][b] = fixture_alloc_word(f, CLASS_OF_64, 1);
}

static void test_the_ripest_span_is_used_first(void **state)
{
    static const unsigned order[] = {2, 0, 3, 1};
    uint64_t words[4][ABI_BLOCKS_PER_CHUNK];
    struct fixture f;

    fixture_init(&f, SMALL_ARENA);
    fill_spans(&f, words, 4);
    for (unsigned i = 0; i < 4; i++)
        fixture_free(&f, words[order[i]][10]);
    for (unsigned i = 0; i < 4; i++)
        fixture_free(&f, words[i][11]); /* later frees do not change the order */
    for (unsigned i = 0; i < 8; i++)
        assert_int_equal(word_chunk(fixture_alloc_word(&f, CLASS_OF_64, 1)),
                         word_chunk(words[order[i / 2]][0]));
    fixture_deinit(&f);
}

static void test_a_class_keeps_one_empty_span(void **state)
{
    uint64_t words[3][ABI_BLOCKS_PER_CHUNK], word, cursor = 0;
    struct heap_hole hole;
    struct fixture f;
    unsigned n_calls;

    fixture_init(&f, SMALL_ARENA);
    fill_spans(&f, words, 3);
    for (unsigned i = 0; i < 3; i++)
        for (unsigned b = 0; b < ABI_BLOCKS_PER_CHUNK; b++)
            fixture_free(&f, words[i][b]);
    assert_int_equal(fixture_figures(&f).span_chunks, 1);
    assert_int_equal(fixture_figures(&f).lazy_bytes, 2 * ABI_CHUNK_BYTES);
    n_calls = f.n_calls;
    for (unsigned i = 0; i < 100; i++) { /* one object back and forth asks nobody for anything */
        word = fixture_alloc_word(&f, CLASS_OF_64, 1);
        fixture_free(&f, word);
        assert_int_equal(fixture_figures(&f).span_chunks, 1);
    }
    assert_int_equal(f.n_calls, n_calls);
    assert_audit_clean(&f);
    assert_int_equal(heap_purge_begin(f.heap, &hole, 1, &heap_all, &cursor), 1); /* the kept one goes too */
    assert_int_equal(hole.bytes, 3 * ABI_CHUNK_BYTES);
    assert_int_equal(fixture_figures(&f).span_chunks, 0);
    assert_audit_clean(&f);
    fixture_deinit(&f);
}

static void test_spans_go_low_and_reuse_what_is_backed(void **state)
{
    uint64_t low, high;
    struct fixture f;
    unsigned n_calls;

    fixture_init(&f, SMALL_ARENA);
    low = fixture_alloc_word(&f, CLASS_OF_64, 1);
    assert_int_equal(word_chunk(low), 1);
    high = fixture_alloc_pages(&f, 32);
    assert_int_equal(word_chunk(high), SMALL_ARENA / ABI_CHUNK_BYTES - 2);
    fixture_free(&f, high);
    n_calls = f.n_calls;
    assert_int_equal(word_chunk(fixture_alloc_word(&f, 0, 1)),
                     word_chunk(high)); /* before chunk 2, which would need memory */
    assert_int_equal(f.n_calls, n_calls);
    fixture_alloc_word(&f, 5, 1);
    assert_int_equal(f.n_calls, n_calls);
    assert_int_equal(word_chunk(fixture_alloc_word(&f, 6, 1)), 2);
    assert_int_equal(f.n_calls, n_calls + 1);
    fixture_deinit(&f);
}

static void test_frees_between_reserve_and_commit(void **state)
{
    uint64_t words[ABI_BLOCKS_PER_CHUNK], out[4], again[ABI_BLOCKS_PER_CHUNK];
    struct fixture f;
    unsigned n;
    int error;

    fixture_init(&f, SMALL_ARENA);
    for (unsigned i = 0; i < 4; i++)
        out[i] = fixture_alloc_word(&f, 0, 1);
    fixture_free(&f, abi_word(abi_word_block(out[0]), 0xffff)); /* half of a block, to be chosen now */
    assert_int_equal(heap_reserve(f.heap, 0, words, 3, UINT64_MAX, &error), 3);
    assert_int_equal(words[0], abi_word(abi_word_block(out[0]), 0xffff));
    fixture_free(&f, abi_word(abi_word_block(out[0]), 0xffff0000)); /* the other half comes free meanwhile */
    fixture_free(&f, out[1]);
    assert_audit_clean(&f);
    n = heap_reserve(f.heap, 0, again, ABI_BLOCKS_PER_CHUNK, UINT64_MAX, &error);
    for (unsigned i = 0; i < n; i++) { /* elsewhere: the span waits for its words */
        assert_int_not_equal(word_chunk(again[i]), word_chunk(out[0]));
        heap_unreserve(f.heap, again[i]);
    }
    heap_commit(f.heap, words[0]);
    heap_unreserve(f.heap, words[1]);
    assert_audit_clean(&f);
    heap_commit(f.heap, words[2]);
    assert_audit_clean(&f);
    assert_int_equal(fixture_figures(&f).out_objects, 16 + 2 * 32 + 32);
    fixture_deinit(&f);
}

/* ---- Hostile records -- */

static void test_take_refuses_what_is_not_out(void **state)
{
    uint64_t span, pieces, large, offset, bytes;
    bool extent;
    struct fixture f;

    fixture_init(&f, SMALL_ARENA);
    assert_int_equal(heap_roots(f.heap, &offset), 0);
    span = fixture_alloc_word(&f, CLASS_OF_64, 1); /* pattern 0x11111111 */
    pieces = fixture_alloc_pages(&f, 3);
    large = fixture_alloc_pages(
        &f, 30 * ABI_PAGES_PER_CHUNK); /* whatever lies behind the tables, it is not zero */
    {
        const struct {
            const char *what;
            uint64_t word;
            uint32_t accepted;
        } cases[] = {
            {"zero", 0, 0},
            {"chunk 0", abi_word(5, UINT32_MAX), 0},
            {"no bits", abi_word(abi_word_block(span), 0), 0},
            {"misaligned", abi_word(abi_word_block(span), 0xeeeeeeee), 0},
            {"some misaligned", abi_word(abi_word_block(span), 0x3), 0x1},
            {"twice", abi_word(abi_word_block(span), 0x1), 0},
            {"once and twice", abi_word(abi_word_block(span), 0x11), 0x10},
            {"the rest", abi_word(abi_word_block(span), UINT32_MAX), 0x11111100},
            {"never allocated", abi_word(abi_word_block(span) + 1, UINT32_MAX), 0},
            {"end of the arena", abi_word((uint32_t)(SMALL_ARENA / ABI_BLOCK_BYTES), UINT32_MAX), 0},
            {"last block there could be", abi_word(UINT32_MAX, UINT32_MAX), 0},
            {"a free chunk", abi_word(5 * ABI_BLOCKS_PER_CHUNK, UINT32_MAX), 0},
            {"roots", abi_word((uint32_t)(offset / ABI_BLOCK_BYTES), UINT32_MAX), 0},
            {"within a piece", abi_word(abi_word_block(pieces) + 1, UINT32_MAX), 0},
            {"second page of a piece", abi_word(abi_word_block(pieces) + ABI_BLOCKS_PER_PAGE, UINT32_MAX), 0},
            {"beside a piece", abi_word(abi_word_block(pieces), 0xfffffffe), 0},
            {"piece", abi_word(abi_word_block(pieces), UINT32_MAX), 1},
            {"within an extent", abi_word(abi_word_block(large) + 8, UINT32_MAX), 0},
            {"tail of an extent", abi_word(abi_word_block(large) + ABI_BLOCKS_PER_CHUNK, UINT32_MAX), 0},
            {"extent", large, 1},
            {"extent twice", large, 0},
        };

        for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
            uint32_t block = abi_word_block(cases[i].word);

            bytes = 1;
            extent = true;
            if (heap_take(f.heap, block, abi_word_mask(cases[i].word), &bytes, &extent) != cases[i].accepted)
                fail_msg("%s: not what was expected", cases[i].what);
            if (!cases[i].accepted)
                assert_true(bytes == 0 && !extent);
            assert_audit_clean(&f);
        }
    }
    fixture_deinit(&f);
}

static void test_take_tells_bytes_and_channel(void **state)
{
    uint64_t words[3], bytes;
    static const uint64_t expected[] = {512, 3 * ABI_PAGE_BYTES, 40 * ABI_PAGE_BYTES};
    struct heap_figures figures;
    struct fixture f;
    bool extent;

    fixture_init(&f, SMALL_ARENA);
    words[0] = fixture_alloc_word(&f, CLASS_OF_64, 1);
    words[1] = fixture_alloc_pages(&f, 3);
    words[2] = fixture_alloc_pages(&f, 40);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(
            heap_take(f.heap, abi_word_block(words[i]), abi_word_mask(words[i]), &bytes, &extent),
            abi_word_mask(words[i]));
        assert_int_equal(bytes, expected[i]);
        assert_int_equal(extent, i > 0);
    }
    figures = fixture_figures(&f);
    assert_int_equal(figures.pending_objects, 10);
    assert_int_equal(figures.pending_bytes, 512 + 43 * ABI_PAGE_BYTES);
    assert_int_equal(figures.out_bytes, figures.pending_bytes);
    assert_int_equal(figures.extents, 2);
    for (unsigned i = 0; i < 3; i++)
        heap_expire(f.heap, words[i]);
    figures = fixture_figures(&f);
    assert_true(figures.out_objects == 0 && figures.out_bytes == 0 && figures.pending_bytes == 0 &&
                figures.extents == 0);
    fixture_deinit(&f);
}

static void test_expire_frees_pending_bits_alone(void **state)
{
    struct fixture f;
    uint64_t word;

    fixture_init(&f, SMALL_ARENA);
    word = fixture_alloc_word(&f, 0, 1);
    heap_expire(f.heap, word); /* nothing of it is pending */
    assert_int_equal(fixture_figures(&f).out_objects, 32);
    assert_int_equal(fixture_take(&f, abi_word(abi_word_block(word), 0xff)), 0xff);
    heap_expire(f.heap, abi_word(abi_word_block(word), 0xfff));
    heap_expire(f.heap, abi_word(abi_word_block(word), 0xfff));
    assert_int_equal(fixture_figures(&f).out_objects, 24);
    assert_audit_clean(&f);
    fixture_deinit(&f);
}

/* ---- Many words at once -- */

static void test_a_row_with_words_that_do_not_wait(void **state)
{
    uint64_t words[16];
    struct fixture f;

    fixture_init(&f, SMALL_ARENA);
    for (unsigned i = 0; i < 16; i++)
        words[i] = fixture_alloc_word(&f, 0, 1);
    for (unsigned i = 0; i < 16; i += 2)
        assert_int_equal(fixture_take(&f, words[i]), UINT32_MAX);
    heap_expire_words(f.heap, words, 16);
    assert_int_equal(fixture_figures(&f).out_objects, 8 * 32);
    assert_int_equal(fixture_figures(&f).pending_objects, 0);
    assert_audit_clean(&f);
    fixture_deinit(&f);
}

static void test_a_row_in_a_span_with_chosen_words(void **state)
{
    uint64_t words[16], chosen[2];
    struct fixture f;
    int error;

    fixture_init(&f, SMALL_ARENA);
    for (unsigned i = 0; i < 16; i++) {
        words[i] = fixture_alloc_word(&f, 0, 1);
        assert_int_equal(fixture_take(&f, words[i]), UINT32_MAX);
    }
    assert_int_equal(heap_reserve(f.heap, 0, chosen, 2, UINT64_MAX, &error), 2);
    heap_expire_words(f.heap, words, 16);
    assert_audit_clean(&f);
    heap_commit_words(f.heap, chosen, 1);
    assert_audit_clean(&f);
    heap_commit_words(f.heap, chosen, 2); /* the first is out already */
    heap_commit_words(f.heap, chosen, 2);
    assert_audit_clean(&f);
    assert_int_equal(fixture_figures(&f).out_objects, 2 * 32);
    assert_int_equal(heap_reserve(f.heap, 0, chosen, 2, UINT64_MAX, &error), 2);
    heap_commit_words(f.heap, chosen, 2);
    heap_commit_words(f.heap, chosen, 2);
    assert_audit_clean(&f);
    fixture_deinit(&f);
}

static void test_a_row_of_extents(void **state)
{
    uint64_t words[15], taken[15];
    struct heap_taken sums;
    struct fixture f;

    fixture_init(&f, SMALL_ARENA);
    for (unsigned i = 0; i < 15; i++)
        assert_int_equal(heap_extent_reserve(f.heap, 1, &words[i]), 0);
    heap_commit_words(f.heap, words, 15);
    assert_int_equal(fixture_figures(&f).extents, 15);
    assert_int_equal(heap_take_words(f.heap, words, 15, taken, &sums), 0); /* another channel's */
    assert_int_equal(sums.n_words, 0);
    for (unsigned i = 0; i < 15; i++)
        assert_int_equal(fixture_take(&f, words[i]), 1);
    heap_expire_words(f.heap, words, 15);
    assert_int_equal(fixture_figures(&f).extents, 0);
    assert_audit_clean(&f);
    fixture_deinit(&f);
}

static uint64_t memory_of(const struct fixture *f)
{
    struct stat st;

    assert_int_equal(fstat(f->fd, &st), 0);
    return (uint64_t)st.st_blocks * 512;
}

/*
 * No bit at all: wherever the block is, no truth word is looked at, written or told of, and the row goes on.
 * Behind the truth words is a page that nobody may touch; those of a hole have no memory, and get none.
 */
static void test_records_of_nothing(void **state)
{
    const struct {
        const char *what;
        uint32_t block;
    } cases[] = {
        {"chunk 0", 0},
        {"a hole", 200 * ABI_BLOCKS_PER_CHUNK + 5},
        {"the last block", 16 * MIB / ABI_BLOCK_BYTES - 1},
        {"the first one outside", 16 * MIB / ABI_BLOCK_BYTES},
        {"far outside", UINT32_MAX},
        {"the sign", 1u << 31},
        {"live objects", ABI_FIRST_BLOCK},
    };
    struct fixture f;

    fixture_init(&f, 16 * MIB);
    for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
        uint64_t live = fixture_alloc_word(&f, CLASS_OF_64, 1), memory = memory_of(&f), accepted[3];
        const uint64_t words[] = {abi_word(cases[i].block, 0), live, abi_word(cases[i].block, 0)};
        struct heap_taken sums;

        assert_int_equal(heap_take_words(f.heap, words, 3, accepted, &sums), 3);
        if (sums.n_words != 1 || accepted[0] != live || sums.n_objects != 8 || sums.n_refused != 0)
            fail_msg("%s: %u words of %u objects, %u refused", cases[i].what, (unsigned)sums.n_words,
                     (unsigned)sums.n_objects, (unsigned)sums.n_refused);
        if (memory_of(&f) != memory)
            fail_msg("%s: truth words were looked at", cases[i].what);
    }
    assert_int_equal(fixture_figures(&f).pending_objects, 8 * ARRAY_SIZE(cases));
    assert_audit_clean(&f);
    fixture_deinit(&f);
}

static void test_records_are_taken_in_place(void **state)
{
    uint64_t a, b, words[6];
    struct heap_taken sums;
    struct fixture f;

    fixture_init(&f, SMALL_ARENA);
    a = fixture_alloc_word(&f, CLASS_OF_64, 1);
    b = fixture_alloc_word(&f, 0, 1);
    words[0] = abi_word(3, 7);                          /* chunk 0 */
    words[1] = a | 0x6;                                 /* two bits too many */
    words[2] = abi_word(UINT32_MAX, 1);                 /* outside */
    words[3] = abi_word(abi_word_block(a), 0x11111111); /* again */
    words[4] = abi_word(abi_word_block(b), 0xff);
    words[5] = b; /* the rest of it */
    assert_int_equal(heap_take_words(f.heap, words, 6, words, &sums), 6);
    assert_int_equal(sums.n_words, 3);
    assert_int_equal(words[0], a);
    assert_int_equal(words[1], abi_word(abi_word_block(b), 0xff));
    assert_int_equal(words[2], abi_word(abi_word_block(b), 0xffffff00));
    assert_int_equal(sums.n_objects, 8 + 32);
    assert_int_equal(sums.n_refused, 3 + 2 + 1 + 8 + 8);
    assert_int_equal(sums.n_bytes, 512 + 512);
    fixture_deinit(&f);
}

static void test_a_huge_arena_takes_no_memory(void **state)
{
    uint64_t seed = 1, words[4], cursor = 0, pending;
    struct heap_hole hole;
    struct fixture f;

    fixture_init(&f, ABI_ARENA_BYTES_MAX);
    for (unsigned i = 0; i < 20000; i++)
        assert_int_equal(fixture_take(&f, abi_word((uint32_t)fixture_random(&seed, UINT32_MAX), UINT32_MAX)),
                         0);
    words[0] = fixture_alloc_word(&f, 0, 1);
    words[1] = fixture_alloc_pages(&f, 1);
    words[2] = fixture_alloc_pages(&f, 100);
    words[3] = fixture_alloc_word(&f, CLASS_OF_3584, 1);
    for (unsigned i = 0; i < 20000; i++)
        (void)heap_object_bytes(f.heap, (uint32_t)fixture_random(&seed, UINT32_MAX));
    assert_true(heap_range_is_free(f.heap, 64 * MIB, ABI_ARENA_BYTES_MAX / 2));
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(fixture_take(&f, words[i]), abi_word_mask(words[i]));
    assert_int_equal(heap_pending(f.heap, &pending, 1, &cursor), 1);
    cursor = 0;
    assert_int_equal(heap_purge_begin(f.heap, &hole, 1, &heap_all, &cursor), 0);
    assert_audit_clean(&f);
    f.heap = heap_free(f.heap);
    assert_int_equal(fixture_start(&f), 0); /* a start looks at what was used, and nowhere else */
    assert_int_equal(fixture_figures(&f).out_objects, 32 + 3);
    assert_audit_clean(&f);
    assert_true(memory_of(&f) <= 16 * ABI_PAGE_BYTES);
    fixture_deinit(&f);
}

/* ---- Roots, the walk of what waits -- */

static void test_roots_are_made_once(void **state)
{
    uint64_t offset, again, words[64];
    struct fixture f;
    int error;

    fixture_init(&f, ABI_ARENA_BYTES_MIN);
    f.fail = ENOMEM;
    assert_int_equal(heap_roots(f.heap, &offset), -ENOMEM);
    assert_audit_clean(&f);
    f.fail = 0;
    assert_int_equal(heap_roots(f.heap, &offset), 0);
    assert_true(f.memory[offset / ABI_PAGE_BYTES]);
    assert_int_equal(heap_roots(f.heap, &again), 0);
    assert_int_equal(again, offset);
    f.heap = heap_free(f.heap);
    assert_int_equal(fixture_start(&f), 0);
    assert_int_equal(heap_roots(f.heap, &again), 0);
    assert_int_equal(again, offset);
    while (heap_reserve(f.heap, 0, words, 64, UINT64_MAX, &error) > 0) /* nobody ever gets that chunk */
        assert_int_not_equal(word_chunk(words[0]), offset / ABI_CHUNK_BYTES);
    assert_audit_clean(&f);
    fixture_deinit(&f);
}

static void test_pending_words_are_found_in_order(void **state)
{
    uint64_t expected[5], words[3], cursor = 0, n = 0;
    struct fixture f;

    fixture_init(&f, SMALL_ARENA);
    expected[0] = fixture_alloc_word(&f, 0, 1);
    expected[1] = fixture_alloc_word(&f, 0, 1);
    (void)fixture_alloc_word(&f, 7, 1); /* out, not pending */
    expected[2] = fixture_alloc_word(&f, 9, 1);
    expected[4] = fixture_alloc_pages(&f, 2);
    expected[3] = fixture_alloc_pages(&f, 50);
    for (unsigned i = 0; i < 5; i++)
        assert_int_equal(fixture_take(&f, expected[i]), abi_word_mask(expected[i]));
    for (unsigned got; (got = heap_pending(f.heap, words, 3, &cursor)) > 0;)
        for (unsigned i = 0; i < got; i++)
            assert_int_equal(words[i], expected[n++]);
    assert_int_equal(n, 5);
    fixture_deinit(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_patterns_have_each_object_once),
        cmocka_unit_test(test_every_class_fills_a_span),
        cmocka_unit_test(test_reserve_keeps_its_limits),
        cmocka_unit_test(test_reserve_says_why_there_is_nothing),
        cmocka_unit_test(test_what_is_reserved_is_not_chosen_twice),
        cmocka_unit_test(test_a_words_free_part_is_whole),
        cmocka_unit_test(test_the_ripest_span_is_used_first),
        cmocka_unit_test(test_a_class_keeps_one_empty_span),
        cmocka_unit_test(test_spans_go_low_and_reuse_what_is_backed),
        cmocka_unit_test(test_frees_between_reserve_and_commit),
        cmocka_unit_test(test_take_refuses_what_is_not_out),
        cmocka_unit_test(test_take_tells_bytes_and_channel),
        cmocka_unit_test(test_expire_frees_pending_bits_alone),
        cmocka_unit_test(test_a_row_with_words_that_do_not_wait),
        cmocka_unit_test(test_a_row_in_a_span_with_chosen_words),
        cmocka_unit_test(test_a_row_of_extents),
        cmocka_unit_test(test_records_of_nothing),
        cmocka_unit_test(test_records_are_taken_in_place),
        cmocka_unit_test(test_a_huge_arena_takes_no_memory),
        cmocka_unit_test(test_roots_are_made_once),
        cmocka_unit_test(test_pending_words_are_found_in_order),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
