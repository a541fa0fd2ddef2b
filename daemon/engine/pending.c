/* SPDX-License-Identifier: MIT */
/* Pages of deferred objects: appended to, closed with a cookie, freed when that has expired. See pending.h.
 */
#include "engine/pending.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "basic/ordering.h"

void page_list_init(struct page_list *list)
{
    *list = (struct page_list){.last = &list->first};
}

void page_list_append(struct page_list *list, struct bulk_page *page)
{
    page->next = NULL;
    *list->last = page;
    list->last = &page->next;
    list->n_pages++;
    list->n_objects += page->n_objects;
    list->n_bytes += page->n_bytes;
}

struct bulk_page *page_list_pop(struct page_list *list)
{
    struct bulk_page *page = list->first;

    if (!page)
        return NULL;
    list->first = page->next;
    if (!list->first)
        list->last = &list->first;
    list->n_pages--;
    list->n_objects -= page->n_objects;
    list->n_bytes -= page->n_bytes;
    return page;
}

void page_list_splice(struct page_list *to, struct page_list *from)
{
    if (!from->first)
        return;
    *to->last = from->first;
    to->last = from->last;
    to->n_pages += from->n_pages;
    to->n_objects += from->n_objects;
    to->n_bytes += from->n_bytes;
    page_list_init(from);
}

void pending_init(struct pending *p, const struct pending_ops *ops)
{
    *p = (struct pending){.ops = *ops};
    page_list_init(&p->closed);
    page_list_init(&p->kept);
}

void pending_drop_spare(struct pending *p)
{
    while (p->spare) {
        struct bulk_page *next = p->spare->next;

        free(p->spare);
        p->spare = next;
    }
    p->n_spare = 0;
}

static void account_unref(struct account *a)
{
    if (--a->refs == 0 && a->closed)
        a->release(a);
}

void account_close(struct account *a)
{
    a->refs++;
    a->closed = true;
    account_unref(a);
}

static void page_uncharge(struct bulk_page *page)
{
    for (unsigned i = 0; i < page->n_charges; i++) {
        struct bulk_charge *c = &page->charges[i];

        /* Relaxed: only this worker writes them; whoever displays them may be a moment late. */
        store_relaxed(&c->account->pending_objects, c->account->pending_objects - c->objects);
        store_relaxed(&c->account->pending_bytes, c->account->pending_bytes - c->bytes);
        account_unref(c->account);
    }
    page->n_charges = 0;
}

void pending_drop_page(struct pending *p, struct bulk_page *page)
{
    page_uncharge(page);
    if (p->n_spare >= PENDING_SPARE_MAX) {
        free(page);
        return;
    }
    page->next = p->spare;
    p->spare = page;
    p->n_spare++;
}

void pending_deinit(struct pending *p)
{
    struct bulk_page *page;

    for (unsigned c = 0; c < PENDING_CHANNELS; c++)
        if (p->open[c]) {
            pending_drop_page(p, p->open[c]);
            p->open[c] = NULL;
        }
    while ((page = page_list_pop(&p->closed)) || (page = page_list_pop(&p->kept)))
        pending_drop_page(p, page);
    pending_drop_spare(p);
}

static struct bulk_page *page_new(struct pending *p, enum pending_channel channel)
{
    struct bulk_page *page = p->spare;

    if (page) {
        p->spare = page->next;
        p->n_spare--;
    } else {
        page = malloc(sizeof(*page));
        if (!page)
            return NULL;
    }
    page->next = NULL;
    page->cookie = 0;
    page->n_records = page->n_charges = page->n_objects = 0;
    page->n_bytes = 0;
    page->channel = channel;
    return page;
}

/* Objects a page, by powers of two. */
static void page_count(struct pending *p, const struct bulk_page *page)
{
    unsigned bucket = 31u - (unsigned)__builtin_clz(page->n_objects);

    p->n_pages_closed++;
    p->n_page_objects += page->n_objects;
    p->histogram[MIN(bucket, PENDING_HISTOGRAM - 1)]++;
}

