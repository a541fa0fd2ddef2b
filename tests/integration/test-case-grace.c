/* SPDX-License-Identifier: MIT */
/* Who waits for whom: cases 02, 21 and 22. */
#include "daemon-fixture.h"

enum {
    EXTENT_BYTES = 8192,
    SPAN_BYTES = 256,
    MANY_OBJECTS = 24000, /* more than a ring and the limit below hold together */
    WAITERS = 12,         /* a group of them */
};

/* ---- 02 ---------------------------------------------------------------------------------------------------------------- */

static void *act_synchronize(struct actor *a, void *userdata)
{
    const struct timespec limit = seconds(HANG_SECONDS);

    (void)__atomic_add_fetch((int *)userdata, 1, __ATOMIC_SEQ_CST);
    return (void *)(intptr_t)reclaim_synchronize(a->lane, 0, &limit);
}

/* Defers all of them; how many calls said -EDEADLK, after which the object stays ours. -1: something else. */
static long defer_all(struct reclaim_lane *l, void **objects, long n)
{
    long n_refused = 0;

    for (long i = 0; i < n; i++) {
        int r = reclaim_defer_free(l, objects[i]);

        if (r != 0 && r != -EDEADLK)
            return -1;
        if (r == 0)
            objects[i] = NULL;
        n_refused += r != 0;
    }
    return n_refused;
}

static void case_02_defer_in_section_while_another_synchronizes(void **state)
{
    struct daemon *d = *state;
    static void *objects[MANY_OBJECTS];
    struct actor other = {0};
    struct reclaim_lane *l;
    struct reclaim *r;
    int n_waiting = 0;

    daemon_start(d, "--arena", "a:32M", "--set", "client-pending-max=256K", "--set", "drain-interval=20ms",
                 NULL);
    r = must_open(d, "a");
    l = must_lane(r);
    actor_start(&other, r);
    for (int i = 0; i < MANY_OBJECTS; i++)
        objects[i] = must_alloc(l, SPAN_BYTES);

    assert_int_equal(reclaim_read_lock(l), 0);
    actor_begin(&other, act_synchronize, &n_waiting);
    assert_true(wait_until(__atomic_load_n(&n_waiting, __ATOMIC_SEQ_CST) == 1));
    /* what could never end says so at once */
    assert_int_equal(reclaim_synchronize(l, 0, NULL), -EDEADLK);
    assert_int_equal(reclaim_barrier(l, NULL), -EDEADLK);
    /* a full ring's worth is always there; beyond the limit the call says why it cannot wait */
    assert_int_equal(defer_all(l, objects, ABI_RING_RECORDS / 2), 0);
    assert_true(defer_all(l, objects + ABI_RING_RECORDS / 2, MANY_OBJECTS - ABI_RING_RECORDS / 2) > 0);
    reclaim_read_unlock(l);

    assert_null(actor_end(&other));
    assert_int_equal(defer_all(l, objects, MANY_OBJECTS),
                     0); /* outside the call waits instead; NULL is fine */
    assert_int_equal(reclaim_barrier(l, NULL), 0);
    assert_int_equal(arena_figure(d, "a", "pendingObjects"), 0);
    assert_int_equal(arena_figure(d, "a", "refusedRecords"), 0);
    actor_stop(&other);
    reclaim_close(r);
    daemon_stop(d);
}

/* Two threads that each defer in a section and synchronize outside, for ever in each other's way. */
static void *act_defer_and_synchronize(struct actor *a, void *userdata)
{
    const struct timespec limit = seconds(HANG_SECONDS);

    for (int i = 0; i < 200; i++) {
        int r = reclaim_read_lock(a->lane);

        for (int j = 0; j < 64 && r == 0; j++)
            r = reclaim_defer_free(a->lane, reclaim_alloc(a->lane, 64));
        reclaim_read_unlock(a->lane);
        if (r == 0 && i % 8 == 0)
            r = reclaim_synchronize(a->lane, i % 16 ? RECLAIM_EXPEDITED : 0, &limit);
        if (r < 0)
            return (void *)(intptr_t)r;
    }
    return NULL;
}

