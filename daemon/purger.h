/* SPDX-License-Identifier: MIT */
/* The purger: one thread that punches holes, so that no worker and no lock waits for it. */
#ifndef RECLAIMD_PURGER_H
#define RECLAIMD_PURGER_H

#include <stdbool.h>
#include <stdint.h>

#include "client.h"
#include "engine/heap.h"

struct arena;
struct purger;

#define PURGE_HOLES 64u
#define SWEEP_RANGES 16u /* of at most so many bytes each: what the worker then looks at in one go */
#define SWEEP_RANGE_BYTES (64ull << 20)

enum purge_kind {
    PURGE_LAZY,  /* takes free pages as its turn comes, and again until the arena's purge is over */
    PURGE_SWEEP, /* does not punch: fills in where the file has data */
    PURGE_FOUND, /* punches what a sweep has found. No other sweep follows, or a client that goes on touching
                    pages would keep us at it */
};

/* A turn of the purger for one arena. Holes are marked PURGING before they are punched. */
struct purge_work {
    struct purge_work *next;
    struct arena *arena; /* a reference */
    enum purge_kind kind;
    bool begun, over;
    uint64_t from;  /* where a sweep goes on; the arena's length: that was all */
    struct job job; /* a sweep's way back */
    uint64_t bytes; /* that the holes give back: they go over pages that are not backed too */
    unsigned n_holes;
    struct heap_hole holes[PURGE_HOLES];
};

int purger_new(struct purger **ret);
struct purger *purger_free(struct purger *p); /* what is queued is still done */

/* Any thread. */
void purger_queue(struct purger *p, struct purge_work *work);

#endif