/* P1: nothing is appended after the cookie was taken. */
static void channel_close(struct pending *p, enum pending_channel channel)
{
    struct bulk_page *page = p->open[channel];

    if (!page || page->n_objects == 0)
        return;
    p->open[channel] = NULL;
    page->cookie = p->newest_cookie = p->ops.take_cookie(p->ops.userdata);
    page_count(p, page);
    page_list_append(&p->closed, page);
}

void pending_close(struct pending *p)
{
    for (unsigned c = 0; c < PENDING_CHANNELS; c++)
        channel_close(p, c);
}

/* The page's charge for that account, opened if need be; NULL when the page has no room for another. */
static struct bulk_charge *page_charge(struct bulk_page *page, struct account *a)
{
    struct bulk_charge *c;

    if (page->n_charges > 0 && page->charges[page->n_charges - 1].account == a)
        return &page->charges[page->n_charges - 1];
    for (unsigned i = 0; i < page->n_charges; i++)
        if (page->charges[i].account == a)
            return &page->charges[i];
    if (page->n_charges == BULK_CHARGES)
        return NULL;
    c = &page->charges[page->n_charges++];
    *c = (struct bulk_charge){.account = a};
    a->refs++;
    return c;
}

/* A page of that channel with room for one record of that account. NULL: no memory. */
static struct bulk_page *channel_page(struct pending *p, enum pending_channel channel, struct account *a,
                                      struct bulk_charge **ret_charge)
{
    struct bulk_page *page = p->open[channel];

    if (page && page->n_records < BULK_RECORDS && page->n_bytes < BULK_BYTES &&
        (*ret_charge = page_charge(page, a)))
        return page;
    channel_close(p, channel);
    page = page_new(p, channel);
    if (!page)
        return NULL;
    p->open[channel] = page;
    *ret_charge = page_charge(page, a);
    return page;
}

void pending_intake_begin(struct intake *in, struct pending *p, struct heap *h, struct account *a)
{
    *in = (struct intake){.pending = p, .heap = h, .account = a};
}

/* What has gathered for the page of a channel since it was chosen. */
static void intake_flush(struct intake *in, enum pending_channel channel)
{
    struct bulk_charge *charge = in->charge[channel];
    struct account *a = in->account;
    uint64_t n = in->n_objects[channel], bytes = in->n_bytes[channel];

    if (n == 0)
        return;
    in->n_objects[channel] = in->n_bytes[channel] = 0;
    in->pending->open[channel]->n_objects += (uint32_t)n;
    in->pending->open[channel]->n_bytes += bytes;
    charge->objects += n;
    charge->bytes += bytes;
    in->pending->n_objects += n;
    in->pending->n_bytes += bytes;
    in->pending->total_objects += n;
    in->pending->total_bytes += bytes;
    /* Relaxed: as in page_uncharge(). */
    store_relaxed(&a->pending_objects, a->pending_objects + n);
    store_relaxed(&a->pending_bytes, a->pending_bytes + bytes);
}

int pending_intake_new_page(struct intake *in, enum pending_channel channel, uint64_t word, uint32_t n,
                            uint64_t n_bytes)
{
    struct pending *p = in->pending;
    struct bulk_page *page;

    intake_flush(in, channel);
    page = channel_page(p, channel, in->account, &in->charge[channel]);
    if (unlikely(!page)) {
        p->total_objects += n;
        p->total_bytes += n_bytes;
        p->starved = true; /* P3: nothing more is taken until the sweep */
        return -ENOBUFS;
    }
    page->records[page->n_records++] = word;
    in->page[channel] = page->n_records < BULK_RECORDS && page->n_bytes + n_bytes < BULK_BYTES ? page : NULL;
    in->n_objects[channel] = n;
    in->n_bytes[channel] = n_bytes;
    return 0;
}

unsigned pending_take_words(struct intake *in, const uint64_t *words, unsigned n)
{
    struct bulk_page *page = in->page[PENDING_SPANS];
    struct heap_taken taken;

    if (!page)
        return 0;
    n = heap_take_words(in->heap, words, MIN(n, BULK_RECORDS - page->n_records),
                        page->records + page->n_records, &taken);
    page->n_records += taken.n_words;
    in->n_objects[PENDING_SPANS] += taken.n_objects;
    in->n_bytes[PENDING_SPANS] += taken.n_bytes;
    in->n_accepted += taken.n_objects;
    in->n_refused += taken.n_refused;
    if (page->n_records == BULK_RECORDS)
        in->page[PENDING_SPANS] = NULL;
    return n;
}

