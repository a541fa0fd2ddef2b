/*
 * Readers and grace periods: reclaim_read_lock() against grace_start(), grace_scan() and grace_complete().
 *
 * What it proves
 *  G1  An object that was unlinked and then deferred is not freed while a reader that could still reach it
 *      is inside its section: one pass over the slots is enough, with numbers that never go back.
 *  G2  The same when a signal handler runs a section of its own at any point of lock, section or unlock.
 *  G3  The same for a lane that comes into use while a grace period runs (the mark is read after the
 *      membarrier).
 *  G4  started + 1, taken under the grace-period mutex, is a sound cookie; so is being detached by
 *      grace_start().
 *  G5  A cookie that a client takes for itself (full fence, load of started) is sound as started + 1 where
 *      stores are multi-copy atomic, and as started + 2 everywhere.
 *  G6  Where membarrier cannot be called, a full fence in reclaim_read_lock() does its work.
 *  G7  The daemon may die at any step of a grace period: its successor adopts the numbers, and what was
 *      pending takes a fresh cookie.
 *  G8  Nobody gets stuck: readers, updater and grace periods all reach their end.
 *
 * What it abstracts
 *  One object, unlinked once. Two reader lanes, the second one new. A lane's ring is one word (lane.pml
 *  has all of it). A slot holds number * 4 + nest instead of number << 16 | nest. One signal. Weaker
 *  machines than x86-64 are held to the same order by the release and acquire at both ends of each word,
 *  which the C code names; only the one effect that those cannot forbid, a store that some see before
 *  others, is modelled (-DNOT_MULTICOPY).
 *
 * Sizes     -DREADERS=1|2 -DGRACE_PERIODS=n -DSECTIONS=n (of each reader) -DSIGNALS=n (to reader 0)
 * Correct   (none), -DBY_LIST, -DDAEMON_DIES, -DREADERS_FENCE -DNO_MEMBARRIER,
 *           -DCLIENT_COOKIE=1, -DCLIENT_COOKIE=2 -DNOT_MULTICOPY
 * Broken, each must be caught
 *  -DNO_MEMBARRIER: a reader's slot is still in its store buffer while the slots are scanned
 *  -DBARRIER_FAILURE_IGNORED: the same, only sometimes
 *  -DNEST_BESIDE_SLOT: a nesting count in a word of its own: the handler finds a count without a slot
 *  -DMARK_BEFORE_MEMBARRIER: a lane that came into use in between is not scanned
 *  -DBY_LIST -DDETACH_AFTER_START: what arrives after started = k is served by k
 *  -DCOOKIE_IS_STARTED: waits for a grace period that began before the unlink
 *  -DDAEMON_DIES -DNUMBERS_RESET: old slots look newer than the new grace period
 *  -DCLIENT_COOKIE=1 -DNOT_MULTICOPY: a reader saw the new number before the updater did
 *  -DCLIENT_COOKIE=1 -DNO_COOKIE_FENCE: the unlink is still in the updater's store buffer when it loads
 *      started
 */
#ifndef GRACE_PERIODS
#define GRACE_PERIODS 3
#endif
#ifndef SECTIONS
#define SECTIONS 2
#endif
#ifndef READERS
#define READERS 2
#endif
#ifndef SIGNALS
#define SIGNALS 1
#endif

#define SLOT(lane) (lane) /* words 0 and 1 */
#define POINTER 2         /* 0: the object can be reached; 1: unlinked */
#define RECORD 3          /* 1: the object is deferred */
#define MARK 4            /* lanes in use beyond the first */
#define N_WORDS 5
#include "tso.h"

#define SLOT_WORD(number, nest) ((number) * 4 + (nest))
#define NUMBER(word) ((word) >> 2)
#define NEST(word) ((word) & 3)

chan buffer_of_reader[2] = [6] of { byte, byte };
chan buffer_of_updater = [3] of { byte, byte };

