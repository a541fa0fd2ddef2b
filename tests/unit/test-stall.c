/* SPDX-License-Identifier: MIT */
/* When a stall is told of: snapshots and the decisions that follow from them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "basic/macro.h"
#include "engine/stall.h"
#include "stall-report.h"

#define S 1000000ull
#define H (3600 * S)

static void expect(struct stall_input in, bool tell, bool kill, uint64_t next)
{
    struct stall_decision d = stall_decide(&in);

    if (d.tell != tell || d.kill != kill || d.next_usec != next)
        fail_msg("timeout %ju waited %ju told %ju: tell %d kill %d next %ju", (uintmax_t)in.timeout_usec,
                 (uintmax_t)in.waited_usec, (uintmax_t)in.told_usec, d.tell, d.kill, (uintmax_t)d.next_usec);
}

static void test_times(void **state)
{
    static const struct {
        uint64_t timeout, waited, told;
        bool tell;
        uint64_t next;
    } cases[] = {
        {21 * S, 0, 0, false, 21 * S},
        {21 * S, 21 * S - 1, 0, false, 21 * S},
        {21 * S, 21 * S, 0, true, 63 * S},
        {21 * S, 62 * S, 21 * S, false, 63 * S},
        {21 * S, 64 * S, 22 * S, true, 189 * S}, /* told late: the times stay where they are */
        {21 * S, 189 * S, 64 * S, true, 567 * S},
        {21 * S, 567 * S, 189 * S, true, 1167 * S}, /* ten minutes from here on */
        {21 * S, 1167 * S, 567 * S, true, 1767 * S},
        {21 * S, 100 * S, 0, true, 189 * S},                   /* a look that came late tells once */
        {21 * S, 100 * H, 21 * S, true, 359967 * S + 600 * S}, /* an age that few reach */
        {H, H, 0, true, 3 * H},                                /* three times, whatever the gap */
        {H, 3 * H, H, true, 5 * H},
        {H, 5 * H, 3 * H, true, 7 * H},
        {S / 10, S / 10, 0, true, 3 * S / 10},
        {S / 10, 9 * S / 10, 3 * S / 10, true, 27 * S / 10},
        {STALL_NEVER, H, 0, false, STALL_NEVER},
        {STALL_NEVER, H, 21 * S, false, STALL_NEVER},
    };

    for (unsigned i = 0; i < ARRAY_SIZE(cases); i++)
        expect((struct stall_input){.timeout_usec = cases[i].timeout,
                                    .waited_usec = cases[i].waited,
                                    .told_usec = cases[i].told},
               cases[i].tell, false, cases[i].next);
}

/* Parameters that change while a reader stalls. */
static void test_changes(void **state)
{
    struct stall_input in = {.timeout_usec = 21 * S, .waited_usec = 5 * S};

    expect(in, false, false, 21 * S);
    in.timeout_usec = S; /* shorter: at once */
    expect(in, true, false, 9 * S);
    in.told_usec = 5 * S;
    expect(in, false, false, 9 * S);
    in.timeout_usec = H; /* longer: not again before that */
    expect(in, false, false, H);
    in.timeout_usec = STALL_NEVER;
    expect(in, false, false, STALL_NEVER);
}

static void test_kill(void **state)
{
    struct stall_input in = {.timeout_usec = S, .waited_usec = S - 1, .kill = true};

    expect(in, false, false, S);
    in.waited_usec = S;
    expect(in, true, true, 3 * S);
    in.told_usec = S;
    in.waited_usec = 2 * S;
    expect(in, false, true, 3 * S); /* asked for after it was told of */
    in.killed = true;
    expect(in, false, false, 3 * S);
    in.waited_usec = 3 * S;
    expect(in, true, true, 9 * S); /* it did not work: again */
    in.timeout_usec = H;
    in.killed = false;
    expect(in, false, false, H);
    in.timeout_usec = STALL_NEVER;
    expect(in, false, false, STALL_NEVER);
}

/* S2: over a whole day with every timeout there may be. */
static void test_gaps(void **state)
{
    static const uint64_t timeouts[] = {S / 10, S, 21 * S, 600 * S, H};

    for (unsigned i = 0; i < ARRAY_SIZE(timeouts); i++) {
        uint64_t told = 0, gap = MAX(STALL_GAP_USEC, 2 * timeouts[i]);

        while (told < 24 * H) {
            struct stall_decision d = stall_decide(
                &(struct stall_input){.timeout_usec = timeouts[i], .waited_usec = told, .told_usec = told});

            assert_false(d.tell);
            assert_in_range(d.next_usec, told + 1, told + gap);
            told = d.next_usec;
        }
    }
}

/* ---- What a client says of itself ---- */

static void test_tid_is_bounded(void **state)
{
    static const struct {
        uint32_t word, tid;
    } cases[] = {
        {0, 0},
        {1, 1},
        {4242, 4242},
        {4242 | 0x80000000u, 4242}, /* somebody waits for the mutex */
        {4242 | ABI_OWNER_DIED, 4242},
        {1u << 22, 1u << 22},
        {(1u << 22) + 1, 0}, /* no kernel gives such a number */
        {UINT32_MAX, 0},
    };
    struct abi_lane *shared = calloc(1, sizeof(*shared));
    struct client_lane cl = {.lane.shared = shared};

    assert_non_null(shared);
    for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
        shared->owner[0] = cases[i].word;
        assert_int_equal(stall_tid(&cl), cases[i].tid);
    }
    free(shared);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_times), cmocka_unit_test(test_changes),        cmocka_unit_test(test_kill),
        cmocka_unit_test(test_gaps),  cmocka_unit_test(test_tid_is_bounded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
