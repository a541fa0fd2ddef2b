/* SPDX-License-Identifier: MIT */
/*
 * Those whose grace period is over, and who wakes them: an arena without readers, the real lists, queues and
 * workers. In the first half this test ends grace periods itself; in the second the grace-period thread does,
 * and every waiter calls again from within its own completion, while its old list is still being walked.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <urcu/urcu-memb.h>

#include "await.h"
#include "basic/macro.h"
#include "basic/ordering.h"
#include "clock.h"
#include "grace-internal.h"

enum {
    N_WAITERS = 200, /* more than wake-flood */
    N_CALLS = 1500,  /* of each */
};

struct world;

struct waiter {
    struct gp_waiter gp_waiter;
    struct world *world;
    uint64_t called_at; /* the newest number then, or an older one */
    unsigned n_calls;   /* still to come, from within done() */
    uint32_t in_flight;
    uint32_t n_done;
    int error;
    pthread_t by;
};

struct world {
    struct callbacks callbacks;
    struct reclaimer *reclaimer;
    struct grace own; /* what an end needs, for ends that the test makes */
    struct grace *grace;
    struct arena *arena;
    struct abi_domain domain;
    struct state state;
    struct arena_snapshot snapshot;
    struct waiter waiters[N_WAITERS];
    uint32_t n_done, n_early, n_twice;
    uint32_t hold, n_held; /* whoever completes a waiter waits while this is set */
};

static void world_init(struct world *w, enum wake_from_gp mode, uint64_t wake_direct, uint64_t wake_flood)
{
    memset(w, 0, sizeof(*w));
    callbacks_init(&w->callbacks);
    assert_int_equal(reclaimer_new(2, &w->callbacks, &w->reclaimer), 0);
    w->own = (struct grace){.reclaimer = w->reclaimer, .callbacks = &w->callbacks};
    (void)pthread_mutex_init(&w->own.list_lock, NULL);
    w->grace = &w->own;
    w->arena = aligned_alloc(ABI_CACHE_LINE, ALIGN_UP(sizeof(*w->arena), ABI_CACHE_LINE));
    memset(w->arena, 0, sizeof(*w->arena));
    w->arena->refs = 1;
    w->arena->domain = &w->domain;
    w->arena->state = &w->state;
    w->arena->snapshot = &w->snapshot;
    w->snapshot.p = (struct arena_parameters){
        .wake_from_gp = mode,
        .wake_direct = wake_direct,
        .wake_flood = wake_flood,
        .stall_timeout_usec = UINT64_MAX,
    };
    (void)pthread_mutex_init(&w->arena->clients_lock, NULL);
    gp_init(&w->arena->gp, 0, 0);
    for (unsigned i = 0; i < N_WAITERS; i++)
        w->waiters[i].world = w;
}

static void world_deinit(struct world *w)
{
    reclaimer_stop(w->reclaimer);
    reclaimer_flush(w->reclaimer);
    assert_null(reclaimer_free(w->reclaimer));
    gp_deinit(&w->arena->gp);
    free(w->arena);
}

static void waiter_call(struct waiter *v);

static void waiter_done(struct gp_waiter *gp_waiter)
{
    struct waiter *v = container_of(gp_waiter, struct waiter, gp_waiter);
    struct world *w = v->world;

    if (load_acquire(&w->hold)) {
        (void)fetch_add_relaxed(&w->n_held, 1);
        while (load_acquire(&w->hold))
            (void)usleep(100);
    }
    if (!exchange_acq_rel(&v->in_flight, 0))
        (void)fetch_add_relaxed(&w->n_twice, 1);
    if (gp_waiter->error == 0 && load_acquire(&w->domain.completed) <= v->called_at)
        (void)fetch_add_relaxed(&w->n_early, 1);
    v->error = gp_waiter->error;
    v->by = pthread_self();
    v->n_done++;
    if (v->n_calls > 0) {
        v->n_calls--;
        waiter_call(v);
    }
    (void)__atomic_add_fetch(&w->n_done, 1, __ATOMIC_RELEASE);
}

static void waiter_begin(struct waiter *v)
{
    v->gp_waiter.done = waiter_done;
    v->called_at = load_acquire(&v->world->domain.started);
    (void)exchange_acq_rel(&v->in_flight, 1);
}

static void waiter_call(struct waiter *v)
{
    waiter_begin(v);
    grace_synchronize(v->world->grace, v->world->arena, &v->gp_waiter);
}

