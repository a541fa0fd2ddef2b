/* SPDX-License-Identifier: MIT */
/*
 * The daemon's side of a lane: it reads what a client writes (hostile), takes its deferred frees, fills its
 * magazines and, once its thread is gone, returns what lay in them. Pure: no descriptor, clock or log.
 *
 * Who may run together: everything here is called by the one worker that owns the arena, beside the client's
 * thread.
 *
 * Guarantees (spin: tests/model/lane.pml, mag.pml)
 *  L1 A bit of a record is looked at once: `seen` in the cursor covers refused bits too, and moves by one
 *     store.
 *  L2 A record is read after the head that shows it, and again while it is the open (last) one; the tail
 *     never passes it.
 *  L3 A refill is committed by the intent: a successor redoes exactly the step that was under way
 *     (lane_recover()).
 *  L4 A dead lane returns only what is in the daemon's shadow, as pending: one grace period lies before
 *     reuse.
 *  L5 No value that a client writes makes any of this loop, fault or touch another lane; wait-free,
 *     O(ring).
 */
#ifndef RECLAIMD_ENGINE_LANE_H
#define RECLAIMD_ENGINE_LANE_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/heap.h"
#include "engine/pending.h"
#include "engine/state.h"

/* How far a lane's magazine of one class is filled: follows what the lane uses. */
struct lane_level {
    uint16_t target; /* words; 0: the lane never asked for this class */
    uint16_t quiet;  /* looks in a row at which little had been used */
};

struct lane {
    struct abi_lane *shared; /* written by the client, but for the daemon's own lines */
    struct abi_slot *slot;
    struct state_lane *state;
    struct account *account; /* the client's: pending objects and bytes, refused ones */
    uint32_t index;          /* of state in the arena */
    uint32_t used;           /* a bit for each class that was ever asked for */
    uint32_t unfilled;       /* .. and for each whose last filling got nothing */
    uint16_t ask_seen;       /* sequence of the last `ask` answered */
    bool quarantined;        /* its indices made no sense: nothing of it is read any more */
    struct lane_level levels[ABI_CLASSES];
    uint32_t extent_pages; /* as many as it asked for last .. */
    uint32_t extent_run;   /* .. and how many extents it was given then */
};

struct lane_look {
    uint32_t n_records; /* looked at */
    uint32_t n_objects; /* accepted */
};

/* A fresh lane: cursor and magazines at zero on both sides. The client has not been told of it yet. */
void lane_init(struct lane *l, struct abi_lane *shared, struct abi_slot *slot, struct state_lane *state,
               uint32_t index, struct account *account);

/*
 * Takes what the client has deferred, at most max_records ring records, into pending pages. 0, or -EPROTO
 * when the lane was quarantined. -ENOBUFS: pending has no page (it is starved): the rest stays in the ring, as it does
 * once the account has as much as it may have.
 */
int lane_collect(struct lane *l, struct heap *h, struct pending *pending, uint32_t max_records,
                 struct lane_look *ret);

/*
 * The same for the chain, the deferred frees threaded through objects of the arena, mapped at base: at most max_objects
 * of a walk that the next call goes on with. A link that leads nowhere cuts the chain and counts as refused.
 */
int lane_chain_collect(struct lane *l, struct heap *h, struct pending *pending, const void *base,
                       uint32_t max_objects, struct lane_look *ret);
bool lane_has_chain(const struct lane *l);

/* Is there something that lane_collect() would take? Looks at the head and at the open record, without
 * taking. */
bool lane_has_records(const struct lane *l);

/* How many words the magazine of a class holds; full when the client's tail makes no sense. */
uint32_t lane_magazine_level(const struct lane *l, unsigned class_index);

/* How many more words fit in the magazine of a class, 0 when the client's tail makes no sense. */
uint32_t lane_magazine_room(const struct lane *l, unsigned class_index);

/*
 * Puts n words, chosen by heap_reserve() or heap_extent_reserve(), into the magazine of a class: shadow,
 * intent, out, magazine, head. n is at most lane_magazine_room().
 */
void lane_refill(struct lane *l, struct state *state, struct heap *h, unsigned class_index,
                 const uint64_t *words, unsigned n);

/*
 * Fills the magazines of all classes that the lane uses up to their targets, which follow use. max_bytes: of
 * one class. Returns the number of words put in; *ret_error: of the last class that got nothing although it
 * wanted some, else 0. *ret_pace: the largest share of a ring or magazine that was used up since the last
 * look, in 1/256.
 */
unsigned lane_fill(struct lane *l, struct state *state, struct heap *h, uint64_t max_bytes, int *ret_error,
                   unsigned *ret_pace);

/* From now on lane_fill() keeps that class (not extents) filled. */
void lane_use_class(struct lane *l, unsigned class_index);

/* A class that it uses and that can be filled is down to a quarter: it may ring for more at any moment. */
bool lane_is_low(const struct lane *l);

/*
 * How many extents to give a lane that asks for one of so many pages: one at first, then twice as many as it was given
 * last, which it has used if it asks for the same again; up to max_bytes, and at least one. The lane keeps what it does
 * not need yet, and frees it when it asks for another size.
 */
uint32_t lane_extent_run(struct lane *l, uint32_t pages, uint64_t max_bytes);

/* .. and how many it was given; 0: there was none, and it begins with one again. */
void lane_extents_given(struct lane *l, uint32_t pages, uint32_t n);

/* Ask: what the client waits for, if it is new: true, with class, pages and flags checked. A bad one is false
 * and ignored. */
bool lane_ask(const struct lane *l, unsigned *ret_class, uint32_t *ret_pages, unsigned *ret_flags,
              uint16_t *ret_sequence);
void lane_answer(struct lane *l, uint16_t sequence, int error);

/* The owner word says that the thread is gone, or has given the lane back. */
bool lane_is_dead(const struct lane *l);

/*
 * Returns what lies in cur and in the magazines of a dead lane, as pending objects. The ring was collected
 * before. -ENOBUFS: pending was starved already, nothing was done: call again. Afterwards state->returned is
 * set; close the page, then take its cookie.
 */
int lane_bury(struct lane *l, struct heap *h, struct pending *pending);

/* After a crash, for every lane: finishes the refill that was under way, if it was this one's; publishes its heads. */
uint32_t lane_intent_lane(intent_t intent);
void lane_recover(struct lane *l, struct state *state, struct heap *h);

/* Bells. lane_rings_anew(): if it rang since the last time, the next generation begins and it may ring again.
 */
void lane_rings_anew(struct lane *l);
bool lane_has_rung(const struct lane *l);

#endif
