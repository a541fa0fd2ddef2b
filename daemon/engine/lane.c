/* SPDX-License-Identifier: MIT */
/* One lane as the daemon sees it: collect, refill, bury. Reads hostile words; see lane.h for what holds. */
#include "engine/lane.h"

#include <errno.h>
#include <string.h>

#include "basic/ordering.h"
#include "basic/testpoint.h"

#define RING_MASK (ABI_RING_RECORDS - 1)
#define MAGAZINE_MASK (ABI_MAGAZINE_WORDS - 1)

#define LEVEL_FIRST_WORDS 4u /* a class asked for the first time */
#define LEVEL_QUIET_LOOKS 64 /* so many looks without much use halve the target */

static uint32_t cursor_index(uint64_t cursor)
{
    return (uint32_t)(cursor >> 32);
}

static uint32_t cursor_seen(uint64_t cursor)
{
    return (uint32_t)cursor;
}

void lane_init(struct lane *l, struct abi_lane *shared, struct abi_slot *slot, struct state_lane *state,
               uint32_t index, struct account *account)
{
    if (l->shared != shared) { /* once in its life: the grace-period thread reads it without a lock */
        l->shared = shared;
        l->slot = slot;
    }
    l->state = state;
    l->account = account;
    l->index = index;
    l->used = l->unfilled = 0;
    l->ask_seen = 0;
    l->quarantined = false;
    memset(l->levels, 0, sizeof(l->levels));
    lane_extents_given(l, 0, 0);
    for (unsigned c = 0; c < ABI_CLASSES; c++)
        if (state->magazine_head[c] != 0) /* L4: nothing of the former owner stands in the shadow */
            memset(state->shadow[c], 0, sizeof(state->shadow[c]));
    state->cursor = 0;
    state->walk_link = 0;
    state->returned = state->chain_seen = state->walk_top = 0;
    memset(state->magazine_head, 0, sizeof(state->magazine_head));
    memset(shared->magazine_head, 0, sizeof(shared->magazine_head));
    /* dead lanes are cleared by the daemon, before generation says so */
    memset(shared->take, 0, sizeof(shared->take));
    shared->head = shared->bell = shared->waiting = shared->ticket_waiting = shared->phase = 0;
    shared->chain_head = 0;
    shared->chain_count = 0;
    shared->ask = shared->answer = shared->cookie_wanted = 0;
    memset(shared->owner, 0, sizeof(shared->owner));
    shared->tail = 0;
    shared->want = 1; /* differs from bell: the first defer rings */
    shared->over_limit = shared->evicted = 0;
    /* Tickets go on from the former owner's numbers: the grace-period thread may still look at his last one. */
}

/* How many records the client has beyond the cursor; more than the ring holds is no lane of ours. */
static bool lane_backlog(const struct lane *l, uint32_t *ret)
{
    /* Acquire: the records below head are whole; pairs with reclaim_defer_free(). */
    uint32_t n = load_acquire(&l->shared->head) - cursor_index(l->state->cursor);

    *ret = n;
    return n <= ABI_RING_RECORDS;
}

static uint64_t ring_record(const struct lane *l, uint32_t index)
{
    /* Acquire: the last store to an open record carries all that its owner did before; pairs with
     * reclaim_defer_free(). */
    return load_acquire(&l->shared->ring[index & RING_MASK]);
}

bool lane_has_records(const struct lane *l)
{
    uint32_t n;

    if (l->quarantined || !lane_backlog(l, &n) || n == 0)
        return false;
    if (n > 1)
        return true;
    return abi_word_mask(ring_record(l, cursor_index(l->state->cursor))) & ~cursor_seen(l->state->cursor);
}

/*
 * One record. The order matters at a crash: pending bits first (a bit already pending is consumed silently on
 * replay), then the cursor by one store; the tail last, in lane_collect().
 */
