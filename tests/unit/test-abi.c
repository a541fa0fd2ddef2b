/* SPDX-License-Identifier: MIT */
/* What daemon and clients of different builds must agree on: layouts, words, size classes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "abi.h"
#include "basic/macro.h"

/* A change here is another major version; the numbers are what version 1 is. */
static void test_layout(void **state)
{
    static const struct {
        size_t is, ought;
    } cases[] = {
        {sizeof(struct abi_domain), 256},
        {offsetof(struct abi_domain, base), 24},
        {offsetof(struct abi_domain, readers_must_fence), 44},
        {offsetof(struct abi_domain, started), 64},
        {offsetof(struct abi_domain, completed), 128},
        {offsetof(struct abi_domain, sleeps), 192},
        {offsetof(struct abi_domain, ring_records), 200},
        {offsetof(struct abi_domain, extent_block), 204},
        {sizeof(struct abi_slot), 64},
        {sizeof(struct abi_take), 16},
        {sizeof(struct abi_chain_head), 16},
        {offsetof(struct abi_chain_head, seq), 8},
        {offsetof(struct abi_lane, head), 0},
        {offsetof(struct abi_lane, ask), 16},
        {offsetof(struct abi_lane, ticket), 32},
        {offsetof(struct abi_lane, chain_count), 44},
        {offsetof(struct abi_lane, chain_head), 48},
        {offsetof(struct abi_lane, tail), 64},
        {offsetof(struct abi_lane, answer), 80},
        {offsetof(struct abi_lane, ticket_error), 100},
        {offsetof(struct abi_lane, owner), 128},
        {offsetof(struct abi_lane, rings), 192},
        {offsetof(struct abi_lane, take), 256},
        {offsetof(struct abi_lane, magazine_head), 704},
        {offsetof(struct abi_lane, stall), 832},
        {offsetof(struct abi_lane, ring), 896},
        {offsetof(struct abi_lane, magazine), 36864},
        {sizeof(struct abi_lane), 36864 + 28 * 1024 * 8},
        {sizeof(struct abi_stall), 64},
        {offsetof(struct abi_channel, stalls), 64},
        {sizeof(struct abi_channel), 128},
        {sizeof(struct abi_request), 104},
        {offsetof(struct abi_request, name), 48},
        {sizeof(struct abi_stats), 128},
        {sizeof(struct abi_reply), 384},
        {offsetof(struct abi_reply, stats), 56},
        {offsetof(struct abi_reply, message), 184},
    };

    for (unsigned i = 0; i < ARRAY_SIZE(cases); i++)
        if (cases[i].is != cases[i].ought)
            fail_msg("row %u: %zu, not %zu", i, cases[i].is, cases[i].ought);
}

static size_t line_of(size_t offset)
{
    return offset / ABI_CACHE_LINE;
}

/* W2: who writes one side's words never takes the other side's cache line. */
static void test_writers_have_lines_of_their_own(void **state)
{
    static const struct {
        size_t first, last;
    } writers[] = {
        {offsetof(struct abi_lane, head), offsetof(struct abi_lane, chain_head) + 7},
        {offsetof(struct abi_lane, tail), offsetof(struct abi_lane, ticket_error) + 3},
        {offsetof(struct abi_lane, owner), offsetof(struct abi_lane, owner) + 63},
        {offsetof(struct abi_lane, rings), offsetof(struct abi_lane, rings) + 3},
        {offsetof(struct abi_lane, take), offsetof(struct abi_lane, take) + ABI_CLASSES * 16 - 1},
        {offsetof(struct abi_lane, magazine_head),
         offsetof(struct abi_lane, magazine_head) + ABI_CLASSES * 4 - 1},
        {offsetof(struct abi_lane, stall), offsetof(struct abi_lane, stall) + 63},
        {offsetof(struct abi_lane, ring), offsetof(struct abi_lane, ring) + ABI_RING_RECORDS * 8 - 1},
        {offsetof(struct abi_lane, magazine), sizeof(struct abi_lane) - 1},
    };

    for (unsigned i = 0; i + 1 < ARRAY_SIZE(writers); i++)
        assert_true(line_of(writers[i].last) < line_of(writers[i + 1].first));
    assert_true(line_of(offsetof(struct abi_domain, started)) !=
                line_of(offsetof(struct abi_domain, completed)));
}

