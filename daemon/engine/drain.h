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
 *  D4 Under a flood rings are left alone while flood-bytes wait for a grace period that was asked for and has not
 *     begun, or a quarter of them for one that is late to begin: the thread that begins it does not get a
 *     processor. Rings fill, and who floods waits, which leaves it one. Readers have no part in it: nothing is held
 *     back once a grace period is under way, nor for longer than DRAIN_HOLD_USEC.
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

/* D4: remembers since when so much waits. Zero: it does not. */
struct drain_hold {
    uint64_t since_usec, completed;
};

/* Grace periods by number: the newest that was asked for, that began, that is over. */
struct drain_gp {
    uint64_t asked, started, completed;
};

#define DRAIN_HOLD_USEC 5000u /* two or three of the scheduler's slices */
#define DRAIN_LATE_USEC 200u  /* a thread that is woken begins within some tens */
#define DRAIN_LATE_PART 4u

/* waiting_bytes: all that is pending, also what is free to go and has yet to be freed. */
bool drain_holds_back(struct drain_hold *h, uint64_t now_usec, uint64_t waiting_bytes, uint64_t flood_bytes,
                      const struct drain_gp *gp);

#endif
