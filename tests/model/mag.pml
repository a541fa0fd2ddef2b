/*
 * A lane's magazine: lane_refill(), lane_recover() and lane_bury() in the daemon, reclaim_alloc() and
 * reclaim_free() in a client that may be killed after any of its stores, while the daemon may die after any
 * of its own.
 *
 * What it proves
 *  M1  No object is handed out twice, and none is freed that is published, held, or in the magazine of a
 *      living client.
 *  M2  Without a kill nothing is lost: what is out is published, held, deferred, pending or in the magazine.
 *  M3  With a kill, what is lost is what the client held privately at that instant, and nothing else. What
 *      was in `cur` or the rest of the magazine comes back, after a grace period.
 *  M4  What the state says a living lane was given, the lane can see.
 *  M5  M1 to M4 hold when the daemon dies at any step of a refill, a burial or a recovery.
 *
 * What it abstracts
 *  Three objects: two in block 1, one in block 2. The ring is a set (lane.pml), a grace period is one
 *  step at any time once a bit is pending (gp.pml). The client has no store buffer: its stores reach
 *  memory in order whether or not it lives, and what the daemon sees late of a living lane only makes it
 *  refill less. `tail` of a dead lane is taken as honest: the bounds check on it is plain code, tested
 *  with tables. Whatever is free may at any time be handed to another client, which publishes it for
 *  good. The note of unpublished objects (reclaim_new) is not here.
 *
 * Sizes     -DOPERATIONS=n (of the client) -DDEATHS=n (of the daemon) -DMAGAZINE_WORDS=n (at least 2)
 * Correct   with any sizes
 * Broken, each must be caught
 *  -DTAIL_BEFORE_CUR: killed in between, the word is neither in the magazine nor in cur
 *  -DUSED_BEFORE_CLEARED: killed in between, an object that others can see comes back
 *  -DUSED_BEFORE_TAIL: the same for the first object of a word
 *  -DFREED_INTO_ANY_CUR: reclaim_free() puts into cur a bit that is not of cur's word: not in the shadow
 *  -DSHADOW_OF_CUR_REUSED: a refill into the last free place overwrites the shadow of the word that is in
 *      cur
 *  -DDEATHS=1 -DNO_INTENT: out without a magazine word: lost
 *  -DDEATHS=1 -DMAGAZINE_BEFORE_TRUTH: handed out, and free for others as well
 *  -DDEATHS=1 -DREDO_ALWAYS: recovery redoes a refill that was over
 *  -DDEATHS=1 -DINTENT_NOT_CLEARED: the same, by an intent that nobody took back
 *  -DDEATHS=1 -DHEAD_NOT_PUBLISHED: recovery forgets the last store of a refill whose intent is cleared
 *  -DDEATHS=1 -DEXPIRED_BEFORE_BURIED: what a burial returned is free before the lane is marked: buried
 *      twice
 *  -DDEATHS=1 -DEXPIRED_BEFORE_BURIAL_ENDS: the successor frees before it has finished its predecessor's
 *      burial
 */
#ifndef OPERATIONS
#define OPERATIONS 4
#endif
#ifndef DEATHS
#define DEATHS 0
#endif
#ifndef MAGAZINE_WORDS
#define MAGAZINE_WORDS 2
#endif

#define WORD(block, mask) ((block) * 4 + (mask))
#define BLOCK(word) ((word) >> 2)
#define MASK(word) ((word) & 3)
#define IN_BLOCK(word, block) (BLOCK(word) == (block) -> MASK(word) : 0)

/* State: what a successor finds. Arrays by block; block 0 is none. */
byte out[3];
byte pending[3];
byte shadow[MAGAZINE_WORDS];
byte state_head = 0;
byte intent = 0; /* index + 1 of the refill that is under way, in one word; 0: none */
bit buried = 0;

/* Lane, the daemon's words. */
byte magazine[MAGAZINE_WORDS];
byte head = 0;

