/* SPDX-License-Identifier: MIT */
/* Who wakes a waiter: loads and rules, and what follows from them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "basic/macro.h"
#include "engine/sync.h"

/* The load after that many calls from none. */
static uint64_t entered(uint64_t n, uint64_t wake_flood)
{
    uint64_t load = 0;

    while (n-- > 0)
        load = sync_load_enter(load, wake_flood);
    return load;
}

static uint64_t left(uint64_t load, uint64_t n)
{
    while (n-- > 0)
        load = sync_load_leave(load);
    return load;
}

/* An end with n waiters: how many go each way. */
static void assert_ways(uint64_t load, struct sync_rule rule, uint64_t n,
                        const uint64_t expected[SYNC_WAY_MAX])
{
    struct sync_end e = sync_end_begin(load, &rule);
    uint64_t ways[SYNC_WAY_MAX] = {0};
    enum sync_way before = SYNC_DIRECT;

    for (uint64_t i = 0; i < n; i++) {
        enum sync_way way = sync_end_next(&e, false);

        assert_true(way >= before || i == 0); /* the direct ones are the first */
        before = way;
        ways[way]++;
    }
    for (enum sync_way w = 0; w < SYNC_WAY_MAX; w++) {
        assert_int_equal(ways[w], expected[w]);
        assert_int_equal(e.n[w], expected[w]);
    }
}

static void test_ways(void **state)
{
    static const struct {
        struct sync_rule rule;
        uint64_t n_waiters; /* all of them in flight, all at this end */
        uint64_t ways[SYNC_WAY_MAX];
    } cases[] = {
        {{SYNC_NO, 5, 64}, 0, {0, 0, 0}},          {{SYNC_NO, 5, 64}, 3, {0, 0, 3}},
        {{SYNC_NO, 0, 0}, 1000, {0, 0, 1000}},     {{SYNC_YES, 5, 64}, 0, {0, 0, 0}},
        {{SYNC_YES, 5, 64}, 5, {5, 0, 0}},         {{SYNC_YES, 5, 64}, 6, {5, 1, 0}},
        {{SYNC_YES, 5, 64}, 1000, {5, 995, 0}}, /* a flood is no matter of `yes` */
        {{SYNC_YES, 0, 64}, 7, {0, 7, 0}},         {{SYNC_YES, 1, 0}, 2, {1, 1, 0}},
        {{SYNC_YES, 1000, 0}, 1000, {1000, 0, 0}}, {{SYNC_AUTO, 5, 64}, 0, {0, 0, 0}},
        {{SYNC_AUTO, 5, 64}, 63, {5, 58, 0}},      {{SYNC_AUTO, 5, 64}, 64, {0, 0, 64}},
        {{SYNC_AUTO, 5, 64}, 1000, {0, 0, 1000}},  {{SYNC_AUTO, 0, 64}, 63, {0, 63, 0}},
        {{SYNC_AUTO, 5, 0}, 1, {0, 0, 1}}, /* whoever comes is a flood */
        {{SYNC_AUTO, 5, 1}, 1, {0, 0, 1}},         {{SYNC_AUTO, 5, 2}, 1, {1, 0, 0}},
        {{SYNC_AUTO, 5, 2}, 2, {0, 0, 2}},         {{SYNC_AUTO, 1000, 1000}, 999, {999, 0, 0}},
    };

    for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
        uint64_t load = entered(cases[i].n_waiters, cases[i].rule.wake_flood);

        assert_int_equal(sync_load_waiters(load), cases[i].n_waiters);
        assert_ways(sync_load_judge(load, cases[i].rule.wake_flood), cases[i].rule, cases[i].n_waiters,
                    cases[i].ways);
        assert_int_equal(left(load, cases[i].n_waiters), 0); /* nobody, and no flood */
    }
}

/* Those who are expedited share the grace-period thread with the others, and never stand behind callbacks. */
static void test_expedited(void **state)
{
    static const struct {
        enum sync_mode mode;
        uint64_t n_waiters, ways[SYNC_WAY_MAX]; /* every second one is expedited, from the first on */
    } cases[] = {
        {SYNC_NO, 1, {1, 0, 0}},   {SYNC_NO, 8, {3, 1, 4}},      {SYNC_YES, 8, {3, 5, 0}},
        {SYNC_AUTO, 8, {3, 5, 0}}, {SYNC_AUTO, 64, {3, 29, 32}}, {SYNC_NO, 1000, {3, 497, 500}},
    };

    for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
        const struct sync_rule rule = {cases[i].mode, 3, 64};
        struct sync_end e = sync_end_begin(entered(cases[i].n_waiters, 64), &rule);

        for (uint64_t k = 0; k < cases[i].n_waiters; k++) {
            enum sync_way way = sync_end_next(&e, k % 2 == 0);

            assert_true(way != SYNC_FIFO || k % 2 == 1);
        }
        assert_memory_equal(e.n, cases[i].ways, sizeof(e.n));
    }
}