void pending_intake_end(struct intake *in)
{
    for (unsigned c = 0; c < PENDING_CHANNELS; c++)
        intake_flush(in, c);
    /* as above */
    if (in->n_refused > 0)
        store_relaxed(&in->account->refused, in->account->refused + in->n_refused);
}

/* zero-on-free: the objects of a word, before anybody can get them. */
static void word_zero(const struct heap *h, uint64_t word, void *base)
{
    uint64_t bytes = heap_object_bytes(h, abi_word_block(word));

    for (uint32_t mask = abi_word_mask(word); mask; mask &= mask - 1) {
        uint64_t offset = (uint64_t)abi_word_block(word) * ABI_BLOCK_BYTES +
                          (uint64_t)__builtin_ctz(mask) * ABI_GRANULE_BYTES;

        memset((char *)base + offset, 0, bytes);
    }
}

static void words_expire(struct heap *h, const uint64_t *words, uint32_t n, void *zero_base)
{
    for (uint32_t i = 0; zero_base && i < n; i++)
        word_zero(h, words[i], zero_base);
    heap_expire_words(h, words, n);
}

static void pending_count_freed(struct pending *p, uint64_t n_objects, uint64_t n_bytes)
{
    p->total_objects -= n_objects;
    p->total_bytes -= n_bytes;
    p->freed_objects += n_objects;
    p->freed_bytes += n_bytes;
}

void pending_expire_object(struct pending *p, struct heap *h, uint64_t word, void *zero_base)
{
    uint64_t bytes = heap_object_bytes(h, abi_word_block(word));

    words_expire(h, &word, 1, zero_base);
    pending_count_freed(p, 1, bytes);
}

void pending_expire_page(struct pending *p, struct heap *h, struct bulk_page *page, void *zero_base)
{
    words_expire(h, page->records, page->n_records, zero_base);
    pending_count_freed(p, page->n_objects, page->n_bytes);
    pending_drop_page(p, page);
}

bool pending_is_due(const struct pending *p, const struct page_list *list, uint64_t completed)
{
    return list->first && (list->first->cookie <= completed || list->first->cookie > p->newest_cookie);
}

bool pending_prove_page(struct pending *p, struct bulk_page *page, uint64_t completed)
{
    if (likely(page->cookie != 0 && page->cookie <= completed))
        return true;
    page_list_append(&p->kept, page);
    return false;
}

unsigned pending_expire(struct pending *p, struct heap *h, struct page_list *list, uint64_t completed,
                        unsigned max_pages, void *zero_base)
{
    unsigned n = 0;

    while (n < max_pages && pending_is_due(p, list, completed)) {
        struct bulk_page *page = page_list_pop(list);

        if (list == &p->closed) { /* no batch took it: its grace period was somebody else's */
            p->n_objects -= page->n_objects;
            p->n_bytes -= page->n_bytes;
        }
        n += 1 + (zero_base ? (unsigned)(page->n_bytes / BULK_ZERO_BYTES) : 0);
        if (pending_prove_page(p, page, completed))
            pending_expire_page(p, h, page, zero_base);
    }
    return n;
}

uint64_t pending_sweep(struct pending *p, struct heap *h, void *zero_base)
{
    uint64_t words[64], cursor = 0, n_objects = 0, n_bytes = 0;
    struct bulk_page *page;
    unsigned n;

    while ((n = heap_pending(h, words, ARRAY_SIZE(words), &cursor)) > 0) {
        for (unsigned i = 0; i < n; i++) {
            n_objects += mask_count(abi_word_mask(words[i]));
            n_bytes += mask_count(abi_word_mask(words[i])) * heap_object_bytes(h, abi_word_block(words[i]));
        }
        words_expire(h, words, n, zero_base);
    }
    while ((page = page_list_pop(&p->kept))) /* P5 */
        pending_drop_page(p, page);
    p->freed_objects += n_objects;
    p->freed_bytes += n_bytes;
    p->total_objects = p->total_bytes = 0;
    p->starved = false;
    p->sweep_cookie = 0;
    return n_objects;
}