byte started = 0;   /* domain; the daemon writes it with the grace-period mutex held, then calls membarrier */
byte completed = 0; /* domain; arriving late it only delays */
byte cookie = 0;    /* of the page that holds the object; 0: none yet */
bit queued = 0;     /* -DBY_LIST: the page waits for grace_start() to take it */
bit freed = 0;      /* ghost: somebody else may own the object now. Never goes back */

#ifdef NOT_MULTICOPY
byte started_at_updater = 0; /* what of `started` has reached the updater's processor */
#else
#define started_at_updater started
#endif

/* ---- Reader ---------------------------------------------------------------------------------- */

/*
 * `mine` is the thread's own view of its slot. Load and store are separate steps: a signal may come between.
 * SLOT_STORE is the one store-release of lock and unlock.
 */
#define SLOT_STORE(value) atomic { mine = value; STORE(buffer_of_reader[lane], SLOT(lane), mine) }

/*
 * A section gets as its argument what happens where a signal may arrive. So the handler, which none
 * interrupts, is the same code.
 */
#ifdef NEST_BESIDE_SLOT
#define SECTION_ENTER(had, number, SIGNAL)                                   \
    had = nest;                                                              \
    nest = had + 1;                                                          \
    SIGNAL;                                                                  \
    if                                                                       \
    :: had == 0 -> number = started; SLOT_STORE(SLOT_WORD(number, 1))        \
    :: else                                                                  \
    fi;                                                                      \
    had = 0; number = 0
#define SECTION_LEAVE(had, SIGNAL)                                           \
    nest--;                                                                  \
    if                                                                       \
    :: nest == 0 -> SLOT_STORE(0)                                            \
    :: else                                                                  \
    fi
#else
#define SECTION_ENTER(had, number, SIGNAL)                                   \
    had = mine;                                                              \
    SIGNAL;                                                                  \
    if                                                                       \
    :: NEST(had) != 0 -> SLOT_STORE(had + 1)                                 \
    :: else -> number = started; SIGNAL; SLOT_STORE(SLOT_WORD(number, 1))    \
    fi;                                                                      \
    had = 0; number = 0;                                                     \
    READER_FENCE
#define SECTION_LEAVE(had, SIGNAL)                                           \
    had = mine;                                                              \
    SIGNAL;                                                                  \
    if                                                                       \
    :: NEST(had) <= 1 -> SLOT_STORE(0)                                       \
    :: else -> SLOT_STORE(had - 1)                                           \
    fi;                                                                      \
    had = 0
#endif

#ifdef READERS_FENCE
#define READER_FENCE FULL_FENCE(buffer_of_reader[lane])
#else
#define READER_FENCE skip
#endif

/* One section. The last use stands for all: `freed` never goes back. */
#define SECTION_READ(saw, SIGNAL)                                            \
    saw = LOAD(POINTER); /* reclaim_dereference(); 0 is the object */        \
    SIGNAL;                                                                  \
    assert(saw != 0 || !freed);                                              \
    saw = 0

inline signal_may_arrive()
{
    if
    :: signals > 0 ->
        signals--;
        SECTION_ENTER(handler_had, handler_number, skip);
        SECTION_READ(handler_saw, skip);
        SECTION_LEAVE(handler_had, skip)
    :: skip
    fi
}

proctype Reader(byte lane; byte signals)
{
    byte mine, had, number, saw, handler_had, handler_number, handler_saw, sections;
#ifdef NEST_BESIDE_SLOT
    byte nest;
#endif

    if
    :: lane == 1 -> STORE(buffer_of_reader[lane], MARK, 1) /* reclaim_lane_get() */
    :: else
    fi;
    do
    :: sections < SECTIONS ->
        sections++;
        SECTION_ENTER(had, number, signal_may_arrive()); /* reclaim_read_lock() */
        SECTION_READ(saw, signal_may_arrive());
        SECTION_LEAVE(had, signal_may_arrive())          /* reclaim_read_unlock() */
    :: else -> break
    od
}

/* ---- Updater and the worker that frees for it ------------------------------------------------ */

