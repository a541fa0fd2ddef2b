/* SPDX-License-Identifier: MIT */
/*
 * Free chunks. A run is a longest row of chunks that are not busy; it is listed by its length at its first
 * chunk, and the busy bitmap finds its ends, so runs split and merge in a few steps whatever their length.
 */
#include "engine/heap-internal.h"

/* Lists of runs: fine enough that the best of the first list is the best of all but for a few per cent. */
#define RUN_EXACT 32u     /* shorter runs have a list each */
#define RUN_FINENESS 16u  /* lists a doubling above */
#define RUN_LOOKS_MAX 64u /* runs of one list that are compared before the best so far is good enough */

/*
 * Lists go through the spans of their chunks. A chunk is in one list at most: a ripe span in its class's
 * queue, a PIECES chunk in the list of its longest hole, the first chunk of a free run in the list of its
 * length.
 */
void chunk_list_append(struct heap *h, struct chunk_list *l, uint32_t chunk)
{
    h->spans[chunk].next = 0;
    h->spans[chunk].prev = l->last;
    if (l->last)
        h->spans[l->last].next = chunk;
    else
        l->first = chunk;
    l->last = chunk;
}

void chunk_list_prepend(struct heap *h, struct chunk_list *l, uint32_t chunk)
{
    h->spans[chunk].prev = 0;
    h->spans[chunk].next = l->first;
    if (l->first)
        h->spans[l->first].prev = chunk;
    else
        l->last = chunk;
    l->first = chunk;
}

void chunk_list_remove(struct heap *h, struct chunk_list *l, uint32_t chunk)
{
    struct span *s = &h->spans[chunk];

    if (s->prev)
        h->spans[s->prev].next = s->next;
    else
        l->first = s->next;
    if (s->next)
        h->spans[s->next].prev = s->prev;
    else
        l->last = s->prev;
    s->next = s->prev = 0;
}

unsigned run_bin(uint64_t n_chunks)
{
    unsigned log;

    if (n_chunks < RUN_EXACT)
        return (unsigned)n_chunks;
    log = 63u - (unsigned)__builtin_clzll(n_chunks);
    return RUN_EXACT + (log - 5) * RUN_FINENESS + (unsigned)(n_chunks >> (log - 4) & (RUN_FINENESS - 1));
}

void run_insert(struct heap *h, uint32_t first, uint64_t n)
{
    unsigned bin = run_bin(n);

    h->spans[first].run_length = n;
    chunk_list_prepend(h, &h->runs[bin], first);
    h->runs_present[bin / 64] |= 1ull << (bin % 64);
}

/* Takes a run out of its list, as it was listed: before its length or the busy bits change. */
static void run_remove(struct heap *h, uint32_t first)
{
    unsigned bin = run_bin(h->spans[first].run_length);

    chunk_list_remove(h, &h->runs[bin], first);
    if (!h->runs[bin].first)
        h->runs_present[bin / 64] &= ~(1ull << (bin % 64));
}

/* The shortest of a list that is long enough, the higher of two equal ones; 0: none. */
static uint32_t run_best_of_bin(const struct heap *h, unsigned bin, uint64_t n, unsigned max_looks)
{
    uint32_t best = 0;

    for (uint32_t run = h->runs[bin].first; run && max_looks > 0; run = h->spans[run].next, max_looks--) {
        uint64_t length = h->spans[run].run_length;

        if (length < n)
            continue;
        if (!best || length < h->spans[best].run_length ||
            (length == h->spans[best].run_length && run > best))
            best = run;
    }
    return best;
}

/* The first list at or after that one that is not empty; RUN_BINS: none. */
static unsigned run_next_bin(const struct heap *h, unsigned bin)
{
    while (bin < RUN_BINS) {
        uint64_t word = h->runs_present[bin / 64] >> (bin % 64);

        if (word)
            return bin + (unsigned)__builtin_ctzll(word);
        bin = (bin / 64 + 1) * 64;
    }
    return RUN_BINS;
}

/*
 * The list for that length holds some that are too short, all further ones only longer ones. The looks at
 * each are limited, so that whoever leaves many holes behind does not slow down the others; only when no
 * longer run is left, all of the first list are looked at, before it is said that there is none.
 */
uint32_t run_best(const struct heap *h, uint64_t n)
{
    unsigned own = run_bin(n), bin = own;
    uint32_t run = run_best_of_bin(h, own, n, RUN_LOOKS_MAX);

    if (!run && (bin = run_next_bin(h, own + 1)) < RUN_BINS)
        run = run_best_of_bin(h, bin, n, RUN_LOOKS_MAX);
    if (!run)
        run =
            run_best_of_bin(h, own, n, UINT32_MAX); /* nothing longer is left: then every one is looked at */
    return run ? run + (uint32_t)(h->spans[run].run_length - n) : 0;
}

