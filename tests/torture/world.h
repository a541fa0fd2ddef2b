/* SPDX-License-Identifier: MIT */
/*
 * World: what all processes of a run share.
 *
 *   struct world     an anonymous mapping: what is run, who stops, what was counted. Nobody's death hurts it.
 *   struct board     in the arena, reachable from the root "board", not freed before the end: the cells that
 *                    readers look into, and an entry for each object that a writer makes.
 *
 * An entry goes round (who moves it):
 *
 *   PIPE_FREE --its writer makes an object--> 0 --whoever takes the object out of its cell--> 1
 *     --the coordinator, a whole grace period later each--> 2 .. PIPE_FREE
 *
 * So a reader that ends its section with an object whose entry says 2 or more was passed over by a grace
 * period. What a killed writer held stays where it was for the rest of the run.
 */
#pragma once

#include <reclaim/reclaim.h>
#include <stdbool.h>
#include <stdint.h>

#include "basic/macro.h"
#include "basic/ordering.h"
#include "options.h"

enum {
    PIPE_FREE = 10, /* as long as the pipe of the kernel's torture test */
    BATCHES_MAX_SEEN = 10,
    CELLS = 4096,
    CELLS_HOT = 16, /* where half of all looks and changes meet */
    ENTRIES_A_WRITER = 8192,
    ENTRY_BITS = 20, /* of an id; the rest counts the entry's objects */
    THREADS_MAX = READERS_MAX + WRITERS_MAX,
};
assert_cc(WRITERS_MAX *ENTRIES_A_WRITER <= 1 << ENTRY_BITS);

struct entry {
    uint64_t id;    /* of its present or last object; its writer, before it is published */
    uint32_t bytes; /* as asked for; the same */
    uint32_t pipe;  /* see above */
};

struct board {
    uint32_t n_entries, n_cells;
    struct entry *entries;
    void *cells[CELLS]; /* anybody, by exchange */
};

/* What one thread's place counted in all its lives. One writer each: the thread in that place now. */
struct thread_count {
    uint64_t pipe[PIPE_FREE + 1], batch[BATCHES_MAX_SEEN + 1]; /* objects, sections */
    uint64_t sections, handler_sections, verified;
    uint64_t made, reused, replaced, deferred, unpublished, waits, timeouts, full, again, bursts, threads,
        refused;
    /* Private at this moment, in words that are above the truth at each instant: what a kill may lose. */
    uint64_t held_objects, held_bytes;
} __attribute__((aligned(64)));

struct world {
    struct torture_options options;
    char directory[128], arena[64];
    uint32_t stop;                           /* the coordinator: all threads end */
    uint32_t failed;                         /* anybody, once; the words say what */
    uint32_t n_observer;                     /* how often a process was an observer */
    uint32_t n_refused;                      /* how often a limit kept one from opening the arena */
    struct thread_count counts[THREADS_MAX]; /* readers first */
    uint64_t n_granules;
    uint64_t *granules; /* a bit for each granule where an object once was; any writer, by or */
};

/* Makes the shared part; before the first fork. NULL: no memory. */
struct world *world_new(const struct torture_options *options);

/*
 * Opens the arena in this process. -errno with words_set(), but -EMFILE under --tune: a limit of the moment.
 */
int world_open(struct world *w, unsigned flags, struct reclaim **ret);

/* Fills a new arena with cells and entries. */
int world_make_board(struct world *w, struct reclaim *r, struct reclaim_lane *l, struct board **ret);
int world_find_board(struct reclaim *r, struct board **ret);

/* Keeps the first failure's words and ends the run. Returns -EPROTO, or r for a failed call. */
int world_fail(struct world *w, const char *format, ...) _printf_(2, 3);
int world_call_failed(struct world *w, int r, const char *call);

static inline bool world_stops(struct world *w)
{
    return load_relaxed(&w->stop) || load_relaxed(&w->failed); /* a moment late is harmless */
}
