/* SPDX-License-Identifier: MIT */
/*
 * Spans: chunks cut into objects of one class. Each class has a queue of its ripe spans, those with free
 * objects. A span joins at the end when it gets its first free object, and refills use up the span at the
 * front, so the one used is always the one whose frees have gathered longest: its words are dense, which is
 * what makes all later steps cheap.
 */
#include <errno.h>

#include "engine/heap-internal.h"

/* Objects stand side by side from the chunk's start; what does not hold a whole one at its end is lost. */
uint32_t heap_class_pattern(unsigned class_index, unsigned block_in_span)
{
    uint32_t bytes = abi_class_bytes(class_index), n = ABI_CHUNK_BYTES / bytes, pattern = 0;
    uint32_t start = block_in_span * ABI_BLOCK_BYTES, end = start + ABI_BLOCK_BYTES;

    for (uint32_t i = DIV_ROUND_UP(start, bytes); i < n && i * bytes < end; i++)
        pattern |= 1u << ((i * bytes - start) / ABI_GRANULE_BYTES);
    return pattern;
}

/*
 * H4: what is free is nothing but the pattern without the out bits. Called where that is not followed step
 * by step: after a start, and for a span that was parked.
 */
uint32_t span_count(struct heap *h, uint32_t chunk)
{
    struct span *s = &h->spans[chunk];
    const uint32_t *patterns = h->patterns[s->tag - TAG_SPAN];
    const truth_t *truth = &h->truth[(uint64_t)chunk * ABI_BLOCKS_PER_CHUNK];
    uint32_t n_out = 0, n_free = 0;

    s->open[0] = s->open[1] = 0;
    for (unsigned b = 0; b < ABI_BLOCKS_PER_CHUNK; b++) {
        uint32_t free_mask = patterns[b] & ~(uint32_t)truth[b];

        n_out += mask_count((uint32_t)truth[b]);
        n_free += mask_count(free_mask);
        if (free_mask)
            span_open_block(s, b);
    }
    s->n_free = (uint16_t)n_free;
    return n_out;
}

/* What is always so of a span of that class; not its free objects. */
static void span_set_class(struct heap *h, uint32_t chunk, unsigned class_index)
{
    struct span *s = &h->spans[chunk];

    s->tag = (uint8_t)(TAG_SPAN + class_index);
    s->parked = 0;
    s->n_reserved = 0;
    s->capacity = h->capacity[class_index];
    h->n_spans++;
}

/*
 * Nothing of the span is out or chosen. One such a class stays, in its queue like the others, so that a
 * client who allocates and frees one object does not make the daemon give back and fetch a chunk each time.
 */
static void span_empty(struct heap *h, uint32_t chunk)
{
    uint32_t *kept = &h->kept[h->spans[chunk].tag - TAG_SPAN];

    if (*kept == 0)
        *kept = chunk;
    else
        span_release(h, chunk);
}

/* The caller saw to it that its class is one and that it is not one empty span too many. */
void span_adopt(struct heap *h, uint32_t chunk)
{
    struct span *s = &h->spans[chunk];
    unsigned class_index = h->chunks[chunk].class_index;
    uint32_t n_out;

    span_set_class(h, chunk, class_index);
    n_out = span_count(h, chunk);
    h->n_committed[s->tag] += n_out;
    for (unsigned b = 0; b < ABI_BLOCKS_PER_CHUNK; b++)
        h->n_taken[s->tag] +=
            mask_count((uint32_t)(h->truth[(uint64_t)chunk * ABI_BLOCKS_PER_CHUNK + b] >> 32));
    if (s->n_free > 0)
        chunk_list_append(h, &h->ripe[class_index], chunk);
}

void span_release(struct heap *h, uint32_t chunk)
{
    struct span *s = &h->spans[chunk];
    unsigned class_index = s->tag - TAG_SPAN;

    chunk_list_remove(h, &h->ripe[class_index], chunk);
    if (h->kept[class_index] == chunk)
        h->kept[class_index] = 0;
    s->tag = TAG_NONE;
    h->n_spans--;
    /* None of its objects is out. Killed before it: an empty span, released (or kept) at the start. */
    store_relaxed(&h->chunks[chunk].kind, CHUNK_FREE);
    run_return(h, chunk, 1);
}

/* Some of its objects came free, by which it has become ripe (n_before == 0), or empty, or both. */
void span_filled(struct heap *h, uint32_t chunk, unsigned n_before)
{
    struct span *s = &h->spans[chunk];

    if (n_before == 0)
        chunk_list_append(h, &h->ripe[s->tag - TAG_SPAN], chunk);
    if (s->n_free == s->capacity)
        span_empty(h, chunk);
}

/*
 * See struct span: from now on its counts are not followed, until all its chosen words have found their way.
 */
void span_park(struct heap *h, uint32_t chunk)
{
    struct span *s = &h->spans[chunk];

    if (s->parked)
        return;
    if (s->n_free > 0)
        chunk_list_remove(h, &h->ripe[s->tag - TAG_SPAN], chunk);
    s->parked = 1;
    s->n_free = 0;
    s->open[0] = s->open[1] = 0;
}

void span_unpark(struct heap *h, uint32_t chunk)
{
    struct span *s = &h->spans[chunk];

    s->parked = 0;
    (void)span_count(h, chunk);
    if (s->n_free > 0)
        span_filled(h, chunk, 0);
}

/* The lowest free chunk, one that is backed (not yet purged) before others: such memory costs nothing. */
static int span_chunk(const struct heap *h, uint32_t *ret)
{
    uint64_t chunk = bitmap_next_set(&h->lazy, 1);

    if (chunk == BITMAP_NONE)
        chunk = bitmap_next_clear(&h->busy, 1);
    if (chunk == BITMAP_NONE)
        return -ENOSPC;
    *ret = (uint32_t)chunk;
    return 0;
}

