/* SPDX-License-Identifier: MIT */
/*
 * Grace periods for callers: cookies, synchronize, barrier. A lane has one ticket for the daemon at a time,
 * for what its thread waits for. Beside it stands the newest cookie that was asked for without waiting: that
 * one stands for all before it, so no later request, and no ticket, takes the place of an earlier one.
 *
 * Guarantees
 *  G1 A cookie covers every section that could see what its taker unlinked before: a full fence, then
 *     `started`, then as much ahead as the machine's memory model needs (ABI_CLIENT_COOKIE_AHEAD; spin:
 *     tests/model/gp.pml).
 *  G2 After a completed wait, all that sections read in that grace period has been read.
 *  G3 A ticket that nobody waits for any more (time-out, signal) may be overwritten by the next, which does
 *     not wait for it: numbers only grow, the wait is for its own number, and the daemon tells the end of
 *     the newest alone (spin: tests/model/ticket.pml).
 */
#include "handle.h"

#include "basic/ordering.h"
#include "basic/testpoint.h"
#include "ring.h"

static bool timeout_is_valid(const struct timespec *timeout)
{
    return !timeout || (timeout->tv_sec >= 0 && timeout->tv_nsec >= 0 && timeout->tv_nsec < 1000000000);
}

/* A relative time as a deadline; NULL is for ever. */
static uint64_t deadline_of(const struct timespec *timeout)
{
    uint64_t ns;

    if (!timeout)
        return FOREVER_NS;
    if (__builtin_mul_overflow((uint64_t)timeout->tv_sec, 1000000000ull, &ns) ||
        __builtin_add_overflow(ns, (uint64_t)timeout->tv_nsec + clock_ns(), &ns))
        ns = FOREVER_NS;
    return ns;
}

/* Hands the daemon a ticket; G3. */
static void ticket_send(struct lane *l, enum abi_ticket_kind kind, uint64_t cookie)
{
    l->ticket_sequence++;
    store_relaxed(&l->shared->ticket_cookie, cookie); /* published by ticket */
    RECLAIM_TEST_POINT("ticket-cookie");
    /* Release: the cookie, and all that the caller unlinked; pairs with the acquire in ticket_look(). */
    store_release(&l->shared->ticket, (uint64_t)l->ticket_sequence << 32 | kind);
    RECLAIM_TEST_POINT("ticket");
    lane_bell(l);
}

static bool ticket_is_done(struct lane *l, unsigned what)
{
    /* G2; pairs with the release in ticket_tell(). Older numbers are tickets that were given up. */
    return load_acquire(&l->shared->ticket_done) == l->ticket_sequence;
}

static int ticket_wait(struct lane *l, enum abi_ticket_kind kind, uint64_t cookie, unsigned flags,
                       const struct timespec *timeout)
{
    enum lane_waits waits = flags & RECLAIM_INTERRUPTIBLE ? LANE_WAITS_TICKET_OR_SIGNAL : LANE_WAITS_TICKET;
    int r;

    if (thread_in_section())
        return -EDEADLK;
    ticket_send(l, kind, cookie);
    r = lane_wait(l, waits, ticket_is_done, 0, deadline_of(timeout));
    SANITIZER_ACQUIRE(l);
    return r < 0 ? r : load_relaxed(&l->shared->ticket_error); /* written before ticket_done */
}

/* What every wait asks of its caller first. */
static int wait_check(const struct lane *l, unsigned flags, unsigned known_flags,
                      const struct timespec *timeout)
{
    int r = lane_check(l);

    if (r < 0)
        return r;
    return flags & ~known_flags || !timeout_is_valid(timeout) ? -EINVAL : 0;
}

/* G1. Each cookie is asked for once; the word only grows, as `started` does. */
int reclaim_gp_start(struct reclaim_lane *lane, uint64_t *ret_cookie)
{
    struct lane *l = lane_of(lane);
    uint64_t cookie;
    int r = lane_check(l);

    if (r < 0)
        return r;
    if (!ret_cookie)
        return -EINVAL;
    full_fence(); /* the caller's unlinking before the load; pairs with the membarrier in grace_start() */
    cookie = load_acquire(&l->domain->started) + ABI_CLIENT_COOKIE_AHEAD; /* pairs with grace_start() */
    if (cookie > l->cookie_asked) {
        l->cookie_asked = cookie;
        /* Release: all that the caller unlinked; pairs with the acquire in ticket_look_cookie(). */
        store_release(&l->shared->cookie_wanted, cookie);
        RECLAIM_TEST_POINT("cookie-wanted");
        lane_bell(l);
    }
    *ret_cookie = cookie;
    return 0;
}

/* 1, 0, or -EINVAL: nobody can have been given it yet. */
static int cookie_is_over(const struct abi_domain *domain, uint64_t cookie)
{
    if (load_acquire(&domain->completed) >= cookie) /* G2; pairs with grace_complete() */
        return 1;
    /* started only grows */
    return cookie > load_relaxed(&domain->started) + ABI_CLIENT_COOKIE_AHEAD ? -EINVAL : 0;
}

int reclaim_gp_poll_slow(struct reclaim *r, uint64_t cookie)
{
    int error = handle_check(r);

    return error < 0 ? error : cookie_is_over(r->domain, cookie);
}

int reclaim_gp_poll(struct reclaim *r, uint64_t cookie)
{
    return reclaim_gp_poll_quick_(r, cookie);
}

/* Of a cookie that is over: no system call. */
int reclaim_gp_wait_flags(struct reclaim_lane *lane, uint64_t cookie, unsigned flags,
                          const struct timespec *timeout)
{
    struct lane *l = lane_of(lane);
    int r = wait_check(l, flags, RECLAIM_INTERRUPTIBLE, timeout);

    if (r == 0)
        r = cookie_is_over(l->domain, cookie);
    if (r != 0)
        return r < 0 ? r : 0;
    return ticket_wait(l, ABI_TICKET_GP_WAIT, cookie, flags, timeout);
}

int reclaim_gp_wait(struct reclaim_lane *lane, uint64_t cookie, const struct timespec *timeout)
{
    return reclaim_gp_wait_flags(lane, cookie, 0, timeout);
}

int reclaim_synchronize(struct reclaim_lane *lane, unsigned flags, const struct timespec *timeout)
{
    bool expedited = flags & RECLAIM_EXPEDITED;
    struct lane *l = lane_of(lane);
    int r = wait_check(l, flags, RECLAIM_EXPEDITED | RECLAIM_INTERRUPTIBLE, timeout);

    if (r < 0)
        return r;
    return ticket_wait(l, expedited ? ABI_TICKET_SYNCHRONIZE_EXPEDITED : ABI_TICKET_SYNCHRONIZE, 0, flags,
                       timeout);
}

int reclaim_barrier_flags(struct reclaim_lane *lane, unsigned flags, const struct timespec *timeout)
{
    struct lane *l = lane_of(lane);
    int r = wait_check(l, flags, RECLAIM_INTERRUPTIBLE, timeout);

    return r < 0 ? r : ticket_wait(l, ABI_TICKET_BARRIER, 0, flags, timeout);
}

int reclaim_barrier(struct reclaim_lane *lane, const struct timespec *timeout)
{
    return reclaim_barrier_flags(lane, 0, timeout);
}
