/*
 * Those who wait for a grace period, on three lists: grace_synchronize() pushes them on `curr`,
 * grace_start() detaches that list whole as `wait`, grace_wake_waiters() at the end wakes some of them
 * itself, puts others on `done` for a worker, which detaches it whole in wake_done(), and others into the
 * callback FIFO.
 *
 * What it proves
 *  S1  No waiter is completed by a grace period that began before it called, and none twice.
 *  S2  Every waiter is completed.
 *  S3  A waiter may call again the instant it is completed: neither walk follows a link that it has reused
 *      since.
 *  S4  S1 to S3 hold whatever sync_end_next() chooses for each waiter, and so whatever wake-from-gp,
 *      wake-direct and wake-flood are, and however often they change meanwhile.
 *  S5  The daemon may die at any step: its successor puts every open ticket on `curr`.
 *  S6  `done` is on the worker's queue once, as long as somebody stands on it.
 *
 * What it abstracts
 *  Readers: a grace period is two numbers (gp.pml). How a ticket arrives and how its thread sleeps is
 *  wait.pml's. The two queues of the worker are channels: that an entry may be used again once it has been
 *  dequeued is the library's promise. Those who wait for a cookie are as those on `wait`. A call pushes with
 *  the grace-period mutex held, in one step, and so is the start; a push on `done` is two, as it is there.
 *
 * Sizes     -DWAITERS=2|3 -DCALLS=n (of each) -DDEATHS=n (of the daemon)
 * Correct   with any sizes
 * Broken, each must be caught
 *  -DDETACH_AFTER_START: who calls between the new number and the detaching is moved to `wait` too late,
 *   and completed by that number
 *  -DDETACH_AT_END: those on `curr` at the end of a grace period are taken for its waiters
 *  -DNEXT_READ_AFTER_WAKE: the walk goes on from a waiter that is already on the next list: its segment is
 *   reused while it is walked
 *  -DSEGMENT_SHARED: those that are woken directly stay linked in what the worker walks
 *  -DDONE_OVERWRITTEN: a second grace period ends before the worker has come to the first one's waiters
 *  -DLINK_NOT_AWAITED: the worker takes a push on `done` that is half done for the end of the list
 *  -DDEQUEUED_AFTER_WALK: `done` leaves the worker's queue when it has been walked: who came meanwhile is
 *   not looked for
 *  -DDEATHS=1 -DTICKETS_FORGOTTEN: waiters of the predecessor are on no list
 */
#ifndef WAITERS
#define WAITERS 3
#endif
#ifndef CALLS
#define CALLS 2
#endif
#ifndef DEATHS
#define DEATHS 0
#endif
#define NONE 255
#define UNLINKED 254 /* its push is half done */

byte started = 0;
byte completed = 0;

byte next[WAITERS];
byte curr = NONE;
byte done = NONE;
bool queued = 0;                        /* gp.done_callback is on the worker's queue */
chan callbacks = [WAITERS] of { byte }; /* the FIFO */

bit open[WAITERS];       /* ticket: called and not yet completed */
byte called_at[WAITERS]; /* ghost: the newest number when it called */

bit worker_is_dead = 0; /* it died with the grace-period thread and has not noticed: it does nothing more */

#define PUSH(list, waiter) next[waiter] = list; list = waiter

proctype Waiter(byte self)
{
    byte calls;

    do
    :: calls < CALLS ->
        atomic { calls++; called_at[self] = started; open[self] = 1; PUSH(curr, self) }; /* grace_synchronize() */
        !open[self]
    :: else -> break
    od
}

/* waiter_done(), ticket_complete(): from here on the waiter is its own again. */
inline wake(waiter)
{
    atomic {
        assert(open[waiter]);
        assert(completed > called_at[waiter]);
        open[waiter] = 0
    }
}

#define MAY_DIE if :: deaths < DEATHS -> goto successor :: skip fi

/* ---- Grace-period thread --------------------------------------------------------------------- */

inline grace_start()
{
#ifdef DETACH_AFTER_START
    started++;
    atomic { wait = curr; curr = NONE }
#elif defined(DETACH_AT_END)
    started++
#else
    atomic { wait = curr; curr = NONE; started++ } /* the mutex is held */
#endif
}

inline grace_wake_waiters()
{
    completed = started;
#ifdef DETACH_AT_END
    atomic { wait = curr; curr = NONE };
#endif
    do
    :: wait != NONE ->
        atomic { waiter = wait; wait = next[waiter] };
        if /* sync_end_next() */
        :: wake(waiter);
#ifdef NEXT_READ_AFTER_WAKE
            wait = next[waiter]
#endif
        :: hand_over(waiter)
        :: callbacks!waiter
        fi;
        waiter = NONE;
        MAY_DIE
    :: else -> break
    od;
    queue_done()
}

