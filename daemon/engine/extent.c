/* SPDX-License-Identifier: MIT */
/*
 * Extents: whole pages. Up to 15 pages share a PIECES chunk with others; from 16 on an extent has chunks of
 * its own, of whose last the unneeded pages are neither used nor backed. Both come from the arena's end,
 * spans from its start.
 */
#include <errno.h>

#include "engine/heap-internal.h"

/* The entry says where each extent starts and how long it is, so what is free between them follows. */
uint32_t pieces_used(uint64_t pieces)
{
    uint32_t used = 0;

    for (unsigned page = 0; page < ABI_PAGES_PER_CHUNK; page++)
        used |= page_mask(page, pieces_length(pieces, page));
    return used;
}

unsigned pages_longest_hole(uint32_t used)
{
    uint32_t starts = ~used & CHUNK_PAGES_ALL;
    unsigned n = 0;

    for (; starts; starts &= starts >> 1)
        n++; /* a bit is left for each place from which more than n pages are free */
    return n;
}

/* The first page of n in the shortest hole that has them, at its upper end; of equal holes the uppermost. */
static unsigned pages_best(uint32_t used, unsigned n)
{
    unsigned best_length = ABI_PAGES_PER_CHUNK + 1, best = 0;

    for (unsigned end = ABI_PAGES_PER_CHUNK, start; end > 0; end = start > 0 ? start - 1 : 0) {
        for (start = end; start > 0 && !(used >> (start - 1) & 1);)
            start--;
        if (end - start >= n && end - start < best_length) {
            best_length = end - start;
            best = end - n;
        }
    }
    return best;
}

/*
 * The one place where the pages of a PIECES chunk change hands: to an extent, to the purger (who holds them
 * as if they were used), and back. Its backed bits may change only while the pages are used, or the lazy
 * pages would be miscounted.
 */
void pieces_set_used(struct heap *h, uint32_t chunk, uint32_t used)
{
    struct span *s = &h->spans[chunk];
    uint32_t backed = h->chunks[chunk].backed;
    unsigned longest = pages_longest_hole(used);

    if (s->longest != longest) {
        if (s->longest > 0)
            chunk_list_remove(h, &h->pieces[s->longest], chunk);
        /* what is backed is handed out before what would have to be */
        if (longest > 0 && (backed & ~used))
            chunk_list_prepend(h, &h->pieces[longest], chunk);
        else if (longest > 0)
            chunk_list_append(h, &h->pieces[longest], chunk);
        s->longest = longest;
    }
    h->n_lazy -= mask_count(backed & ~(uint32_t)s->used);
    h->n_lazy += mask_count(backed & ~used);
    s->used = used;
    if (backed & ~used)
        bitmap_set(&h->lazy_pieces, chunk, 1);
    else
        bitmap_clear(&h->lazy_pieces, chunk, 1);
}

/* For a chunk that is tagged as one with extents. */
uint64_t extent_pages(const struct heap *h, uint32_t block)
{
    const struct chunk_entry *e = &h->chunks[block_chunk(block)];
    unsigned block_in_chunk = block % ABI_BLOCKS_PER_CHUNK;

    if (e->kind == CHUNK_LARGE)
        return block_in_chunk == 0 ? e->n_pages : 0;
    if (block_in_chunk % ABI_BLOCKS_PER_PAGE != 0)
        return 0;
    return pieces_length(e->pieces, block_in_chunk / ABI_BLOCKS_PER_PAGE);
}

/* A chunk that holds extents from now on; its entry is written. */
static void extent_chunk_begin(struct heap *h, uint32_t chunk)
{
    struct span *s = &h->spans[chunk];

    s->tag = TAG_EXTENT;
    s->used = CHUNK_PAGES_ALL;
    s->longest = 0;
    h->extent_block = MIN(h->extent_block, chunk * ABI_BLOCKS_PER_CHUNK);
}

/*
 * The last extent of a PIECES chunk is gone. While a hole of it is being punched, it stays busy; see
 * heap_purge_end().
 */
static void pieces_end(struct heap *h, uint32_t chunk)
{
    pieces_set_used(h, chunk, CHUNK_PAGES_ALL);
    h->spans[chunk].tag = TAG_NONE;
    /* Killed before it: PIECES without any, which the start makes FREE. */
    store_relaxed(&h->chunks[chunk].kind, CHUNK_FREE);
    if (!h->chunks[chunk].purging)
        run_return(h, chunk, 1);
}

