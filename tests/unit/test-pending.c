/* SPDX-License-Identifier: MIT */
/* Pages of deferred objects: cookies, order, charges, and what happens without memory. */
#include "lane-fixture.h"

#define CLASS_16 0u
#define CLASS_64 3u
#define CLASS_512 15u

static void take_as(struct lane_fixture *l, struct account *a, uint64_t word)
{
    struct intake in;

    pending_intake_begin(&in, &l->pending, l->f.heap, a);
    assert_int_equal(pending_take(&in, abi_word_block(word), abi_word_mask(word)), 0);
    pending_intake_end(&in);
}

static void take(struct lane_fixture *l, uint64_t word)
{
    take_as(l, &l->accounts[0], word);
}

static void take_objects(struct lane_fixture *l, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        take(l, fixture_alloc_word(&l->f, CLASS_512, 512));
}

/* ---- P1, P2 ---- */

/* Each cookie is of the moment when its page closes, not of when it was opened. */
static void test_cookie_after_last_append(void **state)
{
    struct lane_fixture l;
    struct bulk_page *page;

    lane_fixture_init(&l);
    take_objects(&l, 1);
    page = l.pending.open[PENDING_SPANS];
    l.started = 10; /* a grace period began meanwhile: it serves nothing of this page */
    take_objects(&l, 1);
    assert_ptr_equal(l.pending.open[PENDING_SPANS], page);
    l.started = 20;
    pending_close(&l.pending);
    assert_ptr_equal(l.pending.closed.first, page);
    assert_int_equal(page->cookie, 21);
    assert_null(l.pending.open[PENDING_SPANS]);
    take_objects(&l, 1);
    assert_int_equal(page->n_objects, 2); /* nothing is appended to a closed page */
    lane_fixture_deinit(&l);
}

/* A full page closes when the next record comes; its cookie is of then. */
static void test_full_page_closes(void **state)
{
    struct lane_fixture l;

    lane_fixture_init(&l);
    take_objects(&l, BULK_RECORDS);
    assert_int_equal(l.pending.closed.n_pages, 0);
    l.started = 7;
    take_objects(&l, 1);
    assert_int_equal(l.pending.closed.n_pages, 1);
    assert_int_equal(l.pending.closed.n_objects, BULK_RECORDS);
    assert_int_equal(l.pending.closed.first->cookie, 8);
    assert_int_equal(l.pending.n_objects, BULK_RECORDS + 1);
    lane_fixture_deinit(&l);
}

/* Channels have pages of their own; whichever closes first, the list is in the order of cookies. */
static void test_channels_and_order(void **state)
{
    static const char *orders[] = {"se", "es", "sse", "ese", "fe", "ef", "efse"};

    for (unsigned i = 0; i < ARRAY_SIZE(orders); i++) {
        struct lane_fixture l;
        uint64_t last = 0, n = 0;

        lane_fixture_init(&l);
        for (const char *c = orders[i]; *c; c++, l.started += 3) {
            if (*c == 'e')
                take(&l, fixture_alloc_pages(&l.f, 2));
            else
                take_objects(&l, *c == 'f' ? BULK_RECORDS + 1 : 1);
        }
        pending_close(&l.pending);
        for (struct bulk_page *p = l.pending.closed.first; p; p = p->next) {
            assert_true(p->cookie >= last);
            last = p->cookie;
            for (unsigned k = 0; k < p->n_records; k++)
                assert_int_equal(heap_object_bytes(l.f.heap, abi_word_block(p->records[k])),
                                 p->channel == PENDING_EXTENTS ? 2 * ABI_PAGE_BYTES : 512);
            n += p->n_objects;
        }
        assert_int_equal(last, l.started + 1);
        assert_int_equal(n, l.pending.total_objects);
        lane_fixture_deinit(&l);
    }
}

