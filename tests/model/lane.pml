/*
 * A lane's ring: reclaim_defer_free() and lane_ring() in the client, lane_collect() and arena_sleep() in
 * the daemon.
 *
 * What it proves
 *  L1  Every deferred object is freed, once, without another call of the client: no record, no bit that
 *      joins the open record late and no bell is missed, although the client never fences and the daemon
 *      sleeps when it saw nothing.
 *  L2  No object is freed while its owner has it: a bit is acted on once, however often the open record is
 *      looked at.
 *  L3  A double free is refused, now and for ever, if the daemon looks at it before the object is handed
 *      out again. (After that nothing can tell it from a free of somebody else's object.)
 *  L4  The daemon may die after any of its stores. Its successor replays from the cursor word; L1 to L3
 *      still hold.
 *  L5  A full ring is a wait for a collect, and it ends.
 *  L6  Where membarrier cannot be called, full fences before the client's loads of `want` and `sleeps` do
 *      its work.
 *
 * What it abstracts
 *  Three objects: two in block 1, so that a record can hold both, one in block 2. Hand-out is one step
 *  (mag.pml), a grace period is one step at any time once a bit is pending (gp.pml), waiting is a
 *  condition (wait.pml). Times: the awake daemon looks again whenever it likes. Whenever nothing can move
 *  any more, all must be freed.
 *
 * Sizes     -DDEFERS=n -DRING_RECORDS=n (at least 2) -DDEATHS=n (of the daemon) -DOBJECTS=2|3 (3: two share
 *           a block)
 * Correct   (none), -DDEATHS=n, -DDOUBLE_FREE, -DCLIENT_FENCES -DNO_MEMBARRIER
 * Broken, each must be caught
 *  -DNO_MEMBARRIER: the record is still in the client's store buffer while the daemon falls asleep
 *  -DLOOK_AT_BELL_ONLY: before it sleeps, the daemon looks at the bell and not at the records
 *  -DNO_LOOK_AT_BELL: before it sleeps, it looks at the records and not at the bell
 *  -DRING_ON_NEW_RECORD_ONLY: a bit that joins an already collected open record is not announced
 *  -DOPEN_RECORD_NOT_CLOSED: a bit already set in the open record does not begin a new one
 *  -DRECORD_BEFORE_HEAD: the record is loaded before the head that covers it
 *  -DSEEN_ACCEPTED_ONLY -DDOUBLE_FREE: a refused bit is not remembered and is tried again later
 *  -DDEATHS=1 -DCURSOR_TWO_WORDS: index and seen stored one after the other
 *  -DDEATHS=1 -DCURSOR_BEFORE_TRUTH: the cursor moves before the bits are pending
 *  -DDEATHS=1 -DTAIL_BEFORE_TRUTH: the client reuses a record that nobody has acted on
 *  -DDEATHS=1 -DTAIL_BEFORE_CURSOR: the client reuses a record that the successor will replay
 *  -DDEATHS=1 -DEXPIRE_BEFORE_REPLAY: what the predecessor collected is freed before the ring is replayed
 */
#ifndef DEFERS
#define DEFERS 4
#endif
#ifndef RING_RECORDS
#define RING_RECORDS 2
#endif
#ifndef OBJECTS
#define OBJECTS 3
#endif
#ifndef DEATHS
#define DEATHS 0
#endif

#define RING(index) ((index) % RING_RECORDS)
#define HEAD RING_RECORDS
#define BELL (RING_RECORDS + 1)
#define N_WORDS (RING_RECORDS + 2)
#include "tso.h"

#define RECORD(block, mask) ((block) * 4 + (mask))
#define BLOCK(record) ((record) >> 2)
#define MASK(record) ((record) & 3)

chan buffer = [8] of { byte, byte }; /* of the client */

/* The daemon's words. want and sleeps have the membarrier behind them; a late tail only delays. */
byte tail = 0;
byte want = 1;
bit sleeps = 0;
bit event = 0; /* the eventfd */

/* State: what a successor finds. One truth word a block (block 0 is none), one cursor word in two parts. */
byte out[3];
byte pending[3];
byte cursor_index = 0;
byte cursor_seen = 0;

byte owned[3]; /* ghost: what the client has and may use */
byte freed_early, lost; /* ghosts, always 0 */

#ifdef DOUBLE_FREE
/* ghost: the second free's record, until the cursor has dealt with it; so long nobody gets the object */
bit doubled = 0;
bit double_in_flight = 0;
byte double_index, double_block, double_mask;
#define MAY_BE_GIVEN(block, mask) (!double_in_flight || double_block != block || double_mask != mask)
#define DOUBLE_IS_DEALT_WITH \
    if :: cursor_index == double_index -> double_in_flight = 0 :: else fi
