/* SPDX-License-Identifier: MIT */
/* When to purge, and how much; see purge.h. */
#include "engine/purge.h"

#include "basic/macro.h"

#define THRESHOLD_STEP_BYTES (32ull << 20)

/* G4: one that runs, or is about to, and one behind it. */
#define WORKS_MAX 2u

/* As long as it takes to punch so much, and to fill it again: 10 ms for 64 MiB. */
#define SETTLE_BYTES_MAX (64ull << 20)
#define SETTLE_USEC_MAX 10000u

/*
 * Rounds: holes of 1 MiB, 256, 64, 16 KiB, of any size. A large hole costs a tenth of what its pages cost one
 * by one, and small ones are the sooner used again, or grow.
 */
#define ROUND_FIRST_BYTES (1ull << 20)
#define ROUND_LAST_BYTES (16ull << 10)
#define ROUND_FACTOR 4u

uint64_t purge_threshold_auto(unsigned n_cpus)
{
    unsigned fls = n_cpus > 0 ? 32u - (unsigned)__builtin_clz(n_cpus) : 1;

    return fls * THRESHOLD_STEP_BYTES;
}

/* Since when it is due by age, or when it will be. */
static uint64_t due_usec(const struct purge_timer *t, const struct purge_input *in)
{
    uint64_t due;

    if (in->delay_usec == PURGE_NEVER || __builtin_add_overflow(t->lazy_usec, in->delay_usec, &due))
        return PURGE_NEVER;
    return due;
}

/* Since when, or from when on, the count is a reason (G5). */
static uint64_t over_usec(struct purge_timer *t, const struct purge_input *in, uint64_t counted)
{
    if (counted < in->threshold_bytes) {
        t->over_usec = 0;
        return PURGE_NEVER;
    }
    if (t->over_usec == 0)
        t->over_usec = in->now_usec;
    if (in->while_purging)
        return t->over_usec;
    return t->over_usec + MIN(in->threshold_bytes, SETTLE_BYTES_MAX) * SETTLE_USEC_MAX / SETTLE_BYTES_MAX;
}

struct purge_decision purge_decide(struct purge_timer *t, const struct purge_input *in)
{
    uint64_t counted = in->lazy_bytes + in->purging_bytes, due = PURGE_NEVER; /* G1 */
    bool now;

    if (in->lazy_bytes == 0) {
        t->lazy_usec = 0;
        t->asked = false;
    } else if (t->lazy_usec == 0) {
        t->lazy_usec = in->now_usec;
    }
    if (counted == 0) { /* G3 */
        t->over_usec = 0;
        return (struct purge_decision){false, PURGE_NEVER};
    }
    if (in->lazy_bytes > 0)
        due = due_usec(t, in);
    due = MIN(due, over_usec(t, in, counted));
    now = t->asked || due <= in->now_usec;
    if (t->n_queued + t->n_running >= (in->while_purging && !t->look ? WORKS_MAX : 1)) { /* G1, G4, G6 */
        t->noted |= now;
        return (struct purge_decision){false, PURGE_NEVER};
    }
    return (struct purge_decision){now, now ? PURGE_NEVER : due};
}

uint64_t purge_ask(struct purge_timer *t)
{
    t->asked = true;
    return t->n_turns + 1;
}

bool purge_is_over(const struct purge_timer *t, uint64_t turn)
{
    return t->n_over >= turn || (!t->asked && t->n_over == t->n_turns);
}

void purge_queued(struct purge_timer *t)
{
    t->n_queued++;
}

/* What asks for all of it is served by the rounds that begin now, and those before have ended. */
static void turn_begin(struct purge_timer *t, const struct purge_input *in)
{
    t->n_over = t->n_turns++;
    t->all = t->asked || (t->lazy_usec > 0 && due_usec(t, in) <= in->now_usec);
    t->asked = t->noted = false;
    if (t->all)
        t->lazy_usec = 0; /* what is not taken from now on is young */
    t->min_bytes = t->all ? 0 : ROUND_FIRST_BYTES;
    t->cursor = 0;
}

void purge_begun(struct purge_timer *t, const struct purge_input *in)
{
    t->n_queued--;
    t->n_running++;
    turn_begin(t, in);
}

void purge_begun_found(struct purge_timer *t)
{
    t->n_running++;
}

uint64_t purge_quota(const struct purge_timer *t, const struct purge_input *in)
{
    uint64_t keep = in->threshold_bytes / 2;

    if (t->all)
        return UINT64_MAX;
    return in->lazy_bytes > keep ? in->lazy_bytes - keep : 0;
}

bool purge_next_round(struct purge_timer *t, const struct purge_input *in)
{
    t->cursor = 0;
    if (t->min_bytes > 0 && purge_quota(t, in) > 0) {
        t->min_bytes = t->min_bytes > ROUND_LAST_BYTES ? t->min_bytes / ROUND_FACTOR : 0;
        return true;
    }
    if (t->all || t->look) /* G6; what was asked for is the next work's */
        return false;
    if (!t->asked && (!t->noted || t->n_queued > 0)) /* G1; what waits is another work's */
        return false;
    turn_begin(t, in);
    return true;
}

void purge_ended(struct purge_timer *t)
{
    t->n_running--;
    t->n_over = t->n_turns;
}

void purge_ended_found(struct purge_timer *t)
{
    t->n_running--;
}