static void case_02_both_at_once(void **state)
{
    struct daemon *d = *state;
    struct actor one = {0}, two = {0};
    struct reclaim *r;

    daemon_start(d, "--arena", "a:16M", "--set", "drain-interval=5ms", NULL);
    r = must_open(d, "a");
    actor_start(&one, r);
    actor_start(&two, r);
    actor_begin(&one, act_defer_and_synchronize, NULL);
    actor_begin(&two, act_defer_and_synchronize, NULL);
    assert_null(actor_end(&one));
    assert_null(actor_end(&two));
    actor_stop(&one);
    actor_stop(&two);
    reclaim_close(r);
    daemon_stop(d);
}

/*
 * Many rings' worth deferred inside a section, while a grace period waits for that very section and more waits than
 * flood-bytes, so that the daemon would rather not collect: there is room again in the end.
 */
static void case_02_flood_in_section(void **state)
{
    enum { N = 6 * ABI_RING_RECORDS };
    static void *objects[N];
    struct daemon *d = *state;
    struct reclaim_lane *l;
    struct reclaim *r;

    daemon_start(d, "--arena", "a:64M", "--set", "flood-bytes=4K", "--set", "flood-interval=0", "--set",
                 "client-pending-max=100%", NULL);
    r = must_open(d, "a");
    l = must_lane(r);
    for (int i = 0; i < N; i++) /* a block each, so a record each */
        objects[i] = must_alloc(l, 512);
    assert_int_equal(reclaim_read_lock(l), 0);
    assert_int_equal(defer_all(l, objects, N), 0);
    reclaim_read_unlock(l);
    assert_int_equal(reclaim_barrier(l, NULL), 0);
    assert_int_equal(arena_figure(d, "a", "frees"), N);
    reclaim_close(r);
    daemon_stop(d);
}

/* ---- 21 ---------------------------------------------------------------------------------------------------------------- */

static bool bytes_are(const void *p, unsigned char value, size_t n)
{
    const volatile unsigned char *bytes = p;

    for (size_t i = 0; i < n; i++)
        if (bytes[i] != value)
            return false;
    return true;
}

static uint64_t gp_completed(struct reclaim *r)
{
    struct reclaim_stats stats = {.size = sizeof(stats)};

    assert_int_equal(reclaim_stats(r, &stats), 0);
    return (uint64_t)stats.gp_completed;
}

static uint64_t gp_started(struct reclaim *r)
{
    struct reclaim_stats stats = {.size = sizeof(stats)};

    assert_int_equal(reclaim_stats(r, &stats), 0);
    return (uint64_t)stats.gp_started;
}

/*
 * zero-on-free shows when an object is freed: its bytes change. The first record's grace period is held up by an early
 * reader; a late reader, which may see the second object, comes before that one is deferred. When the early reader goes
 * the first object may be freed, the second not.
 */
