/* SPDX-License-Identifier: MIT */
/* The library without a daemon: allocating, freeing, deferring, bells, waiting for room. */
#include <sched.h>

#include "lib-fixture.h"

static uint64_t ring(const struct fixture *x, uint32_t index)
{
    return x->shared->ring[index % ABI_RING_RECORDS];
}

/* ---- allocating ---- */

static void test_alloc_takes_bits_in_order(void **state)
{
    struct fixture *x = *state;
    struct abi_take *take = &x->shared->take[abi_class_of(32)];

    x->shared->magazine[abi_class_of(32)][0] = abi_word(200, 0x00000015);
    x->shared->magazine[abi_class_of(32)][1] = abi_word(300, 0x80000000);
    store_release(&x->shared->magazine_head[abi_class_of(32)], 2u);
    assert_ptr_equal(reclaim_alloc(x->l, 32), at(200, 0));
    assert_int_equal(take->cur, abi_word(200, 0x14));
    assert_int_equal(take->tail, 1);
    assert_ptr_equal(reclaim_alloc(x->l, 17), at(200, 2));
    assert_ptr_equal(reclaim_alloc(x->l, 32), at(200, 4));
    assert_int_equal(take->tail, 1);
    assert_ptr_equal(reclaim_alloc(x->l, 32), at(300, 31));
    assert_int_equal(take->tail, 2);
    assert_int_equal(abi_word_mask(take->cur), 0);
}

/* The header has its own copy of what the daemon goes by. */
static void test_size_classes(void **state)
{
    for (size_t bytes = 1; bytes <= 3584; bytes++) {
        assert_int_equal(reclaim_class_quick_(bytes), abi_class_of(bytes));
        assert_true(abi_class_bytes(abi_class_of(bytes)) >= bytes);
    }
}

/* What a program without optimization calls is what an optimized one inlines. */
static void test_called_not_inlined(void **state)
{
    struct fixture *x = *state;
    void *(*volatile alloc)(struct reclaim_lane *, size_t) = reclaim_alloc;
    int (*volatile defer)(struct reclaim_lane *, void *) = reclaim_defer_free;

    x->shared->magazine[1][0] = abi_word(200, 0x5);
    store_release(&x->shared->magazine_head[1], 1u);
    assert_ptr_equal(alloc(x->l, 32), at(200, 0));
    assert_ptr_equal(alloc(x->l, 32), at(200, 2));
    assert_int_equal(defer(x->l, at(200, 0)), 0);
    assert_int_equal(defer(x->l, at(200, 2)), 0);
    assert_int_equal(ring(x, 0), abi_word(200, 5));
}

static void test_alloc_all_sizes(void **state)
{
    struct fixture *x = *state;
    char *end = (char *)FAKE_BASE + FAKE_ARENA_BYTES, *last_end = (char *)FAKE_BASE + 65536;

    fake_serve(x->f);
    fake_set(x->f, answer_words, 1);
    for (size_t bytes = 1; bytes <= 20000; bytes += bytes < 4200 ? 7 : 1031) {
        char *p = reclaim_alloc(x->l, bytes);

        assert_non_null(p);
        assert_int_equal((uintptr_t)p % (bytes >= 4096 ? 4096 : 16), 0);
        assert_true(p >= (char *)FAKE_BASE + 65536 && p + bytes <= end);
        if (bytes > 3584)
            assert_true(p >= last_end); /* the fake hands them out in order: nobody else's pages */
        last_end = bytes > 3584 ? p + bytes : last_end;
        memset(p, 0xa5, bytes);
    }
}

static void test_alloc_asks(void **state)
{
    struct fixture *x = *state;

    fake_serve(x->f);
    assert_non_null(reclaim_alloc(x->l, 100));
    assert_int_equal(fake_get(x->f, last_ask) & 0xffffffffffff, (uint64_t)abi_class_of(100) << 32);
    assert_int_equal(reclaim_read_lock(x->l), 0);
    assert_non_null(reclaim_alloc(x->l, 3 * 4096 + 1));
    assert_int_equal(fake_get(x->f, last_ask) & 0xffffffffffff,
                     (uint64_t)ABI_ASK_IN_SECTION << 40 | (uint64_t)ABI_CLASS_EXTENT << 32 | 4);
    reclaim_read_unlock(x->l);
    assert_int_equal(fake_get(x->f, n_asks), 2);
    assert_int_equal(x->shared->waiting, 0);
}

