/*
 * Waiting on a futex: lane_wait() in the client, lane_wake() in the daemon.
 *
 * What it proves
 *  W1  No wake-up is lost: whoever waits for progress that the daemon has made goes on, without help of a
 *      time-out.
 *  W2  The same round after round, although `waiting` is taken back lazily and may be stale either way.
 *  W3  The daemon may die after any of its steps: its successor makes or finds the progress and wakes every
 *      lane.
 *  W4  A ticket needs no sequence word: the word that says "done" is what the thread sleeps on (-DTICKET).
 *
 * What it abstracts
 *  One lane, one thing to wait for at a time: `progress` stands for the ring's tail, a magazine's head,
 *  an answer, a ticket. How the daemon learns of the wish is lane.pml's and doze.pml's matter: here it
 *  always does. FUTEX_WAIT compares and goes to sleep in one step, behind a full fence; FUTEX_WAKE is a
 *  system call that empties the store buffer. The time-out of each real turn is not here: it is for a
 *  daemon that is gone for good.
 *
 * Sizes     -DROUNDS=n -DDEATHS=n (of the daemon)
 * Correct   (none), -DTICKET
 * Broken, each must be caught
 *  -DNO_DAEMON_FENCE: progress is still in the daemon's store buffer when it loads `waiting`
 *  -DNO_CLIENT_FENCE: `waiting` is still in the client's store buffer when it looks at the progress
 *  -DWAKE_READ_AFTER_LOOK: the sequence is read after the look: it may already be that of the wake-up
 *  -DSEQUENCE_NOT_MOVED: a wake-up between look and FUTEX_WAIT leaves no trace
 *  -DTICKET -DNO_DAEMON_FENCE: the same for a ticket
 *  -DDEATHS=1 -DNO_WAKE_AT_RESTART: the predecessor died between progress and wake-up
 */
#ifndef ROUNDS
#define ROUNDS 3
#endif
#ifndef DEATHS
#define DEATHS 1
#endif

#define WAITING 0  /* client */
#define PROGRESS 1 /* daemon */
#define WAKE 2     /* daemon: + 1 at each wake-up */
#define N_WORDS 3
#include "tso.h"

#ifdef TICKET
#define FUTEX_WORD PROGRESS
#else
#define FUTEX_WORD WAKE
#endif

chan buffer_of_client = [4] of { byte, byte };
chan buffer_of_daemon = [4] of { byte, byte };

byte asked = 0;    /* what the client waits for; it has rung */
bit asleep = 0;    /* in FUTEX_WAIT */

/* ---- Client ---------------------------------------------------------------------------------- */

inline lane_wait()
{
    STORE(buffer_of_client, WAITING, 1);
    do
    ::
#ifndef NO_CLIENT_FENCE
        FULL_FENCE(buffer_of_client);
#endif
#ifndef WAKE_READ_AFTER_LOOK
        seen = LOAD(FUTEX_WORD);
#endif
        if
        :: LOAD(PROGRESS) >= asked -> break
        :: else
        fi;
#ifdef WAKE_READ_AFTER_LOOK
        seen = LOAD(FUTEX_WORD);
#endif
        atomic { /* FUTEX_WAIT */
            FULL_FENCE(buffer_of_client);
            if
            :: LOAD(FUTEX_WORD) == seen -> asleep = 1
            :: else
            fi;
            seen = 0
        };
        !asleep
    od;
    seen = 0;
    STORE(buffer_of_client, WAITING, 0)
}

proctype Client()
{
    byte seen;

    do
    :: asked < ROUNDS -> asked++; lane_wait()
    :: else -> break
    od
}

/* ---- Daemon ---------------------------------------------------------------------------------- */

#define MAY_DIE if :: atomic { deaths < DEATHS -> deaths++; goto successor } :: skip fi

#ifdef SEQUENCE_NOT_MOVED
#define MOVE_SEQUENCE skip
#else
#define MOVE_SEQUENCE atomic { wakes++; STORE(buffer_of_daemon, WAKE, wakes) }
#endif

inline futex_wake()
{
#ifndef TICKET
    MOVE_SEQUENCE;
    MAY_DIE;
#endif
    atomic { FULL_FENCE(buffer_of_daemon) -> asleep = 0 }; /* FUTEX_WAKE */
    MAY_DIE
}

inline lane_wake()
{
#ifndef NO_DAEMON_FENCE
    FULL_FENCE(buffer_of_daemon);
#endif
    if
    :: LOAD(WAITING) -> futex_wake()
    :: else
    fi
}

proctype Daemon()
{
    byte progress, wakes, deaths;

    goto serve;
successor:
    /* What the predecessor stored has arrived: it is dead. */
    atomic { FULL_FENCE(buffer_of_daemon) -> progress = LOAD(PROGRESS); wakes = LOAD(WAKE) };
#ifndef NO_WAKE_AT_RESTART
    futex_wake();
#endif
serve:
end_idle:
    do
    :: asked > progress ->
        atomic { progress++; STORE(buffer_of_daemon, PROGRESS, progress) };
        MAY_DIE;
        lane_wake()
    od
}

/* A client that is asleep for good is an invalid end state; nothing else needs to be asked. */
init
{
    atomic {
        run Client();
        run Daemon();
        run StoreBuffer(buffer_of_client);
        run StoreBuffer(buffer_of_daemon)
    }
}