static void check_order(struct daemon *d, size_t first_bytes, size_t second_bytes, const char *mode)
{
    struct actor early = {0}, late = {0};
    struct reclaim_lane *l;
    struct reclaim *r;
    uint64_t before;
    void *first, *second;

    daemon_start(d, "--arena", "a:16M", "--set", "drain-interval=1ms", "--set", "zero-on-free=yes", "--set",
                 "purge-delay=off", "--set", mode, NULL);
    r = must_open(d, "a");
    l = must_lane(r);
    actor_start(&early, r);
    actor_start(&late, r);
    first = memset(must_alloc(l, first_bytes), 0xa5, first_bytes);
    second = memset(must_alloc(l, second_bytes), 0x5a, second_bytes);

    before = gp_started(r);
    assert_null(actor_do(&early, act_read_lock, NULL));
    assert_int_equal(reclaim_defer_free(l, first), 0);
    assert_true(wait_until(gp_started(r) > before)); /* its batch has its cookie, and waits */
    assert_null(actor_do(&late, act_read_lock, NULL));
    assert_int_equal(reclaim_defer_free(l, second), 0);
    ctl_do(d, "set", "drain-interval=2ms", NULL); /* whatever it waits for, now it looks */
    assert_true(wait_until(arena_figure(d, "a", "pendingObjects") == 2));
    assert_true(bytes_are(first, 0xa5, first_bytes));

    assert_null(actor_do(&early, act_read_unlock, NULL));
    assert_true(wait_until(bytes_are(first, 0, first_bytes)));
    assert_true(gp_completed(r) > before);
    for (int i = 0; i < 30; i++, sleep_ms(2))
        assert_true(bytes_are(second, 0x5a, second_bytes));
    assert_int_equal(arena_figure(d, "a", "pendingObjects"), 1);
    assert_null(actor_do(&late, act_read_unlock, NULL));
    assert_true(wait_until(bytes_are(second, 0, second_bytes)));

    actor_stop(&early);
    actor_stop(&late);
    reclaim_close(r);
    daemon_stop(d);
}

static void case_21_span_page_first(void **state)
{
    check_order(*state, SPAN_BYTES, EXTENT_BYTES, "gp-wait=poll");
    check_order(*state, SPAN_BYTES, EXTENT_BYTES, "gp-wait=callback");
    check_order(*state, SPAN_BYTES, EXTENT_BYTES, "batches=1");
    check_order(*state, SPAN_BYTES, EXTENT_BYTES, "batching=no");
}

static void case_21_extent_page_first(void **state)
{
    check_order(*state, EXTENT_BYTES, SPAN_BYTES, "gp-wait=poll");
    check_order(*state, EXTENT_BYTES, SPAN_BYTES, "gp-wait=callback");
    check_order(*state, EXTENT_BYTES, SPAN_BYTES, "batches=1");
    check_order(*state, EXTENT_BYTES, SPAN_BYTES, "batching=no");
}

static void case_21_same_channel(void **state)
{
    check_order(*state, SPAN_BYTES, SPAN_BYTES, "gp-wait=poll");
    check_order(*state, SPAN_BYTES, SPAN_BYTES, "batching=no");
    check_order(*state, EXTENT_BYTES, EXTENT_BYTES, "gp-wait=poll");
    check_order(*state, EXTENT_BYTES, EXTENT_BYTES, "gp-wait=callback");
}

/* As many as a ring has records, one a record: what is deferred after them is chained. */
static void fill_ring(struct reclaim_lane *l, void *objects[ABI_RING_RECORDS])
{
    for (unsigned i = 0; i < ABI_RING_RECORDS; i++)
        assert_int_equal(reclaim_defer_free_head(l, objects[i], objects[i]), 0);
}

/* Deferred by a way that the ring has no room for. The daemon stands still, and goes on afterwards. */
static void defer_chained(struct daemon *d, struct reclaim_lane *l, void *fillers[ABI_RING_RECORDS],
                          void *object)
{
    fill_ring(l, fillers);
    assert_int_equal(reclaim_defer_free_head(l, object, object), 0);
    assert_true(lane_shared(l)->chain_count > 0);
    daemon_go_on(d);
}

