/* SPDX-License-Identifier: MIT */
/* When a stall is told of; see stall.h. */
#include "engine/stall.h"

#include "basic/macro.h"

static uint64_t add_or_never(uint64_t a, uint64_t b)
{
    uint64_t sum;

    return __builtin_add_overflow(a, b, &sum) ? STALL_NEVER : sum;
}

/* The first of the times that lies behind `told`. S1, S2 */
static uint64_t stall_next(uint64_t timeout, uint64_t told)
{
    uint64_t gap_max = MAX(STALL_GAP_USEC, add_or_never(timeout, timeout)), next = timeout;

    while (next <= told && next < gap_max / 2)
        next *= 3;
    if (next <= told)
        next = add_or_never(next, ((told - next) / gap_max + 1) * gap_max);
    return next;
}

struct stall_decision stall_decide(const struct stall_input *in)
{
    struct stall_decision d = {.next_usec = STALL_NEVER};

    if (in->timeout_usec == STALL_NEVER)
        return d;
    d.next_usec = stall_next(in->timeout_usec, in->told_usec);
    if (in->waited_usec >= d.next_usec) {
        d.tell = true;
        d.next_usec = stall_next(in->timeout_usec, in->waited_usec);
    }
    d.kill = in->kill && in->waited_usec >= in->timeout_usec && (d.tell || !in->killed); /* S3 */
    return d;
}