/* An extent of a PIECES chunk goes: never committed, or its grace period is over. */
static void piece_release(struct heap *h, uint32_t chunk, unsigned page)
{
    struct chunk_entry *e = &h->chunks[chunk];
    uint32_t mask = page_mask(page, pieces_length(e->pieces, page));

    /* Its out bit is clear. Killed before it: an extent that is not out, which the start releases. */
    store_relaxed(&e->pieces, e->pieces & ~(15ull << (page * 4)));
    if (e->pieces)
        pieces_set_used(h, chunk, (uint32_t)h->spans[chunk].used & ~mask);
    else
        pieces_end(h, chunk);
}

/*
 * The highest free chunk, so that spans have the low ones; but of those that extents once had, the highest
 * that has memory.
 */
static uint64_t chunk_highest(const struct heap *h)
{
    uint64_t lazy = bitmap_prev_set(&h->lazy, h->n_chunks - 1);

    if (lazy != BITMAP_NONE && lazy >= h->n_chunks - h->state->n_high)
        return lazy;
    return bitmap_prev_clear(&h->busy, h->n_chunks - 1);
}

/* A free chunk becomes one for pieces, with its first. */
static int piece_chunk_new(struct heap *h, uint64_t pieces, uint32_t *ret)
{
    uint64_t chunk = chunk_highest(h);
    struct chunk_entry *e;

    if (chunk == BITMAP_NONE)
        return -ENOSPC;
    run_claim(h, (uint32_t)chunk, 1);
    e = &h->chunks[chunk];
    /* Killed before kind: still FREE. After it: an extent that is not out. */
    store_relaxed(&e->pieces, pieces);
    e->flags |= CHUNK_HAS_TRUTH;
    compiler_fence(); /* pairs with recover_pieces() */
    store_relaxed(&e->kind, CHUNK_PIECES);
    extent_chunk_begin(h, (uint32_t)chunk);
    pieces_set_used(h, (uint32_t)chunk, pieces_used(pieces));
    *ret = (uint32_t)chunk;
    return 0;
}

/* Chooses the chunk whose longest hole is the shortest that does, then the place in it. */
static int piece_place(struct heap *h, unsigned n, uint32_t *ret_chunk, unsigned *ret_page)
{
    unsigned longest = n;
    struct chunk_entry *e;
    uint32_t chunk;

    while (longest < ABI_PAGES_PER_CHUNK && !h->pieces[longest].first)
        longest++;
    if (longest == ABI_PAGES_PER_CHUNK) {
        *ret_page = ABI_PAGES_PER_CHUNK - n;
        return piece_chunk_new(h, (uint64_t)n << (*ret_page * 4), ret_chunk);
    }
    chunk = h->pieces[longest].first;
    e = &h->chunks[chunk];
    *ret_page = pages_best((uint32_t)h->spans[chunk].used, n);
    /* Killed after it: an extent that is not out. */
    store_relaxed(&e->pieces, e->pieces | (uint64_t)n << (*ret_page * 4));
    pieces_set_used(h, chunk, (uint32_t)h->spans[chunk].used | page_mask(*ret_page, n));
    *ret_chunk = chunk;
    return 0;
}

/* Place, memory, word. If there is no memory it is as if nothing had been chosen. */
static int piece_reserve(struct heap *h, unsigned n_pages, uint64_t *ret_word)
{
    uint32_t chunk;
    unsigned page;
    int r;

    r = piece_place(h, n_pages, &chunk, &page);
    if (r < 0)
        return r;
    compiler_fence(); /* H5: before its memory; pairs with recover_pieces() */
    r = pages_back(h, (uint64_t)chunk * ABI_PAGES_PER_CHUNK + page, n_pages);
    if (r < 0) {
        piece_release(h, chunk, page);
        return r;
    }
    *ret_word = abi_word(chunk * ABI_BLOCKS_PER_CHUNK + page * ABI_BLOCKS_PER_PAGE, 1);
    return 0;
}

/*
 * The chunks of a LARGE extent are free by one store; what is written to its TAILs after it only tidies up.
 */
static void large_release(struct heap *h, uint32_t chunk)
{
    uint64_t n = DIV_ROUND_UP(h->chunks[chunk].n_pages, ABI_PAGES_PER_CHUNK);

    h->spans[chunk].tag = TAG_NONE;
    /*
     * Its out bit is clear. Killed before it: LARGE that is not out. After it: TAILs that follow no LARGE.
     * All FREE then.
     */
    store_relaxed(&h->chunks[chunk].kind, CHUNK_FREE);
    compiler_fence(); /* pairs with recover_large(): while the head stands, so do its TAILs */
    for (uint64_t c = chunk + 1; c < chunk + n; c++)
        store_relaxed(&h->chunks[c].kind, CHUNK_FREE);
    run_return(h, chunk, n);
}

