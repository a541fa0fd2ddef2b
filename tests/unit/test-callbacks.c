/* SPDX-License-Identifier: MIT */
/* The callback FIFO: order, limit, a turn's time, and several threads that push while one runs. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

#include "basic/macro.h"
#include "callbacks.h"

#define N_PRODUCERS 4u
#define N_ENTRIES 20000u

struct entry {
    struct callback callback;
    struct callbacks *again; /* pushes itself there once more */
    unsigned producer, number;
};

static unsigned n_run[N_PRODUCERS];

/* Each producer's entries come in the order in which it pushed them. */
static void entry_run(struct callback *callback)
{
    struct entry *e = container_of(callback, struct entry, callback);
    struct callbacks *again = e->again;

    assert_int_equal(e->number, n_run[e->producer]);
    n_run[e->producer]++;
    if (!again) {
        free(e);
        return;
    }
    e->again = NULL;
    e->number++;
    callbacks_push(again, callback, entry_run);
}

static void push(struct callbacks *c, unsigned producer, unsigned number)
{
    struct entry *e = malloc(sizeof(*e));

    *e = (struct entry){.producer = producer, .number = number};
    callbacks_push(c, &e->callback, entry_run);
}

static int reset(void **state)
{
    for (unsigned i = 0; i < N_PRODUCERS; i++)
        n_run[i] = 0;
    return 0;
}

static void test_limit(void **state)
{
    static const struct {
        unsigned n;
        uint64_t limit;
        unsigned n_run;
        bool more;
    } cases[] = {
        {0, 10, 0, false},
        {1, 0, 0, true},
        {1, 1, 1, false},
        {10, 3, 3, true},
        {10, 9, 9, true},
        {10, 10, 10, false},
        {10, UINT64_MAX, 10, false},
    };

    for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
        struct callbacks c;

        (void)reset(NULL);
        callbacks_init(&c);
        assert_true(callbacks_is_empty(&c));
        for (unsigned k = 0; k < cases[i].n; k++)
            push(&c, 0, k);
        assert_int_equal(callbacks_length(&c), cases[i].n);
        assert_int_equal(callbacks_run(&c, cases[i].limit, UINT64_MAX), cases[i].more);
        assert_int_equal(n_run[0], cases[i].n_run);
        assert_int_equal(c.n_run, cases[i].n_run);
        assert_int_equal(callbacks_length(&c), cases[i].n - cases[i].n_run);
        assert_int_equal(callbacks_is_empty(&c), !cases[i].more);
        assert_false(callbacks_run(&c, UINT64_MAX, UINT64_MAX)); /* the rest, in order */
        assert_int_equal(n_run[0], cases[i].n);
    }
}

/* An entry may free itself or push itself again: then it is at the end. */
static void test_pushes_itself(void **state)
{
    struct callbacks c;
    struct entry e = {.again = &c};

    callbacks_init(&c);
    callbacks_push(&c, &e.callback, entry_run);
    assert_true(callbacks_run(&c, 1, UINT64_MAX));
    e.again = &c;
    assert_true(callbacks_run(&c, 1, UINT64_MAX));
    e.again = &c;
    push(&c, 1, 0);
    assert_true(callbacks_run(&c, 2, UINT64_MAX));
    assert_int_equal(n_run[0], 3);
    assert_int_equal(n_run[1], 1);
}

/* ---- The time of a turn, by a clock that only entries advance ---- */

static uint64_t fake_usec = 1000;
static unsigned n_looks;

int __wrap_clock_gettime(clockid_t clock, struct timespec *ret);

int __wrap_clock_gettime(clockid_t clock, struct timespec *ret)
{
    (void)clock;
    n_looks++;
    *ret = (struct timespec){.tv_sec = (time_t)(fake_usec / 1000000),
                             .tv_nsec = (long)(fake_usec % 1000000) * 1000};
    return 0;
}

struct worker {
    struct callback callback;
    struct callbacks *callbacks;
    uint64_t usec;
    bool slow; /* says so */
};

static unsigned n_worked;

static void worker_run(struct callback *callback)
{
    struct worker *w = container_of(callback, struct worker, callback);

    fake_usec += w->usec;
    n_worked++;
    if (w->slow)
        callbacks_note_slow(w->callbacks);
}

static void test_turn_ends(void **state)
{
    static const struct {
        unsigned n;
        uint64_t usec;
        bool slow;
        uint64_t turn_usec;
        unsigned n_run, n_looks;
    } cases[] = {
        {10, 700, true, 2000, 3, 3},   /* over after the third */
        {10, 5000, true, 2000, 1, 1},  /* .. after the first, */
        {10, 5000, true, 0, 1, 1},     /* .. but not before it */
        {10, 100, true, 2000, 10, 10}, /* fast enough */
        {10, 700, false, 2000, 10, 0}, /* who does not say so is looked at only .. */
        {40, 700, false, 2000, 16, 1}, /* .. after sixteen */
        {40, 1, false, 2000, 40, 2},   {40, 700, true, UINT64_MAX, 40, 40}, /* no end */
    };

    for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
        struct worker workers[40];
        struct callbacks c;

        callbacks_init(&c);
        for (unsigned k = 0; k < cases[i].n; k++) {
            workers[k] = (struct worker){.callbacks = &c, .usec = cases[i].usec, .slow = cases[i].slow};
            callbacks_push(&c, &workers[k].callback, worker_run);
        }
        n_worked = n_looks = 0;
        assert_int_equal(
            callbacks_run(&c, 100,
                          cases[i].turn_usec == UINT64_MAX ? UINT64_MAX : fake_usec + cases[i].turn_usec),
            cases[i].n_run < cases[i].n);
        assert_int_equal(n_worked, cases[i].n_run);
        assert_int_equal(n_looks, cases[i].n_looks);
        assert_false(callbacks_run(&c, 100, UINT64_MAX)); /* the rest */
        assert_int_equal(n_worked, cases[i].n);
    }
}

struct producer {
    struct callbacks *callbacks;
    unsigned number;
};

static void *producer_main(void *userdata)
{
    const struct producer *p = userdata;

    for (unsigned i = 0; i < N_ENTRIES; i++)
        push(p->callbacks, p->number, i);
    return NULL;
}

static void test_many_producers(void **state)
{
    struct producer producers[N_PRODUCERS];
    pthread_t threads[N_PRODUCERS];
    struct callbacks c;
    unsigned total = 0;

    callbacks_init(&c);
    for (unsigned i = 0; i < N_PRODUCERS; i++) {
        producers[i] = (struct producer){.callbacks = &c, .number = i};
        assert_int_equal(pthread_create(&threads[i], NULL, producer_main, &producers[i]), 0);
    }
    while (total < N_PRODUCERS * N_ENTRIES) { /* the last one ends it; a lost one would not */
        (void)callbacks_run(&c, 10, UINT64_MAX);
        for (unsigned i = total = 0; i < N_PRODUCERS; i++)
            total += n_run[i];
    }
    for (unsigned i = 0; i < N_PRODUCERS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_true(callbacks_is_empty(&c));
    assert_int_equal(c.n_queued, N_PRODUCERS * N_ENTRIES);
    assert_int_equal(c.n_run, N_PRODUCERS * N_ENTRIES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_limit, reset),
        cmocka_unit_test_setup(test_pushes_itself, reset),
        cmocka_unit_test(test_turn_ends),
        cmocka_unit_test_setup(test_many_producers, reset),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