/* The same as check_order(), where one of the two is chained; its first 16 bytes are the library's then. */
static void check_chain_order(struct daemon *d, bool first_chained, const char *mode)
{
    static void *fillers[ABI_RING_RECORDS];
    struct actor early = {0}, late = {0};
    struct reclaim_lane *l;
    struct reclaim *r;
    char *first, *second;
    uint64_t before;

    daemon_start(d, "--arena", "a:32M", "--set", "drain-interval=1ms", "--set", "zero-on-free=yes", "--set",
                 "purge-delay=off", "--set", "client-pending-max=100%", "--set", mode, NULL);
    r = must_open(d, "a");
    l = must_lane(r);
    actor_start(&early, r);
    actor_start(&late, r);
    for (unsigned i = 0; i < ABI_RING_RECORDS; i++)
        fillers[i] = must_alloc(l, 512);
    first = memset(must_alloc(l, SPAN_BYTES), 0xa5, SPAN_BYTES);
    second = memset(must_alloc(l, SPAN_BYTES), 0x5a, SPAN_BYTES);

    before = gp_started(r);
    assert_null(actor_do(&early, act_read_lock, NULL));
    if (first_chained) {
        daemon_halt(d);
        defer_chained(d, l, fillers, first);
    } else {
        assert_int_equal(reclaim_defer_free(l, first), 0);
    }
    assert_true(wait_until(gp_started(r) > before));
    if (!first_chained)
        daemon_halt(d);
    assert_null(actor_do(&late, act_read_lock, NULL));
    if (first_chained)
        assert_int_equal(reclaim_defer_free(l, second), 0);
    else
        defer_chained(d, l, fillers, second);
    assert_true(wait_until(arena_figure(d, "a", "pendingObjects") == ABI_RING_RECORDS + 2));
    assert_true(bytes_are(first + 16, 0xa5, SPAN_BYTES - 16));

    assert_null(actor_do(&early, act_read_unlock, NULL));
    assert_true(wait_until(bytes_are(first, 0, SPAN_BYTES)));
    for (int i = 0; i < 30; i++, sleep_ms(2))
        assert_true(bytes_are(second + 16, 0x5a, SPAN_BYTES - 16));
    assert_null(actor_do(&late, act_read_unlock, NULL));
    assert_true(wait_until(bytes_are(second, 0, SPAN_BYTES)));

    actor_stop(&early);
    actor_stop(&late);
    reclaim_close(r);
    daemon_stop(d);
}

static void case_21_chain_first(void **state)
{
    check_chain_order(*state, true, "gp-wait=poll");
    check_chain_order(*state, true, "gp-wait=callback");
    check_chain_order(*state, true, "batching=no");
}

static void case_21_chain_second(void **state)
{
    check_chain_order(*state, false, "gp-wait=poll");
    check_chain_order(*state, false, "gp-wait=callback");
    check_chain_order(*state, false, "batching=no");
}

/*
 * A reader stays, whatever happens around it: drains, pages that close, modes that change. What it may see
 * of any channel is as it was until it leaves.
 */
static void case_21_reader_keeps_all(void **state)
{
    const size_t sizes[] = {16, SPAN_BYTES, 3000, EXTENT_BYTES, 1 << 20};
    const struct timespec moment = {.tv_nsec = 20000000};
    enum { ROUNDS = 12 };
    static char *objects[ROUNDS][5];
    struct daemon *d = *state;
    struct actor reader = {0};
    struct reclaim_lane *l;
    struct reclaim *r;

    daemon_start(d, "--arena", "a:64M", "--set", "drain-interval=1ms", "--set", "zero-on-free=yes", "--set",
                 "client-pending-max=100%", "--set", "purge-delay=0", NULL);
    r = must_open(d, "a");
    l = must_lane(r);
    actor_start_reading(&reader, r);
    for (int round = 0; round < ROUNDS; round++) {
        static const char *const modes[] = {"batching=no", "gp-wait=callback", "batches=64", "expedited=yes"};

        for (int i = 0; i < 5; i++)
            objects[round][i] = memset(must_alloc(l, sizes[i]), 0xa5, sizes[i]);
        for (int i = 0; i < 5; i++)
            assert_int_equal(reclaim_defer_free(l, objects[round][i]), 0);
        ctl_do(d, "set", modes[round % 4], NULL);
        if (round % 4 == 3)
            ctl_do(d, "reset", "batching", "gp-wait", "batches", "expedited", NULL);
        assert_int_equal(reclaim_barrier(l, &moment),
                         -ETIMEDOUT); /* pages close, a grace period is asked for */
    }
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < 5; i++)
            assert_true(bytes_are(objects[round][i], 0xa5, sizes[i]));
    assert_int_equal(arena_figure(d, "a", "frees"), 0);
    assert_null(actor_do(&reader, act_read_unlock, NULL));
    assert_int_equal(reclaim_barrier(l, NULL), 0);
    for (int round = 0; round < ROUNDS; round++)
        for (int i = 0; i < 5; i++)
            assert_true(bytes_are(objects[round][i], 0, sizes[i]));
    actor_stop(&reader);
    reclaim_close(r);
    daemon_stop(d);
}