static inline int record_take(struct lane *l, struct intake *in, uint32_t index, bool last)
{
    uint64_t record = ring_record(l, index);
    uint32_t seen = cursor_seen(l->state->cursor), mask = abi_word_mask(record) & ~seen;
    int r = 0;

    if (mask) {
        r = pending_take(in, abi_word_block(record), mask);
        RECLAIM_TEST_POINT("collect-pending");
    }
    compiler_fence(); /* L1: truth before cursor, whoever finds us killed here replays; pairs with lane_collect() */
    l->state->cursor = last ? (uint64_t)index << 32 | (seen | mask) : (uint64_t)(index + 1) << 32;
    RECLAIM_TEST_POINT("collect-cursor");
    return r;
}

#define RECORDS_A_STEP 64u

/*
 * Closed records, many at a time: all their pending bits before the one cursor store. Killed in between, those bits are
 * found pending on replay and consumed silently, as for a single record. Returns how many.
 */
static uint32_t records_take(struct lane *l, struct intake *in, uint32_t index, uint32_t n)
{
    uint64_t words[RECORDS_A_STEP];
    uint32_t seen = cursor_seen(l->state->cursor), taken;

    n = MIN(n, RECORDS_A_STEP);
    for (uint32_t i = 0; i < n; i++)
        words[i] = ring_record(l, index + i);
    words[0] &= ~(uint64_t)seen; /* it may have been the open one before */
    taken = pending_take_words(in, words, n);
    if (taken == 0)
        return 0;
    RECLAIM_TEST_POINT("collect-many");
    compiler_fence(); /* L1; pairs with the replay in lane_collect() */
    l->state->cursor = (uint64_t)(index + taken) << 32;
    return taken;
}

/* The next record or records; the last one stays open. */
static int collect_step(struct lane *l, struct intake *in, uint32_t end)
{
    uint32_t index = cursor_index(l->state->cursor), left = end - index;

    if (left > 1 && records_take(l, in, index, left - 1) > 0)
        return 0;
    return record_take(l, in, index, left == 1);
}

int lane_collect(struct lane *l, struct heap *h, struct pending *pending, uint32_t max_records,
                 struct lane_look *ret)
{
    uint32_t index = cursor_index(l->state->cursor), n;
    struct intake in;
    int r = 0;

    *ret = (struct lane_look){0};
    if (l->quarantined || !lane_backlog(l, &n)) {
        l->quarantined = true;
        return -EPROTO;
    }
    if (pending->starved)
        return -ENOBUFS;
    if (n > max_records)
        /* what is last in this turn is not the open record, but closing it later is as good */
        n = max_records + 1;
    pending_intake_begin(&in, pending, h, l->account);
    for (uint32_t end = index + n, at = index; n > 0 && r == 0; at = cursor_index(l->state->cursor)) {
        r = collect_step(l, &in, end);
        if (end - at == 1 || pending_intake_is_enough(&in))
            break;
    }
    pending_intake_end(&in);
    ret->n_records = cursor_index(l->state->cursor) - index;
    ret->n_objects = (uint32_t)in.n_accepted;
    if (ret->n_records > 0)
        /* Release: the client may overwrite what we have read; pairs with the acquire in defer_wait_room().
         */
        store_release(&l->shared->tail, cursor_index(l->state->cursor));
    return r;
}

uint32_t lane_magazine_level(const struct lane *l, unsigned class_index)
{
    /* Acquire: the words below tail were copied out; pairs with magazine_next(). */
    uint32_t used = l->state->magazine_head[class_index] - load_acquire(&l->shared->take[class_index].tail);

    return MIN(used, ABI_MAGAZINE_WORDS); /* a tail that makes no sense: full, nothing is put in any more */
}

/*
 * One place stays free: the word in `cur` stands below the tail, and its shadow is what a burial goes by (spin:
 * tests/model/mag.pml, SHADOW_OF_CUR_REUSED).
 */
uint32_t lane_magazine_room(const struct lane *l, unsigned class_index)
{
    uint32_t level = lane_magazine_level(l, class_index);

    return level < ABI_MAGAZINE_WORDS - 1 ? ABI_MAGAZINE_WORDS - 1 - level : 0;
}

static intent_t intent_make(uint32_t lane, unsigned class_index, unsigned n, uint32_t index)
{
    return 1ull << 63 | (uint64_t)lane << 40 | (uint64_t)class_index << 32 | (uint64_t)n << 16 |
           (index & 0xffff);
}

