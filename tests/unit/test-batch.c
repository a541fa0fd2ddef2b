/* SPDX-License-Identifier: MIT */
/* Batches in flight: how many, in which order, and what is left of one that expired in part. */
#include "lane-fixture.h"

#include "engine/batch.h"

#define CLASS_512 15u

static struct batches batches; /* zero in each test */

static int reset(void **state)
{
    batches = (struct batches){0};
    return 0;
}

static void defer(struct lane_fixture *l, unsigned n)
{
    struct intake in;

    pending_intake_begin(&in, &l->pending, l->f.heap, &l->accounts[0]);
    for (unsigned i = 0; i < n; i++) {
        uint64_t word = fixture_alloc_word(&l->f, CLASS_512, 512);

        assert_int_equal(pending_take(&in, abi_word_block(word), abi_word_mask(word)), 0);
    }
    pending_intake_end(&in);
}

/* A batch of n objects, and a grace period begins. */
static struct batch *begin(struct lane_fixture *l, unsigned n, unsigned max)
{
    struct batch *b;

    defer(l, n);
    b = batch_begin(&batches, &l->pending, max);
    l->started++;
    return b;
}

static unsigned expire(struct lane_fixture *l, uint64_t completed, unsigned max_pages)
{
    return batches_expire(&batches, &l->pending, l->f.heap, completed, max_pages, NULL);
}

static void test_max_in_flight(void **state)
{
    static const struct {
        unsigned max, running;
    } cases[] = {{0, 0}, {1, 1}, {2, 2}, {BATCHES_MAX, BATCHES_MAX}, {UINT32_MAX, BATCHES_MAX}};

    for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
        struct lane_fixture l;
        unsigned n = 0;

        (void)reset(NULL);
        lane_fixture_init(&l);
        while (n < 2 * BATCHES_MAX && begin(&l, 1, cases[i].max))
            n++;
        assert_int_equal(n, cases[i].running);
        assert_int_equal(batches.n_running, n);
        assert_int_equal(l.pending.n_objects, 1); /* what comes meanwhile gathers */
        if (n > 0) {
            assert_int_equal(expire(&l, 1, 9), 1); /* one ends: another may begin, and takes all */
            assert_int_equal(begin(&l, 4, cases[i].max)->pages.n_objects, 5);
            assert_int_equal(l.pending.n_objects + l.pending.n_bytes, 0);
        }
        assert_int_equal(expire(&l, l.started, UINT32_MAX), n);
        assert_int_equal(batches.n_running, 0);
        lane_fixture_deinit(&l);
    }
}

/* The parameter is lowered while more are in flight: they end, and no other begins before. */
static void test_max_lowered(void **state)
{
    struct lane_fixture l;

    lane_fixture_init(&l);
    for (unsigned i = 0; i < 4; i++)
        assert_non_null(begin(&l, 1, 4));
    assert_null(begin(&l, 1, 2));
    assert_int_equal(expire(&l, 2, 9), 2);
    assert_null(begin(&l, 1, 2));
    assert_int_equal(expire(&l, 3, 9), 1);
    assert_non_null(begin(&l, 1, 2));
    (void)expire(&l, l.started, 9);
    lane_fixture_deinit(&l);
}

static void test_nothing_pending(void **state)
{
    struct lane_fixture l;

    lane_fixture_init(&l);
    assert_null(batch_begin(&batches, &l.pending, 8));
    assert_int_equal(batches.n_begun + batches.n_running, 0);
    assert_null(batch_oldest(&batches, BATCH_WAITING));
    lane_fixture_deinit(&l);
}

/* A batch waits for its newest page, and each page goes with its own cookie. */
static void test_partial_expiry(void **state)
{
    struct lane_fixture l;
    struct batch *b;

    lane_fixture_init(&l);
    for (unsigned i = 0; i < 3; i++, l.started++) { /* cookies 1, 2, 3 */
        defer(&l, 10);
        pending_close(&l.pending);
    }
    b = begin(&l, 10, 1); /* and 4 */
    assert_int_equal(b->pages.n_pages, 4);
    assert_int_equal(b->cookie, 4);
    assert_int_equal(l.pending.total_objects, 40);
    assert_int_equal(expire(&l, 0, 9), 0);
    assert_int_equal(expire(&l, 2, 9), 2);
    assert_int_equal(b->pages.n_pages, 2);
    assert_int_equal(b->pages.n_objects, 20);
    assert_int_equal(b->stage, BATCH_WAITING);
    assert_int_equal(fixture_figures(&l.f).out_objects, 20);
    assert_int_equal(expire(&l, 3, 9), 1);
    assert_int_equal(expire(&l, 4, 9), 1);
    assert_int_equal(b->stage, BATCH_IDLE);
    assert_int_equal(batches.n_running, 0);
    assert_int_equal(l.pending.total_objects, 0);
    assert_int_equal(l.pending.freed_objects, 40);
    assert_audit_clean(&l.f);
    lane_fixture_deinit(&l);
}

