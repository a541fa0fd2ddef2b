/*
 * The chain through the objects: reclaim_defer_free_head() with a full ring in the client,
 * lane_chain_collect() in the daemon.
 *
 * What it proves
 *  C1  Every chained object is freed, once, without another call of the client.
 *  C2  No object is freed while its owner has it, although owners write whatever they like where heads stand,
 *      and the object above which a walk ends may have been freed, handed out and chained again.
 *  C3  A walk finds the next number at each step: it is never cut when the client is honest.
 *  C4  The daemon may die after any of its stores; what its successor finds is the number of the last object
 *      taken in a walk that was over, and where a walk that was interrupted went on.
 *  C5  A walk may be interrupted after any object, and what it took may be freed meanwhile.
 *
 * What it abstracts
 *  The ring is always full. The bell is lane.pml's: the daemon notices a new number at some time. Hand-out is
 *  one step (mag.pml); a grace period is one step at any time once a bit is pending (gp.pml). Numbers do not
 *  wrap. Whenever nothing can move any more, all must be freed.
 *
 * Sizes     -DDEFERS=n -DOBJECTS=2|3 -DDEATHS=n (of the daemon)
 * Correct   (none), -DDEATHS=n; -DWALK_WHOLE: walks are not interrupted, and leave nothing in the state
 * Broken, each must be caught
 *  -DSTOP_AT_HEAD: a walk ends at the object where the last one began, and not by counting
 *  -DLOOK_AT_HEAD_ONLY: a walk begins when the newest object's number is new, without looking at the count
 *  -DCOUNT_BEFORE_HEAD: the client stores the count before the link
 *  -DHEAD_BEFORE_LINK: the client stores the link to an object before the head in it
 *  -DDEATHS=1 -DSEEN_BEFORE_WALK: the number is stored as the walk begins
 *  -DDEATHS=1 -DEXPIRE_BEFORE_REPLAY: what the predecessor took is freed before its walk is made again
 *  -DDEATHS=1 -DWALK_FORGOTTEN: what an interrupted walk took is freed, and the successor begins at the newest
 */
#ifndef DEFERS
#define DEFERS 4
#endif
#ifndef OBJECTS
#define OBJECTS 3
#endif
#ifndef DEATHS
#define DEATHS 0
#endif

/* Words in the objects belong to whoever has the object; the last two are the lane's. Links are indices. */
#define NEXT(object) (object)
#define SEQ(object) (OBJECTS + (object))
#define HEAD (2 * OBJECTS)
#define COUNT (2 * OBJECTS + 1)
#define N_WORDS (2 * OBJECTS + 2)
#define NONE OBJECTS
#include "tso.h"

chan buffer = [8] of { byte, byte }; /* of the client */

/* State: what a successor finds. Truth bits, the number of the last object taken, an interrupted walk. */
bit out[OBJECTS + 1]; /* of NONE: never */
bit pending[OBJECTS + 1];
byte seen = 0;
byte walk_link = NONE;
byte walk_top = 0;

bit owned[OBJECTS + 1]; /* ghost: what the client has and may use */

/* ---- Client ---------------------------------------------------------------------------------- */

inline store_head()
{
    STORE(buffer, NEXT(object), link);
    STORE(buffer, SEQ(object), count + 1)
}

inline reclaim_defer_free_head()
{
#ifndef HEAD_BEFORE_LINK
    store_head();
#endif
#ifdef COUNT_BEFORE_HEAD
    STORE(buffer, COUNT, count + 1);
#endif
    STORE(buffer, HEAD, object); /* store-release */
#ifdef HEAD_BEFORE_LINK
    store_head();
#endif
    link = object;
    count++;
#ifndef COUNT_BEFORE_HEAD
    STORE(buffer, COUNT, count) /* store-release */
#endif
}

#define GET(which) atomic { !out[which] -> out[which] = 1; owned[which] = 1; object = which }

proctype Client()
{
    byte object, count;
    byte link = NONE;

    do
    :: count < DEFERS ->
        if
        :: GET(0)
        :: GET(1)
#if OBJECTS == 3
        :: GET(2)
#endif
        fi;
        /* What the owner writes where a head will stand, or stood: it may look like one. */
        if
        :: STORE(buffer, NEXT(object), 0); STORE(buffer, SEQ(object), 1)
        :: STORE(buffer, NEXT(object), 0); STORE(buffer, SEQ(object), 2)
        :: STORE(buffer, NEXT(object), 1); STORE(buffer, SEQ(object), DEFERS)
        :: skip
        fi;
        owned[object] = 0; /* unlinked: somebody else's from now on */
        reclaim_defer_free_head()
    :: else -> break
    od
}

