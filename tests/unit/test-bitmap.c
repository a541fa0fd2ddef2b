/* SPDX-License-Identifier: MIT */
/* The hierarchical bitmap against a plain array, over sizes that end in and beyond each level. */
#include "heap-fixture.h"

#include "engine/bitmap.h"

#define STEPS 4000

struct naive {
    uint64_t n;
    bool *bits;
};

static uint64_t naive_next(const struct naive *m, uint64_t from, bool value)
{
    for (; from < m->n; from++)
        if (m->bits[from] == value)
            return from;
    return BITMAP_NONE;
}

static uint64_t naive_prev(const struct naive *m, uint64_t from, bool value)
{
    for (from = MIN(from, m->n - 1) + 1; from-- > 0;)
        if (m->bits[from] == value)
            return from;
    return BITMAP_NONE;
}

static void compare_at(const struct bitmap *b, const struct naive *m, uint64_t from)
{
    assert_int_equal(bitmap_next_set(b, from), naive_next(m, from, true));
    assert_int_equal(bitmap_next_clear(b, from), naive_next(m, from, false));
    assert_int_equal(bitmap_prev_set(b, from), naive_prev(m, from, true));
    assert_int_equal(bitmap_prev_clear(b, from), naive_prev(m, from, false));
    if (from < m->n)
        assert_int_equal(bitmap_test(b, from), m->bits[from]);
}

static void random_steps(uint64_t n, uint64_t seed)
{
    struct naive m = {n, calloc(n, 1)};
    void *memory = calloc(1, bitmap_bytes(n));
    struct bitmap b;

    assert_non_null(m.bits);
    assert_non_null(memory);
    bitmap_init(&b, memory, n);
    for (unsigned i = 0; i < STEPS; i++) {
        uint64_t first = fixture_random(&seed, n);
        /* Mostly short ranges, now and then whatever fits, so that words fill up and empty at all levels. */
        uint64_t length =
            1 + fixture_random(&seed, fixture_random(&seed, 8) ? MIN(n - first, 70ull) : n - first);
        bool value = fixture_random(&seed, 2);

        if (value)
            bitmap_set(&b, first, length);
        else
            bitmap_clear(&b, first, length);
        memset(m.bits + first, value, length);
        compare_at(&b, &m, fixture_random(&seed, n));
        compare_at(&b, &m, first);
        compare_at(&b, &m, first + length);
        compare_at(&b, &m, 0);
        compare_at(&b, &m, n - 1);
    }
    free(memory);
    free(m.bits);
}

static void test_finds_what_a_plain_array_finds(void **state)
{
    static const uint64_t sizes[] = {1,    2,    63,   64,   65,     127,    128,
                                     4095, 4096, 4097, 5000, 262144, 262145, 300000};

    for (unsigned i = 0; i < ARRAY_SIZE(sizes); i++)
        random_steps(sizes[i], 0x9e3779b97f4a7c15ull + i);
}

static void test_empty_and_full(void **state)
{
    static const uint64_t sizes[] = {1, 64, 100, 4096, 10000, 600000};

    for (unsigned i = 0; i < ARRAY_SIZE(sizes); i++) {
        uint64_t n = sizes[i];
        void *memory = calloc(1, bitmap_bytes(n));
        struct bitmap b;

        assert_non_null(memory);
        bitmap_init(&b, memory, n);
        assert_int_equal(bitmap_next_set(&b, 0), BITMAP_NONE);
        assert_int_equal(bitmap_prev_set(&b, n - 1), BITMAP_NONE);
        assert_int_equal(bitmap_next_clear(&b, n), BITMAP_NONE);
        bitmap_set(&b, 0, n);
        assert_int_equal(bitmap_next_clear(&b, 0), BITMAP_NONE);
        assert_int_equal(bitmap_prev_clear(&b, n + 1000), BITMAP_NONE);
        assert_int_equal(bitmap_prev_set(&b, n + 1000), n - 1);
        bitmap_clear(&b, n - 1, 1);
        assert_int_equal(bitmap_next_clear(&b, 0), n - 1);
        free(memory);
    }
}

static void test_what_is_never_set_takes_no_memory(void **state)
{
    uint64_t n = ABI_ARENA_BYTES_MAX / ABI_CHUNK_BYTES;
    size_t bytes = bitmap_bytes(n), n_pages = DIV_ROUND_UP(bytes, (size_t)sysconf(_SC_PAGESIZE)),
           n_resident = 0;
    void *memory =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    unsigned char *resident = malloc(n_pages);
    struct bitmap b;

    assert_ptr_not_equal(memory, MAP_FAILED);
    assert_non_null(resident);
    (void)madvise(memory, bytes, MADV_NOHUGEPAGE); /* else one touch counts as 512 pages */
    bitmap_init(&b, memory, n);
    bitmap_set(&b, n / 2, 1);
    assert_int_equal(bitmap_next_set(&b, 0), n / 2);
    assert_int_equal(bitmap_prev_set(&b, n - 1), n / 2);
    assert_int_equal(mincore(memory, bytes, resident), 0);
    for (size_t i = 0; i < n_pages; i++)
        n_resident += resident[i] & 1;
    assert_true(n_resident <= 24); /* a few words a level, and what the search read */
    free(resident);
    assert_int_equal(munmap(memory, bytes), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_finds_what_a_plain_array_finds),
        cmocka_unit_test(test_empty_and_full),
        cmocka_unit_test(test_what_is_never_set_takes_no_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
