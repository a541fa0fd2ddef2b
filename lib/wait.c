/* SPDX-License-Identifier: MIT */
/*
 * Bells and sleeping: how a lane wakes the daemon and waits for it.
 *
 * Guarantees (spin: tests/model/lane.pml, wait.pml)
 *  B1 A record or bit that was stored before lane_ring() is either seen by the daemon's last look before it
 *     sleeps, or the bell rings: want, bell and sleeps are read and written in program order, and the
 *     daemon's membarrier between its stores and its look stands in for the full fence that is missing here.
 *     A lane that membarrier cannot reach (`fence`) has that fence before each load of want and of sleeps.
 *  B2 A lane rings at most once for each value of want, but for sleepers, floods, extents and low magazines.
 *  B3 No wake-up is lost: the waiting flag, a full fence, then the last look at what is waited for; the
 *     daemon stores progress, a full fence, then looks at the flag. The kernel compares the futex word once
 *     more.
 *     So a ticket needs one bell: ticket_send() rings after its store, and either the grace-period thread's look
 *     for that bell finds it, or, where an older ticket is in the way, the look that follows the older one's end.
 *  B4 Nobody sleeps for ever on a daemon that is gone: each turn of a sleep ends in a look at the connection.
 */
#include "handle.h"

#include <linux/futex.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "basic/ordering.h"
#include "basic/testpoint.h"

uint64_t clock_ns(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* B1: between a store of ours and a load of the daemon's word; pairs with the membarrier, or fence, in
   arena_sleep(). */
void lane_fence(const struct lane *l)
{
    if (l->front.fence)
        full_fence();
    else
        compiler_fence();
}

/*
 * Writes the eventfd. An error does not matter: a full counter has rung already, and of a lost daemon the
 * sleepers learn from the connection. Through syscall(), as write() would be a place where the thread can be
 * cancelled.
 */
void lane_bell(struct lane *l)
{
    const uint64_t one = 1;
    int saved = errno;

    (void)syscall(SYS_write, l->eventfd, &one, sizeof(one));
    errno = saved;
}

/* For the arena's worker, not only for a ticket: the grace-period thread then hands the bell on. */
static void lane_ring_worker(struct lane *l)
{
    store_relaxed(&l->shared->rings, load_relaxed(&l->shared->rings) + 1); /* the system call orders it */
    lane_bell(l);
}

/* The cold half of lane_ring(): this lane has yet to ring for this `want`. 0, for those that end with it. */
__attribute__((noinline, cold)) int lane_ring_new(struct lane *l, uint32_t want)
{
    l->front.bell = want;
    store_relaxed(&l->shared->bell, want); /* before the load of sleeps, B1; pairs with arena_sleep() */
    RECLAIM_TEST_POINT("defer-bell");
    lane_fence(l);
    if (load_relaxed(&l->domain->sleeps) != ABI_AWAKE)
        lane_ring_worker(l);
    return 0;
}

/* For what cannot wait until a dozing daemon's timer is due. */
__attribute__((noinline, cold)) void lane_ring_dozing(struct lane *l)
{
    lane_fence(l);                                      /* B1; pairs with arena_sleep() */
    if (load_relaxed(&l->domain->sleeps) == ABI_DOZING) /* stale is harmless: it is a matter of delay only */
        lane_ring_worker(l);
}

/* The daemon has closed the connection; a restarted one inherits it open. */
static bool lane_is_cut_off(const struct lane *l)
{
    struct pollfd fd = {.fd = l->r->socket};

    return poll(&fd, 1, 0) > 0 && (fd.revents & (POLLHUP | POLLERR | POLLNVAL));
}

static void futex_sleep(uint32_t *word, uint32_t seen, uint64_t ns)
{
    struct timespec timeout = {.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};

    /* any reason to return is one to look again */
    (void)syscall(SYS_futex, word, FUTEX_WAIT, seen, &timeout, NULL, 0);
}

/*
 * Sleeps until ready(): 0, -ETIMEDOUT, or -ESHUTDOWN when the daemon is gone or, unless for a ticket, the
 * client was evicted. Rings at each turn, as a sleeping daemon need not have noticed what we ask for; but for a
 * ticket not in the first, B3.
 */
int lane_wait(struct lane *l, enum lane_waits waits, bool (*ready)(struct lane *l, unsigned what),
              unsigned what, uint64_t deadline_ns)
{
    bool ticket = waits == LANE_WAITS_TICKET;
    uint32_t *waiting = ticket ? &l->shared->ticket_waiting : &l->shared->waiting;
    uint32_t *word = ticket ? &l->shared->ticket_done : &l->shared->wake;
    int state = thread_cancel_disable(), error = 0;
    uint64_t started_ns = clock_ns(), now_ns = started_ns;
    bool rung = ticket;

    store_relaxed(waiting, 1u);
    for (;;) {
        uint32_t seen;

        full_fence();              /* B3; pairs with lane_wake(), ticket_complete() */
        seen = load_acquire(word); /* what came before a wake-up is seen by ready(); pairs with lane_wake() */
        if (ready(l, what))
            break;
        if (!ticket && load_relaxed(&l->shared->evicted)) /* one turn late is harmless */
            error = -ESHUTDOWN;
        else if (now_ns >= deadline_ns)
            error = -ETIMEDOUT;
        else if (now_ns - started_ns >= TURN_NS / 2 && lane_is_cut_off(l))
            error = -ESHUTDOWN;
        if (error < 0)
            break;
        if (!rung)
            lane_ring_worker(l);
        rung = false;
        futex_sleep(word, seen, MIN(deadline_ns - now_ns, (uint64_t)TURN_NS));
        now_ns = clock_ns();
    }
    store_relaxed(waiting, 0u); /* stale costs the daemon one futex call */
    thread_cancel_restore(state);
    return error;
}
