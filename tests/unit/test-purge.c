/* SPDX-License-Identifier: MIT */
/* When to purge, and how much: snapshots and the decisions that follow from them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "basic/macro.h"
#include "engine/purge.h"

#define S 1000000ull
#define MS 1000ull
#define START (1000 * S)
#define MIB (1ull << 20)

static struct purge_input input(uint64_t now, uint64_t lazy)
{
    return (struct purge_input){
        .now_usec = now, .lazy_bytes = lazy, .threshold_bytes = 64 * MIB, .delay_usec = 60 * S};
}

static struct purge_decision decide(struct purge_timer *t, uint64_t now, uint64_t lazy)
{
    struct purge_input in = input(now, lazy);

    return purge_decide(t, &in);
}

/* A work's turn comes while so much is lazy. */
static void begin(struct purge_timer *t, uint64_t now, uint64_t lazy)
{
    struct purge_input in = input(now, lazy);

    purge_queued(t);
    purge_begun(t, &in);
}

static void assert_decision(struct purge_decision d, bool purge, uint64_t deadline)
{
    assert_int_equal(d.purge, purge);
    assert_int_equal(d.deadline_usec, deadline);
}

static void test_first_snapshot(void **state)
{
    static const struct {
        uint64_t lazy, threshold, delay;
        bool asked, purge;
        uint64_t deadline;
    } cases[] = {
        {0, 64 * MIB, 60 * S, false, false, PURGE_NEVER}, /* G3 */
        {0, 0, 0, true, false, PURGE_NEVER},              /* asked for nothing */
        {4096, 64 * MIB, 60 * S, false, false, START + 60 * S},
        {64 * MIB - 1, 64 * MIB, 60 * S, false, false, START + 60 * S},
        {64 * MIB, 64 * MIB, 60 * S, false, false, START + 10 * MS}, /* G5 */
        {64 * MIB, 64 * MIB, 1 * MS, false, false, START + 1 * MS},
        {4 * MIB, 1 * MIB, 60 * S, false, false, START + 156},
        {MIB << 20, MIB << 19, 60 * S, false, false, START + 10 * MS},
        {64 * MIB, 64 * MIB, PURGE_NEVER, false, false, START + 10 * MS},
        {64 * MIB, 64 * MIB, 60 * S, true, true, PURGE_NEVER},
        {4096, 64 * MIB, 60 * S, true, true, PURGE_NEVER},
        {4096, 64 * MIB, 0, false, true, PURGE_NEVER}, /* no delay */
        {4096, 0, 60 * S, false, true, PURGE_NEVER},
        {4096, 64 * MIB, PURGE_NEVER, false, false, PURGE_NEVER}, /* age is no reason */
        {4096, 64 * MIB, PURGE_NEVER - 1, false, false, PURGE_NEVER},
    };

    for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
        struct purge_timer t = {.asked = cases[i].asked};

        assert_decision(purge_decide(&t, &(struct purge_input){.now_usec = START,
                                                               .lazy_bytes = cases[i].lazy,
                                                               .threshold_bytes = cases[i].threshold,
                                                               .delay_usec = cases[i].delay}),
                        cases[i].purge, cases[i].deadline);
    }
}

/* G2: counted from the first that became free, whatever comes later. */
static void test_age(void **state)
{
    struct purge_timer t = {0};

    assert_decision(decide(&t, START, 4096), false, START + 60 * S);
    assert_decision(decide(&t, START + 30 * S, 8 * MIB), false, START + 60 * S);
    assert_decision(decide(&t, START + 60 * S - 1, 8 * MIB), false, START + 60 * S);
    assert_decision(decide(&t, START + 60 * S, 8 * MIB), true, PURGE_NEVER);
    begin(&t, START + 60 * S, 8 * MIB);
    purge_ended(&t);
    assert_decision(decide(&t, START + 61 * S, 8 * MIB), false, START + 121 * S); /* young again */
    assert_decision(decide(&t, START + 62 * S, 0), false, PURGE_NEVER);           /* all in use */
    assert_decision(decide(&t, START + 100 * S, 4096), false, START + 160 * S);
}