static void test_oldest_first(void **state)
{
    struct lane_fixture l;
    struct batch *b[4];

    lane_fixture_init(&l);
    for (unsigned i = 0; i < 3; i++)
        b[i] = begin(&l, 1, 8);
    assert_int_equal(expire(&l, 1, 9), 1);
    b[3] = begin(&l, 1, 8); /* into the place of the first, and yet the youngest */
    assert_int_equal(b[3]->number, 4);
    assert_ptr_equal(batch_oldest(&batches, BATCH_WAITING), b[1]);
    assert_int_equal(expire(&l, l.started, 1), 1); /* max_pages bounds a turn */
    assert_int_equal(b[1]->stage, BATCH_IDLE);
    assert_ptr_equal(batch_oldest(&batches, BATCH_WAITING), b[2]);
    assert_int_equal(expire(&l, l.started, 9), 2);
    assert_null(batch_oldest(&batches, BATCH_WAITING));
    for (unsigned i = 0; i < 2; i++)
        (void)begin(&l, BULK_RECORDS + 1, 8);
    assert_int_equal(expire(&l, l.started, 3), 3); /* of all batches together */
    assert_int_equal(batches.n_running, 1);
    assert_int_equal(expire(&l, l.started, 3), 1);
    lane_fixture_deinit(&l);
}

/* What waits in the callback FIFO is left to it. */
static void test_queued_batches(void **state)
{
    struct lane_fixture l;
    struct batch *first, *second;

    lane_fixture_init(&l);
    first = begin(&l, BULK_RECORDS * 2 + 5, 8);
    second = begin(&l, 3, 8);
    first->stage = BATCH_QUEUED;
    assert_ptr_equal(batch_oldest(&batches, BATCH_QUEUED), first);
    assert_ptr_equal(batch_oldest(&batches, BATCH_WAITING), second);
    assert_int_equal(expire(&l, l.started, 9), 1);
    assert_int_equal(second->stage, BATCH_IDLE);
    batch_expire_all(&batches, first, &l.pending, l.f.heap, l.started, NULL);
    assert_int_equal(l.pending.freed_objects, BULK_RECORDS * 2 + 5 + 3);
    assert_int_equal(first->stage, BATCH_IDLE);
    assert_int_equal(batches.n_running, 0);
    assert_int_equal(fixture_figures(&l.f).out_objects, 0);
    lane_fixture_deinit(&l);
}

/* The batch ends, but what cannot prove its own cookie does not go with it. */
static void test_queued_batch_keeps(void **state)
{
    struct lane_fixture l;
    struct batch *b;

    lane_fixture_init(&l);
    b = begin(&l, BULK_RECORDS + 5, 8);
    b->pages.first->cookie = 0;
    b->stage = BATCH_QUEUED;
    batch_expire_all(&batches, b, &l.pending, l.f.heap, l.started, NULL);
    assert_int_equal(batches.n_running, 0);
    assert_int_equal(l.pending.freed_objects, 5);
    assert_int_equal(l.pending.kept.n_objects, BULK_RECORDS);
    lane_fixture_deinit(&l);
}

/* batching = no: pages are taken out one by one, and the batch ends with the last. */
static void test_pages_taken_out(void **state)
{
    struct lane_fixture l;
    struct batch *b;

    lane_fixture_init(&l);
    b = begin(&l, BULK_RECORDS + 1, 8);
    assert_int_equal(b->pages.n_pages, 2);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(batches.n_running, 1);
        pending_drop_page(&l.pending, page_list_pop(&b->pages));
        batch_end_if_empty(&batches, b);
    }
    assert_int_equal(batches.n_running, 0);
    assert_int_equal(b->stage, BATCH_IDLE);
    assert_int_equal(l.accounts[0].pending_objects, 0);
    lane_fixture_deinit(&l);
}

/* The arena goes: no account is charged for it any more. */
static void test_drop(void **state)
{
    struct lane_fixture l;
    struct batch *b;

    lane_fixture_init(&l);
    b = begin(&l, BULK_RECORDS + 1, 8);
    batch_drop(b, &l.pending);
    assert_int_equal(l.accounts[0].pending_objects + l.accounts[0].refs, 0);
    assert_int_equal(b->pages.n_pages, 0);
    lane_fixture_deinit(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_max_in_flight, reset),
        cmocka_unit_test_setup(test_max_lowered, reset),
        cmocka_unit_test_setup(test_nothing_pending, reset),
        cmocka_unit_test_setup(test_partial_expiry, reset),
        cmocka_unit_test_setup(test_oldest_first, reset),
        cmocka_unit_test_setup(test_queued_batches, reset),
        cmocka_unit_test_setup(test_queued_batch_keeps, reset),
        cmocka_unit_test_setup(test_pages_taken_out, reset),
        cmocka_unit_test_setup(test_drop, reset),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