proctype Updater()
{
    byte number;

    STORE(buffer_of_updater, POINTER, 1); /* reclaim_assign_pointer() */
#ifdef CLIENT_COOKIE
#ifndef NO_COOKIE_FENCE
    FULL_FENCE(buffer_of_updater);
#endif
    number = started_at_updater; /* reclaim_gp_start() */
    cookie = number + CLIENT_COOKIE;
    number = 0;
end_polling:
    completed >= cookie; /* reclaim_gp_poll() */
    freed = 1
#else
    STORE(buffer_of_updater, RECORD, 1) /* reclaim_defer_free() */
#endif
}

#ifndef CLIENT_COOKIE
proctype Worker()
{
end_idle:
    LOAD(RECORD) == 1; /* lane_collect() */
#ifdef BY_LIST
    queued = 1;
#elif defined(COOKIE_IS_STARTED)
    cookie = started;
#else
    cookie = started + 1; /* pending_take_cookie(): one step, the mutex is held */
#endif
end_waiting:
    cookie != 0 && completed >= cookie;
    freed = 1
}
#endif

/* ---- Grace periods --------------------------------------------------------------------------- */

inline membarrier()
{
    do
    :: atomic { !(reached & 1) && FULL_FENCE(buffer_of_reader[0]) -> reached = reached | 1 }
    :: atomic { !(reached & 2) && FULL_FENCE(buffer_of_reader[1]) -> reached = reached | 2 }
    :: atomic { !(reached & 4) && FULL_FENCE(buffer_of_updater) -> reached = reached | 4;
#ifdef NOT_MULTICOPY
                started_at_updater = started
#endif
              }
    :: atomic { reached == 7 -> reached = 0; break }
#ifdef BARRIER_FAILURE_IGNORED
    :: atomic { reached = 0; break }
#endif
    od
}

/* What waits on the list is served by the number that grace_start() is about to use. */
#define DETACH(number) \
    if :: queued -> queued = 0; cookie = number :: else fi

#ifdef DAEMON_DIES
#define MAY_DIE if :: atomic { !died -> died = 1; goto successor } :: skip fi
#else
#define MAY_DIE skip
#endif

proctype GracePeriods()
{
    byte rounds, number, mark, lane, reached;
#ifdef DAEMON_DIES
    bit died;
#endif

    do
    :: atomic { rounds < GRACE_PERIODS -> rounds++ };
#ifdef MARK_BEFORE_MEMBARRIER
        mark = LOAD(MARK);
#endif
        /* grace_start() */
#ifdef DETACH_AFTER_START
        atomic { started++; number = started };
        atomic { DETACH(number) };
#else
        atomic { DETACH(started + 1); started++; number = started };
#endif
        MAY_DIE;
#ifndef NO_MEMBARRIER
        membarrier();
        MAY_DIE;
#endif
        /* grace_scan() */
#ifndef MARK_BEFORE_MEMBARRIER
        mark = LOAD(MARK);
#endif
        do
        :: lane <= mark -> (LOAD(SLOT(lane)) == 0 || NUMBER(LOAD(SLOT(lane))) >= number); lane++
        :: else -> break
        od;
        MAY_DIE;
        completed = number; /* grace_complete() */
        goto next;
#ifdef DAEMON_DIES
successor:
        atomic {
#ifdef NUMBERS_RESET
            started = 0; completed = 0;
#endif
            if :: cookie != 0 && !freed -> cookie = started + 1 :: else fi
        };
#endif
next:
        atomic { number = 0; mark = 0; lane = 0 }
    :: atomic { rounds == GRACE_PERIODS -> break }
    od
}

#ifdef NOT_MULTICOPY
proctype Propagation()
{
end_equal:
    do
    :: atomic { started_at_updater < started -> started_at_updater++ }
    od
}
#endif

init
{
    atomic {
        run Reader(0, SIGNALS);
#if READERS == 2
        run Reader(1, 0);
        run StoreBuffer(buffer_of_reader[1]);
#endif
        run Updater();
        run GracePeriods();
        run StoreBuffer(buffer_of_reader[0]);
        run StoreBuffer(buffer_of_updater);
#ifndef CLIENT_COOKIE
        run Worker();
#endif
#ifdef NOT_MULTICOPY
        run Propagation();
#endif
    }
}
