/* SPDX-License-Identifier: MIT */
/* When to purge: snapshots and the decisions that follow from them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "basic/macro.h"
#include "engine/purge.h"

#define S 1000000ull
#define START (1000 * S)
#define MIB (1ull << 20)

static struct purge_decision decide(struct purge_timer *t, uint64_t now, uint64_t lazy)
{
    return purge_decide(t, &(struct purge_input){.now_usec = now,
                                                 .lazy_bytes = lazy,
                                                 .threshold_bytes = 64 * MIB,
                                                 .delay_usec = 60 * S});
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
        {64 * MIB, 64 * MIB, 60 * S, false, true, PURGE_NEVER},
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
    purge_begun(&t);
    purge_ended(&t);
    assert_decision(decide(&t, START + 61 * S, 8 * MIB), false, START + 121 * S); /* young again */
    assert_decision(decide(&t, START + 62 * S, 0), false, PURGE_NEVER);           /* all in use */
    assert_decision(decide(&t, START + 100 * S, 4096), false, START + 160 * S);
}

/* G1 */
static void test_one_at_a_time(void **state)
{
    struct purge_timer t = {0};

    assert_true(decide(&t, START, 64 * MIB).purge);
    purge_begun(&t);
    assert_decision(decide(&t, START + S, 640 * MIB), false, PURGE_NEVER);
    t.asked = true;
    assert_decision(decide(&t, START + 100 * S, 640 * MIB), false, PURGE_NEVER);
    purge_ended(&t);
    assert_decision(decide(&t, START + 101 * S, 4096), true, PURGE_NEVER); /* it was asked for meanwhile */
    purge_begun(&t);
    purge_ended(&t);
    assert_decision(decide(&t, START + 102 * S, 4096), false, START + 162 * S); /* once */
}

static void test_several_if_wanted(void **state)
{
    struct purge_timer t = {0};
    struct purge_input in = {.now_usec = START,
                             .lazy_bytes = 64 * MIB,
                             .threshold_bytes = 64 * MIB,
                             .delay_usec = 60 * S,
                             .while_purging = true};

    for (unsigned i = 0; i < 3; i++) {
        assert_true(purge_decide(&t, &in).purge);
        purge_begun(&t);
    }
    assert_int_equal(t.n_running, 3);
    t.cursor = 4096;
    purge_ended(&t);
    assert_int_equal(t.cursor, 4096); /* the others go on from there */
    in.while_purging = false;         /* takes effect at once */
    assert_false(purge_decide(&t, &in).purge);
    purge_ended(&t);
    purge_ended(&t);
    assert_int_equal(t.cursor, 0);
    assert_true(purge_decide(&t, &in).purge);
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
}

static void test_threshold_auto(void **state)
{
    static const struct {
        unsigned n_cpus, mib;
    } cases[] = {{0, 32},  {1, 32},   {2, 64},    {3, 64},    {4, 96},         {7, 96},
                 {8, 128}, {63, 192}, {64, 224}, {128, 256}, {UINT32_MAX, 1024}};

    for (unsigned i = 0; i < ARRAY_SIZE(cases); i++)
        assert_int_equal(purge_threshold_auto(cases[i].n_cpus), cases[i].mib * MIB);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_first_snapshot),
        cmocka_unit_test(test_age),
        cmocka_unit_test(test_one_at_a_time),
        cmocka_unit_test(test_several_if_wanted),
        cmocka_unit_test(test_parameters_act_at_once),
        cmocka_unit_test(test_threshold_auto),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