/* What becomes free while a purge for age runs is no reason to go on, and no younger than that. */
static void test_age_during_a_purge(void **state)
{
    struct purge_timer t = {0};
    struct purge_input in = input(START + 60 * S + 1, 4096);

    (void)decide(&t, START, 4096);
    begin(&t, START + 60 * S, 4096);
    assert_decision(decide(&t, START + 60 * S + 1, 4096), false, PURGE_NEVER);
    assert_false(purge_next_round(&t, &in));
    purge_ended(&t);
    assert_decision(decide(&t, START + 61 * S, 4096), false, START + 120 * S + 1);
}

/* A purge for another reason that leaves some makes none young. */
static void test_what_a_purge_leaves_is_old(void **state)
{
    struct purge_timer t = {0};

    assert_decision(decide(&t, START, 4096), false, START + 60 * S);
    assert_false(decide(&t, START + 10 * S - 10 * MS, 64 * MIB).purge);
    assert_true(decide(&t, START + 10 * S, 64 * MIB).purge);
    begin(&t, START + 10 * S, 64 * MIB);
    purge_ended(&t);
    assert_decision(decide(&t, START + 11 * S, 32 * MIB), false, START + 60 * S);
}

/* G1 */
static void test_one_at_a_time(void **state)
{
    struct purge_timer t = {0};

    assert_false(decide(&t, START - 10 * MS, 64 * MIB).purge);
    assert_true(decide(&t, START, 64 * MIB).purge);
    purge_queued(&t);
    assert_decision(decide(&t, START, 640 * MIB), false, PURGE_NEVER);
    purge_begun(&t, &(struct purge_input){.lazy_bytes = 640 * MIB, .threshold_bytes = 64 * MIB});
    assert_decision(decide(&t, START + S, 640 * MIB), false, PURGE_NEVER);
    t.asked = true;
    assert_decision(decide(&t, START + 100 * S, 640 * MIB), false, PURGE_NEVER);
    purge_ended(&t);
    assert_decision(decide(&t, START + 101 * S, 4096), true, PURGE_NEVER); /* it was asked for meanwhile */
    begin(&t, START + 101 * S, 4096);
    purge_ended(&t);
    assert_decision(decide(&t, START + 102 * S, 4096), false, START + 162 * S); /* once */
}

/* Holes that a sweep found are a purge too. */
static void test_found_holes_count_as_a_purge(void **state)
{
    struct purge_timer t = {0};

    purge_begun_found(&t);
    assert_decision(decide(&t, START, 64 * MIB), false, PURGE_NEVER);
    purge_ended(&t);
    assert_decision(decide(&t, START + S, 64 * MIB), true, PURGE_NEVER); /* it was above all the time */
    assert_decision(decide(&t, START + S, 4096), false, START + 60 * S); /* it made nothing young */
}

/* G1, G4: what is being punched counts, and the same request is noted or queued; only one work waits. */
static void test_while_one_runs(void **state)
{
    static const struct {
        uint64_t lazy, purging;
        bool running, queued;
        bool yes, no; /* queued, noted */
    } cases[] = {
        {0, 64 * MIB, true, false, true, true},
        {0, 64 * MIB - 1, true, false, false, false},
        {32 * MIB, 32 * MIB, true, false, true, true},
        {32 * MIB, 32 * MIB, true, true, false, true}, /* one waits already */
        {64 * MIB, 0, true, false, true, true},
        {64 * MIB, 0, false, true, true, true}, /* behind one that is about to run */
        {0, 0, true, false, false, false},
    };

    for (unsigned i = 0; i < ARRAY_SIZE(cases); i++)
        for (unsigned yes = 0; yes < 2; yes++) {
            struct purge_timer t = {
                .n_running = cases[i].running, .n_queued = cases[i].queued, .over_usec = START - S};
            struct purge_input in = input(START, cases[i].lazy);
            bool purge;

            in.purging_bytes = cases[i].purging;
            in.while_purging = yes;
            purge = purge_decide(&t, &in).purge;
            if (purge != (yes && cases[i].yes) || (!yes && t.noted != cases[i].no))
                fail_msg("case %u", i);
        }
}

