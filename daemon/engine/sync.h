/* SPDX-License-Identifier: MIT */
/*
 * Who wakes those whose grace period is over (SYNC). A pure decision: from how many are in flight, and what
 * has been seen since none was, to one of three ways for each waiter.
 *
 * The *load* is one word, so that its two halves change together whoever changes them: the waiters in flight
 * (called and not yet served, by whatever list they stand on) and whether they are a flood.
 *
 * Guarantees
 *  S1 A flood begins when wake-flood waiters are in flight, at a call or when the parameter comes down to
 *     them, and ends when none is. It is seen in every mode, so that a switch to `auto` in the middle of one
 *     finds it.
 *  S2 `no`, and `auto` in a flood: behind the callbacks, except who asked for an expedited grace period. All
 *     others: the grace-period thread wakes the first wake-direct, never more at one end, and a worker the
 *     rest.
 *  S3 Whether a waiter has a cookie or has given up makes no difference, and all of them count.
 *  S4 In a crowd grace periods keep a distance, so that the next serves all that came meanwhile: each interrupts
 *     every busy processor, and callers that trickle in over milliseconds would have one for nearly each. A crowd
 *     is SYNC_CROWD callers within SYNC_WINDOW_USEC none of whom had called in the window before; it lasts for as
 *     long as windows bring so many. Who calls again at once is no crowd, and who asks for an expedited grace
 *     period does not wait.
 */
#ifndef RECLAIMD_ENGINE_SYNC_H
#define RECLAIMD_ENGINE_SYNC_H

#include <stdbool.h>
#include <stdint.h>

/* wake-from-gp; in the order of the parameter's words. */
enum sync_mode {
    SYNC_NO,
    SYNC_YES,
    SYNC_AUTO,
};

enum sync_way {
    SYNC_DIRECT, /* by the grace-period thread, here and now */
    SYNC_WORKER, /* by a worker, at once */
    SYNC_FIFO,   /* by a worker, when the callbacks before it have run */
    SYNC_WAY_MAX,
};

struct sync_rule {
    enum sync_mode mode;
    uint64_t wake_direct, wake_flood;
};

/* The end of one grace period: how its waiters are woken. */
struct sync_end {
    bool fifo; /* for those who are not expedited */
    uint64_t direct_max;
    uint64_t n[SYNC_WAY_MAX]; /* so far */
};

/* The load after one more has called; after one was served; after a look with this wake-flood. */
uint64_t sync_load_enter(uint64_t load, uint64_t wake_flood);
uint64_t sync_load_leave(uint64_t load);
uint64_t sync_load_judge(uint64_t load, uint64_t wake_flood);

/* Of them, how many are in flight. */
uint64_t sync_load_waiters(uint64_t load);

/* load: after sync_load_judge(). */
struct sync_end sync_end_begin(uint64_t load, const struct sync_rule *rule);

/* The next one's way. */
enum sync_way sync_end_next(struct sync_end *e, bool expedited);

/* S4 */
#define SYNC_CROWD 8u
#define SYNC_WINDOW_USEC 1000u
#define SYNC_DISTANCE_USEC 250u

struct sync_pace {
    uint64_t window_usec; /* when it began */
    uint32_t n_fresh;     /* callers in it */
    bool crowd;           /* .. and in the one before, enough */
    uint64_t start_usec;  /* of the last grace period */
};

/* Somebody calls, who called last at last_usec (0: never). */
void sync_pace_call(struct sync_pace *p, uint64_t now_usec, uint64_t last_usec);

/* A grace period begins. */
void sync_pace_start(struct sync_pace *p, uint64_t now_usec);

/* When the next may begin; not after now_usec: at once. */
uint64_t sync_pace_next(const struct sync_pace *p, uint64_t now_usec);

#endif
