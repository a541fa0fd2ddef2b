/* SPDX-License-Identifier: MIT */
/*
 * The callback FIFO: one a daemon, entries that are ready to run (their grace period is over), in order. It
 * is what `gp-wait = callback`, `batching = no` and `wake-from-gp = no` queue behind, as the sources have it;
 * after `callback-limit` entries, or a turn's time, the worker serves its other work once, without sleeping.
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
    bool slow;         /* that worker's: callbacks_note_slow() */
};

void callbacks_init(struct callbacks *c);

/* Any thread; wait-free. */
void callbacks_push(struct callbacks *c, struct callback *callback, void (*run)(struct callback *callback));

/*
 * One thread at a time. Runs at most limit entries, and none once until_usec is past but the first; true: there
 * are more. It costs a third of a cheap entry to look at the clock, so that is done after each slow one, and
 * after every sixteenth.
 */
bool callbacks_run(struct callbacks *c, uint64_t limit, uint64_t until_usec);

/* From within run(): this entry may have taken long. */
void callbacks_note_slow(struct callbacks *c);

bool callbacks_is_empty(struct callbacks *c);

/* Any thread: entries pushed and not yet run. To who runs them at least those whose push has returned. */
uint64_t callbacks_length(const struct callbacks *c);

#endif