/* ---- Daemon ---------------------------------------------------------------------------------- */

#define MAY_DIE if :: atomic { deaths < DEATHS -> deaths++; goto successor } :: skip fi

#if OBJECTS == 3
#define ANY_PENDING (pending[0] || pending[1] || pending[2])
#else
#define ANY_PENDING (pending[0] || pending[1])
#endif

inline expire_one(which)
{
    if
    :: pending[which] -> assert(!owned[which]); pending[which] = 0; out[which] = 0
    :: else
    fi
}

/* A grace period is over: what is pending is free. Nobody may have it. */
inline expire()
{
    atomic {
        expire_one(0);
        expire_one(1);
#if OBJECTS == 3
        expire_one(2)
#endif
    }
}

/* One store to the truth word. */
inline truth_accept()
{
    atomic {
        if
        :: out[at] -> pending[at] = 1
        :: else
        fi
    }
}

#ifdef LOOK_AT_HEAD_ONLY
#define HAS_CHAIN (LOAD(HEAD) != NONE && out[LOAD(HEAD)] && LOAD(SEQ(LOAD(HEAD))) > seen)
#else
#define HAS_CHAIN (LOAD(COUNT) > seen)
#endif

/* The newest object; it may be newer than the number that made us look. */
inline walk_begin()
{
    at = LOAD(HEAD);
#ifdef STOP_AT_HEAD
    top = LOAD(COUNT);
#else
    top = LOAD(SEQ(at));
#endif
    atomic {
        seq = top;
        assert(at != NONE && out[at] && top > seen);
        newest = at
    };
#ifdef SEEN_BEFORE_WALK
    first = seen;
    seen = top;
    MAY_DIE
#else
    first = seen
#endif
}

/* Where it goes on, for a successor: the walk's end is known before its place is. */
inline walk_interrupt()
{
#ifndef WALK_FORGOTTEN
    walk_top = top;
    MAY_DIE;
    walk_link = at
#else
    skip
#endif
}

inline walk_end()
{
    seen = top;
    MAY_DIE;
    atomic { walk_link = NONE; last_newest = newest; walking = 0 }
}

/* Below the object just taken. */
inline walk_step()
{
    next = LOAD(NEXT(at));
    truth_accept();
    MAY_DIE;
#ifdef STOP_AT_HEAD
    if
    :: next == last_newest || next == NONE -> walk_end()
    :: else -> at = next
    fi;
#else
    if
    :: seq == first + 1 -> walk_end()
    :: else ->
        atomic {
            assert(next != NONE && out[next]);         /* C3 */
            assert(LOAD(SEQ(next)) == seq - 1);
            at = next; seq--
        }
    fi;
#endif
    next = 0
}

/* An interrupted walk goes on, unless it was over and only its place still stood there. */
inline walk_resume()
{
    atomic {
        if
        :: walk_link != NONE && walk_top > seen ->
            walking = 1; at = walk_link; top = walk_top; seq = LOAD(SEQ(at)); first = seen
        :: else -> walk_link = NONE
        fi
    }
}

proctype Daemon()
{
    byte at, next, seq, top, first, newest, deaths;
    byte last_newest = NONE; /* of the state, in the variant that needs it */
    bit walking, placed, replaying;

successor:
    atomic { at = 0; next = 0; seq = 0; top = 0; first = 0; newest = 0; walking = 0; placed = 0; replaying = 1 };
#ifdef EXPIRE_BEFORE_REPLAY
    expire();
#endif
    walk_resume();
end_idle:
    do
    :: walking -> walk_step(); placed = 0
#ifndef WALK_WHOLE
    :: walking && !placed -> walk_interrupt(); placed = 1
#endif
    :: !walking && HAS_CHAIN -> walk_begin(); walking = 1
    :: !walking && replaying && !HAS_CHAIN -> replaying = 0
    :: ANY_PENDING && !replaying && (!walking || placed) -> expire(); MAY_DIE
    od
}

/* When nothing can move, nothing is lost: what is out is what the client still owns. */
proctype Quiescence()
{
end_waiting:
    timeout ->
    atomic {
        assert(!(out[0] && !owned[0]) && !(out[1] && !owned[1]));
#if OBJECTS == 3
        assert(!(out[2] && !owned[2]));
#endif
        assert(!ANY_PENDING && empty(buffer))
    }
}

init
{
    atomic {
        memory[HEAD] = NONE;
        run Client();
        run Daemon();
        run StoreBuffer(buffer);
        run Quiescence()
    }
}
