/* SPDX-License-Identifier: MIT */
/*
 * The callback FIFO: one a daemon, entries that are ready to run (their grace period is over), in order. It
 * is what `gp-wait = callback`, `batching = no` and `wake-from-gp = no` queue behind, as the sources have it;
 * after `callback-limit` entries the worker serves its other work once, without sleeping.
 */
#ifndef RECLAIMD_CALLBACKS_H
#define RECLAIMD_CALLBACKS_H

#include <stdbool.h>
#include <stdint.h>
#include <urcu/wfcqueue.h>

struct callback {
    struct cds_wfcq_node node;
    void (*run)(struct callback *callback); /* in a worker; may free it */
};

struct callbacks {
    struct __cds_wfcq_head head __attribute__((aligned(64)));
    struct cds_wfcq_tail tail __attribute__((aligned(64)));
    uint64_t n_queued; /* any thread adds */
    uint64_t n_run;    /* the one worker that runs them adds */
};

void callbacks_init(struct callbacks *c);

/* Any thread; wait-free. */
void callbacks_push(struct callbacks *c, struct callback *callback, void (*run)(struct callback *callback));

/* One thread at a time. Runs at most limit entries; true: there are more. */
bool callbacks_run(struct callbacks *c, uint64_t limit);

bool callbacks_is_empty(struct callbacks *c);

/* Any thread: entries pushed and not yet run. To who runs them at least those whose push has returned. */
uint64_t callbacks_length(const struct callbacks *c);

#endif
