/*
 * How deep the daemon sleeps: lane_ring() and its kin in the clients, arena_sleep() in the daemon, with the
 * word `sleeps` on three levels.
 *
 *   AWAKE    it looks again by itself
 *   ASLEEP   nothing is pending; each lane's first defer since `want` moved rings
 *   DOZING   something is pending, so it looks when a timer is due. A lane rings only for a flood (every
 *            FLOOD records), a magazine that runs low, or because it waits; besides, once for each value of
 *            `want` that it has not rung for
 *
 * A client does: store; compiler barrier; load sleeps. The daemon does: store sleeps; membarrier; look at
 * all lanes.
 *
 * What it proves
 *  Z1  While the daemon dozes, each lane has fewer than FLOOD records that were not collected, however late
 *      the timer is.
 *  Z2  While it dozes or sleeps, no magazine stays low and no lane waits.
 *  Z3  While it sleeps, every record has been collected.
 *  Z4  A daemon that dozes may look without waking up: no new store of `sleeps` and no membarrier
 *      (-DLOOKS_IN_DOZE). But when it filled a magazine it must wake up: a lane that took one more meanwhile
 *      may have seen the old head, for which it has rung already.
 *  Z5  Where membarrier cannot be called, full fences before the clients' loads of `want` and `sleeps` do
 *      its work.
 *
 * What it abstracts
 *  Two lanes of one arena. One record an object; the real count lags behind by the record that is still
 *  open. What is pending may be freed whenever the daemon is awake. The timer fires TIMERS times at any
 *  moment and then never again. Ringing is a system call that takes a lock, so the store buffer is empty
 *  when the event arrives. Sleeping in the futex is wait.pml's: here a lane that waits rings once and
 *  goes on when there is room.
 *
 * Sizes     -DDEFERS=n -DALLOCATIONS=n (of lane 0) -DOTHER_DEFERS=n (of lane 1) -DFLOOD=n -DRING_RECORDS=n
 *           -DMAGAZINE_WORDS=n -DTIMERS=n
 * Correct   (none), -DLOOKS_IN_DOZE, -DCLIENT_FENCES -DNO_MEMBARRIER
 * Broken, each must be caught
 *  -DNO_MEMBARRIER: head is still in the client's store buffer at the last look, and it loaded AWAKE
 *  -DNO_MEMBARRIER_TO_DOZE: the same on the way to a doze alone
 *  -DLOOK_BEFORE_SLEEPS: what came between the look and the store of `sleeps` saw AWAKE
 *  -DDECIDED_BEFORE_HEAD: the flood is announced, or not, before the record that makes it one is stored
 *  -DFLOOD_BY_BELL_ONLY: the lane has rung for this `want` already
 *  -DLOW_BY_BELL_ONLY: the same for a magazine that runs low
 *  -DWAITER_SILENT: a full ring below the flood
 *  -DONLY_ACTIVE_LOOKED: the last look leaves out lanes that had nothing the time before
 *  -DLOOKS_IN_DOZE -DEVENT_CLEARED_AFTER_LOOK: a ring during the look is lost
 *  -DLOOKS_IN_DOZE -DREFILLS_IN_DOZE: it dozes on after filling a magazine that is low again already
 */
#ifndef DEFERS
#define DEFERS 3
#endif
#ifndef ALLOCATIONS
#define ALLOCATIONS 0
#endif
#ifndef OTHER_DEFERS
#define OTHER_DEFERS 1
#endif
#ifndef FLOOD
#define FLOOD 2
#endif
#ifndef RING_RECORDS
#define RING_RECORDS 4
#endif
#ifndef MAGAZINE_WORDS
#define MAGAZINE_WORDS 2
#endif
#ifndef TIMERS
#define TIMERS 1
#endif
#define LOW 1 /* a magazine with so many words left is low */

/* The clients' words. */
#define HEAD(lane) (lane)
#define BELL(lane) (2 + (lane))
#define TAKEN(lane) (4 + (lane)) /* the magazine's tail */
#define N_WORDS 6
#include "tso.h"