/* A page of much memory closes before it is full, and zeroing it counts for as long as it takes. */
static void test_pages_of_much_memory(void **state)
{
    enum { EXTENT_PAGES = 256 }; /* a quarter of BULK_BYTES */
    struct lane_fixture l;
    struct intake in;

    lane_fixture_init(&l);
    pending_intake_begin(&in, &l.pending, l.f.heap, &l.accounts[0]);
    for (unsigned i = 0; i < 10; i++) {
        uint64_t word = fixture_alloc_pages(&l.f, EXTENT_PAGES);

        if (i == 6) { /* another look at the ring goes on with the page of the one before */
            pending_intake_end(&in);
            pending_intake_begin(&in, &l.pending, l.f.heap, &l.accounts[0]);
        }
        assert_int_equal(pending_take(&in, abi_word_block(word), abi_word_mask(word)), 0);
    }
    pending_intake_end(&in);
    pending_close(&l.pending);
    assert_int_equal(l.pending.closed.n_pages, 3);
    for (const struct bulk_page *p = l.pending.closed.first; p; p = p->next)
        assert_true(p->n_bytes <= BULK_BYTES);
    l.started++;
    /* without zeroing a page is a page; with it the first one alone is more than two */
    assert_int_equal(pending_expire(&l.pending, l.f.heap, &l.pending.closed, l.started, 1, NULL), 1);
    assert_int_equal(pending_expire(&l.pending, l.f.heap, &l.pending.closed, l.started, 2, l.arena),
                     1 + BULK_BYTES / BULK_ZERO_BYTES);
    assert_int_equal(l.pending.closed.n_pages, 1);
    (void)pending_expire(&l.pending, l.f.heap, &l.pending.closed, l.started, 2, l.arena);
    assert_int_equal(l.pending.total_objects, 0);
    assert_audit_clean(&l.f);
    lane_fixture_deinit(&l);
}

static void test_expires_oldest_first(void **state)
{
    struct lane_fixture l;

    lane_fixture_init(&l);
    for (l.started = 0; l.started < 5; l.started++) { /* cookies 1 to 5 */
        take_objects(&l, 10);
        pending_close(&l.pending);
    }
    assert_int_equal(pending_expire(&l.pending, l.f.heap, &l.pending.closed, 0, 99, NULL), 0);
    assert_int_equal(pending_expire(&l.pending, l.f.heap, &l.pending.closed, 3, 2, NULL), 2);
    assert_int_equal(l.pending.closed.first->cookie, 3);
    assert_int_equal(pending_expire(&l.pending, l.f.heap, &l.pending.closed, 3, 99, NULL), 1);
    assert_int_equal(pending_expire(&l.pending, l.f.heap, &l.pending.closed, 3, 99, NULL), 0);
    assert_int_equal(l.pending.n_objects, 20);
    assert_int_equal(l.pending.total_objects, 20);
    assert_int_equal(l.pending.freed_objects, 30);
    assert_int_equal(l.pending.freed_bytes, 30 * 512);
    assert_int_equal(fixture_figures(&l.f).out_objects, 20);
    assert_int_equal(fixture_figures(&l.f).pending_objects, 20);
    assert_audit_clean(&l.f);
    lane_fixture_deinit(&l);
}

static void test_page_lists(void **state)
{
    struct bulk_page pages[3] = {
        {.n_objects = 1, .n_bytes = 16}, {.n_objects = 2, .n_bytes = 32}, {.n_objects = 3}};
    struct page_list a, b;

    page_list_init(&a);
    page_list_init(&b);
    assert_null(page_list_pop(&a));
    page_list_splice(&a, &b);
    assert_null(a.first);
    page_list_append(&b, &pages[0]);
    page_list_append(&b, &pages[1]);
    page_list_splice(&a, &b);
    assert_null(b.first);
    assert_int_equal(b.n_pages + b.n_objects + b.n_bytes, 0);
    page_list_append(&b, &pages[2]); /* an emptied list can be used again */
    page_list_splice(&a, &b);
    assert_int_equal(a.n_pages, 3);
    assert_int_equal(a.n_objects, 6);
    assert_int_equal(a.n_bytes, 48);
    for (unsigned i = 0; i < 3; i++)
        assert_ptr_equal(page_list_pop(&a), &pages[i]);
    assert_int_equal(a.n_pages + a.n_objects + a.n_bytes, 0);
    page_list_append(&a, &pages[0]);
    assert_ptr_equal(page_list_pop(&a), &pages[0]);
}