uint32_t lane_intent_lane(intent_t intent)
{
    return (uint32_t)(intent >> 40) & 0x3fffff;
}

/*
 * What the intent commits to, from the shadow alone. Done again after a crash, it stores the same words. Each compiler
 * fence keeps one store before the next for whoever finds us killed between them; all pair with lane_recover():
 *   out bits first: what a magazine holds is never free;
 *   then the magazine, then the state's head: a head never covers a word that is not there;
 *   then the intent is cleared, and last the client is told.
 */
static void refill_commit(struct lane *l, struct state *state, struct heap *h, unsigned class_index,
                          uint32_t index, unsigned n)
{
    uint64_t *shadow = l->state->shadow[class_index], *magazine = l->shared->magazine[class_index];
    unsigned whole = MIN(n, ABI_MAGAZINE_WORDS - (index & MAGAZINE_MASK)); /* up to the ring's end */

    heap_commit_words(h, shadow + (index & MAGAZINE_MASK), whole);
    heap_commit_words(h, shadow, n - whole);
    RECLAIM_TEST_POINT("refill-out");
    compiler_fence(); /* as above; pairs with lane_recover() */
    for (unsigned i = 0; i < n; i++)
        /* published by head */
        store_relaxed(&magazine[(index + i) & MAGAZINE_MASK], shadow[(index + i) & MAGAZINE_MASK]);
    RECLAIM_TEST_POINT("refill-magazine");
    compiler_fence(); /* as above; pairs with lane_recover() */
    l->state->magazine_head[class_index] = index + n;
    RECLAIM_TEST_POINT("refill-state-head");
    compiler_fence(); /* as above; pairs with lane_recover() */
    state->intent = 0;
    RECLAIM_TEST_POINT("refill-intent-clear");
    /* Release: the words, and every store to memory that is being reused; pairs with magazine_next(). */
    store_release(&l->shared->magazine_head[class_index], index + n);
}

void lane_refill(struct lane *l, struct state *state, struct heap *h, unsigned class_index,
                 const uint64_t *words, unsigned n)
{
    uint32_t index = l->state->magazine_head[class_index];

    for (unsigned i = 0; i < n; i++)
        l->state->shadow[class_index][(index + i) & MAGAZINE_MASK] = words[i];
    RECLAIM_TEST_POINT("refill-shadow");
    compiler_fence(); /* L3: the shadow is whole before anything commits to it; pairs with lane_recover() */
    state->intent = intent_make(l->index, class_index, n, index);
    RECLAIM_TEST_POINT("refill-intent");
    compiler_fence(); /* committed before it is begun; pairs with lane_recover() */
    refill_commit(l, state, h, class_index, index, n);
}

void lane_recover(struct lane *l, struct state *state, struct heap *h)
{
    intent_t intent = state->intent;
    unsigned class_index = (unsigned)(intent >> 32) & 0xff, n = (unsigned)(intent >> 16) & 0xffff;
    uint32_t head;

    if (intent && lane_intent_lane(intent) == l->index && class_index < ABI_CLASSES &&
        n <= ABI_MAGAZINE_WORDS) {
        head = l->state->magazine_head[class_index];
        if ((head & 0xffff) != (intent & 0xffff))
            head -= n; /* it had moved already */
        refill_commit(l, state, h, class_index, head, n);
    }
    /* Killed after the intent was cleared, the predecessor may not have told the client yet; as in refill_commit(). */
    for (unsigned c = 0; c < ABI_CLASSES; c++)
        store_release(&l->shared->magazine_head[c],
                      l->state->magazine_head[c]); /* pairs with magazine_next() */
}

/*
 * The level follows use: a magazine found less than half full doubles its target, one that stays nearly full
 * for long halves it. Returns how many words to put in now.
 */
static uint32_t level_wanted(struct lane_level *level, uint32_t used, uint32_t left, uint32_t most)
{
    if (used * 2 > level->target) {
        level->target = (uint16_t)MIN(level->target * 2u, most);
        level->quiet = 0;
    } else if (used * 8 > level->target) {
        level->quiet = 0;
    } else if (level->target > LEVEL_FIRST_WORDS && ++level->quiet >= LEVEL_QUIET_LOOKS) {
        level->target /= 2;
        level->quiet = 0;
    }
    return left < level->target ? level->target - left : 0;
}