/* ---- 22 ---------------------------------------------------------------------------------------------------------------- */

struct group {
    struct actor actors[WAITERS];
    int n_called, n_done;
    bool by_cookie;
};

/* Waits for a grace period that begins after this call, either way. */
static void *act_wait(struct actor *a, void *userdata)
{
    const struct timespec limit = seconds(HANG_SECONDS);
    struct group *g = userdata;
    uint64_t cookie = 0;
    int r = 0;

    if (g->by_cookie)
        r = reclaim_gp_start(a->lane, &cookie);
    (void)__atomic_add_fetch(&g->n_called, 1, __ATOMIC_SEQ_CST);
    if (r == 0)
        r = g->by_cookie ? reclaim_gp_wait(a->lane, cookie, &limit) : reclaim_synchronize(a->lane, 0, &limit);
    (void)__atomic_add_fetch(&g->n_done, 1, __ATOMIC_SEQ_CST);
    return (void *)(intptr_t)r;
}

static void group_call(struct group *g)
{
    for (int i = 0; i < WAITERS; i++)
        actor_begin(&g->actors[i], act_wait, g);
    assert_true(wait_until(__atomic_load_n(&g->n_called, __ATOMIC_SEQ_CST) == WAITERS));
    sleep_ms(20); /* most of them are in the daemon's lists by now; the test is right without */
}

static void group_end(struct group *g)
{
    for (int i = 0; i < WAITERS; i++) {
        assert_null(actor_end(&g->actors[i]));
        actor_stop(&g->actors[i]);
    }
}

/*
 * The first group waits for a grace period that an early reader holds up; a late reader begins, then the second group
 * calls. The end of that grace period serves the first group and none of the second.
 */
static void check_waiters(struct daemon *d, const char *wake, bool by_cookie)
{
    static struct group first, second;
    struct actor early = {0}, late = {0};
    struct reclaim *r;

    first = (struct group){.by_cookie = by_cookie};
    second = (struct group){.by_cookie = by_cookie};
    daemon_start(d, "--arena", "a:16M", "--set", wake, NULL);
    r = must_open(d, "a");
    actor_start(&early, r);
    actor_start(&late, r);
    for (int i = 0; i < WAITERS; i++) {
        actor_start(&first.actors[i], r);
        actor_start(&second.actors[i], r);
    }
    assert_null(actor_do(&early, act_read_lock, NULL));
    group_call(&first);
    assert_true(wait_until(gp_started(r) > 0));
    assert_null(actor_do(&late, act_read_lock, NULL));
    group_call(&second);
    assert_int_equal(__atomic_load_n(&first.n_done, __ATOMIC_SEQ_CST), 0);
    assert_null(actor_do(&early, act_read_unlock, NULL));
    /* those of the first group that came to the daemon after the start wait for the late reader too */
    assert_true(wait_until(__atomic_load_n(&first.n_done, __ATOMIC_SEQ_CST) > 0));
    sleep_ms(50);
    assert_int_equal(__atomic_load_n(&second.n_done, __ATOMIC_SEQ_CST), 0);
    assert_null(actor_do(&late, act_read_unlock, NULL));
    group_end(&first);
    group_end(&second);
    actor_stop(&early);
    actor_stop(&late);
    reclaim_close(r);
    daemon_stop(d);
}

