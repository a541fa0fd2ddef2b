/* SPDX-License-Identifier: MIT */
/* When to drain: snapshots and the decisions that follow from them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "basic/macro.h"
#include "engine/drain.h"

#define MS 1000ull
#define START (1000 * MS)

/* 5 s, or 200 ms once 1000 objects or 1 MiB wait. */
static const struct drain_input quiet = {
    .now_usec = START,
    .batch_free = true,
    .interval_usec = 5000 * MS,
    .flood_objects = 1000,
    .flood_bytes = 1 << 20,
    .flood_interval_usec = 200 * MS,
};

static struct drain_decision decide(struct drain_timer *t, uint64_t now, uint64_t objects, uint64_t bytes)
{
    struct drain_input in = quiet;

    in.now_usec = now;
    in.n_objects = objects;
    in.n_bytes = bytes;
    return drain_decide(t, &in);
}

static void assert_waits(struct drain_decision d, uint64_t deadline)
{
    assert_int_equal(d.drain, DRAIN_NONE);
    assert_int_equal(d.deadline_usec, deadline);
}

static void test_first_snapshot(void **state)
{
    static const struct {
        uint64_t objects, bytes;
        uint64_t deadline;
    } cases[] = {
        {0, 0, DRAIN_NEVER}, /* D1 */
        {1, 16, START + 5000 * MS},
        {999, (1 << 20) - 1, START + 5000 * MS},
        {1000, 16000, START + 200 * MS},
        {1, 1 << 20, START + 200 * MS}, /* a few huge ones are a flood too */
        {UINT64_MAX, UINT64_MAX, START + 200 * MS},
    };

    for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
        struct drain_timer t;

        drain_timer_init(&t);
        assert_waits(decide(&t, START, cases[i].objects, cases[i].bytes), cases[i].deadline);
    }
}

/* What comes later puts nothing off, and a flood brings forward; the cause is what made it due. */
static void test_only_brought_forward(void **state)
{
    struct drain_timer t;
    struct drain_decision d;

    drain_timer_init(&t);
    assert_waits(decide(&t, START, 1, 16), START + 5000 * MS);
    for (uint64_t now = START; now < START + 3000 * MS; now += 100 * MS)
        assert_waits(decide(&t, now, 1 + now % 900, 16), START + 5000 * MS);
    assert_waits(decide(&t, START + 3000 * MS, 1000, 16), START + 3200 * MS);
    assert_waits(decide(&t, START + 3100 * MS, 5000, 1 << 30), START + 3200 * MS);
    assert_waits(decide(&t, START + 3200 * MS - 1, 5000, 16), START + 3200 * MS);
    d = decide(&t, START + 3200 * MS, 5000, 1 << 30);
    assert_int_equal(d.drain, DRAIN_FLOOD_OBJECTS);
}

/* A flood near the end of the interval does not put the drain off. */
static void test_late_flood(void **state)
{
    struct drain_timer t;

    drain_timer_init(&t);
    assert_waits(decide(&t, START, 1, 16), START + 5000 * MS);
    assert_waits(decide(&t, START + 4900 * MS, 1000, 16), START + 5000 * MS);
    assert_int_equal(decide(&t, START + 5000 * MS, 1000, 16).drain, DRAIN_INTERVAL);
}

static void test_causes(void **state)
{
    static const struct {
        uint64_t objects, bytes, after;
        enum drain_cause cause;
    } cases[] = {
        {1, 16, 5000 * MS, DRAIN_INTERVAL},        {1, 16, 4999 * MS, DRAIN_NONE},
        {1, 16, 500000 * MS, DRAIN_INTERVAL}, /* late is due too */
        {1000, 16, 200 * MS, DRAIN_FLOOD_OBJECTS}, {1000, 16, 199 * MS, DRAIN_NONE},
        {1, 2 << 20, 200 * MS, DRAIN_FLOOD_BYTES}, {1000, 2 << 20, 200 * MS, DRAIN_FLOOD_OBJECTS},
    };

    for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
        struct drain_timer t;

        drain_timer_init(&t);
        (void)decide(&t, START, cases[i].objects, cases[i].bytes);
        assert_int_equal(decide(&t, START + cases[i].after, cases[i].objects, cases[i].bytes).drain,
                         cases[i].cause);
    }
}

