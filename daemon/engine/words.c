/* SPDX-License-Identifier: MIT */
/*
 * Many words at once. Words come in rows that speak of one span: refills choose them so, and frees in order
 * are so. For such a row the span's counts stay in registers; stored and loaded again for each word they
 * would make it wait for the one before, which takes longer than all the rest of the work.
 */
#include "engine/heap-internal.h"

/*
 * What may be taken of a record, and the tag of its chunk; 0 for a block that has no truth word to be looked
 * at.
 */
static inline uint32_t acceptable(const struct heap *h, uint64_t word, unsigned *ret_tag)
{
    uint32_t block = abi_word_block(word);
    truth_t truth;

    *ret_tag = TAG_NONE;
    if (unlikely(block >= h->n_blocks))
        return 0;
    *ret_tag = h->spans[block_chunk(block)].tag;
    if (unlikely(*ret_tag == TAG_NONE))
        return 0;
    truth = h->truth[block];
    return abi_word_mask(word) & (uint32_t)truth & ~(uint32_t)(truth >> 32);
}

/* Counts a row of records of one class. */
static void taken_count(struct heap *h, unsigned tag, unsigned n_objects, struct heap_taken *t)
{
    h->n_taken[tag] += n_objects;
    t->n_objects += n_objects;
    t->n_bytes += (uint64_t)n_objects * h->object_bytes[tag];
}

/*
 * Records from a ring are of one class for long stretches, so the sums are kept by class and added up where
 * it changes. A record costs a look at its chunk's tag, its truth word and nothing else.
 */
unsigned heap_take_words(struct heap *h, const uint64_t *words, unsigned n, uint64_t *accepted,
                         struct heap_taken *ret)
{
    struct heap_taken t = {0};
    unsigned i, tag, row_tag = TAG_NONE, row = 0;

    for (i = 0; i < n; i++) {
        uint64_t word = words[i];
        uint32_t block = abi_word_block(word), got = acceptable(h, word, &tag);

        if (unlikely(tag != row_tag)) {
            if (tag == TAG_EXTENT)
                break;
            taken_count(h, row_tag, row, &t);
            row_tag = tag;
            row = 0;
        }
        if (unlikely(got != abi_word_mask(word)))
            t.n_refused += mask_count(abi_word_mask(word) & ~got);
        if (unlikely(!got)) /* also a record of nothing: its block may be anywhere */
            continue;
        row += mask_count(got);
        /* As in heap_take(): whole, and before the cursor, which is the caller's. */
        store_relaxed(&h->truth[block], h->truth[block] | (truth_t)got << 32);
        accepted[t.n_words++] = abi_word(block, got);
    }
    taken_count(h, row_tag, row, &t);
    *ret = t;
    return i;
}

#define ROW_WORDS 8u

/*
 * All of ROW_WORDS words are of one chunk. One branch, which frees in order always take and random ones
 * never.
 */
static bool words_are_row(const uint64_t *words)
{
    uint64_t differ = 0;

    for (unsigned i = 1; i < ROW_WORDS; i++)
        differ |= words[i] ^ words[0];
    return abi_word_block(differ) < ABI_BLOCKS_PER_CHUNK;
}

/* False: nothing was done, these need to be looked at one by one. */
static bool expire_row(struct heap *h, const uint64_t *words)
{
    uint32_t chunk = block_chunk(abi_word_block(words[0]));
    struct span *s = &h->spans[chunk];
    unsigned n_before = s->n_free, n_freed = 0;
    uint64_t open_low = 0, open_high = 0;
    truth_t *truths = h->truth;

    if (unlikely(s->tag == TAG_EXTENT || s->n_reserved > 0))
        return false;
    for (unsigned i = 0; i < ROW_WORDS; i++) {
        uint32_t block = abi_word_block(words[i]);
        truth_t truth = truths[block];
        uint32_t mask = abi_word_mask(words[i]) & (uint32_t)(truth >> 32);
        uint64_t bit = (uint64_t)(mask != 0) << (block % 64);

        /* As in heap_expire(): whole, and alone. */
        store_relaxed(&truths[block], truth & ~(mask | (truth_t)mask << 32));
        n_freed += mask_count(mask);
        open_low |= block & 64 ? 0 : bit;
        open_high |= block & 64 ? bit : 0;
    }
    h->n_expired[s->tag] += n_freed;
    s->open[0] |= open_low;
    s->open[1] |= open_high;
    s->n_free = (uint16_t)(n_before + n_freed);
    if (unlikely(n_freed > 0 && (n_before == 0 || s->n_free == s->capacity)))
        span_filled(h, chunk, n_before);
    return true;
}

/*
 * Eight by eight. Words in random order would make an "is it the same span still?" after each word a coin
 * toss, which costs more than it saves; all eight together it is nearly always no, and they are done one by
 * one.
 */
void heap_expire_words(struct heap *h, const uint64_t *words, unsigned n)
{
    for (; n >= ROW_WORDS; words += ROW_WORDS, n -= ROW_WORDS)
        if (!words_are_row(words) || !expire_row(h, words))
            for (unsigned i = 0; i < ROW_WORDS; i++)
                heap_expire(h, words[i]);
    for (unsigned i = 0; i < n; i++)
        heap_expire(h, words[i]);
}

/* As many words as are of one span: refills have long rows. Returns how many. */
static unsigned commit_row(struct heap *h, const uint64_t *words, unsigned n)
{
    uint32_t chunk = block_chunk(abi_word_block(words[0]));
    struct span *s = &h->spans[chunk];
    unsigned n_words = 0, n_objects = 0, i = 0;
    truth_t *truths = h->truth;

    if (unlikely(s->tag == TAG_EXTENT)) {
        heap_commit(h, words[0]);
        return 1;
    }
    do {
        uint32_t block = abi_word_block(words[i]);
        truth_t truth = truths[block];
        uint32_t mask = abi_word_mask(words[i]) & ~(uint32_t)truth;

        /* As in heap_commit(): whole, and covered by the caller's intent. */
        store_relaxed(&truths[block], truth | mask);
        n_objects += mask_count(mask);
        n_words += mask != 0;
    } while (++i < n && block_chunk(abi_word_block(words[i])) == chunk);
    h->n_committed[s->tag] += n_objects;
    s->n_reserved = (uint16_t)(s->n_reserved - n_words);
    if (unlikely(s->parked) && s->n_reserved == 0)
        span_unpark(h, chunk);
    return i;
}

/*
 * In any order, though only heap_reserve()'s own is fast. Extents, one word each, go through heap_commit().
 */
void heap_commit_words(struct heap *h, const uint64_t *words, unsigned n)
{
    for (unsigned done; n > 0; words += done, n -= done)
        done = commit_row(h, words, n);
}