/* Lane, the client's words; and its ring, as sets. */
byte tail = 0;
byte cur = 0;
byte deferred[3];

/* Ghosts: who may use what. */
byte held[3];      /* the client, privately */
byte published[3]; /* anybody: reachable */
byte others[3];    /* published by another client, which keeps it so */
bit killed = 0;
byte freed_early, handed_out_twice, lost, undone; /* always 0 */

/* ---- Client ---------------------------------------------------------------------------------- */

#define MAY_BE_KILLED if :: killed = 1; goto gone :: skip fi

#define LOWEST(mask) ((mask) & 1 -> 1 : 2)

/* The object is the client's now; nobody else may have it. */
inline take(which_block, which_mask)
{
    block = which_block; mask = which_mask;
    handed_out_twice = (held[block] | published[block] | deferred[block] | others[block]) & mask;
    assert(!handed_out_twice);
    held[block] = held[block] | mask
}

/* The next word: its first object to the caller, the rest into cur; only then may the word be overwritten. */
inline magazine_next()
{
    word = magazine[tail % MAGAZINE_WORDS];
#ifdef TAIL_BEFORE_CUR
    tail++; MAY_BE_KILLED;
    atomic { origin = word; cur = word & ~LOWEST(MASK(word)); take(BLOCK(word), LOWEST(MASK(word))) };
#elif defined(USED_BEFORE_TAIL)
    atomic { origin = word; cur = word & ~LOWEST(MASK(word)); take(BLOCK(word), LOWEST(MASK(word))) };
    MAY_BE_KILLED;
    publish(); MAY_BE_KILLED;
    tail++;
#else
    atomic { origin = word; cur = word & ~LOWEST(MASK(word)) }; MAY_BE_KILLED;
    atomic { tail++; take(BLOCK(word), LOWEST(MASK(word))) }; /* store-release */
#endif
    word = 0;
    MAY_BE_KILLED
}

/* Into block and mask; block 0 when the magazine is empty (the real one then waits, see wait.pml). */
inline reclaim_alloc()
{
    if
    :: MASK(cur) != 0 ->
#ifdef USED_BEFORE_CLEARED
        atomic { take(BLOCK(cur), LOWEST(MASK(cur))) };
        publish(); MAY_BE_KILLED;
        cur = cur & ~mask;
#else
        atomic { take(BLOCK(cur), LOWEST(MASK(cur))); cur = cur & ~mask };
#endif
        MAY_BE_KILLED
    :: MASK(cur) == 0 && tail != head -> magazine_next()
    :: else
    fi
}

inline publish()
{
    atomic { held[block] = held[block] & ~mask; published[block] = published[block] | mask }
}

#ifdef FREED_INTO_ANY_CUR
#define BACK_INTO_CUR (BLOCK(cur) == block)
#else
#define BACK_INTO_CUR (BLOCK(cur) == block && (MASK(origin) & mask))
#endif

/* Never published: back to where it came from if that word is still in use, else through the ring. */
inline reclaim_free()
{
    if
    :: BACK_INTO_CUR -> atomic { cur = cur | mask; held[block] = held[block] & ~mask }
    :: else -> atomic { deferred[block] = deferred[block] | mask; held[block] = held[block] & ~mask }
    fi
}

/* The program: it publishes what it has, thinks better of it, or keeps one for later. */
inline use_or_free()
{
    if
    :: !(held[block] & mask) /* nothing, or published already */
    :: held[block] & mask -> publish()
    :: held[block] & mask -> reclaim_free()
    :: (held[block] & mask) && kept == 0 -> kept = WORD(block, mask)
    fi;
    atomic { block = 0; mask = 0 }
}

inline unlink_and_defer(which_block, which_mask)
{
    atomic {
        published[which_block] = published[which_block] & ~which_mask;
        held[which_block] = held[which_block] | which_mask
    };
    MAY_BE_KILLED;
    atomic {
        held[which_block] = held[which_block] & ~which_mask;
        deferred[which_block] = deferred[which_block] | which_mask
    }
}

