/* SPDX-License-Identifier: MIT */
/*
 * SYNC: who wakes those whose grace period is over. Lists, all lock-free stacks through the one node of a
 * waiter, which stands on one of them at a time:
 *
 *   curr   came since the last start: pushed by whoever calls, under gp.lock
 *   wait   curr as grace_start() detached it, before the number moved: the grace-period thread's alone
 *   done   over, and for a worker to wake: pushed by the grace-period thread, detached by wake_done()
 *
 * Those that the callback FIFO wakes stand on none of them, but in that queue through another node.
 *
 *                       curr: push  pop_all   done: push  pop_all   walk of what was detached
 *   any thread              yes        -           -          -          -
 *   grace-period thread     yes       yes         yes         -      wait, its own
 *   the worker at it        yes        -           -         yes     done's, its own
 *
 * Guarantees (spin: tests/model/sync.pml)
 *  W1 A waiter is completed by a grace period that began after its call: it stands on curr from then until
 *     a start detaches it, and pushing and starting exclude each other by gp.lock.
 *  W2 No segment is reused while anybody walks it. A waiter is free to call again the instant that
 *     waiter_done() is under way, and stands on curr again before that returns; by then the walker has read
 *     its link and never looks at it again. What was detached is the walker's: its links change no more until
 *     then, since a push writes none but the pushed node's own. So a walk never waits for a link of `wait`
 *     (both ends held the lock), and for one of `done` only as long as the push of that very node takes.
 *  W3 The same for the queues, the FIFO and the worker's own: a dequeuer has done with an entry when it runs
 *     it, and the last store of whoever queued the next one, into the link of this, comes before that.
 *  W4 Each is completed once: it leaves its list by a detaching, and there is one walker of what is detached.
 *  W5 The grace-period thread wakes at most wake-direct at the end of one grace period.
 *
 * Progress: pushing and detaching are wait-free; a walk takes as many steps as there are waiters.
 */
#include "basic/macro.h"
#include "basic/ordering.h"
#include "basic/testpoint.h"
#include "grace-internal.h"

/* ---- In flight ---- */

static uint64_t arena_wake_flood(struct arena *a)
{
    uint64_t n;

    urcu_memb_read_lock();
    n = rcu_dereference(a->snapshot)->p.wake_flood;
    urcu_memb_read_unlock();
    return n;
}

void grace_waiter_enter(struct arena *a, struct gp_waiter *w)
{
    uint64_t flood = arena_wake_flood(a), load = load_relaxed(&a->gp.load);

    w->gp = &a->gp;
    w->error = 0;
    /* Relaxed: it counts, and publishes nothing. */
    while (!compare_exchange_relaxed(&a->gp.load, &load, sync_load_enter(load, flood)))
        ;
}

static void waiter_leave(struct gp *gp)
{
    uint64_t load = load_relaxed(&gp->load);

    while (!compare_exchange_relaxed(&gp->load, &load, sync_load_leave(load)))
        ;
}

/* What it is now, which the thresholds of the moment may have made a flood. */
static uint64_t load_judge(struct gp *gp, uint64_t flood)
{
    uint64_t load = load_relaxed(&gp->load), judged;

    do
        judged = sync_load_judge(load, flood);
    while (judged != load && !compare_exchange_relaxed(&gp->load, &load, judged));
    return judged;
}

/* ---- Completing ---- */

static void waiter_done(struct gp_waiter *w)
{
    waiter_leave(w->gp); /* before done(): that may free it */
    w->done(w);
}

/* From the FIFO. */
static void waiter_run(struct callback *callback)
{
    waiter_done(container_of(callback, struct gp_waiter, callback));
    RECLAIM_TEST_POINT("wake-fifo");
}

/*
 * In a worker. From the pop_all on the arena is kept by the waiters that are still to be done alone, so
 * nothing of it is looked at.
 */
static void wake_done(struct callback *callback)
{
    struct gp *gp = container_of(callback, struct gp, done_callback);
    struct cds_wfs_head *list = __cds_wfs_pop_all(&gp->done);
    struct cds_wfs_node *node, *next;

    sanitizer_acquire(&gp->done); /* its address alone */
    RECLAIM_TEST_POINT("wake-worker-detached");
    for (node = list ? cds_wfs_first(list) : NULL; node; node = next) {
        next = cds_wfs_next_blocking(node); /* W2 */
        waiter_done(container_of(node, struct gp_waiter, node));
        RECLAIM_TEST_POINT("wake-worker");
    }
}

/* ---- The end of a grace period ---- */