/* G5: what dips below the threshold at times is used again. With yes, or with no threshold, nobody waits. */
static void test_settles_first(void **state)
{
    struct purge_timer t = {0};
    struct purge_input in = input(START, 64 * MIB);

    assert_decision(purge_decide(&t, &in), false, START + 10 * MS);
    in.now_usec += 10 * MS - 1;
    in.lazy_bytes = 32 * MIB; /* what is being punched counts here, too */
    in.purging_bytes = 32 * MIB;
    assert_decision(purge_decide(&t, &in), false, START + 10 * MS);
    in.purging_bytes = 0;
    assert_decision(purge_decide(&t, &in), false, START + 60 * S);
    in.now_usec += 1;
    in.lazy_bytes = 64 * MIB;
    assert_decision(purge_decide(&t, &in), false, START + 20 * MS);
    in.now_usec += 1 * MS;
    in.lazy_bytes = 0;
    assert_decision(purge_decide(&t, &in), false, PURGE_NEVER);
    in.lazy_bytes = 64 * MIB;
    assert_decision(purge_decide(&t, &in), false, START + 21 * MS);
    in.while_purging = true;
    assert_decision(purge_decide(&t, &in), true, PURGE_NEVER);
    t = (struct purge_timer){0};
    in.while_purging = false;
    in.threshold_bytes = 0;
    assert_decision(purge_decide(&t, &in), true, PURGE_NEVER);
}

/* One after the other, with what is lazy before each. */
static void assert_rounds(bool asked, uint64_t threshold, const uint64_t *lazy, const uint64_t *min,
                          const uint64_t *quota, unsigned n)
{
    struct purge_timer t = {.asked = asked};
    struct purge_input in = input(START, lazy[0]);

    in.threshold_bytes = threshold;
    purge_queued(&t);
    purge_begun(&t, &in);
    for (unsigned i = 0; i < n; i++) {
        in.lazy_bytes = lazy[i];
        if (i > 0 && !purge_next_round(&t, &in))
            fail_msg("round %u is missing", i);
        assert_int_equal(t.min_bytes, min[i]);
        assert_int_equal(t.cursor, 0);
        assert_true(purge_quota(&t, &in) == quota[i]);
        t.cursor = 1;
    }
    in.lazy_bytes = lazy[n];
    assert_false(purge_next_round(&t, &in));
}

/* Large holes first, until half the threshold is left; all of it when it was asked for. */
static void test_rounds(void **state)
{
    static const uint64_t all_lazy[] = {40 * MIB, 4096}, all_min[] = {0}, all_quota[] = {UINT64_MAX};
    static const uint64_t lazy[] = {80 * MIB, 70 * MIB, 65 * MIB, 40 * MIB, 33 * MIB, 32 * MIB};
    static const uint64_t min[] = {MIB, MIB / 4, MIB / 16, MIB / 64, 0};
    static const uint64_t quota[] = {48 * MIB, 38 * MIB, 33 * MIB, 8 * MIB, MIB};
    static const uint64_t enough[] = {80 * MIB, 32 * MIB};
    static const uint64_t none_left[] = {80 * MIB, 0}, zero_quota[] = {80 * MIB};

    assert_rounds(true, 64 * MIB, all_lazy, all_min, all_quota, 1);
    assert_rounds(false, 64 * MIB, lazy, min, quota, 5);
    assert_rounds(false, 64 * MIB, enough, min, quota, 1);
    assert_rounds(false, 0, none_left, min, zero_quota, 1);
}

static void test_age_takes_all(void **state)
{
    struct purge_timer t = {0};
    struct purge_input in = input(START + 60 * S, 4096);

    (void)decide(&t, START, 4096);
    purge_queued(&t);
    purge_begun(&t, &in);
    assert_true(purge_quota(&t, &in) == UINT64_MAX);
    assert_int_equal(t.min_bytes, 0);
}

