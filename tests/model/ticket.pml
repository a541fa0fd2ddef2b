/*
 * Tickets of one lane: ticket_send() in the client; ticket_look(), ticket_complete() in the daemon.
 *
 * A thread waits for one ticket at a time and may give it up. Those that it gave up stay in flight beside the newest,
 * SLOTS together; each is completed by any thread of the daemon, in any order.
 *
 * What it proves
 *  T1  The newest ticket is served and its end is heard, with one bell a ticket and without help of a time-out.
 *  T2  What the client takes for the end of its ticket is that, not an older one's.
 *  T3  A ticket that never ends does not keep the newest from its own end, while another slot is there (-DHELD: the
 *      first ticket never ends).
 *
 * What it abstracts
 *  The daemon's death: wait.pml's and sync.pml's. The eventfd and the queue of looks are system calls, so full fences;
 *  so is the hand-over of a ticket to whoever completes it, and the lock that those take in turns.
 *  Who waits for what never ends gives up before it sleeps.
 *
 * Sizes     -DROUNDS=n
 * Correct   (none), -DHELD
 * Broken, each must be caught
 *  -DBELL_BEFORE_TICKET: the look for the bell comes before the ticket can be seen
 *  -DOLDER_TOLD: who completes does not look whether a newer ticket was taken
 *  -DLOOK_OUTSIDE_LOCK: it looks, and a newer end is told before it tells its own
 *  -DNOT_LOOKED_AGAIN: all slots were taken when the ticket came, and none that becomes idle has it looked at
 *  -DIDLE_NOT_FENCED: a slot's becoming idle is still in the store buffer when `starved` is looked at
 *  -DSTARVED_NOT_FENCED: `starved` is still in the store buffer when the slots are looked at once more
 *  -DHELD -DONE_SLOT: what it was before: one ticket at a time
 */
#ifndef ROUNDS
#define ROUNDS 4
#endif

#define TICKET 0  /* client */
#define WAITING 1 /* client */
#define DONE 2    /* daemon: who completes, under the lock */
#define STARVED 3 /* daemon: the grace-period thread */
#define SLOT 4    /* and 5: 1 while a ticket is in flight */
#define N_WORDS 6
#include "tso.h"

#ifdef ONE_SLOT
#define HAS_SECOND false
#else
#define HAS_SECOND true
#endif

#ifdef HELD
#define MAY_END(sequence) ((sequence) != 1)
#else
#define MAY_END(sequence) true
#endif

chan buffer_of_client = [4] of { byte, byte };
chan buffer_of_grace = [4] of { byte, byte };
chan buffer_of_first = [4] of { byte, byte };
chan buffer_of_second = [4] of { byte, byte };

bit bell = 0;      /* the eventfd has an event */
bit look = 0;      /* grace_look_at() */
bit asleep = 0;    /* the client is in FUTEX_WAIT */
bit locked = 0;
byte newest = 0;
bit handed[2];     /* to who completes */
byte sequence[2];
byte over = 0;     /* bit n: ticket n was completed */

/* ---- Client ---------------------------------------------------------------------------------- */

#define RING atomic { FULL_FENCE(buffer_of_client) -> bell = 1 }

inline ticket_send()
{
#ifdef BELL_BEFORE_TICKET
    RING;
    STORE(buffer_of_client, TICKET, asked)
#else
    STORE(buffer_of_client, TICKET, asked);
    RING
#endif
}

inline lane_wait()
{
    STORE(buffer_of_client, WAITING, 1);
    do
    ::
        FULL_FENCE(buffer_of_client);
        seen = LOAD(DONE);
        if
        :: seen == asked ->
            assert(over & (1 << asked)); /* T2 */
            break
        :: else
        fi;
        if
        :: asked < ROUNDS -> break /* gives up; the last one does not */
        :: MAY_END(asked) -> atomic { /* FUTEX_WAIT */
               FULL_FENCE(buffer_of_client);
               if
               :: LOAD(DONE) == seen -> asleep = 1
               :: else
               fi
           };
           !asleep
        fi
    od;
    seen = 0;
    STORE(buffer_of_client, WAITING, 0)
}

proctype Client()
{
    byte asked, seen;

    do
    :: asked < ROUNDS ->
        asked++;
        ticket_send();
        lane_wait()
    :: else -> break
    od
}

/* ---- Daemon ---------------------------------------------------------------------------------- */

inline find_idle()
{
    slot = 2;
    if
    :: LOAD(SLOT) == 0 -> slot = 0
    :: else ->
        if
        :: HAS_SECOND && LOAD(SLOT + 1) == 0 -> slot = 1
        :: else
        fi
    fi
}

inline ticket_look()
{
    word = LOAD(TICKET);
    if
    :: word != newest ->
        find_idle();
        if
        :: slot == 2 ->
            STORE(buffer_of_grace, STARVED, 1);
#ifndef STARVED_NOT_FENCED
            FULL_FENCE(buffer_of_grace);
#endif
            find_idle()
        :: else
        fi;
        if
        :: slot < 2 ->
            STORE(buffer_of_grace, STARVED, 0);
            newest = word;
            atomic { /* handed on */
                FULL_FENCE(buffer_of_grace);
                memory[SLOT + slot] = 1;
                sequence[slot] = word;
                handed[slot] = 1
            }
        :: else
        fi
    :: else
    fi;
    word = 0;
    slot = 0
}

proctype Grace()
{
    byte word, slot;

end_idle:
    do
    :: atomic { bell -> bell = 0 }; ticket_look()
    :: atomic { look -> look = 0 }; ticket_look()
    od
}

inline ticket_tell()
{
#ifdef LOOK_OUTSIDE_LOCK
    is_newest = (number == newest);
#endif
    atomic { !locked -> locked = 1 };
#ifdef OLDER_TOLD
    is_newest = 1;
#else
#ifndef LOOK_OUTSIDE_LOCK
    is_newest = (number == newest);
#endif
#endif
    if
    :: is_newest -> STORE(buffer, DONE, number)
    :: else
    fi;
    atomic { FULL_FENCE(buffer) -> locked = 0 }
}

inline ticket_complete()
{
    over = over | (1 << number);
    ticket_tell();
    STORE(buffer, SLOT + mine, 0);
#ifndef IDLE_NOT_FENCED
    FULL_FENCE(buffer);
#endif
    if
    :: is_newest && LOAD(WAITING) -> atomic { FULL_FENCE(buffer) -> asleep = 0 } /* FUTEX_WAKE */
    :: else
    fi;
#ifndef NOT_LOOKED_AGAIN
    if
    :: LOAD(STARVED) -> atomic { FULL_FENCE(buffer) -> look = 1 }
    :: else
    fi;
#endif
    number = 0;
    mine = 0;
    is_newest = 0
}

proctype Completer(chan buffer)
{
    byte mine, number;
    bit is_newest;

end_idle:
    do
    :: atomic { handed[0] && MAY_END(sequence[0]) -> handed[0] = 0; mine = 0; number = sequence[0] };
       ticket_complete()
    :: atomic { handed[1] && MAY_END(sequence[1]) -> handed[1] = 0; mine = 1; number = sequence[1] };
       ticket_complete()
    od
}

/* A client that is asleep for good is an invalid end state. */
init
{
    atomic {
        run Client();
        run Grace();
        run Completer(buffer_of_first);
        run Completer(buffer_of_second);
        run StoreBuffer(buffer_of_client);
        run StoreBuffer(buffer_of_grace);
        run StoreBuffer(buffer_of_first);
        run StoreBuffer(buffer_of_second)
    }
}