#else
#define MAY_BE_GIVEN(block, mask) true
#define DOUBLE_IS_DEALT_WITH skip
#endif

/* ---- Client ---------------------------------------------------------------------------------- */

inline lane_ring()
{
#ifdef CLIENT_FENCES
    FULL_FENCE(buffer);
#endif
    wanted = want;
    if
    :: wanted != rung ->
        atomic { rung = wanted; STORE(buffer, BELL, rung) };
#ifdef CLIENT_FENCES
        FULL_FENCE(buffer);
#endif
        if
        :: sleeps -> event = 1
        :: else
        fi
    :: else
    fi;
    wanted = 0
}

#ifdef OPEN_RECORD_NOT_CLOSED
#define JOINS(block, mask) (open_block == block)
#else
#define JOINS(block, mask) (open_block == block && !(open_mask & mask))
#endif

inline reclaim_defer_free(block, mask)
{
    if
    :: JOINS(block, mask) ->
        atomic {
            open_mask = open_mask | mask;
            STORE(buffer, RING(head - 1), RECORD(open_block, open_mask)) /* store-release of the bit */
        }
    :: else ->
        head - tail < RING_RECORDS; /* lane_wait() */
        atomic {
            open_block = block; open_mask = mask; began = 1;
            STORE(buffer, RING(head), RECORD(open_block, open_mask))
        };
        atomic { head++; STORE(buffer, HEAD, head) } /* store-release */
    fi;
#ifdef RING_ON_NEW_RECORD_ONLY
    if
    :: began -> lane_ring()
    :: else
    fi;
#else
    lane_ring();
#endif
    began = 0
}

/* The object is unlinked and somebody else's from the moment before it is deferred. */
inline give_up(block, mask)
{
    defers++;
    owned[block] = owned[block] & ~mask;
    reclaim_defer_free(block, mask);
#ifdef DOUBLE_FREE
    if
    :: atomic {
        /* the client's bug: once more; the bit is set in the open record, so a new one begins */
        !doubled -> doubled = 1;
        double_in_flight = 1; double_index = head; double_block = block; double_mask = mask };
        reclaim_defer_free(block, mask)
    :: skip
    fi
#endif
}

#define CAN_GIVE_UP(block, mask) (defers < DEFERS && (owned[block] & (mask)))
#define CAN_GET(block, mask) (defers < DEFERS && !(out[block] & (mask)) && MAY_BE_GIVEN(block, mask))
/* reclaim_alloc() */
#define GET(block, mask) out[block] = out[block] | (mask); owned[block] = owned[block] | (mask)

proctype Client()
{
    byte defers, head, open_block, open_mask, rung, wanted;
    byte which_block, which_mask;
    bit began;

    do
    :: atomic { CAN_GET(1, 1) -> GET(1, 1) }
#if OBJECTS == 3
    :: atomic { CAN_GET(1, 2) -> GET(1, 2) }
#endif
    :: atomic { CAN_GET(2, 1) -> GET(2, 1) }
    :: atomic {
        if
        :: CAN_GIVE_UP(1, 1) -> which_block = 1; which_mask = 1
        :: CAN_GIVE_UP(1, 2) -> which_block = 1; which_mask = 2
        :: CAN_GIVE_UP(2, 1) -> which_block = 2; which_mask = 1
        fi };
        give_up(which_block, which_mask);
        atomic { which_block = 0; which_mask = 0 }
    :: defers == DEFERS -> break
    od
}

/* ---- Daemon ---------------------------------------------------------------------------------- */

#define MAY_DIE if :: atomic { deaths < DEATHS -> deaths++; goto successor } :: skip fi

/* The cursor word: past a closed record, or staying on the open one with all that was looked at. */
#ifdef CURSOR_TWO_WORDS
#define CURSOR_STORE(refused)                                                              \
    if                                                                                     \
    :: closed -> cursor_index++; MAY_DIE; cursor_seen = 0                                  \
    :: else -> cursor_seen = cursor_seen | (fresh & ~(refused))                            \
    fi
#else
#define CURSOR_STORE(refused)                                                              \
    atomic {                                                                               \
        DOUBLE_IS_DEALT_WITH;                                                              \
        if                                                                                 \
        :: closed -> cursor_index++; cursor_seen = 0                                       \
        :: else -> cursor_seen = cursor_seen | (fresh & ~(refused))                        \
        fi                                                                                 \
    }
