/* SPDX-License-Identifier: MIT */
/*
 * The heap's inside, and the part of it that runs once a record: a truth word, the span's counts and one
 * counter are all that such a step touches, so it is inlined into the loops over records. Whoever includes
 * this for heap_take() and its like leaves the fields alone; they belong to the engine's heap files.
 *
 * Counts are of three kinds of event and only grow: each step adds to one of them, and what is out or pending
 * is the difference of two. A counter that goes up and down would cost each step a second read-modify-write.
 */
#ifndef RECLAIMD_ENGINE_TRUTH_H
#define RECLAIMD_ENGINE_TRUTH_H

#include <stdbool.h>
#include <stdint.h>

#include "basic/macro.h"
#include "basic/ordering.h"
#include "engine/bitmap.h"
#include "engine/state.h"

/* What a chunk's truth words speak of. One byte that says it without a look at the chunk's entry. */
enum {
    TAG_NONE = 0, /* no objects: not even the words are read, they may be a hole */
    TAG_SPAN,     /* + class, so 1 .. 27 */
    TAG_EXTENT = TAG_SPAN + ABI_CLASS_EXTENT,
    TAG_MAX,
};

#define OPEN_WORDS (ABI_BLOCKS_PER_CHUNK / 64)

/*
 * One a chunk, never in shared memory, 0 for a chunk that was never used. For a chunk that begins a run of
 * free chunks the same memory describes that run.
 *
 * A span is *ripe* while it has free objects: then it is in the queue of its class. While chosen words are
 * not committed (n_reserved > 0), nothing of their blocks is open; if an object of the span is freed
 * meanwhile, the span is *parked*: n_free and open are 0, the queue has forgotten it, and both are derived
 * anew after the last commit.
 */
struct span {
    uint16_t n_free;     /* free objects in open blocks */
    uint16_t n_reserved; /* words chosen by heap_reserve() that are neither committed nor given back */
    uint8_t tag;
    uint8_t parked;
    uint16_t capacity;   /* objects when empty */
    uint32_t next, prev; /* chunk numbers; 0: none */
    union {
        uint64_t open[OPEN_WORDS]; /* SPAN: a bit a block that has free objects, none of them reserved */
        struct {
            uint64_t used;    /* PIECES: a bit a page that is an extent's or being purged */
            uint64_t longest; /* PIECES: its longest run of other pages, which names its list */
        };
        uint64_t run_length; /* of a free run, at its first chunk */
    };
};

assert_cc(sizeof(struct span) == 32);

/* A list through the chunks' spans. */
struct chunk_list {
    uint32_t first, last;
};

struct heap_ops {
    /*
     * Makes memory be behind [offset, offset + bytes) of the arena. 0 or negative errno (-ENOMEM: not now).
     */
    int (*back)(void *userdata, uint64_t offset, uint64_t bytes);
    void *userdata;
};

#define RUN_BINS 400u /* see run_bin() */

struct heap {
    /* -- what each record needs -- */
    truth_t *truth;
    struct span *spans;
    uint64_t n_blocks;
    uint64_t n_committed[TAG_MAX], n_taken[TAG_MAX], n_expired[TAG_MAX]; /* objects */
    uint32_t object_bytes[TAG_MAX];

    /* -- spans -- */
    struct chunk_list ripe[ABI_CLASS_EXTENT];
    uint32_t kept[ABI_CLASS_EXTENT]; /* the one empty span that a class keeps; 0: none */
    uint16_t capacity[ABI_CLASS_EXTENT];
    uint64_t open[ABI_CLASS_EXTENT][OPEN_WORDS]; /* of an empty span */
    uint32_t patterns[ABI_CLASS_EXTENT][ABI_BLOCKS_PER_CHUNK];

    /* -- chunks, runs of them, extents -- */
    struct state *state;
    struct chunk_entry *chunks;
    uint64_t n_chunks;
    struct heap_ops ops;
    struct bitmap busy;        /* chunks that are not free, or free and being purged */
    struct bitmap lazy;        /* free chunks with backed pages */
    struct bitmap lazy_pieces; /* PIECES with free pages that are backed */
    struct chunk_list runs[RUN_BINS];
    uint64_t runs_present[DIV_ROUND_UP(RUN_BINS, 64)];
    struct chunk_list pieces[ABI_PAGES_PER_CHUNK];        /* by the longest hole in pages; [0] is not used */
    uint64_t pages_committed, pages_taken, pages_expired; /* of extents */
    uint64_t n_backed, n_lazy, n_purging;                 /* pages; purging: those that were backed before */
    uint64_t n_spans;
    uint32_t extent_block;
    void *map;
    size_t map_bytes;
};

