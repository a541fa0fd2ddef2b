/* SPDX-License-Identifier: MIT */
/*
 * What an arena frees through the callback FIFO: each object by itself (batching = no) or a batch by one entry
 * (gp-wait = callback). Both are the sources' older ways, to be compared with: frees then wait for whatever
 * stands before them in the FIFO, whichever arena it is of.
 *
 *  F1 Only what has expired is queued, so no entry waits for a grace period.
 *  F2 An object stays charged to its client until it is free: a page keeps its charges until the last of its
 *     objects has run.
 *  F3 At most SINGLES_MAX objects of an arena are in the FIFO; the others wait in their pages, which are a
 *     tenth of the size. So what a client defers bounds the daemon's memory as it does in every other mode.
 *
 * The entries run in a worker that takes the arena's lock for each.
 */
#include <stdlib.h>

#include "arena-work.h"
#include "basic/macro.h"
#include "basic/ordering.h"
#include "manager.h"
#include "trace-events.h"

#define SINGLES_MAX (1u << 18)

void arena_trace_freed(const struct arena *a, uint64_t objects_before, uint64_t bytes_before)
{
    if (a->pending.freed_objects != objects_before)
        trace_bulk_free(a, a->pending.freed_objects - objects_before, a->pending.freed_bytes - bytes_before);
}

/* ---- batching = no: one entry an object ---- */

struct single {
    struct callback callback;
    struct single_page *page;
    uint64_t word; /* one bit */
};

struct single_page {
    struct arena *arena; /* a reference */
    struct bulk_page *page;
    uint32_t n_left;
    bool zero;
    struct single singles[];
};

/* F2 */
static void single_page_free(struct single_page *sp)
{
    pending_drop_page(&sp->arena->pending, sp->page);
    free(sp);
}

static void single_run(struct callback *callback)
{
    struct single *s = container_of(callback, struct single, callback);
    struct single_page *sp = s->page;
    struct arena *a = sp->arena;
    uint64_t objects_before, bytes_before, n_left;
    bool last;

    (void)pthread_mutex_lock(&a->lock);
    objects_before = a->pending.freed_objects;
    bytes_before = a->pending.freed_bytes;
    pending_expire_object(&a->pending, a->heap, s->word, sp->zero ? a->base : NULL);
    arena_trace_freed(a, objects_before, bytes_before);
    a->n_single_run++;
    n_left = a->n_single_pushed - a->n_single_run;
    last = --sp->n_left == 0;
    if (last)
        single_page_free(sp);
    /* charges ended that a client's limit waits for, room again, or somebody waits for just this */
    if (last || n_left == 0 || n_left == SINGLES_MAX / 2 || a->n_single_run == a->n_single_wanted)
        arena_kick(a);
    (void)pthread_mutex_unlock(&a->lock);
    if (last)
        arena_unref(a);
}

static void single_page_push(struct single_page *sp, uint64_t word)
{
    struct single *s = &sp->singles[sp->n_left++];

    *s = (struct single){.page = sp, .word = word};
    callbacks_push(manager_callbacks(sp->arena->manager), &s->callback, single_run);
}

/* Entries run under the arena's lock, which is held here: n_left is right before the first of them looks. */
static void page_to_singles(struct pass *pass, struct bulk_page *page)
{
    struct arena *a = pass->arena;
    struct single_page *sp = malloc(sizeof(*sp) + page->n_objects * sizeof(sp->singles[0]));

    if (!sp) { /* nothing is lost: free it here */
        pending_expire_page(&a->pending, a->heap, page, arena_zero_base(pass));
        return;
    }
    *sp = (struct single_page){.arena = a, .page = page, .zero = pass->p.zero_on_free};
    arena_ref(a);
    a->n_single_pushed += page->n_objects;
    for (uint32_t i = 0; i < page->n_records; i++)
        for (uint32_t mask = abi_word_mask(page->records[i]); mask; mask &= mask - 1)
            single_page_push(sp, abi_word(abi_word_block(page->records[i]), mask & -mask));
}

/* F1, F3 */
static bool may_go_single(const struct pass *pass, const struct batch *batch)
{
    const struct arena *a = pass->arena;

    return pending_is_due(&a->pending, &batch->pages, pass->completed) &&
           a->n_single_pushed - a->n_single_run < SINGLES_MAX;
}

unsigned arena_expire_to_singles(struct pass *pass)
{
    struct arena *a = pass->arena;
    struct batch *batch;
    struct bulk_page *page;
    unsigned n = 0;

    while (n < ARENA_PAGES_A_PASS && (batch = batch_oldest(&a->batches, BATCH_WAITING)) &&
           may_go_single(pass, batch)) {
        page = page_list_pop(&batch->pages);
        if (pending_prove_page(&a->pending, page, pass->completed))
            page_to_singles(pass, page);
        batch_end_if_empty(&a->batches, batch);
        n++;
    }
    if (n > 0)
        reclaimer_kick_callbacks(manager_reclaimer(a->manager));
    return n;
}

/* ---- gp-wait = callback: one entry a batch ---- */

static void batch_run(struct callback *callback)
{
    struct arena_batch_callback *bc = container_of(callback, struct arena_batch_callback, callback);
    struct arena *a = bc->arena;
    uint64_t objects_before, bytes_before;

    (void)pthread_mutex_lock(&a->lock);
    objects_before = a->pending.freed_objects;
    bytes_before = a->pending.freed_bytes;
    /* Acquire: pairs with grace_complete() */
    batch_expire_all(&a->batches, bc->batch, &a->pending, a->heap, load_acquire(&a->domain->completed),
                     bc->zero ? a->base : NULL);
    arena_trace_freed(a, objects_before, bytes_before);
    (void)pthread_mutex_unlock(&a->lock);
    callbacks_note_slow(manager_callbacks(a->manager));
    arena_kick(a);
    arena_unref(a);
}

unsigned arena_expire_to_callbacks(struct pass *pass)
{
    struct arena *a = pass->arena;
    struct batch *batch;
    unsigned n = 0;

    while ((batch = batch_oldest(&a->batches, BATCH_WAITING)) && batch->cookie <= pass->completed) {
        struct arena_batch_callback *bc = &a->batch_callbacks[batch - a->batches.all];

        *bc = (struct arena_batch_callback){.arena = a, .batch = batch, .zero = pass->p.zero_on_free};
        batch->stage = BATCH_QUEUED;
        arena_ref(a);
        callbacks_push(manager_callbacks(a->manager), &bc->callback, batch_run);
        n++;
    }
    if (n > 0)
        reclaimer_kick_callbacks(manager_reclaimer(a->manager));
    return n;
}
