/* SPDX-License-Identifier: MIT */
/*
 * The ring of events: nothing is lost without being counted, nothing comes twice or torn, each producer's
 * events come in its order, and an event that another one caused comes behind it; with several producers at
 * once.
 */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "trace-events.h"

enum {
    PRODUCERS = 4,
    EVENTS_EACH = 30000, /* many laps of the ring */
    PING_PONGS = 2000,
    HANG_SECONDS = 60,
};

static const struct trace_origin origin = {.arena = "routes", .mode = 0640, .owner = 7, .group = 8};

/* Empties the ring, and has everything recorded. */
static int setup(void **state)
{
    (void)alarm(HANG_SECONDS);
    trace_want(0);
    trace_want(TRACE_ALL);
    return 0;
}

static void push(enum trace_event event, uint64_t a, uint64_t b)
{
    trace_push(event, &origin, (const uint64_t[TRACE_VALUES]){a, b, ~a, a ^ b});
}

static void record_comes_out_as_it_went_in(void **state)
{
    struct trace_record r;

    assert_false(trace_take(&r));
    push(TRACE_DRAIN, 3, 4);
    assert_true(trace_take(&r));
    assert_int_equal(r.event, TRACE_DRAIN);
    assert_string_equal(r.origin.arena, "routes");
    assert_int_equal(r.origin.mode, 0640);
    assert_int_equal(r.origin.owner, 7);
    assert_int_equal(r.origin.group, 8);
    assert_int_equal(r.values[0], 3);
    assert_int_equal(r.values[3], 3 ^ 4);
    assert_true(r.usec > 0);
    assert_false(trace_take(&r));
}

static void full_ring_drops_and_counts(void **state)
{
    uint64_t before = trace_n_dropped();
    struct trace_record r;

    for (uint64_t i = 0; i < TRACE_RING_SIZE + 5; i++)
        push(TRACE_GP_START, i, 0);
    assert_int_equal(trace_n_dropped() - before, 5);
    for (uint64_t i = 0; i < TRACE_RING_SIZE; i++) {
        assert_true(trace_take(&r));
        assert_int_equal(r.values[0], i); /* the newest are dropped, not the oldest */
    }
    assert_false(trace_take(&r));
    push(TRACE_GP_START, 77, 0); /* there is room again */
    assert_true(trace_take(&r));
    assert_int_equal(r.values[0], 77);
}

static void only_what_is_wanted_is_recorded(void **state)
{
    static struct arena arena = {.name = "tables", .owner = 5, .group = 6, .mode = 0604};
    struct trace_record r;

    trace_want(1u << TRACE_GP_END);
    trace_gp_start(&arena, 9);
    trace_gp_end(&arena, 9, 120);
    assert_true(trace_take(&r));
    assert_int_equal(r.event, TRACE_GP_END);
    assert_string_equal(r.origin.arena, "tables");
    assert_int_equal(r.origin.owner, 5);
    assert_int_equal(r.origin.group, 6);
    assert_int_equal(r.origin.mode, 0604);
    assert_int_equal(r.values[0], 9);
    assert_int_equal(r.values[1], 120);
    assert_false(trace_take(&r));
    trace_want(0);
    trace_gp_end(&arena, 10, 1);
    assert_false(trace_take(&r));
}

static void who_begins_to_listen_gets_nothing_old(void **state)
{
    struct trace_record r;

    push(TRACE_GP_START, 1, 0);
    trace_want(0);
    push(TRACE_GP_START, 2, 0); /* by a producer that had not noticed */
    trace_want(TRACE_ALL);
    assert_false(trace_take(&r));
    push(TRACE_GP_START, 3, 0);
    trace_want(1u << TRACE_GP_START); /* another listener: what waits is for the first one too */
    assert_true(trace_take(&r));
    assert_int_equal(r.values[0], 3);
}