/* To the worker. The broken ways: the rest of the list as it is; without what stands on `done`. */
inline hand_over(waiter)
{
#ifdef SEGMENT_SHARED
    atomic { done == NONE -> done = detached; wait = NONE; was_empty = 1 }
#elif defined(DONE_OVERWRITTEN)
    atomic { was_empty = (done == NONE) || was_empty; next[waiter] = NONE; done = waiter }
#else
    atomic { was_empty = (done == NONE) || was_empty; next[waiter] = UNLINKED; link = done; done = waiter };
    atomic { next[waiter] = link; link = NONE }
#endif
}

/* reclaimer_push_direct(): S6. */
inline queue_done()
{
    atomic {
        if
        :: was_empty -> assert(!queued); queued = 1; was_empty = 0
        :: else
        fi
    }
}

/* Lists are the daemon's own memory and go with it; tickets and numbers stay. */
inline restart()
{
    deaths++;
    worker_is_dead = 1;
    wait = NONE; curr = NONE; done = NONE; link = NONE; was_empty = 0; queued = 0;
    do
    :: callbacks?waiter
    :: empty(callbacks) -> break
    od;
#ifdef TICKETS_FORGOTTEN
    waiter = WAITERS;
#else
    waiter = 0;
#endif
    do
    :: waiter < WAITERS ->
        if
        :: open[waiter] -> PUSH(curr, waiter)
        :: else
        fi;
        waiter++
    :: else -> break
    od;
    waiter = NONE
}

proctype GracePeriods()
{
    byte wait = NONE, waiter = NONE, link = NONE, deaths;
    bool was_empty;
#ifdef SEGMENT_SHARED
    byte detached = NONE;
#endif

    goto idle;
successor:
    atomic { restart() };
idle:
end_idle:
    do
    :: curr != NONE ->
        grace_start();
        MAY_DIE;
#ifdef SEGMENT_SHARED
        detached = wait;
#endif
        grace_wake_waiters();
        MAY_DIE
    :: deaths < DEATHS -> goto successor
    od
}

/* ---- Worker ---------------------------------------------------------------------------------- */

#define UNLESS_DEAD(may, step)                                                                  \
    if                                                                                          \
    :: atomic { worker_is_dead -> worker_is_dead = 0; walk = NONE; waiter = NONE; goto idle }   \
    :: atomic { !worker_is_dead && (may) -> step }                                              \
    fi

#ifdef SEGMENT_SHARED
/* The others have been woken directly. */
#define WAKE_IF_NOT_YET if :: open[waiter] -> wake(waiter) :: else fi
#else
#define WAKE_IF_NOT_YET wake(waiter)
#endif

/* cds_wfs_next_blocking() */
#ifdef LINK_NOT_AWAITED
#define READ_LINK UNLESS_DEAD(true, walk = (next[waiter] == UNLINKED -> NONE : next[waiter]))
#else
#define READ_LINK UNLESS_DEAD(next[waiter] != UNLINKED, walk = next[waiter])
#endif

#ifdef DEQUEUED_AFTER_WALK
#define BEFORE_WALK skip
#define AFTER_WALK UNLESS_DEAD(true, queued = 0)
#else
#define BEFORE_WALK UNLESS_DEAD(true, queued = 0)
#define AFTER_WALK skip
#endif

proctype Worker()
{
    byte walk = NONE, waiter = NONE;

idle:
end_idle:
    if
    :: atomic { callbacks?waiter -> worker_is_dead = 0 }; /* a new one, if need be: restart() emptied it */
        UNLESS_DEAD(true, wake(waiter)); /* waiter_run() */
        waiter = NONE
    :: queued -> /* wake_done() */
        BEFORE_WALK;
        UNLESS_DEAD(true, walk = done; done = NONE);
        do
        :: walk != NONE ->
            waiter = walk;
#ifdef NEXT_READ_AFTER_WAKE
            UNLESS_DEAD(true, WAKE_IF_NOT_YET);
            READ_LINK;
#else
            READ_LINK;
            UNLESS_DEAD(true, WAKE_IF_NOT_YET);
#endif
            waiter = NONE
        :: else -> break
        od;
        AFTER_WALK
    fi;
    goto idle
}

init
{
    atomic {
        run Waiter(0); run Waiter(1);
#if WAITERS == 3
        run Waiter(2);
#endif
        run GracePeriods();
        run Worker()
    }
}
