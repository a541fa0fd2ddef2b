/* SPDX-License-Identifier: MIT */
/* What an event says of its arena; see trace-events.h. */
#include "trace-events.h"

#include <string.h>

static struct trace_origin origin_of(const struct arena *a)
{
    struct trace_origin origin = {
        .mode = a->mode, .owner = a->owner, .group = a->group}; /* fixed at its making */

    assert_cc(sizeof(origin.arena) == sizeof(a->name));
    memcpy(origin.arena, a->name, sizeof(origin.arena));
    return origin;
}

void trace_arena_push(enum trace_event event, const struct arena *a,
                      const uint64_t values[static TRACE_VALUES])
{
    struct trace_origin origin = origin_of(a);

    trace_push(event, &origin, values);
}

void trace_client_push(enum trace_event event, const struct arena *a, const struct client *c,
                       const uint64_t values[static TRACE_VALUES])
{
    struct trace_origin origin = origin_of(a);

    assert_cc(sizeof(origin.command) == sizeof(c->comm));
    memcpy(origin.command, c->comm, sizeof(origin.command));
    trace_push(event, &origin, values);
}