/* ---- P4 ---- */

static unsigned n_released;

static void release(struct account *a)
{
    assert_int_equal(a->pending_objects, 0);
    assert_int_equal(a->pending_bytes, 0);
    n_released++;
}

/* A client goes while its objects wait: its account ends once, with the last page that charges it. */
static void test_account_ends_with_last_page(void **state)
{
    struct lane_fixture l;
    struct account a = {.release = release}, unused = {.release = release};

    lane_fixture_init(&l);
    n_released = 0;
    account_close(&unused);
    assert_int_equal(n_released, 1);
    take_as(&l, &a, fixture_alloc_word(&l.f, CLASS_64, 512));
    take_as(&l, &a, fixture_alloc_pages(&l.f, 3));
    pending_close(&l.pending);
    l.started++;
    take_as(&l, &a, fixture_alloc_word(&l.f, CLASS_64, 512));
    assert_int_equal(a.pending_objects, 17);
    assert_int_equal(a.pending_bytes, 16 * 64 + 3 * ABI_PAGE_BYTES);
    account_close(&a);
    assert_int_equal(n_released, 1);
    assert_int_equal(pending_expire(&l.pending, l.f.heap, &l.pending.closed, l.started, 99, NULL), 2);
    assert_int_equal(a.pending_objects, 8);
    assert_int_equal(n_released, 1);
    lane_fixture_grace(&l);
    assert_int_equal(n_released, 2);
    lane_fixture_deinit(&l);
    assert_int_equal(n_released, 2);
}

/* More clients than a page has room for charges: another page, and each is charged for its own. */
static void test_many_accounts(void **state)
{
    enum { ACCOUNTS = BULK_CHARGES * 2 + 3, ROUNDS = 5 };
    struct lane_fixture l;
    struct account accounts[ACCOUNTS] = {0};

    lane_fixture_init(&l);
    for (unsigned round = 0; round < ROUNDS; round++)
        for (unsigned i = 0; i < ACCOUNTS; i++)
            for (unsigned n = 0; n <= i % 3; n++)
                take_as(&l, &accounts[i], fixture_alloc_word(&l.f, CLASS_512, 512));
    pending_close(&l.pending);
    for (const struct bulk_page *p = l.pending.closed.first; p; p = p->next)
        assert_true(p->n_charges <= BULK_CHARGES);
    for (unsigned i = 0; i < ACCOUNTS; i++) {
        assert_int_equal(accounts[i].pending_objects, ROUNDS * (i % 3 + 1));
        assert_int_equal(accounts[i].pending_bytes, ROUNDS * (i % 3 + 1) * 512);
    }
    lane_fixture_grace(&l);
    for (unsigned i = 0; i < ACCOUNTS; i++)
        assert_int_equal(accounts[i].pending_objects + accounts[i].pending_bytes + accounts[i].refs, 0);
    assert_int_equal(l.pending.total_objects + l.pending.total_bytes, 0);
    assert_int_equal(fixture_figures(&l.f).out_objects, 0);
    assert_audit_clean(&l.f);
    lane_fixture_deinit(&l);
}

/* A page that is dropped charges nobody any more, and its objects stay pending for who drops it to free. */
static void test_drop_page(void **state)
{
    struct lane_fixture l;
    uint64_t word;

    lane_fixture_init(&l);
    word = fixture_alloc_word(&l.f, CLASS_512, 512);
    take(&l, word);
    pending_close(&l.pending);
    pending_drop_page(&l.pending, page_list_pop(&l.pending.closed));
    assert_int_equal(l.accounts[0].pending_objects, 0);
    assert_int_equal(l.accounts[0].refs, 0);
    assert_true(word_is_pending(&l, word));
    pending_expire_object(&l.pending, l.f.heap, word, NULL);
    assert_false(word_is_out(&l, word));
    assert_int_equal(l.pending.total_objects, 0);
    assert_int_equal(l.pending.freed_bytes, 512);
    lane_fixture_deinit(&l);
}