/* How many words of a class come to max_bytes: a word is a block's objects, or one that is larger. At least
 * one. */
static uint32_t words_of_bytes(unsigned class_index, uint64_t max_bytes)
{
    uint64_t n = max_bytes / MAX(abi_class_bytes(class_index), ABI_BLOCK_BYTES);

    return (uint32_t)MIN(MAX(n, 1u), ABI_MAGAZINE_WORDS);
}

/* Fills one class. Returns words put in; *ret_error when it wanted some and got none. */
static unsigned class_fill(struct lane *l, struct state *state, struct heap *h, unsigned class_index,
                           uint32_t wanted, int *ret_error)
{
    uint64_t words[128];
    unsigned total = 0;

    while (wanted > 0) {
        int error = 0;
        unsigned n =
            heap_reserve(h, class_index, words, MIN(wanted, (uint32_t)ARRAY_SIZE(words)), UINT64_MAX, &error);

        if (n == 0) {
            if (total == 0)
                *ret_error = error;
            break;
        }
        lane_refill(l, state, h, class_index, words, n);
        total += n;
        wanted -= n;
    }
    return total;
}

/* Remembers what could not be filled: such a class is no reason to stay awake (lane_is_low()). */
static unsigned class_fill_noting(struct lane *l, struct state *state, struct heap *h, unsigned class_index,
                                  uint32_t wanted, int *ret_error)
{
    unsigned n = class_fill(l, state, h, class_index, wanted, ret_error);

    if (n > 0)
        l->unfilled &= ~(1u << class_index);
    else
        l->unfilled |= 1u << class_index;
    return n;
}

unsigned lane_fill(struct lane *l, struct state *state, struct heap *h, uint64_t max_bytes, int *ret_error,
                   unsigned *ret_pace)
{
    unsigned total = 0;

    *ret_error = 0;
    for (uint32_t classes = l->used; classes; classes &= classes - 1) {
        unsigned c = (unsigned)__builtin_ctz(classes);
        struct lane_level *level = &l->levels[c];
        uint32_t left = lane_magazine_level(l, c), used = left < level->target ? level->target - left : 0,
                 wanted;

        *ret_pace = MAX(*ret_pace, used * 256u / level->target);
        wanted = MIN(level_wanted(level, used, left, words_of_bytes(c, max_bytes)), lane_magazine_room(l, c));
        if (wanted > 0)
            total += class_fill_noting(l, state, h, c, wanted, ret_error);
    }
    return total;
}

void lane_use_class(struct lane *l, unsigned class_index)
{
    if (l->used & 1u << class_index)
        return;
    l->used |= 1u << class_index;
    l->levels[class_index] = (struct lane_level){.target = LEVEL_FIRST_WORDS};
}

bool lane_is_low(const struct lane *l)
{
    for (uint32_t classes = l->used & ~l->unfilled; classes; classes &= classes - 1) {
        unsigned c = (unsigned)__builtin_ctz(classes);

        if (lane_magazine_level(l, c) * 4u <= l->levels[c].target)
            return true;
    }
    return false;
}

uint32_t lane_extent_run(struct lane *l, uint32_t pages, uint64_t max_bytes)
{
    uint64_t most = MIN(max_bytes / ((uint64_t)pages * ABI_PAGE_BYTES), ABI_MAGAZINE_WORDS / 2);
    uint32_t n = pages == l->extent_pages ? l->extent_run * 2 : 1;

    return (uint32_t)MAX(MIN(n, most), 1u);
}

void lane_extents_given(struct lane *l, uint32_t pages, uint32_t n)
{
    l->extent_pages = pages;
    l->extent_run = n;
}