#define AWAKE 0
#define ASLEEP 1
#define DOZING 2

chan buffer_of_lane[2] = [6] of { byte, byte };

/* The daemon's words. A late tail or filled only delays; want and sleeps have the membarrier behind them. */
byte tail[2];
byte filled[2]; /* the magazine's head */
byte want[2];
byte sleeps = AWAKE;
bit event = 0;

/* ---- Clients --------------------------------------------------------------------------------- */

#ifdef CLIENT_FENCES
#define LANE_FENCE FULL_FENCE(buffer_of_lane[lane])
#else
#define LANE_FENCE skip
#endif

inline lane_bell()
{
    atomic { FULL_FENCE(buffer_of_lane[lane]) -> event = 1 }
}

inline lane_ring()
{
    LANE_FENCE;
    wanted = want[lane];
    if
    :: wanted != rung ->
        atomic { rung = wanted; STORE(buffer_of_lane[lane], BELL(lane), rung) };
        LANE_FENCE;
        if
        :: sleeps != AWAKE -> lane_bell()
        :: else
        fi
    :: else
    fi;
    wanted = 0
}

inline lane_ring_dozing()
{
    LANE_FENCE;
    if
    :: sleeps == DOZING -> lane_bell()
    :: else
    fi
}

inline lane_wait(IS_READY)
{
    if
    :: IS_READY
    :: else ->
#ifndef WAITER_SILENT
        lane_bell();
#endif
        IS_READY
    fi
}

inline check_flood()
{
    queued++;
    if
    :: queued >= FLOOD ->
        queued = 0;
#ifndef FLOOD_BY_BELL_ONLY
        lane_ring_dozing()
#endif
    :: else
    fi
}

inline reclaim_defer_free()
{
    lane_wait(head - tail[lane] < RING_RECORDS);
#ifdef DECIDED_BEFORE_HEAD
    check_flood();
#endif
    atomic { head++; STORE(buffer_of_lane[lane], HEAD(lane), head) };
#ifndef DECIDED_BEFORE_HEAD
    check_flood();
#endif
    lane_ring()
}

/* One word; each filling is announced once. */
inline reclaim_alloc()
{
    lane_wait(filled[lane] != taken);
    atomic { taken++; STORE(buffer_of_lane[lane], TAKEN(lane), taken) };
    had = filled[lane];
    if
    :: had - taken <= LOW && rang_for != had ->
        rang_for = had;
        lane_ring();
#ifndef LOW_BY_BELL_ONLY
        lane_ring_dozing()
#endif
    :: else
    fi;
    had = 0
}

proctype Client(byte lane; byte defers; byte allocations)
{
    byte head, queued, rung, wanted, taken, had, rang_for;

    do
    :: defers > 0 -> defers--; reclaim_defer_free()
    :: allocations > 0 -> allocations--; reclaim_alloc()
    :: defers == 0 && allocations == 0 -> break
    od
}

/* ---- Daemon ---------------------------------------------------------------------------------- */

#define UNCOLLECTED(lane) (LOAD(HEAD(lane)) - tail[lane])
#define IS_LOW(lane) (filled[lane] - LOAD(TAKEN(lane)) <= LOW)

/* lane_collect(), lane_refill() */
inline lane_look(lane)
{
    busy[lane] = 0;
    if
    :: UNCOLLECTED(lane) > 0 ->
        atomic { tail[lane] = LOAD(HEAD(lane)); pending = 1; found = 1; busy[lane] = 1 }
    :: else
    fi;
    if
    :: IS_LOW(lane) ->
        atomic { filled[lane] = LOAD(TAKEN(lane)) + MAGAZINE_WORDS; refilled = 1; found = 1; busy[lane] = 1 }
    :: else
    fi
}

inline look()
{
    atomic { found = 0; refilled = 0 };
    lane_look(0);
    lane_look(1)
}