/* What is refused is nobody's: neither charged nor listed. */
static void test_refused(void **state)
{
    struct lane_fixture l;
    uint64_t word;

    lane_fixture_init(&l);
    word = fixture_alloc_word(&l.f, CLASS_64, 512);
    take(&l, abi_word(abi_word_block(word), 0xff)); /* 0x01 and 0x10 are objects */
    assert_int_equal(l.accounts[0].refused, 6);
    assert_int_equal(l.accounts[0].pending_objects, 2);
    take(&l, abi_word(abi_word_block(word), 0x11));
    assert_int_equal(l.accounts[0].refused, 8);
    assert_int_equal(l.pending.open[PENDING_SPANS]->n_records, 1);
    assert_int_equal(l.pending.total_bytes, 2 * 64);
    lane_fixture_deinit(&l);
}

/* ---- P3 ---- */

static int take_without_memory(struct lane_fixture *l, uint64_t word)
{
    struct intake in;
    int r;

    malloc_left = 0;
    pending_intake_begin(&in, &l->pending, l->f.heap, &l->accounts[0]);
    r = pending_take(&in, abi_word_block(word), abi_word_mask(word));
    pending_intake_end(&in);
    malloc_left = -1;
    return r;
}

static void test_starved(void **state)
{
    struct lane_fixture l;
    uint64_t word, extent;

    lane_fixture_init(&l);
    take_objects(&l, 3); /* a page with room: no memory is needed */
    assert_int_equal(take_without_memory(&l, fixture_alloc_word(&l.f, CLASS_512, 512)), 0);
    word = fixture_alloc_word(&l.f, CLASS_64, 512);
    extent = fixture_alloc_pages(&l.f, 5);
    assert_int_equal(take_without_memory(&l, extent), -ENOBUFS);
    assert_true(l.pending.starved);
    assert_true(word_is_pending(&l, extent));
    assert_int_equal(l.pending.total_objects, 5);
    assert_int_equal(l.pending.total_bytes, 4 * 512 + 5 * ABI_PAGE_BYTES);
    pending_close(&l.pending);
    l.started++;
    assert_int_equal(pending_expire(&l.pending, l.f.heap, &l.pending.closed, l.started, 9, NULL), 1);
    assert_int_equal(pending_sweep(&l.pending, l.f.heap, NULL), 1);
    assert_false(l.pending.starved);
    assert_int_equal(l.pending.sweep_cookie, 0);
    assert_false(word_is_out(&l, extent));
    assert_true(word_is_out(&l, word) && !word_is_pending(&l, word)); /* nobody deferred it */
    assert_int_equal(l.pending.total_objects + l.pending.total_bytes, 0);
    assert_int_equal(l.pending.freed_objects, 5);
    assert_int_equal(l.pending.freed_bytes, 4 * 512 + 5 * ABI_PAGE_BYTES);
    assert_int_equal(pending_sweep(&l.pending, l.f.heap, NULL), 0);
    assert_audit_clean(&l.f);
    lane_fixture_deinit(&l);
}

/* A few empty pages are kept, so that short memory is not felt at once; under pressure they go. */
static void test_spare_pages(void **state)
{
    struct lane_fixture l;

    lane_fixture_init(&l);
    for (unsigned i = 0; i < PENDING_SPARE_MAX + 3; i++) {
        take_objects(&l, 1);
        pending_close(&l.pending);
    }
    lane_fixture_grace(&l);
    assert_int_equal(l.pending.n_spare, PENDING_SPARE_MAX);
    assert_int_equal(take_without_memory(&l, fixture_alloc_word(&l.f, CLASS_512, 512)), 0);
    lane_fixture_grace(&l);
    pending_drop_spare(&l.pending);
    assert_int_equal(l.pending.n_spare, 0);
    assert_int_equal(take_without_memory(&l, fixture_alloc_word(&l.f, CLASS_512, 512)), -ENOBUFS);
    lane_fixture_grace(&l);
    lane_fixture_deinit(&l);
}

/* ---- zero-on-free, figures ---- */

static bool is_filled(const struct lane_fixture *l, uint64_t offset, uint64_t bytes, char value)
{
    for (uint64_t i = 0; i < bytes; i++)
        if (l->arena[offset + i] != value)
            return false;
    return true;
}

