/* SPDX-License-Identifier: MIT */
/*
 * The `state` segment: the truth about one arena, which only the daemon maps. Whatever a successor needs to
 * go on is here, and it is valid at every instruction: each fact changes by one store, in the orders that the
 * functions which write it name. Nothing in it is an address. All else in the daemon (span counters, free
 * runs, lists, pending pages) is derived from it and is rebuilt.
 */
#ifndef RECLAIMD_ENGINE_STATE_H
#define RECLAIMD_ENGINE_STATE_H

#include <stdint.h>

#include "abi.h"
#include "basic/macro.h"

#define STATE_MAGIC 0x31617473636572ffull
#define STATE_VERSION 1u
#define STATE_LANES_MAX 16384u /* of all clients of an arena together */
#define STATE_ROOTS_MAX 512u   /* one page of root words */

/*
 * One 64-bit word a block: bits 0..31 *out* (an object that starts at this granule is handed out to a lane),
 * bits 32..63 *pending* (it was deferred and waits for its grace period). pending is a subset of out; a freed
 * object loses both by one store.
 */
typedef uint64_t truth_t;

/*
 * One entry a chunk of 64 KiB. Only an entry inside the watermarks n_low and n_high may be anything but zero,
 * and only the truth words of a chunk with CHUNK_HAS_TRUTH: whoever looks elsewhere makes memory be where a
 * hole was.
 *
 *   FREE --heap_reserve()--> SPAN (cut into objects of one class)     --last object freed--> FREE
 *   FREE --heap_extent_reserve()--> PIECES (extents of 1..15 pages)   --last extent freed--> FREE
 *   FREE --heap_extent_reserve()--> LARGE, then n - 1 times TAIL      --freed--> FREE
 *   FREE --once--> ROOTS (the page of root words, never freed)
 */
enum chunk_kind {
    CHUNK_FREE = 0,
    CHUNK_SPAN,
    CHUNK_PIECES,
    CHUNK_LARGE,
    CHUNK_TAIL, /* may also stand after a LARGE that is not there any more: then it is FREE */
    CHUNK_ROOTS,
    CHUNK_KIND_MAX,
};

#define CHUNK_HAS_TRUTH 1u /* its truth words were written once: set before the first, never cleared */

struct chunk_entry {
    uint8_t kind;        /* enum chunk_kind */
    uint8_t class_index; /* SPAN */
    uint16_t backed;     /* a bit a page: memory is behind it as far as we know */
    uint16_t purging; /* a bit a page: being given back; nobody may hand it out; FREE and not backed after a
                         restart */
    uint16_t flags;   /* CHUNK_HAS_TRUTH */
    union {
        /* PIECES: a nibble a page, the length in pages of the extent that starts there, else 0 */
        uint64_t pieces;
        uint64_t n_pages; /* LARGE: length in pages */
    };
};

/* The daemon's side of a lane. */
struct state_lane {
    uint64_t client_id; /* 0: free */
    uint32_t lane;      /* its number in that client's channel */
    uint32_t generation;
    /* 1: its cur and magazines were returned; written before their page takes its cookie */
    uint32_t returned;
    uint32_t chain_seen; /* objects of its chain taken; moves by one store when a walk is over */
    uint32_t walk_top;   /* a walk that was interrupted: chain_seen once it is over; before walk_link */
    uint32_t reserved;
    uint64_t walk_link;  /* .. and the object to go on with; stale unless walk_top is newer than chain_seen */
    /* index << 32 | seen: the record being looked at, and its bits looked at, refused ones too */
    uint64_t cursor;
    uint32_t magazine_head[ABI_CLASSES];
    uint64_t shadow[ABI_CLASSES][ABI_MAGAZINE_WORDS]; /* what was put into its magazines */
};

struct state_root {
    char name[56]; /* "": free */
};

/* lane << 40 | class << 32 | n << 16 | (index & 0xffff) with bit 63 set; 0: none. The commit of a refill. */
typedef uint64_t intent_t;

struct state {
    uint64_t magic;
    uint32_t version;
    uint32_t flags; /* STATE_TRANSIENT */
    uint64_t fingerprint;
    uint64_t base;
    uint64_t arena_bytes;
    uint64_t arena_id;
    uint32_t owner_uid;
    uint32_t owner_gid;
    uint32_t mode;
    uint32_t reserved0;
    char name[56];
    uint64_t started; /* the domain's may be newer or older after a crash: adopt the larger */
    uint64_t completed;
    uint64_t next_client_id;
    intent_t intent;
    uint64_t root_chunk; /* 0: none yet */
    uint64_t freed_objects;
    uint64_t truth_offset; /* of truth_t[blocks] */
    uint64_t chunk_offset; /* of struct chunk_entry[chunks] */
    uint64_t lane_offset;  /* of struct state_lane[STATE_LANES_MAX] */
    uint64_t bytes;        /* of the whole segment */
    uint64_t n_low;        /* chunk entries ever touched: the first n_low .. */
    uint64_t n_high;       /* .. and the last n_high; both grow before the entry is touched */
    uint64_t reserved1[6];
    struct state_root roots[STATE_ROOTS_MAX];
};

#define STATE_TRANSIENT 1u

assert_cc(sizeof(struct chunk_entry) == 16);

static inline uint64_t state_n_chunks(uint64_t arena_bytes)
{
    return arena_bytes / ABI_CHUNK_BYTES;
}

static inline uint64_t state_n_blocks(uint64_t arena_bytes)
{
    return arena_bytes / ABI_BLOCK_BYTES;
}

static inline truth_t *state_truth(struct state *s)
{
    return (truth_t *)((char *)s + s->truth_offset);
}

static inline struct chunk_entry *state_chunks(struct state *s)
{
    return (struct chunk_entry *)((char *)s + s->chunk_offset);
}

static inline struct state_lane *state_lane(struct state *s, uint32_t index)
{
    return (struct state_lane *)((char *)s + s->lane_offset) + index;
}

/*
 * Does what the intent commits to in the truth: its words, read from the lane's shadow, are out. The words
 * are bound to be free or out already, so doing it again changes nothing. heap_new() begins with it, or it
 * would take the chunks of such objects for empty. The magazine and the clearing of the intent are
 * lane_recover()'s.
 */
void state_intent_redo(struct state *s);

/* How long the segment for an arena of that size is; most of it is never touched and takes no memory. */
uint64_t state_bytes(uint64_t arena_bytes);

/* Writes the header of a fresh (zeroed) segment; the magic last. */
void state_init(struct state *s, uint64_t arena_bytes, uint64_t base);

#endif