#define CAN_UNLINK(block, mask) (published[block] & ~others[block] & (mask))

proctype Client()
{
    byte operations, block, mask, word, origin, kept;

    do
    :: operations < OPERATIONS ->
        operations++;
        if
        :: reclaim_alloc()
        :: atomic { kept != 0 -> block = BLOCK(kept); mask = MASK(kept); kept = 0 }
        fi;
        use_or_free();
        MAY_BE_KILLED;
        if
        :: CAN_UNLINK(1, 1) -> unlink_and_defer(1, 1)
        :: CAN_UNLINK(1, 2) -> unlink_and_defer(1, 2)
        :: CAN_UNLINK(2, 1) -> unlink_and_defer(2, 1)
        :: skip
        fi;
        MAY_BE_KILLED
    :: else -> break
    od;
gone:
    skip
}

/* ---- Daemon ---------------------------------------------------------------------------------- */

#define MAY_DIE if :: atomic { deaths < DEATHS -> deaths++; goto successor } :: skip fi

#define FREE(block, pattern) ((pattern) & ~out[block])
#define ANY_FREE (FREE(1, 3) || FREE(2, 1))

#define GIVE_TO_OTHERS(block, mask) \
    out[block] = out[block] | (mask); \
    published[block] = published[block] | (mask); others[block] = others[block] | (mask)

/* One store to a truth word: hand out; accept as pending. */
#define TRUTH_OUT(word) out[BLOCK(word)] = out[BLOCK(word)] | MASK(word)
#define TRUTH_ACCEPT(block, mask) pending[block] = pending[block] | ((mask) & out[block] & ~pending[block])

/* One place stays free, so that the word in cur, the one before tail, keeps its shadow. */
#ifdef SHADOW_OF_CUR_REUSED
#define HAS_ROOM (state_head - tail < MAGAZINE_WORDS)
#else
#define HAS_ROOM (state_head - tail < MAGAZINE_WORDS - 1)
#endif

inline lane_refill()
{
    atomic {
        if
        :: FREE(1, 3) -> word = WORD(1, FREE(1, 3))
        :: else -> word = WORD(2, 1)
        fi
    };
#ifdef NO_INTENT
    TRUTH_OUT(word); MAY_DIE;
    magazine[state_head % MAGAZINE_WORDS] = word;
    shadow[state_head % MAGAZINE_WORDS] = word;
    state_head++;
#elif defined(MAGAZINE_BEFORE_TRUTH)
    magazine[state_head % MAGAZINE_WORDS] = word;
    shadow[state_head % MAGAZINE_WORDS] = word;
    state_head++;
    head = state_head; MAY_DIE;
    TRUTH_OUT(word);
#else
    shadow[state_head % MAGAZINE_WORDS] = word; MAY_DIE;
    intent = state_head + 1; MAY_DIE; /* the commit */
    TRUTH_OUT(word); MAY_DIE;
    magazine[state_head % MAGAZINE_WORDS] = word; MAY_DIE;
    state_head++; MAY_DIE;
#ifndef INTENT_NOT_CLEARED
    intent = 0; MAY_DIE;
#endif
#endif
    head = state_head; /* store-release */
    word = 0
}

inline lane_recover()
{
#ifdef REDO_ALWAYS
    if
    :: shadow[state_head % MAGAZINE_WORDS] != 0 && intent == 0 -> intent = state_head + 1
    :: else
    fi;
#endif
    if
    :: intent != 0 ->
        word = shadow[(intent - 1) % MAGAZINE_WORDS];
        TRUTH_OUT(word); MAY_DIE;
        magazine[(intent - 1) % MAGAZINE_WORDS] = word; MAY_DIE;
        state_head = intent; MAY_DIE;
        atomic { intent = 0; redone = 1 }; MAY_DIE
    :: else
    fi;
#ifdef HEAD_NOT_PUBLISHED
    if
    :: redone -> head = state_head; redone = 0
    :: else
    fi;
#else
    head = state_head;
#endif
    word = 0
}

