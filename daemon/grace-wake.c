/* SPDX-License-Identifier: MIT */
/*
 * SYNC: who wakes those whose grace period is over. Lists: curr (came since the last start), wait (detached
 * at the start), done (the local list here). A list is detached whole and walked by one thread, and its
 * successor pointer is read before a waiter is completed: no segment is reused while anybody walks it (spin:
 * tests/model/sync.pml).
 */
#include "basic/macro.h"
#include "basic/ordering.h"
#include "grace-internal.h"

static void waiter_done(struct gp_waiter *w)
{
    /* before done(): that may free it. A figure and a threshold */
    (void)fetch_sub_relaxed(&w->gp->n_in_flight, 1);
    w->done(w);
}

static void waiter_run(struct callback *callback)
{
    waiter_done(container_of(callback, struct gp_waiter, callback));
}

/* `auto`: yes until wake-flood waiters are in flight, then no until they are all served. */
static bool wake_from_gp(struct gp *gp, const struct arena_parameters *p)
{
    uint64_t n = load_relaxed(&gp->n_in_flight); /* a threshold: late by one is harmless */

    if (p->wake_from_gp != WAKE_FROM_GP_AUTO)
        return p->wake_from_gp == WAKE_FROM_GP_YES;
    if (n >= p->wake_flood)
        gp->flooded = true;
    else if (n == 0)
        gp->flooded = false;
    return !gp->flooded;
}

struct waker {
    struct grace *grace;
    bool direct; /* from this thread, as far as direct_max reaches */
    uint64_t direct_max;
    uint64_t n_direct, n_worker, n_fifo; /* done so far */
};

/* Who asked not to be kept waiting is not put behind callbacks either. */
static void waker_take(struct waker *k, struct gp_waiter *w)
{
    if (!k->direct && !w->expedited) {
        callbacks_push(k->grace->callbacks, &w->callback, waiter_run);
        k->n_fifo++;
    } else if (k->n_direct < k->direct_max) {
        k->n_direct++;
        waiter_done(w);
    } else {
        reclaimer_push_direct(k->grace->reclaimer, &w->callback, waiter_run);
        k->n_worker++;
    }
}

static void wake_detached(struct gp *gp, struct waker *k)
{
    struct cds_wfs_node *node, *next;

    if (!gp->wait)
        return;
    for (node = cds_wfs_first(gp->wait); node; node = next) {
        next = cds_wfs_next_blocking(node);
        waker_take(k, container_of(node, struct gp_waiter, node));
    }
    gp->wait = NULL;
}

static void wake_cookies(struct gp *gp, struct waker *k)
{
    struct gp_waiter **p = &gp->cookie_waiters;

    while (*p) {
        struct gp_waiter *w = *p;

        if (w->cookie > gp->completed) {
            p = &w->next;
            continue;
        }
        *p = w->next;
        waker_take(k, w);
    }
}

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

/* At the end of the service: whoever waits is told so. */
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

/* Figures: this thread alone adds, anybody reads. */
static void waker_count(const struct waker *k, struct gp *gp)
{
    store_relaxed(&gp->n_direct_wakes, gp->n_direct_wakes + k->n_direct);
    store_relaxed(&gp->n_worker_wakes, gp->n_worker_wakes + k->n_worker);
    store_relaxed(&gp->n_fifo_wakes, gp->n_fifo_wakes + k->n_fifo);
    store_relaxed(&gp->max_direct_wakes, MAX(gp->max_direct_wakes, k->n_direct));
    store_relaxed(&gp->n_synchronizes, gp->n_synchronizes + k->n_direct + k->n_worker + k->n_fifo);
}

void grace_wake_waiters(struct grace *g, struct arena *a, const struct arena_parameters *p)
{
    struct waker k = {.grace = g, .direct = wake_from_gp(&a->gp, p), .direct_max = p->wake_direct};

    wake_detached(&a->gp, &k);
    wake_cookies(&a->gp, &k);
    waker_count(&k, &a->gp);
    if (k.n_fifo > 0)
        reclaimer_kick_callbacks(g->reclaimer);
}
