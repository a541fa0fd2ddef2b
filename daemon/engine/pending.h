/* SPDX-License-Identifier: MIT */
/*
 * Pending: objects that were deferred and wait for their grace period, as pages of records.
 *
 *   open page (one a channel: 1 span objects, 2 extents)
 *     --full or drained--> closed, cookie taken --> batch --> expired
 *
 * Guarantees
 *  P1 A page's cookie is taken after its last append, so it covers every object in it, whichever channel
 *     closes first.
 *  P2 Closed pages are listed in the order of their cookies; what has expired is freed oldest first.
 *  P3 Without memory for a page nothing is lost: the truth's pending bits are the list of last resort.
 *     `starved` stops collecting until one grace period later, when pending_sweep() has freed every pending
 *     bit.
 *  P4 An object is charged to the client that deferred it from the append until its page is free.
 *  P5 A page that cannot prove its grace period when it is to be freed (it has no cookie, one that is not over, or
 *     one that nobody took) is kept: its objects stay pending and charged. Only a sweep, which proves a grace period
 *     of its own for all, frees them.
 */
#ifndef RECLAIMD_ENGINE_PENDING_H
#define RECLAIMD_ENGINE_PENDING_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/heap.h"

enum pending_channel {
    PENDING_SPANS,
    PENDING_EXTENTS,
    PENDING_CHANNELS,
};

/* What one client has waiting. Written by the worker that owns the arena, read by anybody for display. */
struct account {
    uint64_t pending_objects;
    uint64_t pending_bytes;
    uint64_t most_bytes; /* lane_collect() takes no more once so much waits; 0: no limit */
    uint64_t refused;    /* bits that were no live objects */
    uint32_t refs;       /* pages that charge it; the worker's */
    bool closed;         /* its client is gone: free it with the last page */
    void (*release)(struct account *a);
};

#define BULK_CHARGES 16u
#define BULK_RECORDS 456u /* what is left of 4 KiB */
#define BULK_BYTES                                                                                           \
    (4ull << 20) /* a page with so much takes no more: one turn frees, and maybe zeroes, whole pages */
#define BULK_ZERO_BYTES (64u << 10) /* zeroing so much takes as long as freeing a page */

struct bulk_charge {
    struct account *account;
    uint64_t bytes;
    uint64_t objects;
};

struct bulk_page {
    struct bulk_page *next;
    uint64_t cookie;
    uint32_t n_records;
    uint32_t n_charges;
    uint32_t n_objects;
    uint32_t channel;
    uint64_t n_bytes;
    struct bulk_charge charges[BULK_CHARGES];
    uint64_t records[BULK_RECORDS];
};

assert_cc(sizeof(struct bulk_page) <= ABI_PAGE_BYTES);

struct page_list {
    struct bulk_page *first, **last;
    uint64_t n_pages, n_objects, n_bytes;
};

struct pending_ops {
    uint64_t (*take_cookie)(void *userdata); /* started + 1, under the grace-period mutex */
    void *userdata;
};

#define PENDING_HISTOGRAM 10u /* objects a page: 1, 2..3, 4..7, .., 512 and more */

struct pending {
    struct pending_ops ops;
    struct bulk_page *open[PENDING_CHANNELS];
    struct page_list closed; /* have cookies, wait for the next batch */
    struct page_list kept;   /* P5 */
    uint64_t newest_cookie;
    struct bulk_page *spare; /* a few empty pages */
    uint32_t n_spare;
    bool starved;                        /* P3 */
    uint64_t sweep_cookie;               /* 0: not taken yet */
    uint64_t n_objects, n_bytes;         /* open and closed: what a drain would take */
    uint64_t total_objects, total_bytes; /* all that wait, batches included */
    uint64_t freed_objects, freed_bytes;
    uint64_t n_pages_closed, n_page_objects;
    uint64_t histogram[PENDING_HISTOGRAM];
};

#define PENDING_SPARE_MAX 5u

void page_list_init(struct page_list *list);
void page_list_append(struct page_list *list, struct bulk_page *page);
struct bulk_page *page_list_pop(struct page_list *list);
void page_list_splice(struct page_list *to, struct page_list *from); /* from is empty afterwards */

void pending_init(struct pending *p, const struct pending_ops *ops);
void pending_deinit(struct pending *p); /* pages are dropped, not freed as objects */