struct waker {
    struct grace *grace;
    struct gp *gp;
    struct sync_end end;
    uint64_t n_callbacks; /* that waited as the grace period ended */
    bool done_was_empty;
};

static void figure_add(uint64_t *figure, uint64_t n)
{
    store_relaxed(figure, *figure + n); /* this thread alone adds, anybody reads */
}

static void waker_count(const struct waker *k, enum sync_way way)
{
    struct gp *gp = k->gp;

    figure_add(&gp->n_synchronizes, 1);
    figure_add(&gp->n_wakes[way], 1);
    figure_add(&gp->n_callbacks_ahead, k->n_callbacks);
    store_relaxed(&gp->max_direct_wakes, MAX(gp->max_direct_wakes, k->end.n[SYNC_DIRECT])); /* a figure */
}

/* Its link, and its place on the list that it came from, are read: here it may be completed. */
static void waker_take(struct waker *k, struct gp_waiter *w)
{
    enum sync_way way = sync_end_next(&k->end, w->expedited);

    waker_count(k, way); /* before it goes on and looks */
    switch (way) {
    case SYNC_FIFO:
        callbacks_push(k->grace->callbacks, &w->callback, waiter_run);
        break;
    case SYNC_WORKER:
        cds_wfs_node_init(&w->node);
        sanitizer_release(
            &k->gp->done); /* the push is a full barrier, and so is the pop_all in wake_done() */
        k->done_was_empty |= !cds_wfs_push(&k->gp->done, &w->node);
        break;
    default:
        waiter_done(w);
        RECLAIM_TEST_POINT("wake-direct");
    }
}

static void wake_detached(struct waker *k)
{
    struct cds_wfs_head *list = k->gp->wait;
    struct cds_wfs_node *node, *next;

    k->gp->wait = NULL;
    for (node = list ? cds_wfs_first(list) : NULL; node; node = next) {
        next = cds_wfs_next_blocking(node); /* W2 */
        waker_take(k, container_of(node, struct gp_waiter, node));
    }
}

static void wake_cookies(struct waker *k)
{
    struct gp_waiter **p = &k->gp->cookie_waiters;

    while (*p) {
        struct gp_waiter *w = *p;

        if (w->cookie > k->gp->completed) {
            p = &w->next;
            continue;
        }
        *p = w->next;
        waker_take(k, w);
    }
}

/*
 * Whoever finds `done` empty queues its walker: it is on the queue as long as something stands there, so it
 * is never queued twice, and the walker looks after it has left the queue.
 */
static void waker_hand_over(const struct waker *k)
{
    if (k->done_was_empty)
        reclaimer_push_direct(k->grace->reclaimer, &k->gp->done_callback, wake_done);
    if (k->end.n[SYNC_FIFO] > 0)
        reclaimer_kick_callbacks(k->grace->reclaimer);
}

void grace_wake_waiters(struct grace *g, struct arena *a, const struct arena_parameters *p)
{
    const struct sync_rule rule = {
        .mode = (enum sync_mode)p->wake_from_gp,
        .wake_direct = p->wake_direct,
        .wake_flood = p->wake_flood,
    };
    struct waker k = {.grace = g, .gp = &a->gp, .n_callbacks = callbacks_length(g->callbacks)};

    assert_cc((int)SYNC_NO == (int)WAKE_FROM_GP_NO && (int)SYNC_YES == (int)WAKE_FROM_GP_YES &&
              (int)SYNC_AUTO == (int)WAKE_FROM_GP_AUTO);
    k.end = sync_end_begin(load_judge(&a->gp, p->wake_flood), &rule);
    wake_detached(&k);
    wake_cookies(&k);
    waker_hand_over(&k);
}

/* ---- The end of the service ---- */

static void fail_list(struct cds_wfs_head *list, int error)
{
    struct cds_wfs_node *node, *next;

    for (node = list ? cds_wfs_first(list) : NULL; node; node = next) {
        struct gp_waiter *w = container_of(node, struct gp_waiter, node);

        next = cds_wfs_next_blocking(node);
        w->error = error;
        waiter_done(w);
    }
}

/* Whoever waits is told so. What stands on `done`, or in the FIFO, is served as ever: its time is over. */
void grace_fail_waiters(struct gp *gp, int error)
{
    struct cds_wfs_head *wait = gp->wait;

    gp->wait = NULL;
    fail_list(wait, error);
    fail_list(__cds_wfs_pop_all(&gp->curr), error);
    while (gp->cookie_waiters) {
        struct gp_waiter *w = gp->cookie_waiters;

        gp->cookie_waiters = w->next;
        w->error = error;
        waiter_done(w);
    }
}