/* What a daemon that was killed before it answered, and its successor, put there both: not of this size. */
static void test_extent_left_over(void **state)
{
    struct fixture *x = *state;
    void *p;

    x->shared->magazine[ABI_CLASS_EXTENT][0] = abi_word(4000, 1);
    store_release(&x->shared->magazine_head[ABI_CLASS_EXTENT], 1u);
    fake_serve(x->f);
    p = reclaim_alloc(x->l, 5 * 4096);
    assert_non_null(p);
    assert_ptr_not_equal(p, at(4000, 0));
    assert_int_equal(ring(x, 0), abi_word(4000, 1)); /* goes back to the daemon */
    assert_int_equal(x->shared->take[ABI_CLASS_EXTENT].tail, 2);
}

/* An answer of several serves as many calls of that size without another question; for another size they go back. */
static void test_extents_answered_at_once(void **state)
{
    struct fixture *x = *state;
    char *first, *last = NULL;

    fake_serve(x->f);
    x->f->answer_extents = 4;
    first = reclaim_alloc(x->l, 2 * 4096);
    for (int i = 1; i < 3; i++)
        last = reclaim_alloc(x->l, 2 * 4096 - i);
    assert_ptr_equal(last, first + 4 * 4096);
    assert_int_equal(fake_get(x->f, n_asks), 1);
    assert_non_null(reclaim_alloc(x->l, 4096));
    assert_int_equal(fake_get(x->f, n_asks), 2);
    assert_int_equal(ring(x, 0), abi_word((uint32_t)((first - (char *)at(0, 0)) / 512) + 3 * 2 * 8, 1));
    assert_int_equal(x->shared->head, 1);
}

static void alloc_fails(struct fixture *x, size_t bytes, int expected)
{
    errno = 0;
    assert_null(reclaim_alloc(x->l, bytes));
    assert_int_equal(errno, expected);
}

static void test_alloc_errors(void **state)
{
    struct fixture *x = *state;

    fake_serve(x->f);
    alloc_fails(x, 0, EINVAL);
    alloc_fails(x, FAKE_ARENA_BYTES + 1, EINVAL);
    alloc_fails(x, SIZE_MAX, EINVAL);
    fake_set(x->f, answer_error, -ENOMEM);
    alloc_fails(x, 64, ENOMEM);
    alloc_fails(x, 5000, ENOMEM);
    fake_set(x->f, answer_error, 0);
    assert_non_null(reclaim_alloc(x->l, 64)); /* and again, once there is some */
    fake_set(x->f, answer_words, 0);
    alloc_fails(x, 128, ENOMEM); /* a daemon that answers with nothing does not make us loop */
    store_release(&x->shared->evicted, 1u);
    alloc_fails(x, 256, ESHUTDOWN);
    alloc_fails(x, 5000, ESHUTDOWN);
}

static void test_read_only(void **state)
{
    struct fixture *x = *state;

    alloc_fails(x, 16, EROFS);
    assert_int_equal(reclaim_defer_free(x->l, at(200, 0)), -EROFS);
    assert_int_equal(reclaim_free(x->l, at(200, 0)), -EROFS);
    assert_int_equal(reclaim_defer_free(x->l, NULL), 0);
    assert_int_equal(reclaim_read_lock(x->l), 0);
    reclaim_read_unlock(x->l);
}

static void test_alloc_rings_when_low(void **state)
{
    struct fixture *x = *state;
    unsigned c = abi_class_of(512);

    for (uint32_t i = 0; i < 16; i++)
        x->shared->magazine[c][i] = abi_word(200 + i, 1);
    store_release(&x->shared->magazine_head[c], 16u);
    assert_int_equal(reclaim_defer_free(x->l, at(4000, 0)), 0); /* rings for this want */
    x->f->domain->sleeps = ABI_DOZING;
    for (int i = 0; i < 11; i++)
        assert_non_null(reclaim_alloc(x->l, 512));
    assert_int_equal(fake_bells(x->f), 0);
    assert_non_null(reclaim_alloc(x->l, 512)); /* 4 are left: a quarter of 16, less the first */
    assert_non_null(reclaim_alloc(x->l, 512));
    assert_true(fake_bells(x->f) > 0);
    assert_non_null(reclaim_alloc(x->l, 512));
    assert_non_null(reclaim_alloc(x->l, 512));
    assert_int_equal(fake_bells(x->f), 0); /* once for each filling */
}