#define OLDER_SHADOW shadow[(tail + MAGAZINE_WORDS - 1) % MAGAZINE_WORDS]
#define SHADOWED(block) (IN_BLOCK(OLDER_SHADOW, block) | IN_BLOCK(shadow[tail % MAGAZINE_WORDS], block))

inline lane_bury()
{
    lane_collect(1);
    lane_collect(2);
    /* cur: the client's word, so only what the shadow knows of */
    if
    :: cur != 0 -> TRUTH_ACCEPT(BLOCK(cur), MASK(cur) & SHADOWED(BLOCK(cur))); MAY_DIE
    :: else
    fi;
    index = tail;
    do
    :: index < state_head ->
        word = shadow[index % MAGAZINE_WORDS];
        TRUTH_ACCEPT(BLOCK(word), MASK(word)); MAY_DIE;
        index++
    :: else -> break
    od;
#ifdef EXPIRED_BEFORE_BURIED
    expire();
    atomic { if :: FREE(1, 1) -> GIVE_TO_OTHERS(1, 1) :: else fi };
    MAY_DIE;
#endif
    atomic { buried = 1; word = 0; index = 0 };
    MAY_DIE
}

inline lane_collect(block)
{
    if
    :: deferred[block] -> atomic { TRUTH_ACCEPT(block, deferred[block]); deferred[block] = 0 }; MAY_DIE
    :: else
    fi
}

/* In the magazine of the client, as a mask of the block. */
#define OUTSTANDING(index, block) \
    ((index) < state_head -> IN_BLOCK(shadow[(index) % MAGAZINE_WORDS], block) : 0)
#define IN_MAGAZINE(block) \
    (IN_BLOCK(cur, block) | OUTSTANDING(tail, block) | OUTSTANDING(tail + 1, block))

#define MAY_NOT_BE_FREED(block) (published[block] | (killed -> 0 : held[block] | IN_MAGAZINE(block)))

/* A grace period is over: what is pending is free. */
inline expire()
{
    atomic {
        freed_early = (pending[1] & MAY_NOT_BE_FREED(1)) | (pending[2] & MAY_NOT_BE_FREED(2));
        assert(!freed_early);
        out[1] = out[1] & ~pending[1]; pending[1] = 0;
        out[2] = out[2] & ~pending[2]; pending[2] = 0
    }
}

proctype Daemon()
{
    byte word, index, deaths;
    bit redone; /* only -DHEAD_NOT_PUBLISHED asks */

successor:
    atomic { word = 0; index = 0; redone = 0 };
    lane_recover();
#ifndef EXPIRED_BEFORE_BURIAL_ENDS
    if
    :: killed && !buried -> lane_bury()
    :: else
    fi;
#endif
end_idle:
    do
    :: !buried && HAS_ROOM && ANY_FREE -> lane_refill(); MAY_DIE
    :: deferred[1] -> lane_collect(1)
    :: deferred[2] -> lane_collect(2)
    :: pending[1] | pending[2] -> expire(); MAY_DIE
    :: killed && !buried -> lane_bury()
    :: atomic { FREE(1, 1) -> GIVE_TO_OTHERS(1, 1) }
    :: atomic { FREE(2, 1) -> GIVE_TO_OTHERS(2, 1) }
    od
}

#define ACCOUNTED_FOR(block) (published[block] | held[block] | (killed -> 0 : IN_MAGAZINE(block)))

/* When nothing can move, what is out and not accounted for is lost. What a killed client held may be lost. */
proctype Quiescence()
{
end_waiting:
    timeout ->
    atomic {
        lost = (out[1] & ~ACCOUNTED_FOR(1)) | (out[2] & ~ACCOUNTED_FOR(2));
        assert(!lost);
        undone = pending[1] | pending[2] | deferred[1] | deferred[2];
        assert(!undone);
        assert(killed || head == state_head)
    }
}

init
{
    atomic { run Client(); run Daemon(); run Quiescence() }
}
