/* SPDX-License-Identifier: MIT */
/* Batches in flight; see batch.h. */
#include "engine/batch.h"

static void batch_end(struct batches *b, struct batch *batch)
{
    batch->stage = BATCH_IDLE;
    b->n_running--;
}

void batch_end_if_empty(struct batches *b, struct batch *batch)
{
    if (!batch->pages.first)
        batch_end(b, batch);
}

struct batch *batch_begin(struct batches *b, struct pending *p, unsigned max)
{
    struct batch *batch = NULL;

    if (b->n_running >= MIN(max, BATCHES_MAX))
        return NULL;
    pending_close(p);
    if (!p->closed.first)
        return NULL;
    for (unsigned i = 0; i < BATCHES_MAX && !batch; i++)
        if (b->all[i].stage == BATCH_IDLE)
            batch = &b->all[i];
    if (!batch)
        return NULL;
    page_list_init(&batch->pages);
    page_list_splice(&batch->pages, &p->closed);
    p->n_objects = p->n_bytes = 0;
    /* P2: the last is the newest */
    batch->cookie = container_of(batch->pages.last, struct bulk_page, next)->cookie;
    batch->number = ++b->n_begun;
    batch->stage = BATCH_WAITING;
    b->n_running++;
    return batch;
}

struct batch *batch_oldest(struct batches *b, enum batch_stage stage)
{
    struct batch *oldest = NULL;

    if (b->n_running == 0)
        return NULL;
    for (unsigned i = 0; i < BATCHES_MAX; i++)
        if (b->all[i].stage == stage && (!oldest || b->all[i].number < oldest->number))
            oldest = &b->all[i];
    return oldest;
}

unsigned batches_expire(struct batches *b, struct pending *p, struct heap *h, uint64_t completed,
                        unsigned max_pages, void *zero_base)
{
    struct batch *batch;
    unsigned n = 0;

    while (n < max_pages && (batch = batch_oldest(b, BATCH_WAITING))) {
        n += pending_expire(p, h, &batch->pages, completed, max_pages - n, zero_base);
        if (batch->pages.first)
            break;
        batch_end_if_empty(b, batch);
    }
    return n;
}

void batch_expire_all(struct batches *b, struct batch *batch, struct pending *p, struct heap *h,
                      uint64_t completed, void *zero_base)
{
    struct bulk_page *page;

    while ((page = page_list_pop(&batch->pages)))
        if (pending_prove_page(p, page, completed))
            pending_expire_page(p, h, page, zero_base);
    batch_end(b, batch);
}

void batch_drop(struct batch *batch, struct pending *p)
{
    struct bulk_page *page;

    while ((page = page_list_pop(&batch->pages)))
        pending_drop_page(p, page);
    batch->stage = BATCH_IDLE;
}