/* Makes a span of the chunk that costs least, all free, and puts it at the end of the (empty) queue. */
static int span_new(struct heap *h, unsigned class_index, uint32_t *ret)
{
    struct chunk_entry *e;
    struct span *s;
    uint32_t chunk;
    int r;

    r = span_chunk(h, &chunk);
    if (r < 0)
        return r;
    run_claim(h, chunk, 1);
    e = &h->chunks[chunk];
    /* Killed before kind: still FREE. After it: a span with nothing out, which is released at the start. */
    e->class_index = (uint8_t)class_index;
    e->flags |= CHUNK_HAS_TRUTH;
    compiler_fence(); /* pairs with recover_span() */
    store_relaxed(&e->kind, CHUNK_SPAN);
    compiler_fence(); /* H5: before its memory; pairs with recover_span() */
    r = pages_back(h, (uint64_t)chunk * ABI_PAGES_PER_CHUNK, ABI_PAGES_PER_CHUNK);
    if (r < 0) {
        store_relaxed(&e->kind, CHUNK_FREE);
        run_return(h, chunk, 1);
        return r;
    }
    s = &h->spans[chunk];
    span_set_class(h, chunk, class_index);
    s->n_free = s->capacity;
    s->open[0] = h->open[class_index][0];
    s->open[1] = h->open[class_index][1];
    chunk_list_append(h, &h->ripe[class_index], chunk);
    *ret = chunk;
    return 0;
}

/* What one heap_reserve() has chosen and may still choose. */
struct choice {
    uint64_t *words;
    unsigned n, n_max;
    uint64_t objects_left;
    bool full; /* the next word is more than objects_left */
};

/* Chooses from 64 blocks of a span, the lowest first. Returns the blocks that are left; *n_objects grows. */
static uint64_t span_choose(const struct heap *h, uint32_t block, const uint32_t *patterns, uint64_t open,
                            struct choice *choice, unsigned *n_objects)
{
    const truth_t *truths = h->truth + block;
    /* In registers: a store to words[] might be one to *choice, for all that the compiler knows. */
    struct choice c = *choice;
    uint64_t before = c.objects_left;

    for (; open && c.n < c.n_max; open &= open - 1) {
        unsigned b = (unsigned)__builtin_ctzll(open);
        uint32_t mask = patterns[b] & ~(uint32_t)truths[b];
        unsigned n = mask_count(mask);

        if (unlikely(n > c.objects_left)) {
            c.full = true;
            if (c.n > 0)
                break;
            before += n - c.objects_left; /* at least one word */
            c.objects_left = n;
        }
        c.objects_left -= n;
        c.words[c.n++] = abi_word(block + b, mask);
    }
    *n_objects += (unsigned)(before - c.objects_left);
    *choice = c;
    return open;
}

/* Chooses from one ripe span. It leaves the queue when nothing is left of it. */
static void span_reserve(struct heap *h, uint32_t chunk, unsigned class_index, struct choice *c)
{
    struct span *s = &h->spans[chunk];
    unsigned n_objects = 0, n_words = c->n;

    for (unsigned i = 0; i < OPEN_WORDS && !c->full; i++)
        s->open[i] = span_choose(h, chunk * ABI_BLOCKS_PER_CHUNK + i * 64, h->patterns[class_index] + i * 64,
                                 s->open[i], c, &n_objects);
    if (n_objects > 0 && h->kept[class_index] == chunk)
        h->kept[class_index] = 0;
    s->n_free = (uint16_t)(s->n_free - n_objects);
    s->n_reserved = (uint16_t)(s->n_reserved + (c->n - n_words));
    if (s->n_free == 0)
        chunk_list_remove(h, &h->ripe[class_index], chunk);
}

unsigned heap_reserve(struct heap *h, unsigned class_index, uint64_t *words, unsigned n_words,
                      uint64_t max_bytes, int *ret_error)
{
    struct choice c = {.words = words, .n_max = n_words};
    int r = -EINVAL;

    if (class_index >= ABI_CLASS_EXTENT) {
        *ret_error = r;
        return 0;
    }
    c.objects_left = max_bytes / abi_class_bytes(class_index);
    while (c.n < n_words && !c.full) {
        uint32_t chunk = h->ripe[class_index].first;

        if (!chunk && c.n > 0 && c.objects_left < mask_count(h->patterns[class_index][0]))
            break; /* a new span's first word would be too much */
        r = chunk ? 0 : span_new(h, class_index, &chunk);
        if (r < 0)
            break;
        span_reserve(h, chunk, class_index, &c);
    }
    if (c.n == 0)
        *ret_error = r;
    return c.n;
}

/*
 * The word was the whole free part of its block, and is so again. A parked span is counted when the last one
 * is back.
 */
void heap_unreserve(struct heap *h, uint64_t word)
{
    uint32_t block = abi_word_block(word), chunk = block_chunk(block);
    struct span *s = &h->spans[chunk];
    unsigned n_before = s->n_free;

    if (s->tag == TAG_EXTENT) {
        extent_unreserve(h, block);
        return;
    }
    s->n_reserved--;
    if (s->parked && s->n_reserved == 0) {
        span_unpark(h, chunk);
    } else if (!s->parked) {
        span_open_block(s, block);
        s->n_free = (uint16_t)(n_before + mask_count(abi_word_mask(word)));
        if (n_before == 0 || s->n_free == s->capacity)
            span_filled(h, chunk, n_before);
    }
}
