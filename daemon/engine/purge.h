/* SPDX-License-Identifier: MIT */
/*
 * When to purge (PURGE): free pages stay backed, ready for reuse, until there are many of them or they are
 * old. A pure decision from a snapshot.
 *
 * Guarantees
 *  G1 One purge at a time: a request while one runs is noted, not queued (unless purge-while-purging says
 *     so).
 *  G2 Free pages are given back purge-delay after the first of them became free, also when nothing happens
 *     any more.
 *  G3 Nothing lazy: no deadline.
 */
#ifndef RECLAIMD_ENGINE_PURGE_H
#define RECLAIMD_ENGINE_PURGE_H

#include <stdbool.h>
#include <stdint.h>

#define PURGE_NEVER UINT64_MAX

struct purge_timer {
    uint64_t lazy_usec; /* since when something is lazy; 0: nothing is */
    uint64_t cursor;    /* where the purge under way goes on */
    unsigned n_running; /* works queued or at work; more than one only with purge-while-purging */
    bool asked;         /* purge now: asked for, or memory is short */
};

struct purge_input {
    uint64_t now_usec;
    uint64_t lazy_bytes, threshold_bytes;
    uint64_t delay_usec; /* PURGE_NEVER: age is no reason */
    bool while_purging;
};

struct purge_decision {
    bool purge;             /* queue a work now */
    uint64_t deadline_usec; /* look again then; PURGE_NEVER */
};

struct purge_decision purge_decide(struct purge_timer *t, const struct purge_input *in);

/* A work has begun; one has ended, and whether it left anything for another. */
void purge_begun(struct purge_timer *t);
void purge_ended(struct purge_timer *t);

/* purge-threshold = auto: fls(CPUs) x 32 MiB, as the source has it. */
uint64_t purge_threshold_auto(unsigned n_cpus);

#endif
