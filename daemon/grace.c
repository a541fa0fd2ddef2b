/* SPDX-License-Identifier: MIT */
/* The grace-period thread; see grace.h. */
#include "grace.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "basic/cleanup.h"
#include "basic/macro.h"
#include "basic/ordering.h"
#include "basic/testpoint.h"
#include "clock.h"
#include "grace-internal.h"
#include "log.h"
#include "thread.h"
#include "trace-events.h"

#define EVENTS_A_TURN 64
#define SPIN_CHECKS 32 /* short sections end within a few hundred nanoseconds */
#define MEMBARRIER_RETRY_USEC 1000

static uint64_t n_membarriers;
static int membarrier_usable = -1; /* main thread at start-up, then read-only */

static int membarrier(int command)
{
    return (int)syscall(SYS_membarrier, command, 0, 0);
}

bool grace_has_membarrier(void)
{
    if (membarrier_usable < 0) {
        int commands = membarrier(MEMBARRIER_CMD_QUERY);

        membarrier_usable = commands > 0 && (commands & MEMBARRIER_CMD_GLOBAL_EXPEDITED) &&
                            membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED) == 0;
    }
    return membarrier_usable;
}

uint64_t grace_n_membarriers(void)
{
    return load_relaxed(&n_membarriers); /* a figure */
}

void grace_membarrier(void)
{
    bool told = false;

    full_fence(); /* our side; pairs with the fence or the membarrier that interrupts reclaim_read_lock() and
                     lane_ring() */
    /* readers fence themselves */
    if (!membarrier_usable)
        return;
    (void)fetch_add_relaxed(&n_membarriers, 1);
    while (membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED) < 0) { /* G3 */
        if (!told)
            log_error("membarrier failed: %m; grace periods wait until it works");
        told = true;
        (void)usleep(MEMBARRIER_RETRY_USEC);
    }
}

void gp_init(struct gp *gp, uint64_t started, uint64_t completed)
{
    *gp = (struct gp){.started = started, .completed = completed, .needed = completed};
    (void)pthread_mutex_init(&gp->lock, NULL);
    __cds_wfs_init(&gp->curr);
    __cds_wfs_init(&gp->done);
}

void gp_deinit(struct gp *gp)
{
    grace_drop_stragglers(gp);
    free(gp->stragglers);
    gp->stragglers = NULL;
    (void)pthread_mutex_destroy(&gp->lock);
}

uint64_t grace_take_cookie(struct arena *a)
{
    uint64_t cookie;

    (void)pthread_mutex_lock(&a->gp.lock); /* G1: a start is before or after, never half */
    cookie = a->gp.started + 1;
    (void)pthread_mutex_unlock(&a->gp.lock);
    return cookie;
}

/* Puts the arena on the thread's list. Called with gp.lock held: true, then wake the thread. */
static bool gp_list(struct grace *g, struct arena *a)
{
    if (a->gp.listed)
        return false;
    a->gp.listed = true;
    arena_ref(a);
    (void)pthread_mutex_lock(&g->list_lock);
    a->gp.next = g->requested;
    g->requested = a;
    (void)pthread_mutex_unlock(&g->list_lock);
    return true;
}

/* needed rises to cookie, at most to the next number: no request reaches further. */
static bool gp_need(struct grace *g, struct arena *a, uint64_t cookie, bool expedited, bool notify)
{
    struct gp *gp = &a->gp;

    cookie = MIN(cookie, gp->started + 1);
    gp->needed = MAX(gp->needed, cookie);
    if (expedited)
        store_relaxed(&gp->expedite,
                      MAX(gp->expedite, cookie)); /* gp_check_time() reads it without the lock */
    gp->notify |= notify;
    return gp_list(g, a) || expedited; /* it may be listed and postponed */
}

static void grace_wake_thread(struct grace *g)
{
    if (!pthread_equal(pthread_self(), g->thread)) /* the thread itself looks at its list before it sleeps */
        (void)eventfd_write(g->wake_fd, 1);
}

void grace_request(struct grace *g, struct arena *a, uint64_t cookie, bool expedited, bool notify)
{
    bool wake;

    (void)pthread_mutex_lock(&a->gp.lock);
    wake = gp_need(g, a, cookie, expedited, notify);
    (void)pthread_mutex_unlock(&a->gp.lock);
    if (wake)
        grace_wake_thread(g);
}