#endif

#ifdef SEEN_ACCEPTED_ONLY
#define NOT_REMEMBERED (fresh & ~accepted)
#else
#define NOT_REMEMBERED 0
#endif

/* One store to the block's truth word: `pending` for what is out and not yet pending. The rest is refused. */
inline truth_accept()
{
    atomic {
        accepted = fresh & out[BLOCK(record)] & ~pending[BLOCK(record)];
        pending[BLOCK(record)] = pending[BLOCK(record)] | accepted
    }
}

inline lane_collect()
{
#ifdef RECORD_BEFORE_HEAD
    record = LOAD(RING(cursor_index));
#endif
    end = LOAD(HEAD);
    do
    :: cursor_index != end ->
#ifdef RECORD_BEFORE_HEAD
        if
        :: record == 0 -> record = LOAD(RING(cursor_index))
        :: else
        fi;
#else
        record = LOAD(RING(cursor_index));
#endif
        atomic {
            fresh = MASK(record) & ~cursor_seen;
            closed = (cursor_index + 1 != end);
            found = found | (fresh != 0)
        };
#ifdef CURSOR_BEFORE_TRUTH
        CURSOR_STORE(NOT_REMEMBERED);
        MAY_DIE;
        truth_accept();
#else
#ifdef TAIL_BEFORE_TRUTH
        if :: closed -> tail = cursor_index + 1; MAY_DIE :: else fi;
#endif
        truth_accept();
        MAY_DIE;
#ifdef TAIL_BEFORE_CURSOR
        if :: closed -> tail = cursor_index + 1; MAY_DIE :: else fi;
#endif
        CURSOR_STORE(NOT_REMEMBERED);
#endif
        MAY_DIE;
        atomic { record = 0; fresh = 0; accepted = 0 };
        if
        :: closed -> tail = cursor_index /* store-release; never past the open record */
        :: else -> break
        fi
    :: else -> break
    od;
    atomic { record = 0; fresh = 0; accepted = 0; closed = 0; end = 0 }
}

#define ANY_PENDING (pending[1] | pending[2])

/* Grace periods are over: what is pending is free. Nobody may have it. */
inline expire()
{
    atomic {
        freed_early = (pending[1] & owned[1]) | (pending[2] & owned[2]);
        assert(!freed_early);
        out[1] = out[1] & ~pending[1]; pending[1] = 0;
        out[2] = out[2] & ~pending[2]; pending[2] = 0
    }
}

inline arena_sleep()
{
    if
    :: LOAD(BELL) == want -> want++
    :: else
    fi;
    sleeps = 1;
#ifndef NO_MEMBARRIER
    FULL_FENCE(buffer); /* membarrier() */
#endif
#ifndef LOOK_AT_BELL_ONLY
    lane_collect();
#endif
#ifndef NO_LOOK_AT_BELL
    if
    :: LOAD(BELL) == want -> found = 1
    :: else
    fi;
#endif
    if
    :: found
    :: else ->
end_asleep:
        do
        :: ANY_PENDING -> expire(); MAY_DIE
        :: event -> event = 0; break
        od
    fi;
    sleeps = 0
}

proctype Daemon()
{
    byte end, record, fresh, accepted, deaths;
    bit found, closed;

successor:
    atomic { end = 0; record = 0; fresh = 0; accepted = 0; found = 0; closed = 0; sleeps = 0 };
#ifdef EXPIRE_BEFORE_REPLAY
    expire();
#endif
    lane_collect(); /* the replay: a bit that is already pending is consumed silently */
    tail = cursor_index;
    do
    :: found = 0;
        lane_collect();
        MAY_DIE;
        if
        :: ANY_PENDING -> expire(); MAY_DIE
        :: skip
        fi;
        if
        :: found
        :: else -> arena_sleep()
        fi
    od
}

/* When nothing can move, nothing is lost: what is out is what the client still owns. */
proctype Quiescence()
{
end_waiting:
    timeout ->
    atomic {
        lost = (out[1] & ~owned[1]) | (out[2] & ~owned[2]);
        assert(!lost);
        assert(!ANY_PENDING && empty(buffer))
    }
}

init
{
    atomic {
        out[1] = (OBJECTS == 3 -> 3 : 1); owned[1] = out[1];
        out[2] = 1; owned[2] = 1;
        run Client();
        run Daemon();
        run StoreBuffer(buffer);
        run Quiescence()
    }
}