static void test_urgent(void **state)
{
    for (enum drain_cause c = DRAIN_FULL; c < DRAIN_CAUSE_MAX; c++) {
        struct drain_timer t;

        drain_timer_init(&t);
        t.urgent = c;
        assert_int_equal(decide(&t, START, 1, 16).drain, c);
        assert_int_equal(decide(&t, START, 5000, 1 << 30).drain, c);
        drain_timer_done(&t);
        assert_waits(decide(&t, START, 1, 16), START + 5000 * MS); /* once */
        t.urgent = c;
        assert_waits(decide(&t, START, 0, 0), DRAIN_NEVER);
        assert_waits(decide(&t, START, 1, 16), START + 5000 * MS); /* there was nothing to hurry for */
    }
}

/* D3: nothing while all batches are in flight, and at once when one has ended. */
static void test_no_batch_free(void **state)
{
    struct drain_timer t;
    struct drain_input in = quiet;

    drain_timer_init(&t);
    in.n_objects = 1;
    in.batch_free = false;
    assert_waits(drain_decide(&t, &in), START + 5000 * MS);
    in.now_usec += 6000 * MS;
    assert_waits(drain_decide(&t, &in), DRAIN_NEVER);
    t.urgent = DRAIN_REQUEST;
    assert_waits(drain_decide(&t, &in), DRAIN_NEVER);
    in.batch_free = true;
    assert_int_equal(drain_decide(&t, &in).drain, DRAIN_REQUEST);
}

/* A batch took everything: the next interval begins with the next object. */
static void test_begins_anew(void **state)
{
    struct drain_timer t;

    drain_timer_init(&t);
    (void)decide(&t, START, 5000, 1 << 30);
    assert_int_equal(decide(&t, START + 200 * MS, 5000, 1 << 30).drain, DRAIN_FLOOD_OBJECTS);
    drain_timer_done(&t);
    assert_waits(decide(&t, START + 300 * MS, 0, 0), DRAIN_NEVER);
    assert_waits(decide(&t, START + 400 * MS, 1, 16), START + 5400 * MS);
    assert_waits(decide(&t, START + 500 * MS, 0, 0), DRAIN_NEVER); /* freed otherwise */
    assert_waits(decide(&t, START + 600 * MS, 1, 16), START + 5600 * MS);
}

/* D2: on an armed timer too. */
static void test_parameters_act_at_once(void **state)
{
    static const struct {
        uint64_t interval, flood_objects, flood_bytes, flood_interval;
        uint64_t deadline; /* 0: drains now */
    } cases[] = {
        {5000 * MS, 1000, 1 << 20, 200 * MS, START + 5000 * MS},
        {1000 * MS, 1000, 1 << 20, 200 * MS, START + 1000 * MS},
        {60000 * MS, 1000, 1 << 20, 200 * MS, START + 60000 * MS},
        {400 * MS, 1000, 1 << 20, 200 * MS, 0}, /* it is over by the new measure */
        {5000 * MS, 50, 1 << 20, 200 * MS, START + 700 * MS},
        {5000 * MS, 1000, 100, 300 * MS, START + 800 * MS},
        {5000 * MS, 1, 1, 0, 0},
        {UINT64_MAX, 1000, 1 << 20, 200 * MS, DRAIN_NEVER}, /* no overflow to "now" */
        {UINT64_MAX, 1, 1 << 20, UINT64_MAX, DRAIN_NEVER},
    };

    for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
        struct drain_timer t;
        struct drain_input in = quiet;
        struct drain_decision d;

        drain_timer_init(&t);
        assert_waits(decide(&t, START, 100, 1600), START + 5000 * MS);
        in.now_usec = START + 500 * MS;
        in.n_objects = 100;
        in.n_bytes = 1600;
        in.interval_usec = cases[i].interval;
        in.flood_objects = cases[i].flood_objects;
        in.flood_bytes = cases[i].flood_bytes;
        in.flood_interval_usec = cases[i].flood_interval;
        d = drain_decide(&t, &in);
        assert_int_equal(d.drain == DRAIN_NONE ? d.deadline_usec : 0, cases[i].deadline);
    }
}