static void waiter_call_cookie(struct waiter *v, uint64_t cookie)
{
    waiter_begin(v);
    v->called_at = MIN(v->called_at, cookie - 1); /* it may be under way, or over */
    grace_wait_cookie(v->world->grace, v->world->arena, &v->gp_waiter, cookie);
}

static uint64_t n_in_flight(const struct world *w)
{
    return sync_load_waiters(load_relaxed(&w->arena->gp.load));
}

static uint32_t n_done(struct world *w)
{
    return load_acquire(&w->n_done);
}

/* ---- Grace periods by hand ---- */

static void gp_begin(struct world *w)
{
    struct gp *gp = &w->arena->gp;

    assert_null(gp->wait);
    gp->wait = __cds_wfs_pop_all(&gp->curr);
    store_release(&w->domain.started, ++gp->started);
}

static void gp_end(struct world *w)
{
    struct gp *gp = &w->arena->gp;

    gp->completed = gp->started;
    store_release(&w->domain.completed, gp->completed);
    grace_wake_waiters(w->grace, w->arena, &w->snapshot.p);
}

static void assert_wakes(const struct world *w, uint64_t direct, uint64_t worker, uint64_t fifo)
{
    const struct gp *gp = &w->arena->gp;

    assert_int_equal(gp->n_wakes[SYNC_DIRECT], direct);
    assert_int_equal(gp->n_wakes[SYNC_WORKER], worker);
    assert_int_equal(gp->n_wakes[SYNC_FIFO], fifo);
    assert_int_equal(gp->n_synchronizes, direct + worker + fifo);
}

static void assert_all_well(struct world *w)
{
    assert_int_equal(w->n_twice, 0);
    assert_int_equal(w->n_early, 0);
    assert_int_equal(n_in_flight(w), 0);
    assert_true(cds_wfs_empty(&w->arena->gp.curr));
    assert_true(cds_wfs_empty(&w->arena->gp.done));
    assert_null(w->arena->gp.wait);
}

/* Each way, with calls and with cookies, and what the figures say of it. */
static void test_ways(void **state)
{
    static const struct {
        enum wake_from_gp mode;
        uint64_t direct, flood;
        unsigned n_calls, n_cookies, n_expedited;
        uint64_t n[SYNC_WAY_MAX];
    } cases[] = {
        {WAKE_FROM_GP_NO, 5, 64, 0, 0, 0, {0, 0, 0}},       {WAKE_FROM_GP_NO, 5, 64, 7, 4, 0, {0, 0, 11}},
        {WAKE_FROM_GP_NO, 5, 64, 7, 4, 7, {5, 2, 4}},       {WAKE_FROM_GP_YES, 5, 64, 3, 1, 0, {4, 0, 0}},
        {WAKE_FROM_GP_YES, 5, 64, 3, 3, 0, {5, 1, 0}},      {WAKE_FROM_GP_YES, 0, 64, 3, 3, 1, {0, 6, 0}},
        {WAKE_FROM_GP_YES, 5, 64, 150, 50, 0, {5, 195, 0}}, {WAKE_FROM_GP_AUTO, 5, 64, 40, 23, 0, {5, 58, 0}},
        {WAKE_FROM_GP_AUTO, 5, 64, 40, 24, 0, {0, 0, 64}},
    };

    for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
        unsigned n = cases[i].n_calls + cases[i].n_cookies;
        static struct world w;

        world_init(&w, cases[i].mode, cases[i].direct, cases[i].flood);
        for (unsigned k = 0; k < n; k++) {
            w.waiters[k].gp_waiter.expedited = k < cases[i].n_expedited;
            if (k < cases[i].n_calls)
                waiter_call(&w.waiters[k]);
            else
                waiter_call_cookie(&w.waiters[k], 1);
        }
        assert_int_equal(n_in_flight(&w), n);
        gp_begin(&w);
        gp_end(&w);
        await(n_done(&w) == n);
        assert_wakes(&w, cases[i].n[0], cases[i].n[1], cases[i].n[2]);
        assert_int_equal(w.arena->gp.max_direct_wakes, cases[i].n[0]);
        assert_all_well(&w);
        n = 0;
        for (unsigned k = 0; k < N_WAITERS; k++)
            n += w.waiters[k].n_done == 1 && pthread_equal(w.waiters[k].by, pthread_self());
        assert_int_equal(n, cases[i].n[SYNC_DIRECT]);
        world_deinit(&w);
    }
}

