/* SPDX-License-Identifier: MIT */
/* Posts to the main thread: each comes once, in its poster's order, in that thread, and wakes the loop. */
#include <event2/event.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "basic/macro.h"
#include "mainqueue.h"

#define N_PRODUCERS 4u
#define N_POSTS 20000u

struct fixture {
    struct event_base *base;
    struct mainqueue *q;
};

struct post {
    struct main_post post;
    unsigned producer, number;
};

static struct fixture f;
static unsigned n_run[N_PRODUCERS], n_total;
static pthread_t main_thread;

static int setup(void **state)
{
    f.base = event_base_new();
    assert_non_null(f.base);
    assert_int_equal(mainqueue_new(f.base, &f.q), 0);
    for (unsigned i = 0; i < N_PRODUCERS; i++)
        n_run[i] = 0;
    n_total = 0;
    main_thread = pthread_self();
    return 0;
}

static int teardown(void **state)
{
    f.q = mainqueue_free(f.q);
    assert_null(f.q);
    event_base_free(f.base);
    return 0;
}

static void post_run(struct main_post *m)
{
    struct post *p = container_of(m, struct post, post);

    assert_true(pthread_equal(pthread_self(), main_thread));
    assert_int_equal(p->number, n_run[p->producer]);
    n_run[p->producer]++;
    if (++n_total == N_PRODUCERS * N_POSTS)
        (void)event_base_loopbreak(f.base);
    free(p); /* it may */
}

static void post(unsigned producer, unsigned number)
{
    struct post *p = malloc(sizeof(*p));

    *p = (struct post){.producer = producer, .number = number};
    mainqueue_post(f.q, &p->post, post_run);
}

static void *producer_main(void *userdata)
{
    for (unsigned i = 0; i < N_POSTS; i++)
        post(*(const unsigned *)userdata, i);
    return NULL;
}

/* The loop sleeps whenever it can, and the last post ends it: a lost one would never let it. */
static void test_many_producers(void **state)
{
    static const unsigned numbers[N_PRODUCERS] = {0, 1, 2, 3};
    pthread_t threads[N_PRODUCERS];

    for (unsigned i = 0; i < N_PRODUCERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, producer_main, (void *)&numbers[i]), 0);
    assert_int_equal(event_base_dispatch(f.base), 0);
    for (unsigned i = 0; i < N_PRODUCERS; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(n_run[i], N_POSTS);
    }
}

static void once(void)
{
    assert_int_equal(event_base_loop(f.base, EVLOOP_NONBLOCK), 0);
}

/* Nothing runs before the loop turns, and an empty queue wakes nobody. */
static void test_waits_for_the_loop(void **state)
{
    once();
    post(0, 0);
    post(0, 1);
    assert_int_equal(n_total, 0);
    once();
    assert_int_equal(n_total, 2);
    once();
    post(0, 2);
    once();
    assert_int_equal(n_total, 3);
}

struct echo {
    struct main_post post;
    unsigned n_left;
};

static void echo_run(struct main_post *m)
{
    struct echo *e = container_of(m, struct echo, post);

    n_total++;
    if (e->n_left-- > 0)
        mainqueue_post(f.q, m, echo_run);
}

/* What a post posts comes too. */
static void test_posts_from_a_post(void **state)
{
    struct echo e = {.n_left = 5};

    mainqueue_post(f.q, &e.post, echo_run);
    for (unsigned i = 0; i < 6; i++)
        once();
    assert_int_equal(n_total, 6);
    e.n_left = 2;
    mainqueue_post(f.q, &e.post, echo_run);
    mainqueue_flush(f.q);
    assert_int_equal(n_total, 9);
}

static void test_flush(void **state)
{
    mainqueue_flush(f.q); /* nothing */
    for (unsigned i = 0; i < 100; i++)
        post(1, i);
    mainqueue_flush(f.q);
    assert_int_equal(n_total, 100);
    once(); /* the loop comes later, and finds nothing */
    assert_int_equal(n_total, 100);
    assert_null(mainqueue_free(NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_many_producers, setup, teardown),
        cmocka_unit_test_setup_teardown(test_waits_for_the_loop, setup, teardown),
        cmocka_unit_test_setup_teardown(test_posts_from_a_post, setup, teardown),
        cmocka_unit_test_setup_teardown(test_flush, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
