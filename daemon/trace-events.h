/* SPDX-License-Identifier: MIT */
/*
 * The events, a function each, called where they happen. Each is a USDT probe too, reclaimd:gp_start and so
 * on, when this was built with <sys/sdt.h> (option usdt): an instruction that does nothing until a tracer
 * puts its own there (`bpftrace -l 'usdt:/usr/bin/reclaimd:*'`). A probe's arguments are the arena's name,
 * then those of the function.
 *
 * They may be called under any lock: none is taken here. See trace.h for what they cost.
 */
#ifndef RECLAIMD_TRACE_EVENTS_H
#define RECLAIMD_TRACE_EVENTS_H

#include "arena.h"
#include "stall-report.h"
#include "trace.h"

#ifdef RECLAIMD_USDT
#include <sys/sdt.h>
#define PROBE2(name, a, b) DTRACE_PROBE2(reclaimd, name, a, b)
#define PROBE3(name, a, b, c) DTRACE_PROBE3(reclaimd, name, a, b, c)
#define PROBE5(name, a, b, c, d, e) DTRACE_PROBE5(reclaimd, name, a, b, c, d, e)
#define PROBE4(name, a, b, c, d) DTRACE_PROBE4(reclaimd, name, a, b, c, d)
#define PROBE9(name, a, b, c, d, e, f, g, h, i) DTRACE_PROBE9(reclaimd, name, a, b, c, d, e, f, g, h, i)
#else
#define PROBE2(name, a, b) ((void)0)
#define PROBE3(name, a, b, c) ((void)0)
#define PROBE4(name, a, b, c, d) ((void)0)
#define PROBE5(name, a, b, c, d, e) ((void)0)
#define PROBE9(name, a, b, c, d, e, f, g, h, i) ((void)0)
#endif

/* The rarer half: somebody listens. The second says too what the client calls itself. */
void trace_arena_push(enum trace_event event, const struct arena *a,
                      const uint64_t values[static TRACE_VALUES]);
void trace_client_push(enum trace_event event, const struct arena *a, const struct client *c,
                       const uint64_t values[static TRACE_VALUES]);

#define TRACE_ARENA(event, a, ...)                                                                           \
    do {                                                                                                     \
        if (trace_wants(event))                                                                              \
            trace_arena_push(event, a, (const uint64_t[TRACE_VALUES]){__VA_ARGS__});                         \
    } while (0)

#define TRACE_CLIENT(event, a, client, ...)                                                                  \
    do {                                                                                                     \
        if (trace_wants(event))                                                                              \
            trace_client_push(event, a, client, (const uint64_t[TRACE_VALUES]){__VA_ARGS__});                \
    } while (0)

/* Objects went back to the heap after their grace period. */
static inline void trace_bulk_free(const struct arena *a, uint64_t n_objects, uint64_t n_bytes)
{
    PROBE3(bulk_free, a->name, n_objects, n_bytes);
    TRACE_ARENA(TRACE_BULK_FREE, a, n_objects, n_bytes);
}

static inline void trace_gp_start(const struct arena *a, uint64_t number)
{
    PROBE2(gp_start, a->name, number);
    TRACE_ARENA(TRACE_GP_START, a, number);
}

static inline void trace_gp_end(const struct arena *a, uint64_t number, uint64_t usec)
{
    PROBE3(gp_end, a->name, number, usec);
    TRACE_ARENA(TRACE_GP_END, a, number, usec);
}

/* Somebody waits for a grace period: client 0 is the daemon itself, for its control interface. */
static inline void trace_sync_request(const struct arena *a, uint64_t client)
{
    PROBE2(sync_request, a->name, client);
    TRACE_ARENA(TRACE_SYNC_REQUEST, a, client);
}

/* It is about to be told that it is over. */
static inline void trace_sync_complete(const struct arena *a, uint64_t client)
{
    PROBE2(sync_complete, a->name, client);
    TRACE_ARENA(TRACE_SYNC_COMPLETE, a, client);
}

/* A batch began with all that was pending. */
static inline void trace_drain(const struct arena *a, enum drain_cause cause, const struct page_list *pages)
{
    PROBE5(drain, a->name, cause, pages->n_objects, pages->n_bytes, pages->n_pages);
    TRACE_ARENA(TRACE_DRAIN, a, (uint64_t)cause, pages->n_objects, pages->n_bytes, pages->n_pages);
}

/* Memory was given back to the operating system. */
static inline void trace_purge(const struct arena *a, uint64_t n_holes, uint64_t n_bytes)
{
    PROBE3(purge, a->name, n_holes, n_bytes);
    TRACE_ARENA(TRACE_PURGE, a, n_holes, n_bytes);
}

/* A reader has held up a grace period for stall-timeout or longer. */
static inline void trace_stall(const struct arena *a, const struct stall_report *r)
{
    PROBE9(stall, a->name, r->client->id, r->client->pid, r->tid, r->number, r->usec, r->objects, r->bytes,
           r->waiters);
    TRACE_CLIENT(TRACE_STALL, a, r->client, r->client->id, (uint64_t)r->client->pid, r->tid, r->number,
                 r->usec, r->objects, r->bytes, r->waiters);
}

/* It was told of, and does so no longer. */
static inline void trace_stall_ended(const struct arena *a, const struct stall_report *r)
{
    PROBE9(stall_ended, a->name, r->client->id, r->client->pid, r->tid, r->number, r->usec, r->objects,
           r->bytes, r->waiters);
    TRACE_CLIENT(TRACE_STALL_ENDED, a, r->client, r->client->id, (uint64_t)r->client->pid, r->tid, r->number,
                 r->usec, r->objects, r->bytes, r->waiters);
}

/* What came of stall-action = kill. */
static inline void trace_stall_kill(const struct arena *a, const struct client *c, int error)
{
    PROBE4(stall_kill, a->name, c->id, c->pid, error);
    TRACE_CLIENT(TRACE_STALL_KILL, a, c, c->id, (uint64_t)c->pid, (uint64_t)error);
}

static inline void trace_attach(const struct arena *a, const struct client *c)
{
    PROBE3(attach, a->name, c->id, c->pid);
    TRACE_ARENA(TRACE_ATTACH, a, c->id, (uint64_t)c->pid);
}

/* Nothing of it is left in the arena. */
static inline void trace_detach(const struct arena *a, const struct client *c)
{
    PROBE3(detach, a->name, c->id, c->pid);
    TRACE_ARENA(TRACE_DETACH, a, c->id, (uint64_t)c->pid);
}

#endif
