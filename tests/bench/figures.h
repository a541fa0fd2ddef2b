/* SPDX-License-Identifier: MIT */
/*
 * Figures: what one run of a test found out. A fixed set of named numbers, each of which may be absent: a
 * test fills in those that it has. Plain data without pointers, as it crosses from the run's process to ours
 * in shared memory.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The names in JSON and in tables are these, in lower case (figures.c). */
enum figure {
    FIGURE_OBJECTS,
    FIGURE_TOTAL_NS,      /* all loops are through */
    FIGURE_FREED_NS,      /* all objects are freed */
    FIGURE_NS_PER_OBJECT, /* freed / objects; read: one lock+unlock pair; attach: one open+lane+close */
    FIGURE_CLIENT_CPU_NS, /* user and system time of the measured processes */
    FIGURE_DAEMON_CPU_NS, /* the same of all daemon threads */
    FIGURE_GRACE_PERIODS,
    FIGURE_BATCHES,
    FIGURE_DRAINS,
    FIGURE_OBJECTS_PER_PAGE,
    FIGURE_WAKEUPS, /* voluntary context switches of all daemon threads */
    FIGURE_PURGES_QUEUED,
    FIGURE_HOLES,
    FIGURE_FOOTPRINT_BYTES, /* peak above the start */
    FIGURE_P50_NS,
    FIGURE_P99_NS,
    FIGURE_CALLS,        /* how many latencies p50 and p99 are drawn from */
    FIGURE_ALONE_P50_NS, /* with a stalled neighbour: while it does not stall */
    FIGURE_ALONE_P99_NS,
    FIGURE_CALLBACKS_AHEAD,  /* entries in the callback FIFO, as a waiter's grace period ends */
    FIGURE_FIFO_ENTRY_NS,    /* what one of them costs a waiter behind them */
    FIGURE_CALLBACKS,        /* entries that ran, of all arenas */
    FIGURE_MEMBARRIERS,      /* that the daemon called, for all arenas */
    FIGURE_DIRECT_WAKES,     /* waiters that the grace-period thread woke, */
    FIGURE_WORKER_WAKES,     /* that a worker woke, */
    FIGURE_FIFO_WAKES,       /* that the callback FIFO woke */
    FIGURE_MAX_DIRECT_WAKES, /* most that the grace-period thread woke at one end */
    FIGURE_OBJECTS_PER_GP,   /* freed objects / grace periods */
    FIGURE_FIRST_FREE_NS,    /* from a flood's first deferred free to the first object that is freed */
    FIGURE_FIRST_FREE_P99_NS,
    FIGURE_GP_NS,           /* how long a grace period takes meanwhile */
    FIGURE_OTHER_BYTES,     /* memory of other clients, at its peak: not in the footprint */
    FIGURE_FREED_OBJECTS,   /* as the arena's own books say */
    FIGURE_PENDING_OBJECTS, /* left at the end */
    FIGURE_REFUSED_RECORDS,
    FIGURE_BACKED_BYTES, /* of the arena at the end */
    FIGURE_RETRIES,      /* calls that said -EAGAIN and were made again */
    _FIGURE_MAX,
    _FIGURE_INVALID = -1,
};

struct figures {
    double value[_FIGURE_MAX];
    bool present[_FIGURE_MAX];
};

const char *figure_to_string(enum figure figure);

static inline void figures_set(struct figures *f, enum figure figure, double value)
{
    f->value[figure] = value;
    f->present[figure] = true;
}

/* For people: "3.71", "12.4 us", "91.2 MB" by the figure's kind. Returns text. */
const char *figure_format(enum figure figure, double value, char *text, size_t size);
