/* SPDX-License-Identifier: MIT */
/*
 * What an arena's worker does in a pass, by file:
 *
 *   arena-pass.c       the pass: order of the steps, naps, dozing, sleeping
 *   arena-lanes.c      lanes: collect, fill, asks, give, doom, bury
 *   arena-callback.c   what goes through the callback FIFO
 *   arena-reclaim.c    pages, batches
 *   arena-purge.c      purges, and the sweep for pages that clients re-backed
 *   arena-operation.c  barriers and what control asks for
 *
 * All of it runs with arena->lock held.
 */
#ifndef RECLAIMD_ARENA_WORK_H
#define RECLAIMD_ARENA_WORK_H

#include "arena.h"
#include "purger.h"

/* What a pass knows. */
struct pass {
    struct arena *arena;
    struct arena_parameters p;
    uint64_t now;
    uint64_t completed;   /* loaded once, with acquire */
    uint64_t deadline;    /* RUN_NEVER; brought forward by each step */
    uint64_t pending_max; /* client-pending-max in bytes */
    bool found;           /* something was collected, freed or filled: look again soon */
    bool holds_back;      /* rings are left alone, D4 of engine/drain.h */
    bool again;           /* a budget ran out */
    unsigned n_looked;    /* records, and objects of chains, that lanes have had taken so far */
    unsigned pace;        /* largest share of a ring or magazine used since the last look, in 1/256 */
};

static inline void pass_by(struct pass *pass, uint64_t deadline)
{
    pass->deadline = MIN(pass->deadline, deadline);
}

/* arena-pass.c */
void arena_run_jobs(struct arena *a);
void arena_take_rung(struct arena *a);
void arena_charge(struct arena *a);

/* arena-lanes.c */
void arena_look_at_lanes(struct pass *pass, bool all);
void arena_fill_lanes(struct pass *pass);
void arena_wake_lanes(struct pass *pass); /* one full fence, then whoever waits */
/* after the membarrier: did anything come meanwhile? */
bool arena_lanes_want_more(struct arena *a, bool asleep);
void arena_collect_everything(struct pass *pass); /* all rings up to their heads of this moment */

/* arena-callback.c: into the callback FIFO goes what has expired of waiting batches. They return the number of
 * pages or batches. */
unsigned arena_expire_to_singles(struct pass *pass);
unsigned arena_expire_to_callbacks(struct pass *pass);
/* a bulk free, as far as the counters moved since they stood so */
void arena_trace_freed(const struct arena *a, uint64_t objects_before, uint64_t bytes_before);

/* arena-reclaim.c */
#define ARENA_PAGES_A_PASS 256u /* then others get their turn */
void arena_expire(struct pass *pass);
void arena_drain(struct pass *pass);
uint64_t
arena_close_pages(struct arena *a); /* all that is pending has a cookie; returns one that covers it */
uint64_t arena_oldest_cookie(struct arena *a); /* of the pages that are left; UINT64_MAX: none */
void arena_want_cookie(struct arena *a, uint64_t cookie, bool expedited);
void *arena_zero_base(const struct pass *pass);

/* arena-purge.c */
void arena_purge(struct pass *pass);
/* The purger's thread; they take the lock themselves. begin: fills in the holes; done: they are punched. */
void arena_purge_begin(struct arena *a, struct purge_work *work);
void arena_purge_done(struct arena *a, struct purge_work *work);
void arena_sweep_found(struct arena *a, struct purge_work *work);
/* Of the file with the books, and what it finds is given back: asks for one, and returns its number. */
uint64_t arena_comparison_ask(struct arena *a);
bool arena_comparison_is_over(const struct arena *a, uint64_t comparison);

/* arena-operation.c */
bool arena_operation_looks(const struct arena *a); /* one waits until no hole is being punched */
void arena_serve_operations(struct pass *pass);

#endif