void grace_synchronize(struct grace *g, struct arena *a, struct gp_waiter *w)
{
    bool wake;

    grace_waiter_enter(a, w);
    cds_wfs_node_init(&w->node);
    (void)pthread_mutex_lock(&a->gp.lock);
    wake = gp_need(g, a, a->gp.started + 1, w->expedited, false);
    /* the next start detaches it, and nothing earlier serves it (G2) */
    (void)cds_wfs_push(&a->gp.curr, &w->node);
    (void)pthread_mutex_unlock(&a->gp.lock);
    if (wake)
        grace_wake_thread(g);
}

void grace_wait_cookie(struct grace *g, struct arena *a, struct gp_waiter *w, uint64_t cookie)
{
    struct gp *gp = &a->gp;

    if (cookie <= gp->completed) { /* over already, whatever runs now */
        w->error = 0;
        w->done(w);
        return;
    }
    grace_waiter_enter(a, w);
    (void)pthread_mutex_lock(&gp->lock);
    w->cookie = MIN(cookie, gp->started + 1);
    (void)gp_need(g, a, w->cookie, w->expedited, false);
    (void)pthread_mutex_unlock(&gp->lock);
    w->next = gp->cookie_waiters;
    gp->cookie_waiters = w;
}

/* Step 1, under the mutex: detach the waiters, then the number moves. */
static uint64_t grace_start(struct arena *a, uint64_t now)
{
    struct gp *gp = &a->gp;
    uint64_t k;

    (void)pthread_mutex_lock(&gp->lock);
    gp->wait = __cds_wfs_pop_all(&gp->curr); /* G2: before started moves */
    RECLAIM_TEST_POINT("grace-detached");
    k = ++gp->started;
    a->state->started = k;
    RECLAIM_TEST_POINT("grace-state-started");
    /* Release: what was unlinked and recorded before; pairs with the acquire in reclaim_read_lock(). */
    store_release(&a->domain->started, k);
    RECLAIM_TEST_POINT("grace-started");
    (void)pthread_mutex_unlock(&gp->lock);
    trace_gp_start(a, k);
    sync_pace_start(&gp->pace, now);
    gp->active = true;
    gp->begun_usec = now;
    gp->threads_usec = now + 100000;
    return k;
}

static void grace_complete(struct grace *g, struct arena *a, const struct arena_parameters *p)
{
    struct gp *gp = &a->gp;
    uint64_t now = now_usec(), took = now - gp->begun_usec;
    bool notify;

    grace_stall_over(a, now);
    store_relaxed(&gp->last_usec, took); /* figures */
    store_relaxed(&gp->max_usec, MAX(gp->max_usec, took));
    store_relaxed(&gp->oldest_client, 0);
    (void)pthread_mutex_lock(&gp->lock);
    gp->active = false;
    gp->completed = gp->started;
    a->state->completed = gp->completed;
    notify = gp->notify;
    gp->notify = gp->needed > gp->completed && notify;
    (void)pthread_mutex_unlock(&gp->lock);
    RECLAIM_TEST_POINT("grace-state-completed");
    trace_gp_end(a, gp->completed, took); /* before anybody can see it, so before what it sets free */
    /* Release: the scan's acquires come before; pairs with the acquire in reclaim_gp_poll() and in
     * arena_completed(). */
    store_release(&a->domain->completed, gp->completed);
    RECLAIM_TEST_POINT("grace-completed");
    grace_wake_waiters(g, a, p);
    if (notify)
        arena_kick(a);
}

/* When to look at the stragglers again. */
static uint64_t gp_check_time(const struct gp *gp, const struct arena_parameters *p, bool first, uint64_t now)
{
    /* relaxed: who raises it meanwhile wakes us, and we look again */
    if (p->expedited || load_relaxed(&gp->expedite) >= gp->started)
        return now;
    return now + (first ? p->gp_first_check_usec : p->gp_next_check_usec);
}

/* A look at an arena whose grace period is under way. True: it is over. */
static bool grace_look(struct grace *g, struct arena *a, bool first)
{
    struct gp *gp = &a->gp;
    struct arena_parameters p;
    bool over = gp->n_stragglers == 0 && !gp->rescan;
    uint64_t now;

    for (int i = 0; i < (first ? SPIN_CHECKS : 1) && !over; i++) {
        over = grace_check(g, a, gp->started);
        pause_cpu();
    }
    arena_parameters_get(a, &p);
    if (over) {
        grace_complete(g, a, &p);
        return true;
    }
    now = now_usec();
    gp->check_usec = gp_check_time(gp, &p, first, now);
    grace_stall(a, &p, now);
    return false;
}

static struct arena *take_requested(struct grace *g)
{
    struct arena *list;

