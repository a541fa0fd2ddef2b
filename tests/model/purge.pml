/*
 * Giving free pages back: purge_begin() and purge_end() with the arena's lock, purge_punch() by the purge
 * worker without it, and the hand-out that competes with them.
 *
 * What it proves
 *  P1  What is handed out has memory behind it and keeps its contents: no hole is punched under an owner.
 *  P2  The backed bit never claims memory that is not there.
 *  P3  The daemon may die at any step of hand-out or purge: the successor takes PURGING for free and not
 *      backed.
 *  P4  No page stays PURGING for ever.
 *  P5  A client that touches a free page (and so makes memory be there again) changes none of this.
 *
 * What it abstracts
 *  One run of pages with one bit each of purging, backed and out, whose stores survive the daemon in
 *  program order. Which pages make a hole, and when, is plain code, tested with tables. Whose thread takes
 *  the step that begins or ends a hole does not matter, as the arena's lock is held. Both workers are
 *  threads of one process: they die together, and a successor starts when its predecessor is proven dead.
 *
 * Sizes     -DHANDOUTS=n -DDEATHS=n (of the daemon)
 * Correct   (none); also -DBACKED_CLEARED_LATE alone and -DRESTART_KEEPS_BACKED alone: each is the other's
 *           safety net
 * Broken, each must be caught
 *  -DNO_PURGING_MARK: the page is handed out between the request and the hole
 *  -DDEATHS=1 -DBACKED_BEFORE_PAGES: backed without memory behind it
 *  -DDEATHS=1 -DBACKED_CLEARED_LATE -DRESTART_KEEPS_BACKED: the same, by a purge that nobody finished
 *  -DDEATHS=1 -DRESTART_KEEPS_PURGING: out of reach for ever
 *  -DDEATHS=1 -DPREDECESSOR_NOT_DEAD: the predecessor's purge worker punches what the successor handed
 *      out
 */
#ifndef HANDOUTS
#define HANDOUTS 4
#endif
#ifndef DEATHS
#define DEATHS 2
#endif

/* State: what a successor finds. */
bit purging = 0;
bit backed = 0;
bit out = 0;

/* The kernel's side. */
bit memory_is_there = 0;
bit contents = 0; /* ghost: what the owner wrote is still there */

/* Between the two workers of one daemon. */
bit hole_queued = 0;
bit hole_punched = 0;
byte deaths = 0; /* also tells one daemon from the next */

#ifdef PREDECESSOR_NOT_DEAD
#define IS_ALIVE true
#else
#define IS_ALIVE (serving == deaths)
#endif

#ifdef PREDECESSOR_NOT_DEAD
#define ITS_QUEUE_DIES skip
#else
#define ITS_QUEUE_DIES hole_queued = 0; hole_punched = 0
#endif
#define MAY_DIE if :: atomic { deaths < DEATHS -> deaths++; ITS_QUEUE_DIES; goto successor } :: skip fi

/* ---- The worker that owns the arena ---------------------------------------------------------- */

/* heap_reserve() up to the truth's out bit */
inline hand_out()
{
    handouts++;
    if
    :: backed
    :: else ->
#ifdef BACKED_BEFORE_PAGES
        backed = 1; MAY_DIE;
        memory_is_there = 1; MAY_DIE
#else
        memory_is_there = 1; MAY_DIE; /* the call that backs */
        backed = 1; MAY_DIE
#endif
    fi;
    atomic { assert(memory_is_there); out = 1; contents = 1 };
    MAY_DIE
}

inline purge_begin()
{
#ifndef NO_PURGING_MARK
    purging = 1; MAY_DIE;
#endif
#ifndef BACKED_CLEARED_LATE
    backed = 0; MAY_DIE;
#endif
    hole_queued = 1
}

inline purge_end()
{
#ifdef BACKED_CLEARED_LATE
    backed = 0; MAY_DIE;
#endif
    atomic { hole_punched = 0; hole_queued = 0 };
    purging = 0; MAY_DIE
}

inline restart()
{
    atomic {
        if
        :: purging ->
#ifndef RESTART_KEEPS_BACKED
            backed = 0;
#endif
#ifndef RESTART_KEEPS_PURGING
            purging = 0
#endif
        :: else
        fi
    }
}

proctype Worker()
{
    byte handouts;

successor:
    restart();
end_idle:
    do
    :: handouts < HANDOUTS && !out && !purging -> hand_out()
    :: out -> atomic { assert(memory_is_there && contents); out = 0; contents = 0 }; MAY_DIE /* freed */
    :: !out && backed && !purging && !hole_queued -> purge_begin(); MAY_DIE
    :: hole_punched -> purge_end()
    od
}

/* ---- The purge worker, and a client that does not keep its hands off ------------------------- */

proctype Purger()
{
    byte serving;

end_idle:
    do
    :: atomic { hole_queued && !hole_punched -> serving = deaths };
        /* purge_punch(), unless the daemon that asked for it is dead */
        if
        :: atomic { IS_ALIVE -> memory_is_there = 0; contents = 0 }
        :: atomic { !IS_ALIVE -> goto forget }
        fi;
        if
        :: atomic { IS_ALIVE -> hole_punched = 1 }
        :: atomic { !IS_ALIVE -> skip }
        fi;
forget:
        serving = 0
    od
}

proctype Toucher()
{
    if
    :: memory_is_there = 1
    :: skip
    fi
}

proctype Quiescence()
{
end_waiting:
    timeout ->
    assert(!purging)
}

init
{
    atomic { run Worker(); run Purger(); run Toucher(); run Quiescence() }
}