/* ---- giving back ---- */

static void test_free_goes_back_to_cur(void **state)
{
    struct fixture *x = *state;
    void *p, *q;

    x->shared->magazine[0][0] = abi_word(200, 0x7);
    store_release(&x->shared->magazine_head[0], 1u);
    p = reclaim_alloc(x->l, 16);
    q = reclaim_alloc(x->l, 16);
    assert_int_equal(reclaim_free(x->l, p), 0);
    assert_int_equal(x->shared->take[0].cur, abi_word(200, 0x5));
    assert_int_equal(reclaim_free(x->l, p), -EINVAL);
    assert_int_equal(x->shared->head, 0);
    assert_ptr_equal(reclaim_alloc(x->l, 16), p);
    assert_int_equal(reclaim_free(x->l, q), 0);
    assert_int_equal(reclaim_free(x->l, at(200, 5)), 0); /* not from that word: the daemon decides */
    assert_int_equal(ring(x, 0), abi_word(200, 1 << 5));
    assert_int_equal(reclaim_free(x->l, at(201, 0)), 0);
    assert_int_equal(x->shared->head, 2);
    assert_int_equal(reclaim_free(x->l, NULL), 0);
    assert_int_equal(reclaim_free(x->l, (char *)p + 8), -EINVAL);
}

/* Extents are made to measure, so the next one would not take it from `cur`. */
static void test_free_of_extent_goes_to_the_daemon(void **state)
{
    struct fixture *x = *state;
    void *p;

    fake_serve(x->f);
    p = reclaim_alloc(x->l, 8000);
    assert_int_equal(reclaim_free(x->l, p), 0);
    assert_int_equal(abi_word_mask(x->shared->take[ABI_CLASS_EXTENT].cur), 0);
    assert_int_equal(x->shared->head, 1);
    assert_int_equal(abi_word_mask(ring(x, 0)), 1);
}

/* ---- deferring ---- */

static void test_defer_gathers_neighbours(void **state)
{
    struct fixture *x = *state;

    assert_int_equal(reclaim_defer_free(x->l, at(200, 0)), 0);
    assert_int_equal(reclaim_defer_free(x->l, at(200, 31)), 0);
    assert_int_equal(reclaim_defer_free(x->l, at(200, 7)), 0);
    assert_int_equal(x->shared->head, 1);
    assert_int_equal(ring(x, 0), abi_word(200, 0x80000081));
    assert_int_equal(reclaim_defer_free(x->l, at(200, 7)),
                     0); /* twice: a record of its own, for the daemon to refuse */
    assert_int_equal(x->shared->head, 2);
    assert_int_equal(ring(x, 1), abi_word(200, 0x80));
    assert_int_equal(reclaim_defer_free(x->l, at(4321, 7)), 0);
    assert_int_equal(ring(x, 2), abi_word(4321, 0x80));
    assert_int_equal(ring(x, 0), abi_word(200, 0x80000081));
}

static void test_defer_refuses(void **state)
{
    struct fixture *x = *state;
    int on_the_stack;

    assert_int_equal(reclaim_defer_free(x->l, NULL), 0);
    assert_int_equal(reclaim_defer_free(x->l, at(ABI_FIRST_BLOCK - 1, 31)), -EINVAL);
    assert_int_equal(reclaim_defer_free(x->l, (char *)at(200, 0) + 1), -EINVAL);
    assert_int_equal(reclaim_defer_free(x->l, (char *)at(200, 0) + 8), -EINVAL);
    assert_int_equal(reclaim_defer_free(x->l, (char *)FAKE_BASE + FAKE_ARENA_BYTES), -EINVAL);
    assert_int_equal(reclaim_defer_free(x->l, &on_the_stack), -EINVAL);
    assert_int_equal(reclaim_defer_free(x->l, (void *)UINTPTR_MAX), -EINVAL);
    assert_int_equal(x->shared->head, 0);
    assert_int_equal(reclaim_defer_free(x->l, at(ABI_FIRST_BLOCK, 0)), 0);
    assert_int_equal(reclaim_defer_free(x->l, (char *)at(ABI_FIRST_BLOCK, 3) + 4), -EINVAL);
    assert_int_equal(reclaim_defer_free(x->l, (char *)FAKE_BASE + FAKE_ARENA_BYTES - 16), 0);
    assert_int_equal(x->shared->head, 2);
}