/* G1: the purge that runs serves what came meanwhile. */
static void test_a_purge_goes_on(void **state)
{
    static const struct {
        bool asked, noted, all;
    } cases[] = {{false, false, false}, {false, true, false}, {true, false, true}, {true, true, true}};

    for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
        struct purge_timer t = {.n_running = 1, .asked = cases[i].asked, .noted = cases[i].noted};
        struct purge_input in = input(START, 40 * MIB);
        bool more = cases[i].asked || cases[i].noted;

        if (purge_next_round(&t, &in) != more)
            fail_msg("case %u", i);
        assert_int_equal(t.all, cases[i].all);
        assert_int_equal(t.min_bytes, more && !cases[i].all ? MIB : 0);
        assert_false(t.asked || t.noted);
        t.min_bytes = 0;
        assert_false(purge_next_round(&t, &in)); /* once */
        t.noted = true;
        t.n_queued = 1;
        assert_false(purge_next_round(&t, &in)); /* the next work's */
    }
}

/* One turn of a work under a load that asks for another as soon as one has begun. */
static bool turn_under_load(struct purge_timer *t, uint64_t now)
{
    struct purge_input in = input(now, 64 * MIB);

    assert_false(decide(t, now, 64 * MIB).purge);
    assert_true(t->noted);
    t->min_bytes = 0; /* no holes are left */
    return purge_next_round(t, &in);
}

/* G6: the work goes on and others follow, but who asked waits for one turn after the one that ran. */
static void test_who_asks_waits_for_a_turn(void **state)
{
    struct purge_timer t = {.over_usec = START};
    uint64_t now = START + S, first, second;

    begin(&t, now, 64 * MIB);
    for (unsigned i = 0; i < 5; i++)
        assert_true(turn_under_load(&t, now));
    first = purge_ask(&t);
    assert_false(purge_is_over(&t, first));
    assert_true(turn_under_load(&t, now));
    assert_true(t.all);
    assert_false(purge_is_over(&t, first)); /* it has begun */
    second = purge_ask(&t);
    assert_true(second > first);
    assert_false(turn_under_load(&t, now)); /* its last */
    assert_false(purge_is_over(&t, first)); /* not before the end: a hole may be left to punch */
    purge_ended(&t);
    assert_true(purge_is_over(&t, first));
    assert_false(purge_is_over(&t, second));
    assert_true(decide(&t, now, 64 * MIB).purge);
    begin(&t, now, 64 * MIB);
    assert_true(purge_is_over(&t, first));
    assert_false(purge_is_over(&t, second));
    assert_false(turn_under_load(&t, now));
    purge_ended(&t);
    assert_true(decide(&t, now, 64 * MIB).purge);
    begin(&t, now, 64 * MIB);
    assert_true(purge_is_over(&t, second)); /* whatever runs by now */
}

/* .. and not at all for nothing, nor for holes that a sweep found. */
static void test_who_asks_for_nothing_waits_for_what_runs(void **state)
{
    struct purge_timer t = {0};
    uint64_t turn = purge_ask(&t);

    assert_false(purge_is_over(&t, turn)); /* nobody has looked yet */
    (void)decide(&t, START, 0);
    assert_true(purge_is_over(&t, turn));
    purge_begun_found(&t);
    turn = purge_ask(&t);
    (void)decide(&t, START, 0);
    assert_true(purge_is_over(&t, turn));
    purge_ended_found(&t);
    begin(&t, START, 64 * MIB);
    turn = purge_ask(&t);
    (void)decide(&t, START, 0);
    assert_false(purge_is_over(&t, turn));
    purge_begun_found(&t);
    purge_ended_found(&t);
    assert_false(purge_is_over(&t, turn)); /* that was not the turn */
    purge_ended(&t);
    assert_true(purge_is_over(&t, turn));
}

