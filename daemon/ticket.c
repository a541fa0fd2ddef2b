/* SPDX-License-Identifier: MIT */
/* What a lane's thread waits for; see ticket.h. */
#include "ticket.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "arena.h"
#include "clock.h"
#include "manager.h"
#include "trace-events.h"
#include "basic/macro.h"
#include "basic/ordering.h"
#include "basic/testpoint.h"

static uint32_t ticket_sequence(uint64_t word)
{
    return (uint32_t)(word >> 32);
}

/* Does it wait for a grace period? */
static bool ticket_is_sync(const struct ticket *t)
{
    return t->kind == ABI_TICKET_SYNCHRONIZE || t->kind == ABI_TICKET_SYNCHRONIZE_EXPEDITED ||
           t->kind == ABI_TICKET_GP_WAIT;
}

void tickets_init(struct client_lane *cl)
{
    (void)pthread_mutex_init(&cl->tickets.lock, NULL);
    for (unsigned i = 0; i < TICKETS_A_LANE; i++)
        cl->tickets.all[i].lane = cl;
}

void tickets_deinit(struct client_lane *cl)
{
    (void)pthread_mutex_destroy(&cl->tickets.lock);
}

/* NULL: all are in flight. */
static struct ticket *tickets_find_idle(struct tickets *tickets)
{
    for (unsigned i = 0; i < TICKETS_A_LANE; i++)
        if (load_acquire(&tickets->all[i].state) == TICKET_IDLE) /* pairs with ticket_complete() */
            return &tickets->all[i];
    return NULL;
}

bool tickets_are_idle(const struct client_lane *cl)
{
    for (unsigned i = 0; i < TICKETS_A_LANE; i++)
        if (load_acquire(&cl->tickets.all[i].state) != TICKET_IDLE) /* pairs with ticket_complete() */
            return false;
    return true;
}

/* T2. Under the lock, so whoever finds its own the newest is followed by that of any newer one. */
static bool ticket_tell(const struct ticket *t, struct client_lane *cl, int error)
{
    struct abi_lane *shared = cl->lane.shared;
    bool newest;

    (void)pthread_mutex_lock(&cl->tickets.lock);
    /* relaxed: if a newer one was told before, the lock shows it */
    newest = t->sequence == load_relaxed(&cl->tickets.newest);
    if (newest) {
        store_relaxed(&shared->ticket_error, error); /* published by ticket_done */
        RECLAIM_TEST_POINT("ticket-error");
        /* Release: what the grace period or the barrier covered is done before; pairs with the acquire in
         * ticket_is_done(). */
        store_release(&shared->ticket_done, t->sequence);
    }
    (void)pthread_mutex_unlock(&cl->tickets.lock);
    return newest;
}

void ticket_complete(struct ticket *t, int error)
{
    struct client_lane *cl = t->lane;
    struct abi_lane *shared = cl->lane.shared;
    struct client *c = cl->client;
    bool told;

    /* before the client hears of it and goes on */
    if (ticket_is_sync(t))
        trace_sync_complete(c->arena, c->id);
    told = ticket_tell(t, cl, error);
    RECLAIM_TEST_POINT("ticket-done");
    /* from here on it is the grace-period thread's; pairs with tickets_find_idle() */
    store_release(&t->state, TICKET_IDLE);
    /* between these stores and the loads below; pairs with lane_wait(), ticket_look() and lane_end() */
    full_fence();
    /* stale is harmless: the client looks again after setting it */
    if (told && load_relaxed(&shared->ticket_waiting))
        (void)syscall(SYS_futex, &shared->ticket_done, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    if (load_relaxed(&cl->tickets.starved)) /* T1; stale: one look too many */
        grace_look_at(manager_grace(c->manager), c);
    if (load_relaxed(&cl->ends)) /* stale: a pass too many */
        arena_kick(c->arena);
    client_unref(c);
}

static void ticket_gp_done(struct gp_waiter *w)
{
    ticket_complete(container_of(w, struct ticket, waiter), w->error);
}

static void ticket_barrier_run(struct job *job, struct arena *a)
{
    arena_barrier_begin(a, container_of(job, struct ticket, job));
}

/* Who calls, for S4 of engine/sync.h. */
static void ticket_note_call(struct arena *a, struct client_lane *cl)
{
    uint64_t now = now_usec();

    sync_pace_call(&a->gp.pace, now, cl->called_usec);
    cl->called_usec = now;
}

static void ticket_serve(struct grace *g, struct arena *a, struct ticket *t, uint64_t cookie)
{
    t->waiter.done = ticket_gp_done;
    t->waiter.expedited = t->kind == ABI_TICKET_SYNCHRONIZE_EXPEDITED;
    t->waiter.cookie = 0;
    if (ticket_is_sync(t)) {
        trace_sync_request(a, t->lane->client->id);
        ticket_note_call(a, t->lane);
    }
    switch (t->kind) {
    case ABI_TICKET_SYNCHRONIZE:
    case ABI_TICKET_SYNCHRONIZE_EXPEDITED:
        grace_synchronize(g, a, &t->waiter);
        return;
    case ABI_TICKET_GP_WAIT:
        grace_wait_cookie(g, a, &t->waiter, cookie);
        return;
    case ABI_TICKET_BARRIER:
        arena_post(a, &t->job, ticket_barrier_run);
        return;
    default:
        ticket_complete(t, -EINVAL);
    }
}

/* gp_start(): a grace period is wanted, nobody waits. */
static void ticket_look_cookie(struct grace *g, struct arena *a, struct client_lane *cl)
{
    /* Acquire: what the client unlinked before asking; pairs with reclaim_gp_start(). */
    uint64_t wanted = load_acquire(&cl->lane.shared->cookie_wanted);

    if (wanted <= cl->tickets.cookie_seen)
        return;
    cl->tickets.cookie_seen =
        MIN(wanted, grace_take_cookie(a)); /* what is hostile reaches no further than the next */
    grace_request(g, a, wanted, false, false);
}

void ticket_look(struct grace *g, struct arena *a, struct client_lane *cl)
{
    /* Acquire: what the client unlinked before asking, and its cookie; pairs with ticket_send(). */
    uint64_t word = load_acquire(&cl->lane.shared->ticket);
    struct ticket *t;

    ticket_look_cookie(g, a, cl);
    if (ticket_sequence(word) == cl->tickets.newest)
        return;
    t = tickets_find_idle(&cl->tickets);
    if (!t) {
        store_relaxed(&cl->tickets.starved, 1u);
        full_fence(); /* T1: then look again; pairs with ticket_complete() */
        t = tickets_find_idle(&cl->tickets);
    }
    if (!t)
        return;
    store_relaxed(&cl->tickets.starved, 0u); /* this thread alone writes it */
    client_ref(cl->client);
    t->sequence = ticket_sequence(word);
    t->kind = (uint32_t)word;
    store_relaxed(&cl->tickets.newest, t->sequence); /* before it is handed on, which orders it */
    store_relaxed(&t->state, TICKET_SERVING);        /* this thread alone moves it away from IDLE */
    ticket_serve(g, a, t, load_relaxed(&cl->lane.shared->ticket_cookie)); /* ordered by the acquire above */
}