/* Each value of `want` rings once, with a bit in an open record too; only a daemon that sleeps is written to. */
static void check_bells(struct fixture *x)
{
    x->f->domain->sleeps = ABI_ASLEEP;
    assert_int_equal(reclaim_defer_free(x->l, at(200, 0)), 0);
    assert_int_equal(x->shared->bell, x->shared->want);
    assert_int_equal(fake_bells(x->f), 1);
    assert_int_equal(reclaim_defer_free(x->l, at(200, 1)), 0);
    assert_int_equal(reclaim_defer_free(x->l, at(300, 1)), 0);
    assert_int_equal(fake_bells(x->f), 0);
    store_release(&x->shared->want, 7u);
    assert_int_equal(reclaim_defer_free(x->l, at(300, 2)), 0);
    assert_int_equal(x->shared->bell, 7);
    assert_int_equal(fake_bells(x->f), 1);
    assert_int_equal(ring(x, 1), abi_word(300, 6));
    x->f->domain->sleeps = ABI_AWAKE;
    store_release(&x->shared->want, 8u);
    assert_int_equal(reclaim_defer_free(x->l, at(200, 2)), 0);
    assert_int_equal(x->shared->bell, 8);
    assert_int_equal(fake_bells(x->f), 0);
}

static void test_bells(void **state)
{
    check_bells(*state);
}

/* The same lane where membarrier does not help. */
static void test_fenced_lane(void **state)
{
    struct fixture *x = *state;

    assert_int_equal(x->l->fence, 1);
    assert_int_equal(x->l->n_granules, 0); /* or the inlined part would defer without a fence */
    check_bells(x);
    fake_serve(x->f);
    assert_non_null(reclaim_alloc(x->l, 16));
    assert_int_equal(reclaim_free(x->l, at(300, 3)), 0);
    assert_int_equal(reclaim_defer_free(x->l, (char *)at(200, 0) + 1), -EINVAL);
    assert_int_equal(reclaim_defer_free(x->l, (char *)FAKE_BASE + FAKE_ARENA_BYTES), -EINVAL);
    assert_int_equal(reclaim_read_lock(x->l), 0);
    reclaim_read_unlock(x->l);
}

static void test_dozing_daemon_hears_of_floods_and_extents(void **state)
{
    struct fixture *x = *state;

    x->f->domain->sleeps = ABI_DOZING;
    x->f->domain->flood_objects = 64;
    x->f->domain->extent_block = 4000;
    assert_int_equal(reclaim_defer_free(x->l, at(200, 0)), 0);
    (void)fake_bells(x->f); /* the first one of this want */
    for (unsigned i = 1; i < 32; i++)
        assert_int_equal(reclaim_defer_free(x->l, at(200, i)), 0);
    for (unsigned i = 0; i < 31; i++)
        assert_int_equal(reclaim_defer_free(x->l, at(201, i)), 0);
    assert_int_equal(reclaim_defer_free(x->l, at(202, 0)), 0); /* 63 in closed records */
    assert_int_equal(fake_bells(x->f), 0);
    assert_int_equal(reclaim_defer_free(x->l, at(203, 0)), 0);
    assert_int_equal(fake_bells(x->f), 1);
    assert_int_equal(reclaim_defer_free(x->l, at(204, 0)), 0);
    assert_int_equal(fake_bells(x->f), 0);
    assert_int_equal(reclaim_defer_free(x->l, at(4000, 0)), 0);
    assert_int_equal(fake_bells(x->f), 1);
    x->f->domain->sleeps = ABI_AWAKE;
    assert_int_equal(reclaim_defer_free(x->l, at(4008, 0)), 0);
    assert_int_equal(fake_bells(x->f), 0);
}