/*
 * Lets the watermark that is nearer reach over chunks whose entries are about to be written. Killed before
 * that: the entries below it are still zero, which is a free chunk.
 */
static void state_touch(struct heap *h, uint64_t first, uint64_t end)
{
    uint64_t low = h->state->n_low, high = h->n_chunks - h->state->n_high;

    if (end <= low || first >= high)
        return;
    if ((first > low ? first - low : 0) <= (high > end ? high - end : 0))
        store_relaxed(&h->state->n_low, end); /* read by a successor only */
    else
        store_relaxed(&h->state->n_high, h->n_chunks - first);
    compiler_fence(); /* pairs with heap_recover() */
}

/*
 * What is left of the run on both sides is listed anew; the lazy pages among the taken ones are counted off.
 */
void run_claim(struct heap *h, uint32_t first, uint64_t n)
{
    uint32_t run = (uint32_t)(bitmap_prev_set(&h->busy, first) + 1); /* chunk 0 is always busy */
    uint64_t length = h->spans[run].run_length;

    run_remove(h, run);
    bitmap_set(&h->busy, first, n);
    if (first > run)
        run_insert(h, run, first - run);
    if (first + n < run + length)
        run_insert(h, (uint32_t)(first + n), run + length - (first + n));
    for (uint64_t c = bitmap_next_set(&h->lazy, first); c < first + n; c = bitmap_next_set(&h->lazy, c + 1)) {
        h->n_lazy -= mask_count(h->chunks[c].backed);
        bitmap_clear(&h->lazy, c, 1);
    }
    state_touch(h, first, first + n);
}

/* Joins the runs that end and begin there. Those of its chunks that are backed are lazy from now on. */
void run_return(struct heap *h, uint32_t first, uint64_t n)
{
    uint64_t below = bitmap_prev_set(&h->busy, first - 1u) + 1, above = bitmap_next_set(&h->busy, first + n);

    for (uint64_t c = first; c < first + n; c++) {
        if (!h->chunks[c].backed)
            continue;
        h->n_lazy += mask_count(h->chunks[c].backed);
        bitmap_set(&h->lazy, c, 1);
    }
    bitmap_clear(&h->busy, first, n);
    if (below < first)
        run_remove(h, (uint32_t)below);
    if (first + n < h->n_chunks && above != first + n)
        run_remove(h, (uint32_t)(first + n));
    run_insert(h, (uint32_t)below, MIN(above, h->n_chunks) - below);
}

/* The first page of [page, end) whose backed bit is that one; end: none. */
static uint64_t pages_next(const struct heap *h, uint64_t page, uint64_t end, bool backed)
{
    while (page < end) {
        uint32_t bits = h->chunks[page / ABI_PAGES_PER_CHUNK].backed;
        unsigned skip = page % ABI_PAGES_PER_CHUNK;

        bits = (backed ? bits : ~bits & CHUNK_PAGES_ALL) >> skip;
        if (bits)
            return MIN(page + (unsigned)__builtin_ctz(bits), end);
        page += ABI_PAGES_PER_CHUNK - skip;
    }
    return end;
}

/* One store a chunk: a bit that is set speaks of memory that is there. */
static void pages_mark_backed(struct heap *h, uint64_t page, uint64_t end)
{
    while (page < end) {
        struct chunk_entry *e = &h->chunks[page / ABI_PAGES_PER_CHUNK];
        unsigned first = page % ABI_PAGES_PER_CHUNK,
                 n = (unsigned)MIN(end - page, (uint64_t)ABI_PAGES_PER_CHUNK - first);

        /*
         * H3: after the memory is there. Killed before it: the page is backed once more when it is next
         * handed out.
         */
        store_relaxed(&e->backed, (uint16_t)(e->backed | page_mask(first, n)));
        h->n_backed += n;
        page += n;
    }
}

int pages_back(struct heap *h, uint64_t page, uint64_t n)
{
    uint64_t end = page + n;

    while ((page = pages_next(h, page, end, false)) < end) {
        uint64_t gap_end = pages_next(h, page, end, true);
        int r = h->ops.back(h->ops.userdata, page * ABI_PAGE_BYTES, (gap_end - page) * ABI_PAGE_BYTES);

        if (r < 0)
            return r;
        compiler_fence(); /* H3; pairs with recover_pages() */
        pages_mark_backed(h, page, gap_end);
        page = gap_end;
    }
    compiler_fence(); /* H5: the caller's hand-out comes after; pairs with recover_pages() */
    return 0;
}
