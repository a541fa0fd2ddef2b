/* SPDX-License-Identifier: MIT */
/*
 * Reclaimer: a few worker threads and what they take turns at: arenas that want a look, the callback FIFO,
 * and waiters whom the grace-period thread leaves to them.
 *
 *   IDLE --kick--> QUEUED --a worker--> RUNNING --done--> IDLE (armed when it named a deadline)
 *                                       RUNNING --kick--> AGAIN --done--> QUEUED
 *
 * Guarantees
 *  R1 At most one worker runs an arena at a time, and two runs of it are ordered by the lock.
 *  R2 A kick is never lost: a run that begins after it follows.
 *  R3 Arenas run in the order in which they were queued; one that wants to go on goes to the end. None
 *     starves another.
 *  R4 With nothing queued and nothing armed no worker wakes up.
 */
#ifndef RECLAIMD_RECLAIMER_H
#define RECLAIMD_RECLAIMER_H

#include <stdbool.h>
#include <stdint.h>

#include "callbacks.h"

struct reclaimer;

enum runnable_state {
    RUNNABLE_IDLE,
    RUNNABLE_QUEUED,
    RUNNABLE_RUNNING,
    RUNNABLE_AGAIN,
};

#define RUN_NEVER UINT64_MAX
#define RUN_AGAIN 0u /* go to the end of the queue at once */

/* Embedded in an arena. run() returns when to run next: RUN_AGAIN, a time of the monotonic clock, or
 * RUN_NEVER. */
struct runnable {
    struct runnable *next; /* queue */
    struct runnable *armed_prev, *armed_next;
    uint64_t deadline_usec; /* RUN_NEVER: not armed */
    enum runnable_state state;
    bool leaving; /* reclaimer_remove() waits for its run to end */
    uint64_t (*run)(struct runnable *r);
};

int reclaimer_new(unsigned n_workers, struct callbacks *callbacks, struct reclaimer **ret);

/* Ends the workers. What is queued afterwards is not run. */
void reclaimer_stop(struct reclaimer *r);

/* Stopped before: runs what is in the callback FIFO here, so that nobody who waits is forgotten. */
void reclaimer_flush(struct reclaimer *r);

/* Stopped before. */
struct reclaimer *reclaimer_free(struct reclaimer *r);

void runnable_init(struct runnable *runnable, uint64_t (*run)(struct runnable *r));

/* Any thread. Run it soon. */
void reclaimer_kick(struct reclaimer *r, struct runnable *runnable);

/* Waits until no worker is in it and takes it off: it is not run any more. Main thread. */
void reclaimer_remove(struct reclaimer *r, struct runnable *runnable);

/* Any thread: the callback FIFO has something. */
void reclaimer_kick_callbacks(struct reclaimer *r);

/* Any thread: work that goes ahead of the callback FIFO (waiters that the grace-period thread leaves to a
 * worker). */
void reclaimer_push_direct(struct reclaimer *r, struct callback *callback,
                           void (*run)(struct callback *callback));

void reclaimer_set_callback_limit(struct reclaimer *r, uint64_t limit);

#endif
