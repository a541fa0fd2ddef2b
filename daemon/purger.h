/* SPDX-License-Identifier: MIT */
/* The purger: one thread that punches holes, so that no worker and no lock waits for it. */
#ifndef RECLAIMD_PURGER_H
#define RECLAIMD_PURGER_H

#include <stdint.h>

#include "client.h"
#include "engine/heap.h"

struct arena;
struct purger;

#define PURGE_HOLES 64u
#define SWEEP_RANGES 16u              /* of at most so many bytes each: what the worker then looks at in one go */
#define SWEEP_RANGE_BYTES (64ull << 20)

/* Holes of one arena, marked PURGING by its worker (heap_purge_begin()). The arena gets it back by
 * arena_purge_done(). */
struct purge_work {
    struct purge_work *next;
    struct arena *arena; /* a reference */
    bool sweep;          /* do not punch: fill in where the file has data, from there on */
    uint64_t from;       /* .. and where to go on; the arena's length: that was all */
    bool found;          /* holes that a sweep found: no other sweep follows, or a client that goes on touching
                            pages would keep us at it */
    struct job job;      /* a sweep's way back */
    unsigned n_holes;
    struct heap_hole holes[PURGE_HOLES];
};

int purger_new(struct purger **ret);
struct purger *purger_free(struct purger *p); /* what is queued is still done */

/* Any thread. */
void purger_queue(struct purger *p, struct purge_work *work);

#endif