    (void)pthread_mutex_lock(&g->list_lock);
    list = g->requested;
    g->requested = NULL;
    (void)pthread_mutex_unlock(&g->list_lock);
    return list;
}

/* Does it need a new grace period now? If one is under way the arena comes back by itself. */
static bool gp_wants_start(struct arena *a)
{
    bool wants;

    (void)pthread_mutex_lock(&a->gp.lock);
    a->gp.listed = false;
    wants = !a->gp.active && (a->gp.needed > a->gp.started || !cds_wfs_empty(&a->gp.curr));
    (void)pthread_mutex_unlock(&a->gp.lock);
    return wants;
}

/* S4 of engine/sync.h. True: not yet; it stays listed, with its reference, and is looked at again. */
static bool gp_postpone(struct grace *g, struct arena *a, uint64_t now)
{
    uint64_t next = sync_pace_next(&a->gp.pace, now);
    struct arena_parameters p;
    bool urgent;

    if (next <= now)
        return false;
    arena_parameters_get(a, &p);
    (void)pthread_mutex_lock(&a->gp.lock);
    urgent = p.expedited || a->gp.expedite > a->gp.started || a->gp.active;
    (void)pthread_mutex_unlock(&a->gp.lock);
    if (urgent)
        return false;
    a->gp.next = g->postponed;
    g->postponed = a;
    g->postponed_usec = MIN(g->postponed_usec, next);
    return true;
}

/* Those on the list that want one begin theirs; returns them. */
static struct arena *grace_start_list(struct grace *g, struct arena *list, uint64_t now,
                                      struct arena *started)
{
    struct arena *next;

    for (struct arena *a = list; a; a = next) {
        next = a->gp.next;
        if (gp_postpone(g, a, now))
            continue;
        if (!gp_wants_start(a)) {
            arena_unref(a);
            continue;
        }
        (void)grace_start(a, now);
        a->gp.next_active = started; /* its reference goes along */
        started = a;
    }
    return started;
}

static struct arena *take_postponed(struct grace *g)
{
    struct arena *list = g->postponed;

    g->postponed = NULL;
    g->postponed_usec = RUN_NEVER;
    return list;
}

/* Starts all that were asked for: one membarrier serves them together. */
static void grace_start_requested(struct grace *g)
{
    struct arena *requested = take_requested(g), *postponed = take_postponed(g), *started, *next;
    uint64_t now = requested || postponed ? now_usec() : 0;

    started = grace_start_list(g, postponed, now, grace_start_list(g, requested, now, NULL));
    if (!started)
        return;
    grace_membarrier(); /* pairs with the compiler fence in reclaim_read_lock() */
    RECLAIM_TEST_POINT("grace-membarrier");
    for (struct arena *a = started; a; a = next) {
        next = a->gp.next_active;
        grace_scan(a, a->gp.started); /* only now: list, marks, slots */
        a->gp.next_active = g->active;
        g->active = a;
        a->gp.check_usec = 0;
    }
}

/* Whoever asked while it was under way is served by the next one. */
static void grace_restart(struct grace *g, struct arena *a)
{
    (void)pthread_mutex_lock(&a->gp.lock);
    if (a->gp.needed > a->gp.started || !cds_wfs_empty(&a->gp.curr))
        (void)gp_list(g, a);
    (void)pthread_mutex_unlock(&a->gp.lock);
}

/* Looks at those that are due. Returns when the next look is due, 0: at once. */
static uint64_t grace_look_at_active(struct grace *g)
{
    struct arena **p = &g->active;
    uint64_t nearest = RUN_NEVER, now = g->active ? now_usec() : 0;

    while (*p) {
        struct arena *a = *p;

        if (a->gp.check_usec <= now && grace_look(g, a, a->gp.check_usec == 0)) {
            *p = a->gp.next_active;
            grace_restart(g, a);
            arena_unref(a);
            continue;
        }
        nearest = MIN(nearest, a->gp.check_usec);
        p = &a->gp.next_active;
    }
    return nearest;
}

static bool has_requested(struct grace *g)
{
    bool any;

    (void)pthread_mutex_lock(&g->list_lock);
    any = g->requested != NULL;
    (void)pthread_mutex_unlock(&g->list_lock);
    return any;
}