/*
 * Whole chunks, as many as are needed. The last one's pages beyond the extent are not backed by it; if they
 * are from former times they stay so, for the next who has that chunk.
 */
static int large_reserve(struct heap *h, uint64_t n_pages, uint64_t *ret_word)
{
    uint64_t n = DIV_ROUND_UP(n_pages, ABI_PAGES_PER_CHUNK);
    uint32_t chunk = run_best(h, n);
    struct chunk_entry *e = &h->chunks[chunk];
    int r;

    if (chunk == 0)
        return -ENOSPC;
    run_claim(h, chunk, n);
    /*
     * Killed before the head's kind: TAILs that follow no LARGE, so FREE. After it: an extent that is not
     * out.
     */
    for (uint64_t c = chunk + 1; c < chunk + n; c++)
        store_relaxed(&h->chunks[c].kind, CHUNK_TAIL);
    store_relaxed(&e->n_pages, n_pages);
    e->flags |= CHUNK_HAS_TRUTH;
    compiler_fence(); /* pairs with recover_large() */
    store_relaxed(&e->kind, CHUNK_LARGE);
    compiler_fence(); /* H5: before its memory; pairs with recover_large() */
    extent_chunk_begin(h, chunk);
    r = pages_back(h, (uint64_t)chunk * ABI_PAGES_PER_CHUNK, n_pages);
    if (r < 0) {
        large_release(h, chunk);
        return r;
    }
    *ret_word = abi_word(chunk * ABI_BLOCKS_PER_CHUNK, 1);
    return 0;
}

int heap_extent_reserve(struct heap *h, uint64_t n_pages, uint64_t *ret_word)
{
    if (n_pages == 0)
        return -EINVAL;
    if (n_pages > (h->n_chunks - 1) * ABI_PAGES_PER_CHUNK)
        return -ENOSPC;
    if (n_pages < ABI_PAGES_PER_CHUNK)
        return piece_reserve(h, (unsigned)n_pages, ret_word);
    return large_reserve(h, n_pages, ret_word);
}

void extent_unreserve(struct heap *h, uint32_t block)
{
    uint32_t chunk = block_chunk(block);

    if (h->chunks[chunk].kind == CHUNK_LARGE)
        large_release(h, chunk);
    else
        piece_release(h, chunk, block % ABI_BLOCKS_PER_CHUNK / ABI_BLOCKS_PER_PAGE);
}

void extent_commit(struct heap *h, uint32_t block)
{
    h->pages_committed += extent_pages(h, block);
}

uint64_t extent_take(struct heap *h, uint32_t block)
{
    uint64_t n_pages = extent_pages(h, block);

    h->pages_taken += n_pages;
    return n_pages * ABI_PAGE_BYTES;
}

void extent_expire(struct heap *h, uint32_t block)
{
    h->pages_expired += extent_pages(h, block);
    extent_unreserve(h, block); /* its pages are free just like those of one that was never committed */
}

/* What is out and pending of an extent, after a start. */
static void extent_count(struct heap *h, uint32_t block)
{
    bool pending = h->truth[block] >> 32 & 1;
    uint64_t n_pages = extent_pages(h, block);

    h->n_committed[TAG_EXTENT]++;
    h->pages_committed += n_pages;
    h->n_taken[TAG_EXTENT] += pending;
    h->pages_taken += pending ? n_pages : 0;
}

/* After a start; all extents of the entry are out, others were forgotten. */
void extent_adopt_pieces(struct heap *h, uint32_t chunk)
{
    extent_chunk_begin(h, chunk);
    pieces_set_used(h, chunk, pieces_used(h->chunks[chunk].pieces));
    for (unsigned page = 0; page < ABI_PAGES_PER_CHUNK; page++)
        if (pieces_length(h->chunks[chunk].pieces, page))
            extent_count(h, chunk * ABI_BLOCKS_PER_CHUNK + page * ABI_BLOCKS_PER_PAGE);
}

void extent_adopt_large(struct heap *h, uint32_t chunk)
{
    extent_chunk_begin(h, chunk);
    extent_count(h, chunk * ABI_BLOCKS_PER_CHUNK);
}