/*
 * Taking records for one account, many in a row: counts gather here and reach pages, charges and totals in
 * pending_intake_end(), or when a page is full. Nothing else touches pending between begin and end.
 */
struct intake {
    struct pending *pending;
    struct heap *heap;
    struct account *account;
    struct bulk_page *page[PENDING_CHANNELS]; /* with room for one more record; NULL: ask for one first */
    struct bulk_charge *charge[PENDING_CHANNELS];
    uint64_t n_objects[PENDING_CHANNELS], n_bytes[PENDING_CHANNELS]; /* since page[] was chosen */
    uint64_t n_refused, n_accepted;
};

void pending_intake_begin(struct intake *in, struct pending *p, struct heap *h, struct account *a);
void pending_intake_end(struct intake *in);

/* So much waits for that account that it had better not be more. */
static inline bool pending_intake_is_enough(const struct intake *in)
{
    const struct account *a = in->account;

    return a->most_bytes > 0 &&
           a->pending_bytes + in->n_bytes[PENDING_SPANS] + in->n_bytes[PENDING_EXTENTS] >= a->most_bytes;
}

/* The rarer half: a page first. -ENOBUFS once starved: the word is pending in the truth, and no page knows of
 * it. */
int pending_intake_new_page(struct intake *in, enum pending_channel channel, uint64_t word, uint32_t n,
                            uint64_t n_bytes);

/*
 * Takes many records in a row, as far as the page at hand and objects of spans go: returns how many, maybe 0; the next
 * is then for pending_take().
 */
unsigned pending_take_words(struct intake *in, const uint64_t *words, unsigned n);

/* Takes the bits of a record that are live objects. 0, or -ENOBUFS once starved (the bits were taken, nothing
 * more is). */
static inline int pending_take(struct intake *in, uint32_t block, uint32_t mask)
{
    uint64_t n_bytes;
    bool extent;
    uint32_t accepted = heap_take(in->heap, block, mask, &n_bytes, &extent), n = mask_count(accepted);
    enum pending_channel channel = extent ? PENDING_EXTENTS : PENDING_SPANS;
    struct bulk_page *page = in->page[channel];

    if (unlikely(accepted != mask))
        in->n_refused += mask_count(mask & ~accepted);
    if (unlikely(!accepted))
        return 0;
    in->n_accepted += n;
    if (unlikely(!page))
        return pending_intake_new_page(in, channel, abi_word(block, accepted), n, n_bytes);
    page->records[page->n_records++] = abi_word(block, accepted);
    in->n_objects[channel] += n;
    in->n_bytes[channel] += n_bytes;
    if (unlikely(page->n_records == BULK_RECORDS || page->n_bytes + in->n_bytes[channel] >= BULK_BYTES))
        in->page[channel] = NULL;
    return 0;
}

/* Closes the open pages: their cookies are taken now. */
void pending_close(struct pending *p);

/* Is the first page of a list one to free or, P5, to keep? */
bool pending_is_due(const struct pending *p, const struct page_list *list, uint64_t completed);

/* False: it could not be proven that the page may be freed, and it was put with those that are kept. */
bool pending_prove_page(struct pending *p, struct bulk_page *page, uint64_t completed);

/*
 * Frees a page whose cookie has expired: every object of it, then its charges, then the page itself.
 * zero_base: NULL, or where the arena is mapped: objects are zeroed first.
 */
void pending_expire_page(struct pending *p, struct heap *h, struct bulk_page *page, void *zero_base);

/* One object (a word of one bit) of a page whose objects go one by one, and which is dropped after the last of them:
 * batching = no. */
void pending_expire_object(struct pending *p, struct heap *h, uint64_t word, void *zero_base);

/* Frees, oldest first, at most max_pages closed pages of a list whose cookies are <= completed. Returns how
 * many; pages that are zeroed count as the time that takes. */
unsigned pending_expire(struct pending *p, struct heap *h, struct page_list *list, uint64_t completed,
                        unsigned max_pages, void *zero_base);

/* P3: call it when starved, no other page is left and sweep_cookie <= completed. Returns objects freed. */
uint64_t pending_sweep(struct pending *p, struct heap *h, void *zero_base);

/* The page without its objects: its charges end. */
void pending_drop_page(struct pending *p, struct bulk_page *page);

void account_close(struct account *a);      /* its client is gone */
void pending_drop_spare(struct pending *p); /* under memory pressure */

#endif
