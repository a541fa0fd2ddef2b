/* SPDX-License-Identifier: MIT */
/*
 * When to drain (DRAIN): seldom when little waits, at once when flooded. A pure decision from a snapshot.
 *
 * Guarantees
 *  D1 Nothing pending: no deadline at all.
 *  D2 The deadline is drain-interval after the first pending object, flood-interval after a flood began
 *     (objects or bytes); it follows from these instants and the parameters of the moment, so it is only
 *     brought forward by what happens, and a changed parameter acts on the armed timer.
 *  D3 With all batches in flight nothing is drained; the end of one asks again.
 *  D4 Under a flood that grace periods do not keep up with, rings are left alone while flood-bytes wait for one
 *     that was asked for, or a quarter of them for one that is late: rings fill, and who floods waits, which also
 *     leaves the processor to the grace period. DRAIN_HOLD_USEC later they are emptied again although that grace
 *     period is not over: a reader that waits for room in its ring may be the very one that it waits for.
 */
#ifndef RECLAIMD_ENGINE_DRAIN_H
#define RECLAIMD_ENGINE_DRAIN_H

#include <stdbool.h>
#include <stdint.h>

enum drain_cause {
    DRAIN_NONE = -1,
    DRAIN_INTERVAL,
    DRAIN_FLOOD_OBJECTS,
    DRAIN_FLOOD_BYTES,
    DRAIN_FULL,     /* an allocation or a pending limit needs the room */
    DRAIN_PRESSURE, /* memory is short */
    DRAIN_REQUEST,  /* somebody asked for a drain */
    DRAIN_BARRIER,  /* .. or for a barrier */
    DRAIN_DEATH,    /* a client or lane is gone */
    DRAIN_CAUSE_MAX,
};

#define DRAIN_NEVER UINT64_MAX

/* What the timer remembers. Zero: nothing pending. */
struct drain_timer {
    uint64_t first_usec;       /* when the first pending object was seen; 0: none */
    uint64_t flood_usec;       /* when the flood was seen; 0: none */
    enum drain_cause flood_by; /* objects or bytes */
    enum drain_cause urgent;   /* DRAIN_FULL ..: drain now; DRAIN_NONE */
};

struct drain_input {
    uint64_t now_usec;
    uint64_t n_objects, n_bytes; /* pending, not in a batch yet */
    bool batch_free;
    uint64_t interval_usec, flood_objects, flood_bytes, flood_interval_usec;
};

struct drain_decision {
    enum drain_cause drain; /* now, and why; DRAIN_NONE: not now */
    uint64_t deadline_usec; /* look again then; DRAIN_NEVER */
};

void drain_timer_init(struct drain_timer *t);
struct drain_decision drain_decide(struct drain_timer *t, const struct drain_input *in);

/* A batch took everything. */
void drain_timer_done(struct drain_timer *t);

/* D4: remembers since when so much waits for the grace period after this one. Zero: it does not. */
struct drain_hold {
    uint64_t since_usec, completed;
};

#define DRAIN_HOLD_USEC 5000u /* two or three of the scheduler's slices */
#define DRAIN_LATE_USEC 200u  /* four times what one takes that nobody is in the way of */
#define DRAIN_LATE_PART 4u

/* waiting_bytes: pending in all. asked, completed: the newest grace period that was asked for, that is over. */
bool drain_holds_back(struct drain_hold *h, uint64_t now_usec, uint64_t waiting_bytes, uint64_t flood_bytes,
                      uint64_t asked, uint64_t completed);

#endif
