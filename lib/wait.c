/* SPDX-License-Identifier: MIT */
/*
 * Bells and sleeping: how a lane wakes the daemon and waits for it.
 *
 * Guarantees (spin: tests/model/lane.pml, wait.pml)
 *  B1 A record or bit that was stored before lane_ring() is either seen by the daemon's last look before it
 *     sleeps, or the bell rings: want, bell and sleeps are read and written in program order, and the
 *     daemon's membarrier between its stores and its look stands in for the full fence that is missing here.
 *     A lane that membarrier cannot reach (`fence`) has that fence before each load of want and of sleeps.
     A bell brings a pass only if its count, `rings`, is new to the daemon. Another lane's bell may have shown
     it that count before; then a pass began after that, which sees what was stored before the count.
 *  B2 A lane rings at most once for each value of want, but for sleepers, floods, extents and low magazines.
 *  B3 No wake-up is lost: the waiting flag, a full fence, then the last look at what is waited for; the
 *     daemon stores progress, a full fence, then looks at the flag. The kernel compares the futex word once
 *     more. So a ticket needs one bell: ticket_send() rings after its store, and either the grace-period
 *     thread's look for that bell finds it, or, where an older ticket is in the way, the look that follows
 *     the older one's end.
 *  B4 Nobody sleeps for ever on a daemon that is gone: each turn of a sleep ends in a look at the connection
 *     and, for who asked for it, at the daemon's process.
 *  B5 An interruptible wait whose sleep a signal handler broke into ends with -EINTR, unless it is over. A
 *     handler that calls reclaim_lane_interrupt() cannot come too early either: it leaves a flag and makes
 *     the turn none. The flag is looked at after the turn is set, and the kernel reads the turn as the
 *     sleep begins.
 */
#include "handle.h"

#include <linux/futex.h>
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
    /* after what we ring for, as any bell may show it to the daemon; pairs with client_wants_worker() */
    store_release(&l->shared->rings, load_relaxed(&l->shared->rings) + 1);
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

/* One call of lane_wait(). */
struct wait {
    struct lane *l;
    enum lane_waits waits;
    uint32_t *waiting, *word;
    uint64_t started_ns, now_ns, deadline_ns;
    int slept; /* how the last turn ended: -ETIMEDOUT it was slept out, -EINTR, or else; 0: none yet */
};

static struct wait wait_begin(struct lane *l, enum lane_waits waits, uint64_t deadline_ns)
{
    bool ticket = waits != LANE_WAITS_WAKE;
    uint64_t now_ns = clock_ns();

    return (struct wait){
        .l = l,
        .waits = waits,
        .waiting = ticket ? &l->shared->ticket_waiting : &l->shared->waiting,
        .word = ticket ? &l->shared->ticket_done : &l->shared->wake,
        .started_ns = now_ns,
        .now_ns = now_ns,
        .deadline_ns = deadline_ns,
    };
}

/* B5. One signal ends one wait: whatever of the two it left, this takes both. */
static bool wait_is_interrupted(struct wait *w)
{
    struct lane *l = w->l;

    if (w->waits != LANE_WAITS_TICKET_OR_SIGNAL || (w->slept != -EINTR && !load_relaxed(&l->interrupted)))
        return false;
    store_relaxed(&l->interrupted, 0u); /* only this thread and its handlers write it */
    return true;
}

/* Why a wait that is not over ends nevertheless; 0: it goes on. */
static int wait_error(struct wait *w)
{
    /* one turn late is harmless */
    if (w->waits == LANE_WAITS_WAKE && load_relaxed(&w->l->shared->evicted))
        return -ESHUTDOWN;
    if (wait_is_interrupted(w))
        return -EINTR;
    if (w->now_ns >= w->deadline_ns)
        return -ETIMEDOUT;
    return w->now_ns - w->started_ns >= TURN_NS / 2 ? talk_check(w->l->r) : 0;
}

/* Until the word is another, a handler has run, or the turn is over: each is a reason to look again. */
static void wait_sleep(struct wait *w, uint32_t seen)
{
    uint64_t ns = MIN(w->deadline_ns - w->now_ns, (uint64_t)TURN_NS);
    struct lane *l = w->l;

    store_relaxed(&l->turn.tv_sec, (time_t)(ns / 1000000000u));
    store_relaxed(&l->turn.tv_nsec, (long)(ns % 1000000000u));
    compiler_fence(); /* B5; pairs with reclaim_lane_interrupt() */
    if (w->waits == LANE_WAITS_TICKET_OR_SIGNAL && load_relaxed(&l->interrupted))
        return;
    RECLAIM_TEST_POINT("wait-sleep");
    w->slept = syscall(SYS_futex, w->word, FUTEX_WAIT, seen, &l->turn, NULL, 0) < 0 ? -errno : 0;
    w->now_ns = clock_ns();
}

/*
 * Sleeps until ready(): 0, -ETIMEDOUT, -EINTR where that is asked for; -ESHUTDOWN when the daemon is gone or,
 * unless for a ticket, the client was evicted; -EOWNERDEAD as talk_check() says. Rings at each turn, as a
 * sleeping daemon need not have noticed what we ask for; for a ticket only after one that was slept out, B3.
 */
int lane_wait(struct lane *l, enum lane_waits waits, bool (*ready)(struct lane *l, unsigned what),
              unsigned what, uint64_t deadline_ns)
{
    struct wait w = wait_begin(l, waits, deadline_ns);
    int state = thread_cancel_disable(), error = 0;

    store_relaxed(w.waiting, 1u);
    for (;;) {
        uint32_t seen;

        full_fence(); /* B3; pairs with lane_wake(), ticket_complete() */
        /* what came before a wake-up is seen by ready(); pairs with lane_wake() */
        seen = load_acquire(w.word);
        if (ready(l, what))
            break;
        error = wait_error(&w);
        if (error < 0)
            break;
        if (waits == LANE_WAITS_WAKE || w.slept == -ETIMEDOUT)
            lane_ring_worker(l);
        wait_sleep(&w, seen);
    }
    store_relaxed(w.waiting, 0u); /* stale costs the daemon one futex call */
    thread_cancel_restore(state);
    return error;
}

/* In a handler of the lane's thread: whole, as far as that thread can see. */
int reclaim_lane_interrupt(struct reclaim_lane *lane)
{
    struct lane *l = lane_of(lane);
    int r = lane_check(l);

    if (r < 0)
        return r;
    store_relaxed(&l->interrupted, 1u);
    store_relaxed(&l->turn.tv_sec, (time_t)0); /* B5; pairs with wait_sleep() */
    store_relaxed(&l->turn.tv_nsec, 0l);
    return 0;
}
