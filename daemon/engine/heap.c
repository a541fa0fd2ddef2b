/* SPDX-License-Identifier: MIT */
/*
 * The heap as a whole: made from the state, in the state that a killed daemon may have left it, and its sums.
 *
 * What a start repairs, each by single stores, so that a start may be killed as well (H4):
 *   PURGING pages                          free and not backed
 *   a SPAN with nothing out                FREE, but for one a class that is backed whole
 *   an extent whose bit is not out         gone: it was being made, or its free had begun
 *   PIECES without extents, a stray TAIL   FREE
 *   ROOTS that the state does not name     FREE
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "engine/heap-internal.h"

#define MAP_ALIGNMENT 64u

/*
 * The spans and bitmaps of all chunks: one sparse mapping of zeroes, of which only what is used ever takes
 * memory.
 */
static int heap_map(struct heap *h)
{
    size_t bitmap = ALIGN_UP(bitmap_bytes(h->n_chunks), MAP_ALIGNMENT);
    size_t spans = ALIGN_UP((size_t)h->n_chunks * sizeof(struct span), MAP_ALIGNMENT);
    char *map;

    map = mmap(NULL, spans + 3 * bitmap, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
               -1, 0);
    if (map == MAP_FAILED)
        return -errno;
    h->map = map;
    h->map_bytes = spans + 3 * bitmap;
    h->spans = (struct span *)(void *)map;
    bitmap_init(&h->busy, map + spans, h->n_chunks);
    bitmap_init(&h->lazy, map + spans + bitmap, h->n_chunks);
    bitmap_init(&h->lazy_pieces, map + spans + 2 * bitmap, h->n_chunks);
    return 0;
}

/* The tables of one class: all that the hot paths need to know of it without dividing. */
static void class_prepare(struct heap *h, unsigned class_index)
{
    uint32_t bytes = abi_class_bytes(class_index);

    h->object_bytes[TAG_SPAN + class_index] = bytes;
    h->capacity[class_index] = (uint16_t)(ABI_CHUNK_BYTES / bytes);
    for (unsigned b = 0; b < ABI_BLOCKS_PER_CHUNK; b++) {
        h->patterns[class_index][b] = heap_class_pattern(class_index, b);
        if (h->patterns[class_index][b])
            h->open[class_index][b / 64] |= 1ull << (b % 64);
    }
}

/* Pending without out cannot be, so one look at each word is enough. */
static bool span_is_empty(const struct heap *h, uint64_t chunk)
{
    for (uint64_t b = chunk * ABI_BLOCKS_PER_CHUNK; b < (chunk + 1) * ABI_BLOCKS_PER_CHUNK; b++)
        if (h->truth[b])
            return false;
    return true;
}

/* An empty span is worth keeping only if it can be used at once. */
static int recover_span(struct heap *h, uint32_t chunk)
{
    struct chunk_entry *e = &h->chunks[chunk];

    if (e->class_index >= ABI_CLASS_EXTENT)
        return -EUCLEAN;
    if (span_is_empty(h, chunk)) {
        if (h->kept[e->class_index] || e->backed != CHUNK_PAGES_ALL) {
            store_relaxed(&e->kind, CHUNK_FREE);
            return 0;
        }
        h->kept[e->class_index] = chunk;
    }
    span_adopt(h, chunk);
    return 0;
}

/* Forgets the pieces that are not out; those left must lie side by side within the chunk. */
static int recover_pieces(struct heap *h, uint32_t chunk)
{
    struct chunk_entry *e = &h->chunks[chunk];
    uint64_t pieces = e->pieces;
    uint32_t used = 0;

    for (unsigned page = 0, n; page < ABI_PAGES_PER_CHUNK; page++) {
        n = pieces_length(pieces, page);
        if (n && !(h->truth[(uint64_t)chunk * ABI_BLOCKS_PER_CHUNK + page * ABI_BLOCKS_PER_PAGE] & 1)) {
            pieces &= ~(15ull << (page * 4));
            n = 0;
        }
        if (page + n > ABI_PAGES_PER_CHUNK || (used & page_mask(page, n)))
            return -EUCLEAN;
        used |= page_mask(page, n);
    }
    store_relaxed(&e->pieces, pieces);
    compiler_fence(); /* a start that was killed here is done again; pairs with itself */
    if (pieces)
        extent_adopt_pieces(h, chunk);
    else
        store_relaxed(&e->kind, CHUNK_FREE);
    return 0;
}

