/* SPDX-License-Identifier: MIT */
/*
 * Trace: what the daemon does, as it happens, for whoever listens. One ring a daemon: any thread puts
 * events in, the main thread takes them out and hands them on (control-trace.c). What may be put in where
 * stands in trace-events.h; this file knows nothing of arenas.
 *
 *               trace_push()   trace_take()   trace_want()   trace_wants()
 *     any thread     yes            -              -              yes
 *     main thread    yes            yes            yes            yes
 *
 * Guarantees
 *  T1 Nobody listens: an event costs one relaxed load and a branch.
 *  T2 No producer ever waits: not for the consumer, not for another producer that was stopped half-way.
 *     With the ring full the event is dropped and counted. (Lock-free: a claim fails only because another
 *     one succeeded.)
 *  T3 The consumer never waits either: it takes what is complete and comes back later. (Wait-free.)
 *  T4 Two events, one of which happened before the other, in one thread or by way of any synchronization
 *     between two, are taken in that order.
 *  T5 What is taken is whole, and is taken once.
 */
#ifndef RECLAIMD_TRACE_H
#define RECLAIMD_TRACE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "basic/macro.h"
#include "basic/ordering.h"
#include "basic/parse.h"

enum trace_event {
    TRACE_BULK_FREE,     /* objects, bytes */
    TRACE_GP_START,      /* number */
    TRACE_GP_END,        /* number, duration */
    TRACE_SYNC_REQUEST,  /* client (0: the daemon itself) */
    TRACE_SYNC_COMPLETE, /* client */
    TRACE_DRAIN,         /* cause (enum drain_cause), objects, bytes, pages */
    TRACE_PURGE,         /* holes, bytes */
    TRACE_STALL,         /* client, pid, tid, number, duration so far; objects, bytes, waiters behind it */
    TRACE_STALL_ENDED,   /* the same, of the whole */
    TRACE_STALL_KILL,    /* client, pid, errno (0: killed) */
    TRACE_ATTACH,        /* client, pid */
    TRACE_DETACH,        /* client, pid */
    TRACE_EVENT_MAX,
    TRACE_EVENT_INVALID = -1,
};

#define TRACE_ALL ((UINT32_C(1) << TRACE_EVENT_MAX) - 1)
#define TRACE_VALUES 8u /* of one event at most */
#define TRACE_RING_SIZE                                                                                      \
    4096u /* three quarters of a MiB, and 200,000 events a second at 20 ms a look; a power of two */

/*
 * Where it happened, and what decides who may see it: a copy, as the arena may be gone when it is looked
 * at.
 */
struct trace_origin {
    char arena[ARENA_NAME_BYTES];
    mode_t mode;
    uid_t owner;
    gid_t group;
    char command[16]; /* what the process calls itself that it is about; empty: not said */
};

struct trace_record {
    uint64_t usec; /* CLOCK_MONOTONIC, when it was put in */
    uint64_t values[TRACE_VALUES];
    struct trace_origin origin;
    enum trace_event event;
};

/* The names are the kernel's for such events. */
const char *trace_event_to_string(enum trace_event event);
enum trace_event trace_event_from_string(const char *name);

/* What a value is, by the name that it has on the wire; NULL: the event has no such value. */
const char *trace_value_name(enum trace_event event, unsigned i);

extern uint32_t trace_wanted; /* a bit an event; main thread writes */

/*
 * A stale answer records an event too much, which nobody is given, or one too few of those that come while
 * somebody begins to listen.
 */
static inline bool trace_wants(enum trace_event event)
{
    return unlikely(load_relaxed(&trace_wanted) & (UINT32_C(1) << event));
}

/* Whatever is wanted or not: ask before. */
void trace_push(enum trace_event event, const struct trace_origin *origin,
                const uint64_t values[static TRACE_VALUES]);

/*
 * Main thread: from now on these are wanted. Who begins to listen does not get what was left by those
 * before.
 */
void trace_want(uint32_t events);

/* Main thread: the oldest one; false: there is none, or it is not complete yet. */
bool trace_take(struct trace_record *ret);

/* How many found the ring full, since the start. */
uint64_t trace_n_dropped(void);

#endif
