/* SPDX-License-Identifier: MIT */
/*
 * Holes: runs of free pages that are given back to the operating system. While the purger punches one, its
 * pages are PURGING and cannot be handed out; a chunk with such pages is busy unless it is PIECES, where they
 * count as used.
 */
#include "engine/heap-internal.h"

/*
 * A hole goes on over free pages that are not backed: to punch a hole where there is one costs next to
 * nothing. A longer gap would keep address space from use.
 */
#define HOLE_GAP_PAGES (16u * ABI_PAGES_PER_CHUNK)

/* 64 MiB take about 10 ms to punch: so long may pages be unavailable that somebody may want. */
#define HOLE_PAGES_MAX 16384u

/* Holes that one call looks at, most of them perhaps too small: the arena's owner waits meanwhile. */
#define HOLE_LOOKS_MAX 4096u

/* Pages of a chunk that may be handed out or punched now. */
static uint32_t chunk_free_pages(const struct heap *h, uint64_t chunk)
{
    if (!bitmap_test(&h->busy, chunk))
        return CHUNK_PAGES_ALL;
    if (h->spans[chunk].tag != TAG_EXTENT || h->chunks[chunk].kind != CHUNK_PIECES)
        return 0;
    return ~(uint32_t)h->spans[chunk].used & CHUNK_PAGES_ALL;
}

/* The first free backed page at or after that one; BITMAP_NONE. */
static uint64_t hole_first(const struct heap *h, uint64_t page)
{
    uint64_t chunk = page / ABI_PAGES_PER_CHUNK;
    uint32_t wanted = CHUNK_PAGES_ALL << (page % ABI_PAGES_PER_CHUNK);

    for (;;) {
        uint32_t found;

        if (chunk >= h->n_chunks || !(bitmap_test(&h->lazy, chunk) || bitmap_test(&h->lazy_pieces, chunk))) {
            chunk = MIN(bitmap_next_set(&h->lazy, chunk), bitmap_next_set(&h->lazy_pieces, chunk));
            wanted = CHUNK_PAGES_ALL;
        }
        if (chunk == BITMAP_NONE)
            return BITMAP_NONE;
        found = chunk_free_pages(h, chunk) & h->chunks[chunk].backed & wanted;
        if (found)
            return chunk * ABI_PAGES_PER_CHUNK + (unsigned)__builtin_ctz(found);
        chunk++;
        wanted = CHUNK_PAGES_ALL;
    }
}

/*
 * One past the last backed page of the free pages that go on from there, short gaps of unbacked ones
 * included; and how many of them are backed.
 */
static uint64_t hole_end(const struct heap *h, uint64_t first, uint64_t *ret_n_backed)
{
    uint64_t end = first + 1, limit = MIN(h->n_chunks * ABI_PAGES_PER_CHUNK, first + HOLE_PAGES_MAX);

    *ret_n_backed = 1;
    for (uint64_t page = end; page < limit && page - end <= HOLE_GAP_PAGES;) {
        uint64_t chunk = page / ABI_PAGES_PER_CHUNK;
        unsigned skip = page % ABI_PAGES_PER_CHUNK;
        uint32_t stop = (~chunk_free_pages(h, chunk) & CHUNK_PAGES_ALL) >> skip;
        unsigned n = stop ? (unsigned)__builtin_ctz(stop) : ABI_PAGES_PER_CHUNK - skip;
        uint32_t backed;

        n = (unsigned)MIN((uint64_t)n, limit - page);
        if (n == 0)
            break;
        backed = (uint32_t)h->chunks[chunk].backed >> skip & page_mask(0, n);
        if (backed)
            end = page + 32 - (unsigned)__builtin_clz(backed);
        *ret_n_backed += mask_count(backed);
        if (stop && n == (unsigned)__builtin_ctz(stop))
            break;
        page += n;
    }
    return end;
}

/* Pages of one chunk, all free: PURGING, then not backed; and out of reach for whoever hands out. */
static void chunk_purge_begin(struct heap *h, uint32_t chunk, uint32_t mask)
{
    struct chunk_entry *e = &h->chunks[chunk];
    unsigned n_backed = mask_count(e->backed & mask);

    if (bitmap_test(&h->busy, chunk))
        pieces_set_used(h, chunk, (uint32_t)h->spans[chunk].used | mask);
    else
        run_claim(h, chunk, 1);
    /*
     * Killed between: PURGING and backed. The start takes PURGING for "free and not backed", whatever backed
     * says.
     */
    store_relaxed(&e->purging, (uint16_t)(e->purging | mask));
    compiler_fence(); /* pairs with recover_purging() */
    store_relaxed(&e->backed, (uint16_t)(e->backed & ~mask));
    compiler_fence(); /* the caller punches after it; pairs with recover_purging() */
    h->n_backed -= n_backed;
}