static int wait_events(struct grace *g, struct epoll_event *events, uint64_t until_usec)
{
    struct timespec timeout = {0}, *t = NULL;
    uint64_t now;

    if (until_usec != RUN_NEVER) {
        now = until_usec > 0 ? now_usec() : 0;
        if (until_usec > now) {
            timeout.tv_sec = (time_t)((until_usec - now) / 1000000u);
            timeout.tv_nsec = (long)((until_usec - now) % 1000000u) * 1000;
        } else {
            (void)sched_yield(); /* expedited: the reader that we wait for may need this very CPU */
        }
        t = &timeout;
    }
    return epoll_pwait2(g->epoll_fd, events, EVENTS_A_TURN, t, NULL);
}

static void handle_events(struct grace *g, const struct epoll_event *events, int n)
{
    uint64_t now = n > 0 ? now_usec() : 0;
    eventfd_t count;

    for (int i = 0; i < n; i++) {
        if (events[i].data.u64 == 0)
            (void)eventfd_read(g->wake_fd, &count);
        else
            grace_handle_bell(g, events[i].data.u64, now);
    }
}

static void *grace_main(void *userdata)
{
    struct grace *g = userdata;
    struct epoll_event events[EVENTS_A_TURN];

    thread_begin_prompt("grace");
    urcu_memb_register_thread();
    while (!load_acquire(&g->stop)) { /* pairs with grace_free() */
        uint64_t until = grace_look_at_active(g), unmute = g->muted ? grace_unmute(g, now_usec()) : RUN_NEVER;

        if (has_requested(g))
            until = 0;
        handle_events(g, events, wait_events(g, events, MIN(MIN(until, unmute), g->postponed_usec)));
        grace_handle_looks(g);
        grace_start_requested(g);
    }
    urcu_memb_unregister_thread();
    return NULL;
}

static int grace_open(struct grace *g)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = 0};

    g->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    g->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (g->epoll_fd < 0 || g->wake_fd < 0 || epoll_ctl(g->epoll_fd, EPOLL_CTL_ADD, g->wake_fd, &event) < 0)
        return -errno;
    g->watched = cds_lfht_new_flavor(64, 64, 0, CDS_LFHT_AUTO_RESIZE, &urcu_memb_flavor, NULL);
    return g->watched ? 0 : -ENOMEM;
}

static void grace_close(struct grace *g)
{
    if (g->watched)
        (void)cds_lfht_destroy(g->watched, NULL);
    (void)fd_close(g->epoll_fd);
    (void)fd_close(g->wake_fd);
    (void)pthread_mutex_destroy(&g->list_lock);
    (void)pthread_mutex_destroy(&g->watch_lock);
    free(g);
}

int grace_new(struct reclaimer *reclaimer, struct callbacks *callbacks, struct grace **ret)
{
    struct grace *g = calloc(1, sizeof(*g));
    int r;

    if (!g)
        return -ENOMEM;
    g->reclaimer = reclaimer;
    g->callbacks = callbacks;
    g->postponed_usec = RUN_NEVER;
    (void)pthread_mutex_init(&g->list_lock, NULL);
    (void)pthread_mutex_init(&g->watch_lock, NULL);
    __cds_wfcq_init(&g->looks_head, &g->looks_tail);
    r = grace_open(g);
    if (r == 0)
        r = -pthread_create(&g->thread, NULL, grace_main, g);
    if (r < 0) {
        grace_close(g);
        return r;
    }
    *ret = g;
    return 0;
}

static void grace_abandon(struct arena *a)
{
    grace_fail_waiters(&a->gp, -ESHUTDOWN);
    grace_drop_stragglers(&a->gp);
    arena_unref(a);
}

static void grace_abandon_list(struct arena *list)
{
    for (struct arena *a = list, *next; a; a = next) {
        next = a->gp.next;
        grace_abandon(a);
    }
}

void grace_stop(struct grace *g)
{
    store_release(&g->stop, 1); /* pairs with grace_main() */
    (void)eventfd_write(g->wake_fd, 1);
    (void)pthread_join(g->thread, NULL);
    while (g->active) {
        struct arena *a = g->active;

        g->active = a->gp.next_active;
        grace_abandon(a);
    }
    grace_abandon_list(take_requested(g));
    grace_abandon_list(take_postponed(g));
    while (g->muted) {
        struct client *c = g->muted;

        g->muted = c->next_muted;
        client_unref(c);
    }
}

void grace_drop_looks(struct grace *g)
{
    struct cds_wfcq_node *node;

    while ((node = __cds_wfcq_dequeue_blocking(&g->looks_head, &g->looks_tail)))
        client_unref(container_of(node, struct client, look_node));
}

struct grace *grace_free(struct grace *g)
{
    if (!g)
        return NULL;
    grace_close(g);
    return NULL;
}