/* Returns how many chunks it speaks for. */
static int64_t recover_large(struct heap *h, uint32_t chunk)
{
    struct chunk_entry *e = &h->chunks[chunk];
    uint64_t n = DIV_ROUND_UP(MIN(e->n_pages, UINT64_MAX / 2), (uint64_t)ABI_PAGES_PER_CHUNK);

    if (!(h->truth[(uint64_t)chunk * ABI_BLOCKS_PER_CHUNK] & 1)) {
        store_relaxed(&e->kind, CHUNK_FREE); /* its TAILs are strays now */
        return 1;
    }
    if (n == 0 || n > h->n_chunks - chunk)
        return -EUCLEAN;
    for (uint64_t c = chunk + 1; c < chunk + n; c++)
        if (h->chunks[c].kind != CHUNK_TAIL)
            return -EUCLEAN;
    extent_adopt_large(h, chunk);
    return (int64_t)n;
}

/* Completes or undoes what the predecessor was doing with one chunk. Returns how many chunks it looked at. */
static int64_t recover_kind(struct heap *h, uint32_t chunk)
{
    struct chunk_entry *e = &h->chunks[chunk];

    switch (e->kind) {
    case CHUNK_FREE:
        return 1;
    case CHUNK_SPAN:
        return recover_span(h, chunk) < 0 ? -EUCLEAN : 1;
    case CHUNK_PIECES:
        return recover_pieces(h, chunk) < 0 ? -EUCLEAN : 1;
    case CHUNK_LARGE:
        return recover_large(h, chunk);
    case CHUNK_ROOTS:
        if (h->state->root_chunk == chunk)
            return 1;
        break;
    case CHUNK_TAIL:
        break;
    default:
        return -EUCLEAN;
    }
    store_relaxed(&e->kind, CHUNK_FREE);
    return 1;
}

static void recover_purging(struct chunk_entry *e)
{
    if (!e->purging)
        return;
    /* Whether the hole was punched is not known. Killed between: PURGING still, and done again. */
    store_relaxed(&e->backed, (uint16_t)(e->backed & ~e->purging));
    compiler_fence(); /* pairs with itself, in the next start */
    store_relaxed(&e->purging, 0);
}

/* Counts a chunk's pages, after its kind is settled. */
static void recover_pages(struct heap *h, uint64_t chunk)
{
    struct chunk_entry *e = &h->chunks[chunk];

    h->n_backed += mask_count(e->backed);
    if (e->kind != CHUNK_FREE) {
        bitmap_set(&h->busy, chunk, 1);
    } else if (e->backed) {
        bitmap_set(&h->lazy, chunk, 1);
        h->n_lazy += mask_count(e->backed);
    }
}

/* One stretch between the watermarks. Most of a large one may be zero: these entries cost one comparison. */
static int recover_chunks(struct heap *h, uint64_t chunk, uint64_t end)
{
    static const struct chunk_entry untouched;

    while (chunk < end) {
        int64_t n;

        if (memcmp(&h->chunks[chunk], &untouched, sizeof(untouched)) == 0) {
            chunk++;
            continue;
        }
        recover_purging(&h->chunks[chunk]);
        n = recover_kind(h, (uint32_t)chunk);
        if (n < 0)
            return (int)n;
        for (; n > 0; n--, chunk++)
            recover_pages(h, chunk);
    }
    return 0;
}

/* What is not busy is free, in runs as long as can be. */
static void runs_build(struct heap *h)
{
    for (uint64_t first = bitmap_next_clear(&h->busy, 1); first != BITMAP_NONE;) {
        uint64_t end = MIN(bitmap_next_set(&h->busy, first), h->n_chunks);

        run_insert(h, (uint32_t)first, end - first);
        first = bitmap_next_clear(&h->busy, end);
    }
}

/*
 * Only chunks within the watermarks are looked at: the others are free, and reading them would make memory of
 * holes.
 */
static int heap_recover(struct heap *h)
{
    uint64_t low = h->state->n_low, high = h->state->n_high;
    int r;

    if (low > h->n_chunks || high > h->n_chunks)
        return -EUCLEAN;
    state_intent_redo(h->state);
    bitmap_set(&h->busy, 0, 1);
    r = recover_chunks(h, 1, low);
    if (r >= 0)
        r = recover_chunks(h, MAX(MAX(low, h->n_chunks - high), 1ull), h->n_chunks);
    if (r < 0)
        return r;
    runs_build(h);
    return 0;
}