/* Who calls, or asks for the next number, while one is under way is not among those that it serves. */
static void test_next_one(void **state)
{
    static struct world w;

    world_init(&w, WAKE_FROM_GP_YES, 5, 64);
    waiter_call(&w.waiters[0]);
    gp_begin(&w);
    waiter_call(&w.waiters[1]);
    waiter_call_cookie(&w.waiters[2], 1);          /* the one under way */
    waiter_call_cookie(&w.waiters[3], 2);          /* the next */
    waiter_call_cookie(&w.waiters[4], UINT64_MAX); /* which nobody was given: the next, too */
    assert_int_equal(n_in_flight(&w), 5);
    gp_end(&w);
    assert_int_equal(n_done(&w), 2);
    assert_int_equal(w.waiters[0].n_done + w.waiters[2].n_done, 2);
    assert_int_equal(n_in_flight(&w), 3);
    waiter_call_cookie(&w.waiters[5], 1); /* over: it never was in flight */
    assert_int_equal(w.waiters[5].n_done, 1);
    assert_int_equal(n_in_flight(&w), 3);
    gp_begin(&w);
    gp_end(&w);
    assert_int_equal(n_done(&w), 6);
    assert_wakes(&w, 5, 0, 0);
    assert_int_equal(w.arena->gp.max_direct_wakes, 3);
    assert_all_well(&w);
    world_deinit(&w);
}

/* The end of the service: whoever stands on a list is told so, and counts no more; who was to be woken is. */
static void test_failed(void **state)
{
    static struct world w;

    world_init(&w, WAKE_FROM_GP_YES, 0, 64);
    store_release(&w.hold, 1u);
    waiter_call(&w.waiters[0]);
    gp_begin(&w);
    gp_end(&w); /* its worker is held */
    await(load_relaxed(&w.n_held) == 1);
    waiter_call(&w.waiters[1]);
    waiter_call(&w.waiters[2]);
    gp_begin(&w);
    waiter_call(&w.waiters[3]);
    waiter_call_cookie(&w.waiters[4], 3);
    assert_int_equal(n_in_flight(&w), 4);
    store_release(&w.hold, 0u);
    grace_fail_waiters(&w.arena->gp, -ESHUTDOWN);
    await(n_done(&w) == 5);
    for (unsigned i = 0; i < 5; i++) {
        assert_int_equal(w.waiters[i].n_done, 1);
        assert_int_equal(w.waiters[i].error, i == 0 ? 0 : -ESHUTDOWN);
    }
    assert_all_well(&w);
    world_deinit(&w);
}

/* A flood that is over by the time of the next call is over, although at each end somebody is in flight. */
static void test_flood_is_over(void **state)
{
    static struct world w;

    world_init(&w, WAKE_FROM_GP_AUTO, 5, 10);
    for (unsigned i = 0; i < 10; i++)
        waiter_call(&w.waiters[i]);
    gp_begin(&w);
    gp_end(&w);
    await(n_done(&w) == 10);
    assert_wakes(&w, 0, 0, 10);
    for (unsigned i = 0; i < 3; i++) {
        waiter_call(&w.waiters[0]);
        gp_begin(&w);
        gp_end(&w);
        await(n_done(&w) == 11 + i);
    }
    assert_wakes(&w, 3, 0, 10);
    assert_all_well(&w);
    world_deinit(&w);
}

/*
 * A worker is stopped in the middle of its walk. Meanwhile those that it has woken already cannot be told from
 * new ones, modes change, and grace periods begin and end: each of them serves its own.
 */