/* Every second block, so that each makes a record. */
static void fill_ring(struct fixture *x)
{
    for (uint32_t i = 0; i < ABI_RING_RECORDS; i++)
        assert_int_equal(reclaim_defer_free(x->l, at(ABI_FIRST_BLOCK + i % 1024 * 2, 0)), 0);
    assert_int_equal(x->shared->head - x->shared->tail, ABI_RING_RECORDS);
}

/* What cannot be given back is not lost: it is given back the next time, or handed out. */
static void test_extents_that_cannot_go_back(void **state)
{
    struct fixture *x = *state;
    struct abi_take *take = &x->shared->take[ABI_CLASS_EXTENT];
    char *p;

    fill_ring(x);
    fake_set(x->f, answer_extents, 4);
    fake_serve(x->f); /* collects nothing */
    p = reclaim_alloc(x->l, 5 * 4096);
    assert_non_null(p);
    store_release(&x->shared->over_limit, 1u);
    assert_int_equal(reclaim_read_lock(x->l), 0);
    for (unsigned i = 0; i < 2; i++) {
        errno = 0;
        assert_null(reclaim_alloc(x->l, 6 * 4096));
        assert_int_equal(errno, ENOMEM);
        assert_int_equal(take->cur, abi_word((uint32_t)((p + 5 * 4096 - (char *)FAKE_BASE) / 512), 1));
        assert_int_equal(take->tail, 2);
    }
    reclaim_read_unlock(x->l);
    for (unsigned i = 1; i < 4; i++)
        assert_ptr_equal(reclaim_alloc(x->l, 5 * 4096), p + i * 5 * 4096);
    assert_int_equal(abi_word_mask(take->cur), 0);
    assert_int_equal(fake_get(x->f, n_asks), 1);
}

static void test_defer_waits_for_room(void **state)
{
    struct fixture *x = *state;

    fill_ring(x);
    assert_int_equal(reclaim_defer_free(x->l, at(ABI_FIRST_BLOCK + 1023 * 2, 5)),
                     0); /* the open one still takes bits */
    fake_set(x->f, collects, true);
    fake_serve(x->f);
    assert_int_equal(reclaim_read_lock(x->l), 0); /* for a collect also in a section */
    for (uint32_t i = 0; i < 3 * ABI_RING_RECORDS; i++)
        assert_int_equal(reclaim_defer_free(x->l, at(ABI_FIRST_BLOCK + i % 1024, i / 1024)), 0);
    reclaim_read_unlock(x->l);
    assert_int_equal(x->shared->head, 4 * ABI_RING_RECORDS);
    assert_int_equal(x->shared->waiting, 0);
}

/* With many lanes each may bind less: the ring counts as full before it is, but in a section, and for a chain. */
static void test_defer_fills_its_share(void **state)
{
    struct fixture *x = *state;
    uint32_t most = 0;

    x->f->domain->ring_records = 8;
    assert_int_equal(reclaim_read_lock(x->l), 0);
    for (uint32_t i = 0; i < 20; i++) /* nobody collects: whoever waited would wait for ever */
        assert_int_equal(reclaim_defer_free(x->l, at(300 + i, 0)), 0);
    reclaim_read_unlock(x->l);
    assert_int_equal(x->shared->head - x->shared->tail, 20);
    fake_set(x->f, collects, true);
    fake_serve(x->f);
    for (uint32_t i = 0; i < 100; i++) {
        assert_int_equal(reclaim_defer_free(x->l, at(400 + i, 0)), 0);
        most = MAX(most, x->shared->head - load_acquire(&x->shared->tail));
    }
    assert_true(most <= 8);
    assert_int_equal(x->shared->head, 120);
}

static void test_defer_over_limit(void **state)
{
    struct fixture *x = *state;

    fill_ring(x);
    store_release(&x->shared->over_limit, 1u);
    fake_serve(x->f); /* collects nothing */
    assert_int_equal(reclaim_read_lock(x->l), 0);
    assert_int_equal(reclaim_defer_free(x->l, at(200, 1)), -EDEADLK);
    assert_int_equal(reclaim_defer_free(x->l, at(200, 1)), -EDEADLK);
    assert_int_equal(x->shared->head, ABI_RING_RECORDS);
    reclaim_read_unlock(x->l);
    fake_set(x->f, collects, true);
    assert_int_equal(reclaim_defer_free(x->l, at(200, 1)),
                     0); /* outside it waits, and the daemon makes room */
    assert_int_equal(ring(x, ABI_RING_RECORDS), abi_word(200, 2));
}

