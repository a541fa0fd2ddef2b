/* SPDX-License-Identifier: MIT */
/*
 * Neighbours: other clients of the measured daemon, each a process of its own that is no part of the team. What
 * a neighbour does to the daemon is part of a test's situation; what it costs itself is not in its figures.
 *
 *     fifo     --callbacks, --fifo-load: keeps the daemon's callback FIFO filled, from an arena of its own
 *     updates  --updates: defers frees in the measured arena at a steady rate
 *     stall    --stalled-neighbour: holds up a grace period of an arena of its own while it is asked to
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct bench_run;
struct bench_options;

enum neighbour_kind {
    NEIGHBOUR_FIFO,
    NEIGHBOUR_UPDATES,
    NEIGHBOUR_STALL,
    _NEIGHBOUR_MAX,
};

struct neighbour_shared { /* with the run's process and the team; the neighbour writes unless said */
    uint32_t ready;       /* it is at work; waited for */
    uint32_t stop;        /* the run's process writes; waited for */
    uint32_t want_stall;  /* one of the team writes; waited for */
    uint32_t is_stalled;  /* follows want_stall; waited for */
    uint64_t n_run;       /* fifo: entries that ran while the FIFO was never empty, */
    uint64_t run_ns;      /* and in how much time */
    uint64_t n_looks;     /* fifo: at its length, */
    uint64_t n_waiting;   /* and the lengths' sum */
};

struct neighbour {
    struct neighbour_shared *shared; /* NULL: none is wanted */
    pid_t pid;
};

/* Before the team forks, so that all know the shared part: one for each that the options ask for. */
int neighbours_prepare(struct neighbour *all, const struct bench_options *options);

/* Forks that one, if it is wanted, and waits until it is at work. -errno, with words_set(). */
int neighbour_start(struct neighbour *all, enum neighbour_kind kind, const struct bench_run *run);

/* Ends all and waits for them. The first failure of one, with words_set(); force: just ends them. */
int neighbours_stop(struct neighbour *all, bool force);

/* In the team: has the neighbour hold up its grace period, or let go; returns when it does. */
int neighbour_stall(struct neighbour_shared *s, bool stall);

/* For neighbours: whether to go on, and a nap that the end cuts short. */
bool neighbour_goes_on(struct neighbour_shared *s);
void neighbour_is_ready(struct neighbour_shared *s);

int neighbour_fifo_main(const struct bench_run *run, struct neighbour_shared *s);
int neighbour_updates_main(const struct bench_run *run, struct neighbour_shared *s);
int neighbour_stall_main(const struct bench_run *run, struct neighbour_shared *s);
