/* SPDX-License-Identifier: MIT */
/* What an event says of its arena; see trace-events.h. */
#include "trace-events.h"

#include <string.h>

void trace_arena_push(enum trace_event event, const struct arena *a,
                      const uint64_t values[static TRACE_VALUES])
{
    struct trace_origin origin = {
        .mode = a->mode, .owner = a->owner, .group = a->group}; /* fixed at its making */

    assert_cc(sizeof(origin.arena) == sizeof(a->name));
    memcpy(origin.arena, a->name, sizeof(origin.arena));
    trace_push(event, &origin, values);
}