/* Whatever happens, a deadline that was said is never missed or put off while something waits. */
static void test_deadlines_hold_at_random(void **state)
{
    uint64_t seed = 0xd4a1d4a1;

    for (unsigned run = 0; run < 200; run++) {
        struct drain_timer t;
        uint64_t now = START, deadline = DRAIN_NEVER;

        drain_timer_init(&t);
        for (unsigned i = 0; i < 100; i++) {
            struct drain_decision d;

            seed = seed * 6364136223846793005u + 1442695040888963407u;
            now += (seed >> 33) % (150 * MS);
            d = decide(&t, now, 1 + (seed >> 40) % 1100, (seed >> 20) % (1100 << 10));
            assert_true(d.deadline_usec <= deadline || d.drain != DRAIN_NONE);
            assert_true(now < deadline || d.drain != DRAIN_NONE);
            deadline = d.deadline_usec;
            if (d.drain == DRAIN_NONE)
                continue;
            drain_timer_done(&t);
            deadline = DRAIN_NEVER;
        }
    }
}

/* D4: rows in the order of time, one hold through all of them. flood-bytes is 1 MiB. */
static void test_holds_back(void **state)
{
    static const struct {
        uint64_t at, bytes;
        struct drain_gp gp;
        bool holds;
    } rows[] = {
        {0, 9 << 20, {5, 5, 5}, false}, /* no grace period was asked for: what waits is for more to come */
        {1, (1 << 18) - 1, {6, 5, 5}, false},
        {2, 1 << 20, {6, 5, 5}, true},
        {3, (1 << 20) - 1, {6, 5, 5}, false}, /* less, and it is not late yet */
        {DRAIN_LATE_USEC + 1, 1 << 18, {6, 5, 5}, false},
        {DRAIN_LATE_USEC + 2, 1 << 18, {6, 5, 5}, true},
        {DRAIN_LATE_USEC + 3, 9 << 20, {6, 6, 5}, false}, /* it has begun: for readers nobody is held back */
        {DRAIN_LATE_USEC + 4, 9 << 20, {7, 6, 5}, false}, /* .. nor for the one behind it */
        {1000, 1 << 20, {6, 5, 5}, true},
        {DRAIN_HOLD_USEC + 999, UINT64_MAX, {6, 5, 5}, true},
        {DRAIN_HOLD_USEC + 1000, UINT64_MAX, {6, 5, 5}, false}, /* long enough, whatever the reason */
        {100 * MS, UINT64_MAX, {7, 5, 5}, false},               /* .. and not once more */
        {101 * MS, 1 << 20, {7, 6, 6}, true},                   /* the next one */
        {102 * MS, 1 << 18, {7, 6, 6}, true},
        {103 * MS, 1 << 18, {8, 7, 7}, false},
        {104 * MS, 9 << 20, {8, 8, 8}, false},
    };
    struct drain_hold h = {0};

    for (unsigned i = 0; i < ARRAY_SIZE(rows); i++)
        if (drain_holds_back(&h, START + rows[i].at, rows[i].bytes, 1 << 20, &rows[i].gp) != rows[i].holds)
            fail_msg("row %u", i);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_first_snapshot),
        cmocka_unit_test(test_only_brought_forward),
        cmocka_unit_test(test_late_flood),
        cmocka_unit_test(test_causes),
        cmocka_unit_test(test_urgent),
        cmocka_unit_test(test_no_batch_free),
        cmocka_unit_test(test_begins_anew),
        cmocka_unit_test(test_parameters_act_at_once),
        cmocka_unit_test(test_deadlines_hold_at_random),
        cmocka_unit_test(test_holds_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