inline membarrier()
{
    do
    :: atomic { !(reached & 1) && FULL_FENCE(buffer_of_lane[0]) -> reached = reached | 1 }
    :: atomic { !(reached & 2) && FULL_FENCE(buffer_of_lane[1]) -> reached = reached | 2 }
    :: atomic { reached == 3 -> reached = 0; break }
    od
}

#ifdef ONLY_ACTIVE_LOOKED
#define IS_LOOKED_AT(lane) busy[lane]
#else
#define IS_LOOKED_AT(lane) true
#endif

#define HAS_RUNG(lane) (LOAD(BELL(lane)) == want[lane])
#define WANTS_MORE(lane) (UNCOLLECTED(lane) > 0 || IS_LOW(lane) || (level == ASLEEP && HAS_RUNG(lane)))

inline lane_wants_more(lane)
{
    if
    :: IS_LOOKED_AT(lane) && WANTS_MORE(lane) -> found = 1
    :: else
    fi
}

inline lane_rings_anew(lane)
{
    if
    :: level == ASLEEP && HAS_RUNG(lane) -> want[lane]++
    :: else
    fi
}

#ifdef REFILLS_IN_DOZE
#define MUST_WAKE_UP false
#else
#define MUST_WAKE_UP refilled
#endif

#ifdef EVENT_CLEARED_AFTER_LOOK
#define CLEAR_EVENT skip
#define CLEAR_EVENT_LATE event = 0
#else
#define CLEAR_EVENT event = 0
#define CLEAR_EVENT_LATE skip
#endif

/* Into found: something came meanwhile. */
inline arena_sleep()
{
    lane_rings_anew(0);
    lane_rings_anew(1);
#ifdef LOOK_BEFORE_SLEEPS
    lane_wants_more(0);
    lane_wants_more(1);
#endif
    sleeps = level;
#ifdef NO_MEMBARRIER_TO_DOZE
    if
    :: level == ASLEEP -> membarrier()
    :: else
    fi;
#elif !defined(NO_MEMBARRIER)
    membarrier();
#endif
#ifndef LOOK_BEFORE_SLEEPS
    lane_wants_more(0);
    lane_wants_more(1)
#endif
}

proctype Daemon()
{
    byte level, reached, timers;
    bit found, refilled, pending;
    bit busy[2];

awake:
    look();
    if
    :: pending = 0 /* a grace period is over */
    :: skip
    fi;
    if
    :: found -> goto awake
    :: else -> level = (pending -> DOZING : ASLEEP)
    fi;
    arena_sleep();
    if
    :: found -> goto woken
    :: else
    fi;
end_resting:
    if
    :: event -> CLEAR_EVENT
    :: level == DOZING && timers < TIMERS -> timers++
    fi;
#ifdef LOOKS_IN_DOZE
    if
    :: level == DOZING ->
        look();
        CLEAR_EVENT_LATE;
        if
        :: MUST_WAKE_UP
        :: else -> goto end_resting
        fi
    :: skip
    fi;
#endif
woken:
    atomic { sleeps = AWAKE; level = AWAKE; refilled = 0 };
    goto awake
}

/* When nothing can move, and no timer helps any more. Who still waits is an invalid end state. */
proctype Quiescence()
{
    byte allowed;
    bit missed_records, missed_low;

end_waiting:
    timeout ->
    atomic {
        allowed = (sleeps == DOZING -> FLOOD - 1 : 0);
        missed_records = (UNCOLLECTED(0) > allowed || UNCOLLECTED(1) > allowed);
        missed_low = (IS_LOW(0) || IS_LOW(1));
        assert(!missed_records);
        assert(!missed_low)
    }
}

init
{
    atomic {
        want[0] = 1; want[1] = 1;
        filled[0] = MAGAZINE_WORDS; filled[1] = MAGAZINE_WORDS;
        run Client(0, DEFERS, ALLOCATIONS);
        run Client(1, OTHER_DEFERS, 0);
        run Daemon();
        run Quiescence();
        run StoreBuffer(buffer_of_lane[0]);
        run StoreBuffer(buffer_of_lane[1])
    }
}