int heap_new(struct state *state, const struct heap_ops *ops, struct heap **ret)
{
    struct heap *h;
    int r;

    if (state->magic != STATE_MAGIC || state->version != STATE_VERSION ||
        state->arena_bytes < ABI_ARENA_BYTES_MIN || state->arena_bytes > ABI_ARENA_BYTES_MAX ||
        state->bytes != state_bytes(state->arena_bytes))
        return -EUCLEAN;
    h = calloc(1, sizeof(*h));
    if (!h)
        return -ENOMEM;
    h->state = state;
    h->truth = state_truth(state);
    h->chunks = state_chunks(state);
    h->n_blocks = state_n_blocks(state->arena_bytes);
    h->n_chunks = state_n_chunks(state->arena_bytes);
    h->ops = *ops;
    h->extent_block = UINT32_MAX;
    for (unsigned c = 0; c < ABI_CLASS_EXTENT; c++)
        class_prepare(h, c);
    r = heap_map(h);
    if (r >= 0)
        r = heap_recover(h);
    if (r < 0) {
        heap_free(h);
        return r;
    }
    *ret = h;
    return 0;
}

struct heap *heap_free(struct heap *h)
{
    if (!h)
        return NULL;
    if (h->map)
        (void)munmap(h->map, h->map_bytes);
    free(h);
    return NULL;
}

/*
 * The tag is looked at first: a block whose chunk has no objects has perhaps no entry or word in memory
 * either.
 */
uint64_t heap_object_bytes(const struct heap *h, uint32_t block)
{
    unsigned tag;

    if (block >= h->n_blocks)
        return 0;
    tag = h->spans[block_chunk(block)].tag;
    return tag == TAG_EXTENT ? extent_pages(h, block) * ABI_PAGE_BYTES : h->object_bytes[tag];
}

uint32_t heap_extent_block(const struct heap *h)
{
    return h->extent_block;
}

/*
 * The lowest free chunk, of which one page is used. It never comes back, so it had better be one from the
 * arena's beginning, where it splits no run.
 */
int heap_roots(struct heap *h, uint64_t *ret_offset)
{
    uint64_t chunk = h->state->root_chunk;
    int r;

    if (chunk == 0) {
        chunk = bitmap_next_clear(&h->busy, 1);
        if (chunk == BITMAP_NONE)
            return -ENOSPC;
        run_claim(h, (uint32_t)chunk, 1);
        /* Killed from here on: ROOTS that the state does not name, so FREE. */
        store_relaxed(&h->chunks[chunk].kind, CHUNK_ROOTS);
        compiler_fence(); /* H5; pairs with recover_kind() */
        r = pages_back(h, chunk * ABI_PAGES_PER_CHUNK, 1);
        if (r < 0) {
            store_relaxed(&h->chunks[chunk].kind, CHUNK_FREE);
            run_return(h, (uint32_t)chunk, 1);
            return r;
        }
        store_relaxed(&h->state->root_chunk, chunk);
    }
    *ret_offset = chunk * ABI_CHUNK_BYTES;
    return 0;
}

/* Sums over the classes; nothing is walked. */
void heap_figures(const struct heap *h, struct heap_figures *ret)
{
    struct heap_figures f = {
        .out_bytes = (h->pages_committed - h->pages_expired) * ABI_PAGE_BYTES,
        .pending_bytes = (h->pages_taken - h->pages_expired) * ABI_PAGE_BYTES,
        .backed_bytes = h->n_backed * ABI_PAGE_BYTES,
        .lazy_bytes = h->n_lazy * ABI_PAGE_BYTES,
        .purging_bytes = h->n_purging * ABI_PAGE_BYTES,
        .span_chunks = h->n_spans,
        .extents = objects_out(h, TAG_EXTENT),
    };

    for (unsigned tag = TAG_SPAN; tag < TAG_MAX; tag++) {
        uint64_t n_out = objects_out(h, tag), n_pending = objects_pending(h, tag);

        f.out_objects += n_out;
        f.pending_objects += n_pending;
        f.out_bytes += n_out * h->object_bytes[tag]; /* extents: 0, their pages are counted */
        f.pending_bytes += n_pending * h->object_bytes[tag];
    }
    *ret = f;
}

/* Steps over chunks without objects by the busy bitmap. */
unsigned heap_pending(const struct heap *h, uint64_t *words, unsigned n_words, uint64_t *cursor)
{
    uint64_t block = *cursor;
    unsigned n = 0;

    while (block < h->n_blocks && n < n_words) {
        uint64_t chunk = block / ABI_BLOCKS_PER_CHUNK;

        if (h->spans[chunk].tag == TAG_NONE) {
            chunk = bitmap_next_set(&h->busy, chunk + 1);
            block = chunk == BITMAP_NONE ? h->n_blocks : chunk * ABI_BLOCKS_PER_CHUNK;
            continue;
        }
        if (h->truth[block] >> 32)
            words[n++] = abi_word((uint32_t)block, (uint32_t)(h->truth[block] >> 32));
        block++;
    }
    *cursor = block;
    return n;
}
