/* SPDX-License-Identifier: MIT */
/* The callback FIFO; see callbacks.h. */
#include "callbacks.h"

#include "basic/macro.h"
#include "basic/ordering.h"
#include "clock.h"

#define LOOK_ENTRIES 16u /* at the clock */

void callbacks_init(struct callbacks *c)
{
    __cds_wfcq_init(&c->head, &c->tail);
    c->n_queued = c->n_run = 0;
    c->slow = false;
}

void callbacks_push(struct callbacks *c, struct callback *callback, void (*run)(struct callback *callback))
{
    /* Release: all that the pusher did before; pairs with the acquire in callbacks_run(). */
    store_release(&callback->run, run);
    cds_wfcq_node_init(&callback->node);
    (void)fetch_add_relaxed(&c->n_queued, 1); /* a figure */
    (void)cds_wfcq_enqueue(&c->head, &c->tail, &callback->node);
}

bool callbacks_is_empty(struct callbacks *c)
{
    return cds_wfcq_empty(&c->head, &c->tail);
}

uint64_t callbacks_length(const struct callbacks *c)
{
    uint64_t n_run = load_relaxed(&c->n_run), n_queued = load_relaxed(&c->n_queued); /* either may be late */

    return n_queued - MIN(n_run, n_queued);
}

void callbacks_note_slow(struct callbacks *c)
{
    c->slow = true;
}

static bool turn_is_over(struct callbacks *c, uint64_t n_run, uint64_t until_usec)
{
    if (!c->slow && n_run % LOOK_ENTRIES != 0)
        return false;
    c->slow = false;
    return now_usec() >= until_usec;
}

bool callbacks_run(struct callbacks *c, uint64_t limit, uint64_t until_usec)
{
    for (uint64_t i = 0; i < limit; i++) {
        struct cds_wfcq_node *node = __cds_wfcq_dequeue_blocking(&c->head, &c->tail);
        void (*run)(struct callback * callback);
        struct callback *callback;

        if (!node)
            return false;
        callback = container_of(node, struct callback, node);
        run = load_acquire(&callback->run);     /* pairs with callbacks_push() */
        store_relaxed(&c->n_run, c->n_run + 1); /* a figure, read elsewhere */
        run(callback);
        if (turn_is_over(c, i + 1, until_usec))
            break;
    }
    return !callbacks_is_empty(c);
}
