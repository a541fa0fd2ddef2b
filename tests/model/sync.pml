/*
 * Those who wait for a grace period, on three lists: sync_call() puts them on `curr`, sync_detach() takes
 * that list whole as `wait` when a grace period starts, sync_complete() at its end wakes some of them
 * itself and hands the others to a worker as `done`.
 *
 * What it proves
 *  S1  No waiter is completed by a grace period that began before it called, and none twice.
 *  S2  Every waiter is completed.
 *  S3  A waiter may call again the instant it is completed: neither walk follows a link that it has reused
 *      since.
 *  S4  S1 to S3 hold whatever wake-from-gp, wake-direct and wake-flood choose: the grace-period thread
 *      wakes any number.
 *  S5  The daemon may die at any step: its successor puts every open ticket on `curr`.
 *
 * What it abstracts
 *  Readers: a grace period is two numbers (gp.pml). How a ticket arrives and how its thread sleeps is
 *  wait.pml's. One link a waiter serves all three lists, which is stricter than separate nodes. A call
 *  pushes with the grace-period mutex held, in one step, and so is the start.
 *
 * Sizes     -DWAITERS=2|3 -DCALLS=n (of each) -DDEATHS=n (of the daemon)
 * Correct   with any sizes
 * Broken, each must be caught
 *  -DDETACH_AFTER_START: who calls between the new number and the detaching is completed by that number
 *  -DDETACH_AT_END: those on `curr` at the end of a grace period are taken for its waiters
 *  -DNEXT_READ_AFTER_WAKE: the walk goes on from a waiter that is already on the next list
 *  -DSEGMENT_SHARED: those that are woken directly stay linked in what the worker walks
 *  -DDONE_OVERWRITTEN: a second grace period ends before the worker has come to the first one's waiters
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

byte started = 0;
byte completed = 0;

byte next[WAITERS];
byte curr = NONE;
byte done = NONE;

bit open[WAITERS];       /* ticket: called and not yet completed */
byte called_at[WAITERS]; /* ghost: the newest number when it called */

bit worker_is_dead = 0; /* it died with the grace-period thread and has not noticed: it does nothing more */

#define PUSH(list, waiter) next[waiter] = list; list = waiter

proctype Waiter(byte self)
{
    byte calls;

    do
    :: calls < CALLS ->
        atomic { calls++; called_at[self] = started; open[self] = 1; PUSH(curr, self) }; /* sync_call() */
        !open[self]
    :: else -> break
    od
}

/* ticket_complete(): from here on the waiter is its own again. */
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

inline sync_detach()
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

inline sync_complete()
{
    completed = started;
#ifdef DETACH_AT_END
    atomic { wait = curr; curr = NONE };
#endif
    do
    :: wait != NONE ->
        atomic { waiter = wait; wait = next[waiter] };
        if
        :: wake(waiter);
#ifdef NEXT_READ_AFTER_WAKE
            wait = next[waiter]
#endif
        :: hand_over(waiter)
        fi;
        waiter = NONE;
        MAY_DIE
    :: else -> break
    od
}

/* To the worker. The broken ways: the rest of the list as it is; without what stands on `done`. */
inline hand_over(waiter)
{
#ifdef SEGMENT_SHARED
    atomic { done == NONE -> done = detached; wait = NONE }
#elif defined(DONE_OVERWRITTEN)
    atomic { next[waiter] = NONE; done = waiter }
#else
    atomic { PUSH(done, waiter) }
#endif
}

/* Lists are the daemon's own memory and go with it; tickets and numbers stay. */
inline restart()
{
    deaths++;
    worker_is_dead = 1;
    wait = NONE; curr = NONE; done = NONE;
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
    byte wait = NONE, waiter = NONE, deaths;
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
        sync_detach();
        MAY_DIE;
#ifdef SEGMENT_SHARED
        detached = wait;
#endif
        sync_complete();
        MAY_DIE
    :: deaths < DEATHS -> goto successor
    od
}

/* ---- Worker ---------------------------------------------------------------------------------- */

#define UNLESS_DEAD(step)                                                                       \
    if                                                                                          \
    :: atomic { worker_is_dead -> worker_is_dead = 0; walk = NONE; waiter = NONE; goto idle }   \
    :: atomic { !worker_is_dead -> step }                                                       \
    fi

#ifdef SEGMENT_SHARED
/* The others have been woken directly. */
#define WAKE_IF_NOT_YET if :: open[waiter] -> wake(waiter) :: else fi
#else
#define WAKE_IF_NOT_YET wake(waiter)
#endif

proctype Worker()
{
    byte walk = NONE, waiter = NONE;

idle:
end_idle:
    done != NONE;
    UNLESS_DEAD(walk = done; done = NONE);
    do
    :: walk != NONE ->
        waiter = walk;
#ifdef NEXT_READ_AFTER_WAKE
        UNLESS_DEAD(WAKE_IF_NOT_YET);
        UNLESS_DEAD(walk = next[waiter]);
#else
        UNLESS_DEAD(walk = next[waiter]);
        UNLESS_DEAD(WAKE_IF_NOT_YET);
#endif
        waiter = NONE
    :: else -> break
    od;
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