/* G6: no turn after the one that runs, and no work behind the one that runs or waits. */
static void test_who_looks_has_a_moment(void **state)
{
    static const struct {
        bool look, asked, running, while_purging;
        bool queue, more;
    } cases[] = {
        {false, false, true, false, false, true}, {true, false, true, false, false, false},
        {true, true, true, false, false, false},  {false, false, true, true, true, true},
        {true, false, true, true, false, false},  {true, true, true, true, false, false},
        {true, false, false, true, true, false},  {true, true, false, false, true, false},
    };

    for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
        struct purge_timer t = {.over_usec = START - S, .look = cases[i].look, .asked = cases[i].asked};
        struct purge_input in = input(START, 64 * MIB);

        t.n_running = t.n_turns = cases[i].running;
        in.while_purging = cases[i].while_purging;
        if (purge_decide(&t, &in).purge != cases[i].queue)
            fail_msg("case %u: queued", i);
        t.noted = true;
        if (cases[i].running && purge_next_round(&t, &in) != cases[i].more)
            fail_msg("case %u: goes on", i);
        if (cases[i].running && !cases[i].more)
            assert_int_equal(t.asked, cases[i].asked); /* for the next work */
    }
}

static void test_parameters_act_at_once(void **state)
{
    struct purge_timer t = {0};
    struct purge_input in = {
        .now_usec = START, .lazy_bytes = 4096, .threshold_bytes = 64 * MIB, .delay_usec = 60 * S};

    assert_decision(purge_decide(&t, &in), false, START + 60 * S);
    in.now_usec += 10 * S;
    in.delay_usec = 20 * S;
    assert_decision(purge_decide(&t, &in), false, START + 20 * S);
    in.delay_usec = 90 * S;
    assert_decision(purge_decide(&t, &in), false, START + 90 * S);
    in.delay_usec = PURGE_NEVER;
    assert_decision(purge_decide(&t, &in), false, PURGE_NEVER);
    in.delay_usec = 5 * S;
    assert_decision(purge_decide(&t, &in), true, PURGE_NEVER);
    in.delay_usec = PURGE_NEVER;
    in.threshold_bytes = 4096;
    assert_decision(purge_decide(&t, &in), true, PURGE_NEVER);
    in.threshold_bytes = 2 * MIB;
    in.lazy_bytes = 2 * MIB;
    t.over_usec = 0;
    assert_decision(purge_decide(&t, &in), false, in.now_usec + 312);
    in.now_usec += 312;
    assert_decision(purge_decide(&t, &in), true, PURGE_NEVER);
}

static void test_threshold_auto(void **state)
{
    static const struct {
        unsigned n_cpus, mib;
    } cases[] = {{0, 32},  {1, 32},   {2, 64},   {3, 64},    {4, 96},           {7, 96},
                 {8, 128}, {63, 192}, {64, 224}, {128, 256}, {UINT32_MAX, 1024}};

    for (unsigned i = 0; i < ARRAY_SIZE(cases); i++)
        assert_int_equal(purge_threshold_auto(cases[i].n_cpus), cases[i].mib * MIB);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_first_snapshot),
        cmocka_unit_test(test_age),
        cmocka_unit_test(test_age_during_a_purge),
        cmocka_unit_test(test_what_a_purge_leaves_is_old),
        cmocka_unit_test(test_one_at_a_time),
        cmocka_unit_test(test_found_holes_count_as_a_purge),
        cmocka_unit_test(test_while_one_runs),
        cmocka_unit_test(test_settles_first),
        cmocka_unit_test(test_rounds),
        cmocka_unit_test(test_age_takes_all),
        cmocka_unit_test(test_a_purge_goes_on),
        cmocka_unit_test(test_who_asks_waits_for_a_turn),
        cmocka_unit_test(test_who_asks_for_nothing_waits_for_what_runs),
        cmocka_unit_test(test_who_looks_has_a_moment),
        cmocka_unit_test(test_parameters_act_at_once),
        cmocka_unit_test(test_threshold_auto),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
