/* SPDX-License-Identifier: MIT */
/* What other threads ask the main thread to do: a queue that its event loop empties. Never blocks the one who
 * posts. */
#ifndef RECLAIMD_MAINQUEUE_H
#define RECLAIMD_MAINQUEUE_H

#include <urcu/wfcqueue.h>

struct event_base;
struct mainqueue;

/* Embedded in what it is about; one post of it at a time. run() may free it. */
struct main_post {
    struct cds_wfcq_node node;
    void (*run)(struct main_post *post);
};

int mainqueue_new(struct event_base *base, struct mainqueue **ret);
struct mainqueue *mainqueue_free(struct mainqueue *q);

/* Main thread: runs what was posted, now. For the end, when no loop turns any more. */
void mainqueue_flush(struct mainqueue *q);

/* Any thread. run() happens in the main thread, in the order of the posts of one thread. */
void mainqueue_post(struct mainqueue *q, struct main_post *post, void (*run)(struct main_post *post));

#endif