bool lane_ask(const struct lane *l, unsigned *ret_class, uint32_t *ret_pages, unsigned *ret_flags,
              uint16_t *ret_sequence)
{
    /* its class's magazine words are read after it; pairs with lane_wait() */
    uint64_t ask = load_acquire(&l->shared->ask);
    uint16_t sequence = (uint16_t)(ask >> 48);
    unsigned class_index = (unsigned)(ask >> 32) & 0xff;

    if (sequence == l->ask_seen || class_index >= ABI_CLASSES ||
        ((uint32_t)ask == 0) != (class_index != ABI_CLASS_EXTENT))
        return false;
    *ret_class = class_index;
    *ret_pages = (uint32_t)ask;
    *ret_flags = (unsigned)(ask >> 40) & 0xff;
    *ret_sequence = sequence;
    return true;
}

void lane_answer(struct lane *l, uint16_t sequence, int error)
{
    l->ask_seen = sequence;
    /* Release: the magazine was filled before; pairs with the acquire in lane_wait(). */
    store_release(&l->shared->answer, (uint64_t)sequence << 48 | (uint32_t)(error < 0 ? -error : error));
}

bool lane_is_dead(const struct lane *l)
{
    uint32_t owner;

    /* Acquire: phase is stored after the owner was locked, so a zero owner word that we load after it is a
       given-back one; pairs with lane_claim(). */
    if (load_acquire(&l->shared->phase) != l->shared->generation)
        return false;
    /* what the thread did last is visible; pairs with its unlock, or its exit */
    owner = load_acquire(&l->shared->owner[0]);
    return (owner & ABI_OWNER_TID) == 0 || (owner & ABI_OWNER_DIED);
}

/* What is left of the word that the thread was using: only bits that the daemon put there, in that word or
 * its successor. */
static uint64_t lane_cur(const struct lane *l, unsigned class_index, uint32_t tail)
{
    uint64_t cur = load_relaxed(&l->shared->take[class_index].cur); /* its writer is gone */
    const uint64_t *shadow = l->state->shadow[class_index];

    for (uint32_t i = tail - 1; i != tail + 1; i++) {
        uint64_t word = shadow[i & MAGAZINE_MASK];

        if (abi_word_block(word) == abi_word_block(cur))
            return cur & (word | 0xffffffff00000000ull);
    }
    return 0;
}

/*
 * All of it, page or no page: what finds none is the sweep's. Were we to stop and be called again, the first part might
 * be freed and another lane's by then. Acquire of the tail: what the dead thread did last; pairs with magazine_next().
 */
static void class_bury(struct lane *l, struct intake *in, unsigned class_index)
{
    uint32_t head = l->state->magazine_head[class_index],
             tail = load_acquire(&l->shared->take[class_index].tail);
    uint64_t cur;

    if (head == 0 || head - tail > ABI_MAGAZINE_WORDS)
        return; /* never used; or a tail that makes no sense: those objects are lost to that client's arena,
                   no more */
    cur = lane_cur(l, class_index, tail);
    if (abi_word_mask(cur))
        (void)pending_take(in, abi_word_block(cur), abi_word_mask(cur));
    for (uint32_t i = tail; i != head; i++) {
        uint64_t word = l->state->shadow[class_index][i & MAGAZINE_MASK];

        if (abi_word_mask(word))
            (void)pending_take(in, abi_word_block(word), abi_word_mask(word));
    }
}

int lane_bury(struct lane *l, struct heap *h, struct pending *pending)
{
    struct intake in;

    if (pending->starved)
        return -ENOBUFS;
    pending_intake_begin(&in, pending, h, l->account);
    for (unsigned c = 0; c < ABI_CLASSES; c++)
        class_bury(l, &in, c);
    /* bits that it had deferred already, or that stand in cur and magazine both, are nobody's fault */
    in.n_refused = 0;
    pending_intake_end(&in);
    RECLAIM_TEST_POINT("bury-taken");
    compiler_fence(); /* L4: what was returned, then `returned`; pairs with the restart, which buries what has it not */
    l->state->returned = 1;
    RECLAIM_TEST_POINT("bury-returned");
    return 0;
}

bool lane_has_rung(const struct lane *l)
{
    /* a hint here; arena_sleep() reads it after its membarrier */
    return load_relaxed(&l->shared->bell) == l->shared->want;
}

void lane_rings_anew(struct lane *l)
{
    if (lane_has_rung(l))
        /* before sleeps and the membarrier; pairs with lane_ring() */
        store_relaxed(&l->shared->want, l->shared->want + 1);
}
