/* SPDX-License-Identifier: MIT */
/*
 * When to purge, and how much (PURGE): free pages stay backed, ready for reuse, until there are many of them
 * or they are old. Pure decisions from a snapshot.
 *
 *   a work is queued   purge_decide() said so, in a pass
 *   it begins          its turn has come: what it takes is decided now, not when it was queued
 *   a turn             rounds: the largest holes first, then smaller ones, until little enough is lazy
 *   another turn       something asked for it meanwhile (G1)
 *   it ends            nothing is left that it should take, or somebody waits for it to end (G6)
 *
 * Guarantees
 *  G1 One purge at a time: a request while one is queued or runs is noted, not queued. The one that runs
 *     serves it by another turn. What is being punched counts, so that it is the same request whether or not
 *     a work is queued for it (G4).
 *  G2 Free pages are given back purge-delay after the first of them became free, also when nothing happens
 *     any more.
 *  G3 Nothing lazy: no deadline.
 *  G4 purge-while-purging is what the source had before: where a request would be noted, a work is queued,
 *     unless one waits already behind another. Its turn comes when that one has ended, so it often finds
 *     nothing, or next to nothing.
 *  G5 What is used again at once is not given back: the count is a reason once it has been above the
 *     threshold, at every look, for as long as it would take to give so much back: 10 ms for 64 MiB, and no
 *     longer for more. Not with purge-while-purging.
 *  G6 Under a load that always has more, one work may take turn after turn. Nobody waits for its end: who
 *     asks for a purge waits for the turn that begins next, and who has to look while no hole is being
 *     punched says so, and has a moment after the turn that runs, or that of a work which waits behind it. A
 *     turn that takes all is a work's last, as the file is compared with the books after a work.
 */
#ifndef RECLAIMD_ENGINE_PURGE_H
#define RECLAIMD_ENGINE_PURGE_H

#include <stdbool.h>
#include <stdint.h>

#define PURGE_NEVER UINT64_MAX

struct purge_timer {
    uint64_t lazy_usec; /* since when something is lazy; 0: nothing is */
    uint64_t over_usec; /* since when the count is above the threshold; 0: it is not */
    unsigned n_queued;  /* works that wait for their turn */
    unsigned n_running; /* works that began and have not ended */
    bool asked;         /* purge now, and all of it: asked for, or memory is short */
    bool look;          /* somebody waits for a moment without a purge (G6) */
    uint64_t n_turns;   /* that began */
    uint64_t n_over;    /* .. and have ended: everything they took is punched */

    /* of the purge that runs */
    bool all;           /* down to nothing, whatever the holes' size; else down to half the threshold */
    bool noted;         /* a request came since this turn over the rounds began */
    uint64_t min_bytes; /* no smaller holes in this round */
    uint64_t cursor;    /* where this round goes on */
};

struct purge_input {
    uint64_t now_usec;
    uint64_t lazy_bytes, purging_bytes, threshold_bytes;
    uint64_t delay_usec; /* PURGE_NEVER: age is no reason */
    bool while_purging;
};

struct purge_decision {
    bool purge;             /* queue a work now */
    uint64_t deadline_usec; /* look again then; PURGE_NEVER */
};

struct purge_decision purge_decide(struct purge_timer *t, const struct purge_input *in);

/* Asks for all of it, now: returns the turn that takes at least what is lazy at this moment. */
uint64_t purge_ask(struct purge_timer *t);

/* That turn is over; or nothing was lazy when purge_decide() came to it. */
bool purge_is_over(const struct purge_timer *t, uint64_t turn);

/*
 * A work was queued; its turn has come. The holes of a work that never waits (pages that were found backed)
 * are its own: it is begun at once, with purge_begun_found().
 */
void purge_queued(struct purge_timer *t);
void purge_begun(struct purge_timer *t, const struct purge_input *in);
void purge_begun_found(struct purge_timer *t);

/* How much of the holes of at least t->min_bytes the purge that runs may take now; 0: enough is done. */
uint64_t purge_quota(const struct purge_timer *t, const struct purge_input *in);

/*
 * No holes of that size are left beyond the cursor, and those that were taken are punched. True: there is
 * another round, from the start, maybe of another turn.
 */
bool purge_next_round(struct purge_timer *t, const struct purge_input *in);

void purge_ended(struct purge_timer *t);
void purge_ended_found(struct purge_timer *t);

/* purge-threshold = auto: fls(CPUs) x 32 MiB, as the source has it. */
uint64_t purge_threshold_auto(unsigned n_cpus);

#endif