static void names_are_found_again(void **state)
{
    for (int i = 0; i < TRACE_EVENT_MAX; i++) {
        assert_int_equal(trace_event_from_string(trace_event_to_string(i)), i);
        assert_non_null(trace_value_name(i, 0));
    }
    assert_int_equal(trace_event_from_string("gp_star"), TRACE_EVENT_INVALID);
    assert_null(trace_event_to_string(TRACE_EVENT_MAX));
    assert_null(trace_event_to_string(TRACE_EVENT_INVALID));
    assert_null(trace_value_name(TRACE_GP_START, 1));
    assert_null(trace_value_name(TRACE_DRAIN, TRACE_VALUES));
}

/* ---- Several producers ---- */

static void *produce(void *data)
{
    uint64_t me = (uint64_t)(uintptr_t)data;

    for (uint64_t i = 0; i < EVENTS_EACH; i++)
        push((enum trace_event)(me % TRACE_EVENT_MAX), me, i);
    return NULL;
}

/* Whole, of a producer that there is, and later than its last one. */
static void check_record(const struct trace_record *r, int64_t last[PRODUCERS])
{
    uint64_t me = r->values[0], i = r->values[1];

    assert_true(me < PRODUCERS && i < EVENTS_EACH);
    assert_true(r->values[2] == ~me && r->values[3] == (me ^ i) &&
                (uint64_t)r->event == me % TRACE_EVENT_MAX);
    assert_string_equal(r->origin.arena, "routes");
    assert_true((int64_t)i > last[me]);
    last[me] = (int64_t)i;
}

static void producers_lose_nothing_uncounted(void **state)
{
    int64_t last[PRODUCERS] = {-1, -1, -1, -1};
    uint64_t n_taken = 0, before = trace_n_dropped();
    pthread_t threads[PRODUCERS];
    struct trace_record r;

    for (uintptr_t i = 0; i < PRODUCERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, produce, (void *)i), 0);
    while (n_taken + trace_n_dropped() - before < (uint64_t)PRODUCERS * EVENTS_EACH) {
        if (!trace_take(&r)) {
            (void)sched_yield();
            continue;
        }
        check_record(&r, last);
        n_taken++;
    }
    for (int i = 0; i < PRODUCERS; i++)
        (void)pthread_join(threads[i], NULL);
    assert_false(trace_take(&r));
    assert_true(n_taken >= TRACE_RING_SIZE);
    assert_int_equal(n_taken + trace_n_dropped() - before, (uint64_t)PRODUCERS * EVENTS_EACH);
}

/* T4: two threads take turns by a flag; the ring has their events in the order of the turns. */
static uint64_t whose_turn;

static void *take_turns(void *data)
{
    uint64_t me = (uint64_t)(uintptr_t)data;

    for (uint64_t i = me; i < PING_PONGS; i += 2) {
        while (load_acquire(&whose_turn) != i) /* pairs with the store below */
            (void)sched_yield();
        push(TRACE_GP_START, i, 0);
        store_release(&whose_turn, i + 1); /* pairs with the load above */
    }
    return NULL;
}

static void cause_comes_before_effect(void **state)
{
    pthread_t threads[2];
    struct trace_record r;

    assert_cc(PING_PONGS <= TRACE_RING_SIZE);
    for (uintptr_t i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, take_turns, (void *)i), 0);
    for (uint64_t i = 0; i < PING_PONGS; i++) {
        while (!trace_take(&r))
            (void)sched_yield();
        assert_int_equal(r.values[0], i);
    }
    for (int i = 0; i < 2; i++)
        (void)pthread_join(threads[i], NULL);
}

#define TRACE_TEST(name) cmocka_unit_test_setup(name, setup)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        TRACE_TEST(record_comes_out_as_it_went_in),  TRACE_TEST(full_ring_drops_and_counts),
        TRACE_TEST(only_what_is_wanted_is_recorded), TRACE_TEST(who_begins_to_listen_gets_nothing_old),
        TRACE_TEST(names_are_found_again),           TRACE_TEST(producers_lose_nothing_uncounted),
        TRACE_TEST(cause_comes_before_effect),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