/* A free chunk is free again once the last hole in it is punched. */
static void chunk_purge_end(struct heap *h, uint32_t chunk, uint32_t mask)
{
    struct chunk_entry *e = &h->chunks[chunk];

    /* Not backed, so the next owner backs first. Killed before it: the start does the same. */
    store_relaxed(&e->purging, (uint16_t)(e->purging & ~mask));
    if (e->kind == CHUNK_PIECES)
        pieces_set_used(h, chunk, (uint32_t)h->spans[chunk].used & ~mask);
    else if (!e->purging)
        run_return(h, chunk, 1);
}

/* Calls a function for the pages of each chunk that a hole touches. */
static void hole_each(struct heap *h, const struct heap_hole *hole,
                      void (*each)(struct heap *, uint32_t, uint32_t))
{
    uint64_t page = hole->offset / ABI_PAGE_BYTES, end = page + hole->bytes / ABI_PAGE_BYTES;

    while (page < end) {
        unsigned first = page % ABI_PAGES_PER_CHUNK;
        unsigned n = (unsigned)MIN(end - page, (uint64_t)ABI_PAGES_PER_CHUNK - first);

        each(h, (uint32_t)(page / ABI_PAGES_PER_CHUNK), page_mask(first, n));
        page += n;
    }
}

/* Counted as being purged is what the hole gives back: it goes over pages that are not backed too. */
static void hole_begin(struct heap *h, struct heap_hole *hole)
{
    uint64_t n_backed = h->n_backed;

    hole_each(h, hole, chunk_purge_begin);
    n_backed -= h->n_backed;
    h->n_purging += n_backed;
    hole->backed_bytes = n_backed * ABI_PAGE_BYTES;
}

/* The empty spans that classes keep, one each. */
static void kept_release(struct heap *h)
{
    for (unsigned c = 0; c < ABI_CLASS_EXTENT; c++)
        if (h->kept[c])
            span_release(h, h->kept[c]);
}

/*
 * The empty spans that are kept are given up only at the beginning of a round (cursor 0), or one that is used
 * between two calls would be given up again and again.
 */
unsigned heap_purge_begin(struct heap *h, struct heap_hole *holes, unsigned n_holes,
                          const struct heap_purge_bounds *bounds, uint64_t *cursor)
{
    uint64_t page = DIV_ROUND_UP(*cursor, ABI_PAGE_BYTES), n_backed, end, n_lazy;
    uint64_t quota = DIV_ROUND_UP(MIN(bounds->max_bytes, h->state->arena_bytes), ABI_PAGE_BYTES);
    unsigned n = 0, looks = 0;

    if (page == 0 && bounds->min_bytes == 0)
        kept_release(h);
    n_lazy = h->n_lazy;
    while (n < n_holes && looks++ < HOLE_LOOKS_MAX && n_lazy - h->n_lazy < quota &&
           (page = hole_first(h, page)) != BITMAP_NONE) {
        end = hole_end(h, page, &n_backed);
        if (n_backed * ABI_PAGE_BYTES >= bounds->min_bytes) {
            end = MIN(end, page + (quota - (n_lazy - h->n_lazy)));
            holes[n] =
                (struct heap_hole){.offset = page * ABI_PAGE_BYTES, .bytes = (end - page) * ABI_PAGE_BYTES};
            hole_begin(h, &holes[n++]);
        }
        page = end;
    }
    *cursor = page == BITMAP_NONE ? h->state->arena_bytes : page * ABI_PAGE_BYTES;
    return n;
}

bool heap_purge_claim(struct heap *h, struct heap_hole *hole)
{
    if (!heap_range_is_free(h, hole->offset, hole->bytes))
        return false;
    hole_begin(h, hole);
    return true;
}

/* From here on the pages may be handed out; whoever does backs them first. */
void heap_purge_end(struct heap *h, const struct heap_hole *hole)
{
    hole_each(h, hole, chunk_purge_end);
    h->n_purging -= hole->backed_bytes / ABI_PAGE_BYTES;
}

/* Goes from busy chunk to busy chunk: a free stretch costs one look, whatever its length. */
bool heap_range_is_free(const struct heap *h, uint64_t offset, uint64_t bytes)
{
    uint64_t page = offset / ABI_PAGE_BYTES, end = DIV_ROUND_UP(offset + bytes, ABI_PAGE_BYTES);

    if (bytes == 0 || offset + bytes < offset || offset + bytes > h->state->arena_bytes)
        return false;
    while (page < end) {
        uint64_t chunk = bitmap_next_set(&h->busy, page / ABI_PAGES_PER_CHUNK);
        unsigned first = 0, n;

        if (chunk >= DIV_ROUND_UP(end, ABI_PAGES_PER_CHUNK))
            return true;
        if (chunk == page / ABI_PAGES_PER_CHUNK)
            first = page % ABI_PAGES_PER_CHUNK;
        n = (unsigned)MIN(end - chunk * ABI_PAGES_PER_CHUNK, (uint64_t)ABI_PAGES_PER_CHUNK) - first;
        if (page_mask(first, n) & ~chunk_free_pages(h, chunk))
            return false;
        page = (chunk + 1) * ABI_PAGES_PER_CHUNK;
    }
    return true;
}
