/* SPDX-License-Identifier: MIT */
/*
 * Batches: what one drain took out of pending, waiting for its grace period. At most `batches` are in flight;
 * what comes meanwhile gathers in pending, so a slow grace period makes batches larger, not more.
 *
 * gp-wait = poll: each page goes as soon as its own cookie has expired. gp-wait = callback: the whole batch
 * goes, by one entry of the callback FIFO, once the newest cookie in it has expired.
 */
#ifndef RECLAIMD_ENGINE_BATCH_H
#define RECLAIMD_ENGINE_BATCH_H

#include "engine/pending.h"

#define BATCHES_MAX 64u

enum batch_stage {
    BATCH_IDLE = 0,
    BATCH_WAITING, /* for its cookies */
    BATCH_QUEUED,  /* in the callback FIFO */
};

struct batch {
    enum batch_stage stage;
    struct page_list pages;
    uint64_t cookie; /* the newest of its pages */
    uint64_t number; /* since the arena was made: order of age */
};

struct batches {
    struct batch all[BATCHES_MAX];
    unsigned n_running;
    uint64_t n_begun;
};

/* Takes all that is pending into a batch: closes the open pages first. NULL: max are running, or there is
 * nothing. */
struct batch *batch_begin(struct batches *b, struct pending *p, unsigned max);

/* The batch that has run longest among those of a stage, or NULL. */
struct batch *batch_oldest(struct batches *b, enum batch_stage stage);

/* Frees expired pages of all waiting batches, oldest first, at most max_pages. Returns how many; empty
 * batches end. */
unsigned batches_expire(struct batches *b, struct pending *p, struct heap *h, uint64_t completed,
                        unsigned max_pages, void *zero_base);

/* Frees a whole batch whose cookie has expired, and ends it. */
void batch_expire_all(struct batches *b, struct batch *batch, struct pending *p, struct heap *h,
                      uint64_t completed, void *zero_base);

/* Whoever took pages out by itself says so afterwards. */
void batch_end_if_empty(struct batches *b, struct batch *batch);

/* The arena is going: the batch's pages are dropped with their charges. */
void batch_drop(struct batch *batch, struct pending *p);

#endif
