/* SPDX-License-Identifier: MIT */
/* kfree, backend ck-epoch: malloc, and Concurrency Kit's epochs, a record a thread. */
#include <ck_epoch.h>
#include <stdlib.h>

#include "kfree.h"
#include "words.h"

enum {
    /*
     * ck_epoch_poll(3) is there to spread the cost of reclamation over time, so it is called between calls,
     * not after a loop. How often is left to the program. After each call, as its examples do, costs three
     * times as much; 64 is 7 % faster than this in order, 16 is 10 % faster in random order over 100,000
     * objects.
     */
    POLL_EACH = 32,
};

struct ck_context {
    ck_epoch_record_t record; /* first: it wants its own cache line */
    unsigned n_calls;
};

assert_cc(sizeof(ck_epoch_entry_t) <= sizeof(((struct kfree_object *)NULL)->head));

static ck_epoch_t epoch; /* of this process */

static void free_object(ck_epoch_entry_t *entry)
{
    free(container_of(entry, struct kfree_object, head));
}

static inline int context_defer(struct ck_context *c, struct kfree_object *p)
{
    ck_epoch_call(&c->record, (ck_epoch_entry_t *)p->head, free_object);
    if (unlikely(++c->n_calls % POLL_EACH == 0))
        (void)ck_epoch_poll(&c->record);
    return 0;
}

#define KFREE_NAME(name) ck_##name
#define KFREE_CONTEXT struct ck_context
#define KFREE_ALLOC(c, bytes) malloc(bytes)
#define KFREE_DEFER(c, t, p) context_defer(c, p)
#include "kfree-loop.h"

static int ck_process_init(void *job, void **ret)
{
    ck_epoch_init(&epoch);
    return 0;
}

static int ck_thread_init(struct team_thread *t)
{
    struct ck_context *c = aligned_alloc(CK_MD_CACHELINE, ALIGN_UP(sizeof(*c), CK_MD_CACHELINE));

    if (!c)
        return words_set(-ENOMEM, "no memory for an epoch record");
    c->n_calls = 0;
    ck_epoch_register(&epoch, &c->record, NULL);
    t->data = c;
    return ck_fill(t);
}

/* Waits for a grace period and runs this record's callbacks; no other thread may do that for it. */
static int ck_thread_flush(struct team_thread *t)
{
    struct ck_context *c = t->data;

    ck_epoch_barrier(&c->record);
    return 0;
}

static void ck_thread_deinit(struct team_thread *t)
{
    struct ck_context *c = t->data;

    ck_empty(t);
    ck_epoch_barrier(&c->record);
    ck_epoch_unregister(&c->record); /* the record stays on the epoch's list, so it is never given back */
}

const struct kfree_backend kfree_ck_epoch = {
    .name = "ck-epoch",
    .ops = {.process_init = ck_process_init,
            .thread_init = ck_thread_init,
            .thread_run = ck_run,
            .thread_flush = ck_thread_flush,
            .thread_deinit = ck_thread_deinit},
};
