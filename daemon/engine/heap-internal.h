/* SPDX-License-Identifier: MIT */
/* What the heap's files tell one another: lists, runs of free chunks, pages. The fields are in truth.h. */
#ifndef RECLAIMD_ENGINE_HEAP_INTERNAL_H
#define RECLAIMD_ENGINE_HEAP_INTERNAL_H

#include "engine/heap.h"

#define CHUNK_PAGES_ALL 0xffffu

/* ---- Sums of the three kinds of event -- */

static inline uint64_t objects_out(const struct heap *h, unsigned tag)
{
    return h->n_committed[tag] - h->n_expired[tag];
}

static inline uint64_t objects_pending(const struct heap *h, unsigned tag)
{
    return h->n_taken[tag] - h->n_expired[tag];
}

/* ---- run.c: chunks -- */

void chunk_list_append(struct heap *h, struct chunk_list *l, uint32_t chunk);
void chunk_list_prepend(struct heap *h, struct chunk_list *l, uint32_t chunk);
void chunk_list_remove(struct heap *h, struct chunk_list *l, uint32_t chunk);

/* The list of runs of so many chunks, or nearly so many: exact below 32, then sixteen lists a doubling. */
unsigned run_bin(uint64_t n_chunks);

/* Lists the run of free chunks [first, first + n); the busy bitmap says already where it ends. */
void run_insert(struct heap *h, uint32_t first, uint64_t n);

/*
 * Where n chunks fit best: the top end of the shortest run that holds them, of equal ones the highest looked
 * at; 0: nowhere.
 */
uint32_t run_best(const struct heap *h, uint64_t n);

/* Takes free chunks out of their run, or puts busy ones back and merges. Entries are the caller's. */
void run_claim(struct heap *h, uint32_t first, uint64_t n);
void run_return(struct heap *h, uint32_t first, uint64_t n);

/*
 * Backs what is not backed of [page, page + n), one call of back() a gap. On failure the gaps before it stay
 * backed.
 */
int pages_back(struct heap *h, uint64_t page, uint64_t n);

/* ---- span.c -- */

/* Derives n_free and open from the truth. Returns how many objects are out. */
uint32_t span_count(struct heap *h, uint32_t chunk);

/* A chunk whose entry says SPAN, after a start. */
void span_adopt(struct heap *h, uint32_t chunk);

/* An empty span: its chunk is free from now on. */
void span_release(struct heap *h, uint32_t chunk);

/* ---- extent.c -- */

/* Lengths in pages by nibbles, as chunk_entry.pieces has them. */
static inline unsigned pieces_length(uint64_t pieces, unsigned page)
{
    return (unsigned)(pieces >> (page * 4)) & 15;
}

/* A mask of n pages from that one on; n may be all 16. */
static inline uint32_t page_mask(unsigned first, unsigned n)
{
    return ((1u << n) - 1) << first & CHUNK_PAGES_ALL;
}

/*
 * The pages that those extents cover, and the length of the longest row of pages that are not in such a mask.
 */
uint32_t pieces_used(uint64_t pieces);
unsigned pages_longest_hole(uint32_t used);

/* Says which pages of a PIECES chunk are not free: moves it to the right list and counts lazy pages. */
void pieces_set_used(struct heap *h, uint32_t chunk, uint32_t used);

/* The length of the extent that starts there; 0: none does. */
uint64_t extent_pages(const struct heap *h, uint32_t block);

/* Chunks whose entries say PIECES or LARGE, after a start. */
void extent_adopt_pieces(struct heap *h, uint32_t chunk);
void extent_adopt_large(struct heap *h, uint32_t chunk);

#endif