static void case_22_next_grace_period(void **state)
{
    check_waiters(*state, "wake-from-gp=no", false);
    check_waiters(*state, "wake-from-gp=yes", false);
    check_waiters(*state, "wake-from-gp=auto", false);
    check_waiters(*state, "wake-direct=0", false);
}

static void case_22_by_cookie(void **state)
{
    check_waiters(*state, "wake-from-gp=no", true);
    check_waiters(*state, "wake-from-gp=yes", true);
}

/* A wait that was given up is still under way when its thread asks again: its end is not the answer. */
static void case_22_given_up(void **state)
{
    const struct timespec moment = {.tv_nsec = 20000000}, limit = seconds(HANG_SECONDS);
    struct daemon *d = *state;
    struct actor early = {0}, late = {0}, waiter = {0};
    struct reclaim_lane *l;
    struct reclaim *r;
    int n_called = 0;

    daemon_start(d, "--arena", "a:16M", NULL);
    r = must_open(d, "a");
    l = must_lane(r);
    actor_start(&early, r);
    actor_start(&late, r);
    actor_start(&waiter, r);
    assert_null(actor_do(&early, act_read_lock, NULL));
    assert_int_equal(reclaim_synchronize(l, 0, &moment), -ETIMEDOUT);
    assert_null(actor_do(&late, act_read_lock, NULL));
    assert_null(actor_do(&early, act_read_unlock, NULL));
    assert_int_equal(reclaim_synchronize(l, 0, &moment), -ETIMEDOUT);
    assert_int_equal(reclaim_synchronize(l, RECLAIM_EXPEDITED, &moment), -ETIMEDOUT);
    actor_begin(&waiter, act_synchronize, &n_called);
    assert_true(wait_until(__atomic_load_n(&n_called, __ATOMIC_SEQ_CST) == 1));
    assert_null(actor_do(&late, act_read_unlock, NULL));
    assert_null(actor_end(&waiter));
    assert_int_equal(reclaim_synchronize(l, 0, &limit), 0);
    actor_stop(&early);
    actor_stop(&late);
    actor_stop(&waiter);
    reclaim_close(r);
    daemon_stop(d);
}

/* A ticket is the grace-period thread's alone: the arena's worker sleeps through it, but for a slow machine's turns. */
static void tickets_leave_the_worker_asleep(void **state)
{
    const int n_calls = 200;
    struct daemon *d = *state;
    struct reclaim_lane *l;
    struct reclaim *r;
    int64_t before;

    daemon_start(d, "--arena", "a:16M", NULL);
    r = must_open(d, "a");
    l = must_lane(r);
    assert_int_equal(reclaim_barrier(l, NULL), 0);
    do {
        before = arena_figure(d, "a", "wakeups");
        sleep_ms(100);
    } while (arena_figure(d, "a", "wakeups") != before);
    for (int i = 0; i < n_calls; i++)
        assert_int_equal(reclaim_synchronize(l, i % 2 ? RECLAIM_EXPEDITED : 0, NULL), 0);
    assert_true(arena_figure(d, "a", "wakeups") - before < n_calls / 10);
    reclaim_close(r);
    daemon_stop(d);
}

int main(void)
{
    struct daemon d = {0};
    const struct CMUnitTest tests[] = {
        daemon_test(case_02_defer_in_section_while_another_synchronizes),
        daemon_test(case_02_both_at_once),
        daemon_test(case_02_flood_in_section),
        daemon_test(case_21_span_page_first),
        daemon_test(case_21_extent_page_first),
        daemon_test(case_21_same_channel),
        daemon_test(case_21_chain_first),
        daemon_test(case_21_chain_second),
        daemon_test(case_21_reader_keeps_all),
        daemon_test(case_22_next_grace_period),
        daemon_test(case_22_by_cookie),
        daemon_test(case_22_given_up),
        daemon_test(tickets_leave_the_worker_asleep),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