static void test_worker_held(void **state)
{
    static struct world w;

    world_init(&w, WAKE_FROM_GP_YES, 0, 1000);
    for (unsigned i = 0; i < 50; i++) {
        w.waiters[i].n_calls = i % 2; /* calls again at once */
        waiter_call(&w.waiters[i]);
    }
    gp_begin(&w);
    store_release(&w.hold, 1u);
    gp_end(&w);
    await(load_relaxed(&w.n_held) == 1); /* at the first of them */
    assert_int_equal(n_done(&w), 0);

    for (unsigned i = 50; i < 60; i++)
        waiter_call(&w.waiters[i]);
    gp_begin(&w);
    waiter_call(&w.waiters[60]);
    gp_end(&w); /* onto the list whose walker is held */
    w.snapshot.p.wake_from_gp = WAKE_FROM_GP_NO;
    waiter_call(&w.waiters[61]);
    gp_begin(&w);
    gp_end(&w); /* behind the worker's own queue */
    assert_int_equal(n_done(&w), 0);
    assert_wakes(&w, 0, 60, 2);
    store_release(&w.hold, 0u);
    await(n_done(&w) == 62);

    w.snapshot.p.wake_from_gp = WAKE_FROM_GP_YES;
    w.snapshot.p.wake_direct = 1000;
    gp_begin(&w);
    gp_end(&w); /* those that called again */
    assert_int_equal(n_done(&w), 87);
    assert_wakes(&w, 25, 60, 2);
    assert_all_well(&w);
    world_deinit(&w);
}

/* ---- Grace periods as they are ---- */

static void *caller_main(void *userdata)
{
    struct world *w = userdata;

    for (unsigned i = 0; i < N_WAITERS; i += 2)
        waiter_call(&w->waiters[i]);
    return NULL;
}

/*
 * Every completion calls again before it returns, so a node is on curr, and through the next grace period,
 * while the walk that it was part of goes on; the rule changes all the time.
 */
static void test_calls_again(void **state)
{
    static const struct arena_parameters rules[] = {
        {.wake_from_gp = WAKE_FROM_GP_NO},
        {.wake_from_gp = WAKE_FROM_GP_YES, .wake_direct = 0},
        {.wake_from_gp = WAKE_FROM_GP_YES, .wake_direct = 5},
        {.wake_from_gp = WAKE_FROM_GP_YES, .wake_direct = 1000},
        {.wake_from_gp = WAKE_FROM_GP_AUTO, .wake_direct = 5, .wake_flood = 64},
        {.wake_from_gp = WAKE_FROM_GP_AUTO, .wake_direct = 2, .wake_flood = 1000},
    };
    static struct arena_snapshot snapshots[ARRAY_SIZE(rules)];
    static struct world w;
    uint64_t seed = 7;
    pthread_t caller;

    for (unsigned i = 0; i < ARRAY_SIZE(rules); i++)
        snapshots[i].p = rules[i];
    world_init(&w, WAKE_FROM_GP_NO, 5, 64);
    assert_int_equal(grace_new(w.reclaimer, &w.callbacks, &w.grace), 0);
    for (unsigned i = 0; i < N_WAITERS; i++) {
        w.waiters[i].n_calls = N_CALLS - 1;
        w.waiters[i].gp_waiter.expedited = i % 16 == 0;
    }
    assert_int_equal(pthread_create(&caller, NULL, caller_main, &w), 0);
    for (unsigned i = 1; i < N_WAITERS; i += 2)
        waiter_call(&w.waiters[i]);
    for (uint64_t until = now_usec() + PATIENCE_USEC; n_done(&w) < N_WAITERS * N_CALLS;) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        (void)rcu_xchg_pointer(&w.arena->snapshot, &snapshots[(seed >> 33) % ARRAY_SIZE(rules)]);
        assert_true(now_usec() < until);
        (void)usleep((seed >> 40) % 300);
    }
    assert_int_equal(pthread_join(caller, NULL), 0);
    grace_stop(w.grace);
    assert_null(grace_free(w.grace));
    for (unsigned i = 0; i < N_WAITERS; i++) {
        assert_int_equal(w.waiters[i].n_done, N_CALLS);
        assert_int_equal(w.waiters[i].error, 0);
    }
    assert_int_equal(w.arena->gp.n_synchronizes, N_WAITERS * N_CALLS);
    assert_true(w.arena->gp.n_wakes[SYNC_DIRECT] > 0); /* the expedited ones at least */
    assert_all_well(&w);
    world_deinit(&w);
}

static int threads_init(void **state)
{
    urcu_memb_register_thread(); /* parameters are read under RCU */
    return 0;
}

static int threads_deinit(void **state)
{
    urcu_memb_unregister_thread();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ways),        cmocka_unit_test(test_next_one),
        cmocka_unit_test(test_failed),      cmocka_unit_test(test_flood_is_over),
        cmocka_unit_test(test_worker_held), cmocka_unit_test(test_calls_again),
    };

    return cmocka_run_group_tests(tests, threads_init, threads_deinit);
}