static bool is_flood(uint64_t load)
{
    const struct sync_rule rule = {SYNC_AUTO, 1, 0};

    return sync_end_begin(load, &rule).fifo;
}

/* It begins with the 64th and ends with the last, however they come and go in between. */
static void test_flood_until_drained(void **state)
{
    uint64_t load = entered(63, 64);

    assert_false(is_flood(load));
    load = sync_load_enter(load, 64);
    assert_true(is_flood(load));
    load = left(load, 63);
    assert_int_equal(sync_load_waiters(load), 1);
    assert_true(is_flood(load));
    for (unsigned i = 0; i < 10; i++) /* never quite drained */
        load = left(sync_load_enter(load, 64), 1);
    assert_true(is_flood(load));
    load = left(load, 1);
    assert_false(is_flood(load));
    assert_int_equal(load, 0);
    assert_false(is_flood(entered(1, 64)));
}

/*
 * One who calls again and again is one, each time: when a grace period ends there is always somebody in
 * flight, so who looks only then would never see that a flood is over.
 */
static void test_flood_ends_between_looks(void **state)
{
    uint64_t load = left(entered(64, 64), 64);

    for (unsigned i = 0; i < 5; i++) {
        load = sync_load_judge(sync_load_enter(load, 64), 64);
        assert_false(is_flood(load));
        load = sync_load_leave(load);
    }
}

/* ... and one that comes and goes between two ends was one. */
static void test_flood_begins_between_looks(void **state)
{
    uint64_t load = left(entered(70, 64), 60);

    assert_int_equal(sync_load_waiters(load), 10);
    assert_true(is_flood(sync_load_judge(load, 64)));
}

/* With waiters in flight, wake-flood comes down to them, or rises above. */
static void test_threshold_moves(void **state)
{
    static const struct {
        uint64_t n, at_call, at_end;
        bool flood;
    } cases[] = {
        {10, 64, 11, false}, {10, 64, 10, true},   {10, 64, 1, true},
        {10, 64, 0, true},   {0, 64, 0, false},  /* nobody: nothing to remember for the next */
        {0, 64, 1, false},   {10, 10, 64, true}, /* until they are drained */
        {10, 1, 1000, true}, {9, 10, 1000, false},
    };

    for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
        uint64_t load = sync_load_judge(entered(cases[i].n, cases[i].at_call), cases[i].at_end);

        assert_int_equal(is_flood(load), cases[i].flood);
        assert_int_equal(sync_load_waiters(load), cases[i].n);
        assert_int_equal(sync_load_judge(load, cases[i].at_end), load); /* once is enough */
        assert_int_equal(left(load, cases[i].n), 0);
    }
}

/* The mode changes with waiters in flight: each end goes by that of the moment, and a flood is known to all. */
static void test_mode_switches(void **state)
{
    uint64_t load = entered(64, 64);

    assert_ways(load, (struct sync_rule){SYNC_YES, 5, 64}, 20, (uint64_t[]){5, 15, 0});
    load = left(load, 20);
    assert_ways(load, (struct sync_rule){SYNC_NO, 5, 64}, 20, (uint64_t[]){0, 0, 20});
    load = left(load, 20);
    assert_ways(load, (struct sync_rule){SYNC_AUTO, 5, 64}, 23, (uint64_t[]){0, 0, 23});
    load = left(load, 23);
    assert_ways(load, (struct sync_rule){SYNC_YES, 0, 64}, 1, (uint64_t[]){0, 1, 0});
    load = left(load, 1);
    assert_ways(entered(1, 64), (struct sync_rule){SYNC_AUTO, 5, 64}, 1, (uint64_t[]){1, 0, 0});
    assert_int_equal(load, 0);
}