/* Freed objects are zero to their last byte, their neighbours are as they were. */
static void test_zero_on_free(void **state)
{
    static const unsigned classes[] = {0, 2, 3, 7, 9, 15, 20, 26};

    for (unsigned i = 0; i < ARRAY_SIZE(classes); i++) {
        struct lane_fixture l;
        uint64_t bytes = abi_class_bytes(classes[i]), kept, freed;

        lane_fixture_init(&l);
        freed = fixture_alloc_word(&l.f, classes[i], 1);
        kept = fixture_alloc_word(&l.f, classes[i], 1);
        if (mask_count(abi_word_mask(freed)) > 1) { /* all of a block but its last */
            kept = abi_word(abi_word_block(freed), 0x80000000u >> __builtin_clz(abi_word_mask(freed)));
            freed &= ~(uint64_t)abi_word_mask(kept);
        }
        memset(l.arena + ABI_CHUNK_BYTES, 'x', 4 * ABI_CHUNK_BYTES);
        take(&l, freed);
        pending_close(&l.pending);
        (void)pending_expire(&l.pending, l.f.heap, &l.pending.closed, 1, 9, l.arena);
        for (uint64_t m = abi_word_mask(freed); m; m &= m - 1)
            assert_true(is_filled(&l, word_offset(abi_word(abi_word_block(freed), (uint32_t)m)), bytes, 0));
        for (uint64_t m = abi_word_mask(kept); m; m &= m - 1)
            assert_true(is_filled(&l, word_offset(abi_word(abi_word_block(kept), (uint32_t)m)), bytes, 'x'));
        lane_fixture_deinit(&l);
    }
}

/* In whatever way they are freed. */
static void test_zero_on_free_everywhere(void **state)
{
    struct lane_fixture l;
    uint64_t words[3];

    lane_fixture_init(&l);
    for (unsigned i = 0; i < 3; i++) {
        words[i] = i == 2 ? fixture_alloc_pages(&l.f, 2) : fixture_alloc_word(&l.f, CLASS_512, 512);
        memset(l.arena + word_offset(words[i]), 'x', i == 2 ? 2 * ABI_PAGE_BYTES + 1 : 512);
    }
    assert_int_equal(take_without_memory(&l, words[0]), -ENOBUFS);
    (void)pending_sweep(&l.pending, l.f.heap, l.arena);
    take(&l, words[1]);
    pending_close(&l.pending);
    pending_drop_page(&l.pending, page_list_pop(&l.pending.closed));
    pending_expire_object(&l.pending, l.f.heap, words[1], l.arena);
    take(&l, words[2]);
    pending_close(&l.pending);
    pending_expire_page(&l.pending, l.f.heap, page_list_pop(&l.pending.closed), l.arena);
    for (unsigned i = 0; i < 3; i++)
        assert_true(is_filled(&l, word_offset(words[i]), i == 2 ? 2 * ABI_PAGE_BYTES : 512, 0));
    if (word_offset(words[2]) + 2 * ABI_PAGE_BYTES < FIXTURE_ARENA_BYTES)
        assert_int_equal(l.arena[word_offset(words[2]) + 2 * ABI_PAGE_BYTES], 'x');
    lane_fixture_deinit(&l);
}

static void test_histogram(void **state)
{
    static const struct {
        unsigned n, bucket;
    } cases[] = {{1, 0}, {2, 1}, {3, 1}, {4, 2}, {7, 2}, {8, 3}, {255, 7}, {256, 8}, {456, 8}};
    struct lane_fixture l;
    uint64_t n_objects = 0;

    lane_fixture_init(&l);
    pending_close(&l.pending); /* nothing: no page, no count */
    for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
        uint64_t before = l.pending.histogram[cases[i].bucket];

        take_objects(&l, cases[i].n);
        lane_fixture_grace(&l);
        n_objects += cases[i].n;
        assert_int_equal(l.pending.histogram[cases[i].bucket], before + 1);
        assert_int_equal(l.pending.n_pages_closed, i + 1);
        assert_int_equal(l.pending.n_page_objects, n_objects);
    }
    for (unsigned i = 0; i < 100; i++) /* 32 objects a record: many more than 512 in a page */
        take(&l, fixture_alloc_word(&l.f, CLASS_16, 512));
    pending_close(&l.pending);
    assert_int_equal(l.pending.histogram[PENDING_HISTOGRAM - 1], 1);
    lane_fixture_deinit(&l);
}

