/* SPDX-License-Identifier: MIT */
/*
 * The heap of one arena: truth words, chunks, spans and extents. Pure: it works on the `state` it is given
 * and asks for memory behind pages through one callback. One worker owns an arena at a time, so nothing here
 * is locked.
 *
 * Guarantees
 *  H1 An object is handed out only when its granule's out bit was clear, and at most once until it is
 *     freed.
 *  H2 heap_take() accepts exactly the bits that are out and not pending, and marks them pending by one
 *     store.
 *  H3 A page is handed out only backed (callback succeeded, then its backed bit, then out) and not PURGING.
 *  H4 What is free is derived from class pattern, out bits and chunk entries alone: heap_new() on the state
 *     of a killed daemon yields the same heap.
 *  H5 Order of a hand-out: chunk entry (kind last), back, backed bit; the caller then commits
 *     (lane_refill()).
 */
#ifndef RECLAIMD_ENGINE_HEAP_H
#define RECLAIMD_ENGINE_HEAP_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/state.h"
#include "engine/truth.h" /* struct heap and heap_ops; inlined: heap_take(), heap_expire(), heap_commit() */

struct heap_figures {
    uint64_t out_bytes; /* objects out (pending included): whole objects, not their spans */
    uint64_t out_objects;
    uint64_t pending_objects;
    uint64_t pending_bytes;
    uint64_t backed_bytes;  /* pages with the backed bit */
    uint64_t lazy_bytes;    /* backed pages of free chunks and free pages of PIECES: purgeable */
    uint64_t purging_bytes; /* pages that were backed until a purge took them, and are not given back yet */
    uint64_t span_chunks, extents;
};

/* One hole for the purger: a run of free pages of which at least one is backed. */
struct heap_hole {
    uint64_t offset;
    uint64_t bytes;
    uint64_t backed_bytes; /* so much of it was; filled in when the purge begins */
};

/*
 * Derives everything from state, also after a crash: an intent's words are out, PURGING becomes free and
 * unbacked, partly made chunks are completed or freed. -EUCLEAN: this is no state of ours. Takes time and
 * memory by what was ever used.
 */
int heap_new(struct state *state, const struct heap_ops *ops, struct heap **ret);
struct heap *heap_free(struct heap *h);

/*
 * Chooses up to n_words magazine words (and at most max_bytes, but at least one word) of free objects of a
 * class: whole free parts of blocks of the ripest span, a new span when there is none. They are reserved
 * (chosen once) but not out: call heap_commit() for each, or heap_unreserve(). Returns how many; 0: nothing,
 * *ret_error says -ENOMEM (no memory) or -ENOSPC (arena full).
 */
unsigned heap_reserve(struct heap *h, unsigned class_index, uint64_t *words, unsigned n_words,
                      uint64_t max_bytes, int *ret_error);

/*
 * Chooses n_pages (>= 1) whole pages; best fit, from the arena's end downwards so that spans and extents do
 * not mix. *ret_word is the one-bit word of its first granule. -ENOSPC, -EINVAL (0 pages), or what back()
 * said; what it had backed before it failed stays backed, and is free.
 */
int heap_extent_reserve(struct heap *h, uint64_t n_pages, uint64_t *ret_word);

/* Gives a chosen word back, whole; not one that was committed. */
void heap_unreserve(struct heap *h, uint64_t word);

/*
 * Inlined in truth.h:
 *
 * heap_commit(): truth |= out by one store, for a whole word as it was chosen. Done again for what is out
 * already (after a crash, by the same intent) it changes nothing.
 *
 * heap_take(): a record from a lane. Returns the bits of mask that are out and not pending, now marked
 * pending. Any block and mask are safe, and a refused one makes no memory be anywhere. *ret_bytes: of the
 * accepted objects together. *ret_extent: the block is an extent's (channel 2). Both are 0 when nothing is
 * accepted.
 *
 * heap_expire(): the grace period of these bits is over: frees them (one store clears out and pending of
 * exactly these bits). Bits that are not pending are left alone.
 */

struct heap_taken {
    uint32_t n_words, n_objects, n_refused; /* n_refused: bits that were not accepted */
    uint64_t n_bytes;
};

/*
 * heap_take() for many records, in their order. What is accepted of each is put into accepted[] (room for n;
 * may be `words` itself), records of which nothing is are left out. Stops before a record of an extent, which
 * is another channel's and heap_take()'s. Returns how many records were looked at.
 */
unsigned heap_take_words(struct heap *h, const uint64_t *words, unsigned n, uint64_t *accepted,
                         struct heap_taken *ret);

/* The same for many words; much faster than one by one, most of all when neighbours are of the same span. */
void heap_commit_words(struct heap *h, const uint64_t *words, unsigned n);
void heap_expire_words(struct heap *h, const uint64_t *words, unsigned n);

/*
 * The words with pending bits in address order, from *cursor (0 at first; moved on), n_words at most; 0: no
 * more. After a start this is all that waits. Looks at chunks that hold objects only.
 */
unsigned heap_pending(const struct heap *h, uint64_t *words, unsigned n_words, uint64_t *cursor);

/* Bytes of an object of that block's chunk (extent: of the extent that starts there); 0 when it holds none.
 */
uint64_t heap_object_bytes(const struct heap *h, uint32_t block);

/* Lowest block that is or ever was an extent's since the heap was made; UINT32_MAX: none. */
uint32_t heap_extent_block(const struct heap *h);

/*
 * Makes (once) and returns the page of root words: its offset in the arena. It may hold what a former owner
 * left: the caller clears a word before it gives it a name.
 */
int heap_roots(struct heap *h, uint64_t *ret_offset);

void heap_figures(const struct heap *h, struct heap_figures *ret); /* cheap: counters kept */

/* Which holes, and how much: what is left alone stays lazy. */
struct heap_purge_bounds {
    uint64_t min_bytes; /* backed bytes that a hole has at least; 0: all, also the spans that classes keep */
    uint64_t max_bytes; /* of all holes together; UINT64_MAX: all there is */
};

/*
 * Purge. heap_purge_begin(): finds up to n_holes runs of purgeable pages, in address order from *cursor (0 at
 * first; it is moved on, to the arena's length in the end), neighbours merged up to 64 MiB; marks them
 * PURGING, then clears their backed bits. As one call looks at so many runs only, there may be more although
 * it found none. The purger punches [offset, offset + bytes). heap_purge_end(): they are free (and unbacked)
 * again.
 */
unsigned heap_purge_begin(struct heap *h, struct heap_hole *holes, unsigned n_holes,
                          const struct heap_purge_bounds *bounds, uint64_t *cursor);
void heap_purge_end(struct heap *h, const struct heap_hole *hole);

/*
 * The same for one range of whole pages that the caller found backed although it is free (a client touched
 * it): true and PURGING if heap_range_is_free(), else nothing happens. Ends with heap_purge_end() too.
 */
bool heap_purge_claim(struct heap *h, struct heap_hole *hole);

/* All pages of [offset, offset + bytes) are free (not handed out) and not being purged, though maybe
 * re-backed by a client. */
bool heap_range_is_free(const struct heap *h, uint64_t offset, uint64_t bytes);

/*
 * Walks everything and compares: pending within out, out within the patterns, counters against the words,
 * free runs against the chunks, spans' free counts and bitmaps. complain() gets one line for each
 * discrepancy. Returns their number.
 */
unsigned heap_audit(const struct heap *h, void (*complain)(void *userdata, const char *line), void *userdata);

/* The bits where objects of that class start in the block_in_span-th block (0..127) of a span. */
uint32_t heap_class_pattern(unsigned class_index, unsigned block_in_span);

#endif
