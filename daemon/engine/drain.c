/* SPDX-License-Identifier: MIT */
/* The drain timer's decision; see drain.h. */
#include "engine/drain.h"

#include "basic/macro.h"

void drain_timer_init(struct drain_timer *t)
{
    *t = (struct drain_timer){.flood_by = DRAIN_NONE, .urgent = DRAIN_NONE};
}

void drain_timer_done(struct drain_timer *t)
{
    drain_timer_init(t);
}

static uint64_t add_saturated(uint64_t a, uint64_t b)
{
    uint64_t sum;

    return __builtin_add_overflow(a, b, &sum) ? DRAIN_NEVER : sum;
}

/* Remembers when each condition was first seen. */
static void drain_timer_note(struct drain_timer *t, const struct drain_input *in)
{
    if (t->first_usec == 0)
        t->first_usec = in->now_usec;
    if (t->flood_usec != 0)
        return;
    if (in->n_objects >= in->flood_objects)
        t->flood_by = DRAIN_FLOOD_OBJECTS;
    else if (in->n_bytes >= in->flood_bytes)
        t->flood_by = DRAIN_FLOOD_BYTES;
    else
        return;
    t->flood_usec = in->now_usec;
}

struct drain_decision drain_decide(struct drain_timer *t, const struct drain_input *in)
{
    enum drain_cause cause = DRAIN_INTERVAL;
    uint64_t deadline;

    if (in->n_objects == 0) { /* D1 */
        drain_timer_init(t);
        return (struct drain_decision){DRAIN_NONE, DRAIN_NEVER};
    }
    drain_timer_note(t, in);
    deadline = add_saturated(t->first_usec, in->interval_usec);
    if (t->flood_usec != 0 && add_saturated(t->flood_usec, in->flood_interval_usec) < deadline) {
        deadline = add_saturated(t->flood_usec, in->flood_interval_usec);
        cause = t->flood_by;
    }
    if (t->urgent != DRAIN_NONE) {
        deadline = in->now_usec;
        cause = t->urgent;
    }
    if (deadline > in->now_usec)
        return (struct drain_decision){DRAIN_NONE, deadline};
    if (!in->batch_free) /* D3 */
        return (struct drain_decision){DRAIN_NONE, DRAIN_NEVER};
    return (struct drain_decision){cause, in->now_usec};
}

bool drain_holds_back(struct drain_hold *h, uint64_t now_usec, uint64_t waiting_bytes, uint64_t flood_bytes,
                      const struct drain_gp *gp)
{
    uint64_t age;

    if (gp->asked <= gp->started || gp->started > gp->completed ||
        waiting_bytes < flood_bytes / DRAIN_LATE_PART) {
        h->since_usec = 0;
        return false;
    }
    if (h->since_usec == 0 || h->completed != gp->completed)
        *h = (struct drain_hold){.since_usec = now_usec, .completed = gp->completed};
    age = now_usec - h->since_usec;
    return age < DRAIN_HOLD_USEC && (age >= DRAIN_LATE_USEC || waiting_bytes >= flood_bytes);
}