/* What waits is known at each moment, through any mixture of all that can happen. */
static void test_totals_at_random(void **state)
{
    struct lane_fixture l;
    uint64_t seed = 0x70741, waiting = 0;

    lane_fixture_init(&l);
    for (unsigned i = 0; i < 5000; i++) {
        switch (fixture_random(&seed, 5)) {
        case 0:
            waiting += 512;
            take_objects(&l, 1);
            break;
        case 1:
            waiting += ABI_PAGE_BYTES;
            take(&l, fixture_alloc_pages(&l.f, 1));
            break;
        case 2:
            pending_close(&l.pending);
            break;
        case 3:
            l.started++;
            break;
        default:
            (void)pending_expire(&l.pending, l.f.heap, &l.pending.closed, l.started,
                                 (unsigned)fixture_random(&seed, 3), NULL);
            waiting = l.pending.total_bytes;
        }
        assert_int_equal(l.pending.total_bytes, waiting);
        assert_int_equal(l.pending.n_bytes, waiting); /* no batch holds any */
        assert_int_equal(l.accounts[0].pending_bytes, waiting);
        assert_int_equal(fixture_figures(&l.f).pending_objects, l.pending.total_objects);
    }
    lane_fixture_grace(&l);
    assert_int_equal(l.pending.total_bytes + l.pending.n_objects + l.accounts[0].refs, 0);
    assert_audit_clean(&l.f);
    lane_fixture_deinit(&l);
}

/* ---- P5 ---- */

/* A page whose cookie was lost, or became a number that nobody took, holds up nobody else and is not freed. */
static void check_kept(uint64_t cookie)
{
    struct lane_fixture l;

    lane_fixture_init(&l);
    take_objects(&l, 3);
    pending_close(&l.pending);
    take_objects(&l, 4);
    pending_close(&l.pending);
    l.pending.closed.first->cookie = cookie;
    l.started = 1;
    assert_int_equal(pending_expire(&l.pending, l.f.heap, &l.pending.closed, l.started, 9, NULL), 2);
    assert_int_equal(l.pending.freed_objects, 4);
    assert_int_equal(l.pending.kept.n_objects, 3);
    assert_int_equal(l.pending.total_objects, 3);
    assert_int_equal(l.pending.n_objects, 0); /* no drain asks for it again */
    assert_int_equal(l.accounts[0].pending_objects, 3);
    assert_int_equal(fixture_figures(&l.f).out_objects, 3);
    (void)pending_sweep(&l.pending, l.f.heap, NULL); /* that proves a grace period for all */
    assert_int_equal(l.pending.kept.n_pages, 0);
    assert_int_equal(l.accounts[0].pending_objects, 0);
    assert_int_equal(fixture_figures(&l.f).out_objects, 0);
    lane_fixture_deinit(&l);
}

static void test_unproven_page_is_kept(void **state)
{
    check_kept(0);
    check_kept(2);
    check_kept(UINT64_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cookie_after_last_append),
        cmocka_unit_test(test_full_page_closes),
        cmocka_unit_test(test_channels_and_order),
        cmocka_unit_test(test_pages_of_much_memory),
        cmocka_unit_test(test_expires_oldest_first),
        cmocka_unit_test(test_page_lists),
        cmocka_unit_test(test_account_ends_with_last_page),
        cmocka_unit_test(test_many_accounts),
        cmocka_unit_test(test_drop_page),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_starved),
        cmocka_unit_test(test_spare_pages),
        cmocka_unit_test(test_zero_on_free),
        cmocka_unit_test(test_zero_on_free_everywhere),
        cmocka_unit_test(test_histogram),
        cmocka_unit_test(test_totals_at_random),
        cmocka_unit_test(test_unproven_page_is_kept),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
