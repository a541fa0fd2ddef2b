/* SPDX-License-Identifier: MIT */
/* The purge timer's decision; see purge.h. */
#include "engine/purge.h"

#include "basic/macro.h"

#define THRESHOLD_STEP_BYTES (32ull << 20)

uint64_t purge_threshold_auto(unsigned n_cpus)
{
    unsigned fls = n_cpus > 0 ? 32u - (unsigned)__builtin_clz(n_cpus) : 1;

    return fls * THRESHOLD_STEP_BYTES;
}

struct purge_decision purge_decide(struct purge_timer *t, const struct purge_input *in)
{
    uint64_t due = PURGE_NEVER;
    bool now;

    if (in->lazy_bytes == 0) { /* G3 */
        t->lazy_usec = 0;
        t->asked = false;
        return (struct purge_decision){false, PURGE_NEVER};
    }
    if (t->lazy_usec == 0)
        t->lazy_usec = in->now_usec;
    if (in->delay_usec != PURGE_NEVER && __builtin_add_overflow(t->lazy_usec, in->delay_usec, &due))
        due = PURGE_NEVER;
    now = t->asked || in->lazy_bytes >= in->threshold_bytes || due <= in->now_usec;
    if (t->n_running > 0 && !in->while_purging) /* G1: whoever ends that purge has this decided anew */
        return (struct purge_decision){false, PURGE_NEVER};
    return (struct purge_decision){now, now ? PURGE_NEVER : due};
}

void purge_begun(struct purge_timer *t)
{
    t->n_running++;
    t->asked = false;
}

void purge_ended(struct purge_timer *t)
{
    t->n_running--;
    if (t->n_running > 0)
        return;
    t->lazy_usec = 0; /* what is lazy from now on is young */
    t->cursor = 0;
}