/* Beside a naive account: all that is known of them, and a walk over the calls. */
static void test_random_walk(void **state)
{
    uint64_t seed = 0x5eed, load = 0, n = 0;
    bool flood = false;

    for (unsigned i = 0; i < 200000; i++) {
        uint64_t wake_flood;

        seed = seed * 6364136223846793005u + 1442695040888963407u;
        wake_flood = (seed >> 40) % 20;
        switch ((seed >> 33) % (n > 0 ? 3 : 2)) {
        case 0:
            load = sync_load_enter(load, wake_flood);
            n++;
            flood = flood || n >= wake_flood;
            break;
        case 1:
            load = sync_load_judge(load, wake_flood);
            flood = flood || (n > 0 && n >= wake_flood);
            break;
        default:
            load = sync_load_leave(load);
            flood = --n > 0 && flood;
        }
        assert_int_equal(sync_load_waiters(load), n);
        assert_int_equal(is_flood(load), flood);
    }
}

/* ---- S4 ---- */

#define START_USEC 1000000u

/* n callers, each for the first time, one a step. */
static uint64_t call_afresh(struct sync_pace *p, uint64_t now, unsigned n, uint64_t step)
{
    for (unsigned i = 0; i < n; i++, now += step)
        sync_pace_call(p, now, 0);
    return now;
}

static void test_a_crowd_is_paced(void **state)
{
    struct sync_pace p = {0};
    uint64_t now = START_USEC;

    now = call_afresh(&p, now, SYNC_CROWD - 1, 10);
    sync_pace_start(&p, now);
    assert_true(sync_pace_next(&p, now) <= now); /* not yet */
    now = call_afresh(&p, now, 1, 10);
    assert_int_equal(sync_pace_next(&p, now), p.start_usec + SYNC_DISTANCE_USEC);
    now = call_afresh(&p, now, 200, 20); /* for windows on end */
    assert_int_equal(sync_pace_next(&p, now), p.start_usec + SYNC_DISTANCE_USEC);
    sync_pace_start(&p, now);
    assert_int_equal(sync_pace_next(&p, now), now + SYNC_DISTANCE_USEC);
    now += 2 * SYNC_WINDOW_USEC; /* nobody came */
    assert_true(sync_pace_next(&p, now) <= now);
}

/* However fast: who waits for its answer before it calls again, and a few of them, are served at once. */
static void test_who_calls_again_is_no_crowd(void **state)
{
    struct sync_pace p = {0};
    uint64_t now = START_USEC, last[SYNC_CROWD - 1] = {0};

    for (unsigned i = 0; i < 10000; i++, now += 3) {
        sync_pace_call(&p, now, last[i % ARRAY_SIZE(last)]);
        last[i % ARRAY_SIZE(last)] = now;
        sync_pace_start(&p, now);
        assert_true(sync_pace_next(&p, now) <= now);
    }
}

/* Fewer than a crowd in each window, for ever. */
static void test_seldom_callers_are_no_crowd(void **state)
{
    struct sync_pace p = {0};
    uint64_t now = START_USEC;

    for (unsigned i = 0; i < 1000; i++) {
        now = call_afresh(&p, now, 1, SYNC_WINDOW_USEC / (SYNC_CROWD - 2));
        assert_true(sync_pace_next(&p, now) <= now);
    }
}

/* 512 callers within five milliseconds, a grace period of 10 us begun whenever that is allowed. */
static void test_a_burst_costs_few(void **state)
{
    struct sync_pace p = {0};
    uint64_t now = START_USEC, n_starts = 0;
    unsigned n_waiting = 0;

    for (unsigned i = 0; i < 512; i++, now += 10) {
        sync_pace_call(&p, now, 0);
        n_waiting++;
        if (sync_pace_next(&p, now) > now)
            continue;
        sync_pace_start(&p, now);
        n_starts++;
        n_waiting = 0;
    }
    assert_true(n_starts <= 40);
    assert_true(n_waiting <= SYNC_DISTANCE_USEC / 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ways),
        cmocka_unit_test(test_expedited),
        cmocka_unit_test(test_flood_until_drained),
        cmocka_unit_test(test_flood_ends_between_looks),
        cmocka_unit_test(test_flood_begins_between_looks),
        cmocka_unit_test(test_threshold_moves),
        cmocka_unit_test(test_mode_switches),
        cmocka_unit_test(test_random_walk),
        cmocka_unit_test(test_a_crowd_is_paced),
        cmocka_unit_test(test_who_calls_again_is_no_crowd),
        cmocka_unit_test(test_seldom_callers_are_no_crowd),
        cmocka_unit_test(test_a_burst_costs_few),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