/* The rarer half of the steps below. */
uint64_t extent_take(struct heap *h, uint32_t block);
void extent_commit(struct heap *h, uint32_t block);
void extent_unreserve(struct heap *h, uint32_t block);
void extent_expire(struct heap *h, uint32_t block);
void span_park(struct heap *h, uint32_t chunk);
void span_unpark(struct heap *h, uint32_t chunk);
void span_filled(struct heap *h, uint32_t chunk, unsigned n_before);

/*
 * How many objects a mask names. Where the compiler may not use the instruction (it is younger than x86-64)
 * and calls a function instead, the processor is asked: a load and a branch that always goes the same way.
 */
static inline unsigned mask_count(uint32_t mask)
{
#if defined(__x86_64__) && !defined(__POPCNT__)
    unsigned n;

    if (unlikely(!__builtin_cpu_supports("popcnt"))) {
        for (n = 0; mask; mask &= mask - 1)
            n++;
        return n;
    }
    __asm__("popcntl %1, %0" : "=r"(n) : "rm"(mask) : "cc");
    return n;
#else
    return (unsigned)__builtin_popcount(mask);
#endif
}

static inline uint32_t block_chunk(uint32_t block)
{
    return block / ABI_BLOCKS_PER_CHUNK;
}

static inline void span_open_block(struct span *s, uint32_t block)
{
    unsigned b = block % ABI_BLOCKS_PER_CHUNK;

    s->open[b / 64] |= 1ull << (b % 64);
}

/*
 * Here and below: a truth word is written by one relaxed store. Only this thread reads it, so it orders
 * nothing; it is whole, so that a daemon killed at any instruction leaves the old word or the new.
 */
static inline uint32_t heap_take(struct heap *h, uint32_t block, uint32_t mask, uint64_t *ret_bytes,
                                 bool *ret_extent)
{
    uint32_t accepted;
    unsigned tag, n;
    truth_t truth;

    *ret_bytes = 0;
    *ret_extent = false;
    if (unlikely(block >= h->n_blocks))
        return 0;
    tag = h->spans[block_chunk(block)].tag;
    if (unlikely(tag == TAG_NONE))
        return 0;
    truth = h->truth[block];
    accepted = mask & (uint32_t)truth & ~(uint32_t)(truth >> 32);
    if (unlikely(!accepted))
        return 0;
    /*
     * Killed after it: pending, though the lane's cursor has not moved; the replay finds the bits pending and
     * goes on.
     */
    store_relaxed(&h->truth[block], truth | (truth_t)accepted << 32);
    n = mask_count(accepted);
    h->n_taken[tag] += n;
    *ret_bytes = (uint64_t)n * h->object_bytes[tag];
    if (unlikely(tag == TAG_EXTENT)) {
        *ret_bytes = extent_take(h, block);
        *ret_extent = true;
    }
    return accepted;
}

/* Is that one granule of that block an object that is handed out (pending or not)? Any block is safe. */
static inline bool heap_is_out(const struct heap *h, uint32_t block, uint32_t bit)
{
    return block < h->n_blocks && h->spans[block_chunk(block)].tag != TAG_NONE &&
           ((uint32_t)h->truth[block] & bit);
}

static inline void heap_expire(struct heap *h, uint64_t word)
{
    uint32_t block = abi_word_block(word), chunk = block_chunk(block);
    struct span *s = &h->spans[chunk];
    truth_t truth = h->truth[block];
    uint32_t mask = abi_word_mask(word) & (uint32_t)(truth >> 32);
    unsigned n = mask_count(mask), n_before = s->n_free;

    if (unlikely(!mask))
        return;
    /* Killed after it: the objects are free, and what is counted and listed below is derived anew. */
    store_relaxed(&h->truth[block], truth & ~(mask | (truth_t)mask << 32));
    h->n_expired[s->tag] += n;
    if (unlikely(s->tag == TAG_EXTENT)) {
        extent_expire(h, block);
        return;
    }
    if (unlikely(s->n_reserved > 0)) {
        span_park(h, chunk);
        return;
    }
    span_open_block(s, block);
    s->n_free = (uint16_t)(n_before + n);
    if (unlikely(n_before == 0 || s->n_free == s->capacity))
        span_filled(h, chunk, n_before);
}

static inline void heap_commit(struct heap *h, uint64_t word)
{
    uint32_t block = abi_word_block(word), chunk = block_chunk(block);
    struct span *s = &h->spans[chunk];
    truth_t truth = h->truth[block];
    uint32_t mask = abi_word_mask(word) & ~(uint32_t)truth;

    if (unlikely(!mask))
        return; /* done before a crash, by the same intent */
    /* Killed after it: the objects are out, and the intent says to which lane. */
    store_relaxed(&h->truth[block], truth | mask);
    h->n_committed[s->tag] += mask_count(mask);
    if (unlikely(s->tag == TAG_EXTENT)) {
        extent_commit(h, block);
        return;
    }
    s->n_reserved--;
    if (unlikely(s->parked) && s->n_reserved == 0)
        span_unpark(h, chunk);
}

#endif