static void test_defer_evicted(void **state)
{
    struct fixture *x = *state;

    assert_int_equal(reclaim_defer_free(x->l, at(200, 1)), 0);
    store_release(&x->shared->evicted, 1u);
    assert_int_equal(reclaim_defer_free(x->l, at(201, 1)), -ESHUTDOWN);
    assert_int_equal(x->shared->head, 1);
}

/* ---- a daemon that goes away ---- */

static void *hang_up_when_waiting(void *arg)
{
    struct fixture *x = arg;

    until_waiting(&x->shared->waiting);
    fake_stop(x->f);
    return NULL;
}

static void test_alloc_outlives_daemon(void **state)
{
    struct fixture *x = *state;
    struct reclaim_lane *l;
    pthread_t thread;
    void **word;

    pthread_create(&thread, NULL, hang_up_when_waiting, x);
    alloc_fails(x, 16, ESHUTDOWN);
    pthread_join(thread, NULL);
    assert_int_equal(reclaim_root(x->r, "x", &word), -ESHUTDOWN);
    assert_int_equal(reclaim_synchronize(x->l, 0, NULL), -ESHUTDOWN);
    assert_int_equal(reclaim_barrier(x->l, NULL), -ESHUTDOWN);
    assert_int_equal(reclaim_defer_free(x->l, at(200, 0)), 0);
    reclaim_lane_put(x->l);
    assert_int_equal(reclaim_lane_get(x->r, &l), -ESHUTDOWN);
}

static void test_defer_outlives_daemon(void **state)
{
    struct fixture *x = *state;
    pthread_t thread;

    fill_ring(x);
    pthread_create(&thread, NULL, hang_up_when_waiting, x);
    assert_int_equal(reclaim_defer_free(x->l, at(200, 0)), -ESHUTDOWN);
    pthread_join(thread, NULL);
}

static void *evict_when_waiting(void *arg)
{
    struct fixture *x = arg;

    until_waiting(&x->shared->waiting);
    store_release(&x->shared->evicted, 1u);
    return NULL;
}

static void test_evicted_while_waiting(void **state)
{
    struct fixture *x = *state;
    pthread_t thread;

    pthread_create(&thread, NULL, evict_when_waiting, x);
    alloc_fails(x, 16, ESHUTDOWN);
    pthread_join(thread, NULL);
}

/* Who publishes pairs with who reads: used as written, C11. */
static void test_publish_and_dereference(void **state)
{
    struct fixture *x = *state;
    int *root = NULL, *p;

    fake_serve(x->f);
    p = reclaim_alloc(x->l, sizeof(*p));
    *p = 42;
    reclaim_assign_pointer(x->l, root, p);
    assert_int_equal(reclaim_read_lock(x->l), 0);
    assert_int_equal(*reclaim_dereference(root), 42);
    reclaim_read_unlock(x->l);
}

#define TEST_WITH(name, setup_function) cmocka_unit_test_setup_teardown(test_##name, setup_function, teardown)
#define TEST(name) TEST_WITH(name, setup)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(alloc_takes_bits_in_order),
        TEST(size_classes),
        TEST(called_not_inlined),
        TEST(alloc_all_sizes),
        TEST(alloc_asks),
        TEST(extent_left_over),
        TEST(extents_answered_at_once),
        TEST(extents_that_cannot_go_back),
        TEST(alloc_errors),
        TEST_WITH(read_only, setup_read_only),
        TEST(alloc_rings_when_low),
        TEST(free_goes_back_to_cur),
        TEST(free_of_extent_goes_to_the_daemon),
        TEST(defer_gathers_neighbours),
        TEST(defer_refuses),
        TEST(bells),
        TEST_WITH(fenced_lane, setup_fenced),
        TEST(dozing_daemon_hears_of_floods_and_extents),
        TEST(defer_waits_for_room),
        TEST(defer_fills_its_share),
        TEST(defer_over_limit),
        TEST(defer_evicted),
        TEST(alloc_outlives_daemon),
        TEST(defer_outlives_daemon),
        TEST(evicted_while_waiting),
        TEST(publish_and_dereference),
    };

    return cmocka_run_group_tests_name("lib-memory", tests, NULL, NULL);
}