static void test_words(void **state)
{
    static const struct {
        uint32_t block, mask;
    } cases[] = {{0, 0}, {1, 0}, {0, 1}, {128, 0x80000001}, {UINT32_MAX, UINT32_MAX}, {0x80000000, 1}};

    for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
        uint64_t word = abi_word(cases[i].block, cases[i].mask);

        assert_int_equal(abi_word_block(word), cases[i].block);
        assert_int_equal(abi_word_mask(word), cases[i].mask);
    }
    assert_int_equal(abi_word(2, 3), 0x200000003);
    assert_int_equal(abi_ask(0x1234, 1, 27, 99), 0x1234011b00000063);
    assert_int_equal(abi_ask(0, 0x1ff, 0x1ff, 0), 0xffff00000000); /* neither runs into its neighbour */
    assert_int_equal(abi_chain_link(0x1234567890, 0xabcdef), 0x1234567890abcdef);
}

/* The table that users size their objects by. */
static const uint32_t class_bytes[] = {16,  32,   48,   64,   80,   96,   112,  128,  160,
                                       192, 224,  256,  320,  384,  448,  512,  640,  768,
                                       896, 1024, 1280, 1536, 1792, 2048, 2560, 3072, 3584};

static void test_class_table(void **state)
{
    assert_int_equal(ARRAY_SIZE(class_bytes), ABI_CLASS_EXTENT);
    assert_int_equal(ABI_CLASSES, ABI_CLASS_EXTENT + 1);
    for (unsigned c = 0; c < ABI_CLASS_EXTENT; c++) {
        assert_int_equal(abi_class_bytes(c), class_bytes[c]);
        assert_int_equal(class_bytes[c] % ABI_GRANULE_BYTES, 0);
    }
}

/* Every size goes to the smallest class that holds it. */
static void test_every_size(void **state)
{
    unsigned c = 0;

    for (size_t bytes = 1; bytes <= 3584; bytes++) {
        if (bytes > class_bytes[c])
            c++;
        if (abi_class_of(bytes) != c)
            fail_msg("%zu bytes: class %u, not %u", bytes, abi_class_of(bytes), c);
    }
    assert_int_equal(abi_class_of(3585), ABI_CLASS_EXTENT);
    assert_int_equal(abi_class_of(4096), ABI_CLASS_EXTENT);
    assert_int_equal(abi_class_of(SIZE_MAX), ABI_CLASS_EXTENT);
}

static void test_geometry(void **state)
{
    assert_int_equal(ABI_BLOCK_BYTES / ABI_GRANULE_BYTES, 32); /* a bit each in a word's mask */
    assert_int_equal(ABI_ARENA_BYTES_MAX / ABI_BLOCK_BYTES, 1ull << 32);
    assert_int_equal(ABI_FIRST_BLOCK * ABI_BLOCK_BYTES, ABI_CHUNK_BYTES);
    assert_true(IS_POWER_OF_TWO(ABI_RING_RECORDS) && IS_POWER_OF_TWO(ABI_MAGAZINE_WORDS));
    assert_true(ABI_WINDOW_END - ABI_WINDOW_START > ABI_WINDOW_BYTES_MAX);
    assert_true(ABI_WINDOW_START % ABI_CHUNK_BYTES == 0 && ABI_WIDE_WINDOW_START % ABI_CHUNK_BYTES == 0);
    assert_true(ABI_ASK_IN_SECTION <= 0xff);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layout),     cmocka_unit_test(test_writers_have_lines_of_their_own),
        cmocka_unit_test(test_words),      cmocka_unit_test(test_class_table),
        cmocka_unit_test(test_every_size), cmocka_unit_test(test_geometry),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
