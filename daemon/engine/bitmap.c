/* SPDX-License-Identifier: MIT */
/*
 * The hierarchical bitmap: a change climbs only as far as a summary changes, a search as far as it finds
 * nothing.
 */
#include "engine/bitmap.h"

#include "basic/macro.h"

#define WORD_BITS 64u
#define ALL_ONES UINT64_MAX

/* The last word may have bits beyond the end; they are never set, so they count as clear. */
static uint64_t words_for(uint64_t n_bits)
{
    return DIV_ROUND_UP(n_bits, WORD_BITS);
}

/* The bits once, then each level of summaries twice: a 64th, a 4096th, ... of them. */
size_t bitmap_bytes(uint64_t n_bits)
{
    uint64_t n_words = words_for(n_bits);
    uint64_t total = n_words;

    while (n_words > 1) {
        n_words = words_for(n_words);
        total += 2 * n_words; /* one that says "any", one that says "all" */
    }
    return total * sizeof(uint64_t);
}

void bitmap_init(struct bitmap *b, void *zeroed, uint64_t n_bits)
{
    uint64_t *next = zeroed;
    unsigned level = 0;

    *b = (struct bitmap){.n_bits[0] = n_bits, .any[0] = next, .all[0] = next};
    next += words_for(n_bits);
    while (words_for(b->n_bits[level]) > 1) {
        uint64_t n_words = words_for(words_for(b->n_bits[level]));

        b->n_bits[level + 1] = words_for(b->n_bits[level]);
        level++;
        b->any[level] = next;
        b->all[level] = next + n_words;
        next += 2 * n_words;
    }
    b->n_levels = level + 1;
}

/*
 * Sets one bit of a summary. True when the word said nothing before, so the level above does not know of it.
 */
static bool raise_bit(uint64_t *words, uint64_t bit)
{
    uint64_t *word = &words[bit / WORD_BITS];
    uint64_t before = *word;

    *word = before | 1ull << (bit % WORD_BITS);
    return before == 0;
}

/*
 * The four ways in which a word's summaries change. Each climbs while the word of the level above changes in
 * the same sense, which is rare: in most cases one step says that all is as it was.
 */
static void word_became_nonzero(struct bitmap *b, uint64_t word)
{
    for (unsigned level = 1; level < b->n_levels && raise_bit(b->any[level], word); level++)
        word /= WORD_BITS;
}

static void word_became_zero(struct bitmap *b, uint64_t word)
{
    for (unsigned level = 1; level < b->n_levels; level++) {
        b->any[level][word / WORD_BITS] &= ~(1ull << (word % WORD_BITS));
        word /= WORD_BITS;
        if (b->any[level][word])
            return;
    }
}

static void word_became_full(struct bitmap *b, uint64_t word)
{
    for (unsigned level = 1; level < b->n_levels; level++) {
        b->all[level][word / WORD_BITS] |= 1ull << (word % WORD_BITS);
        word /= WORD_BITS;
        if (b->all[level][word] != ALL_ONES)
            return;
    }
}

static void word_was_full(struct bitmap *b, uint64_t word)
{
    for (unsigned level = 1; level < b->n_levels; level++) {
        uint64_t before = b->all[level][word / WORD_BITS];

        b->all[level][word / WORD_BITS] = before & ~(1ull << (word % WORD_BITS));
        if (before != ALL_ONES)
            return;
        word /= WORD_BITS;
    }
}

/* The only place where bits change: whatever is stored, the summaries above follow at once. */
static void word_store(struct bitmap *b, uint64_t word, uint64_t value)
{
    uint64_t before = b->any[0][word];

    b->any[0][word] = value;
    if (!before && value)
        word_became_nonzero(b, word);
    if (before && !value)
        word_became_zero(b, word);
    if (before != ALL_ONES && value == ALL_ONES)
        word_became_full(b, word);
    if (before == ALL_ONES && value != ALL_ONES)
        word_was_full(b, word);
}

/* The bits of [first, end) that are in the word of `first`. */
static uint64_t word_mask(uint64_t first, uint64_t end)
{
    uint64_t last_in_word = MIN(end, (first / WORD_BITS + 1) * WORD_BITS) - 1;

    return ALL_ONES << (first % WORD_BITS) & ALL_ONES >> (WORD_BITS - 1 - last_in_word % WORD_BITS);
}

void bitmap_set(struct bitmap *b, uint64_t first, uint64_t n)
{
    uint64_t end = first + n;

    for (; first < end; first = (first / WORD_BITS + 1) * WORD_BITS)
        word_store(b, first / WORD_BITS, b->any[0][first / WORD_BITS] | word_mask(first, end));
}

void bitmap_clear(struct bitmap *b, uint64_t first, uint64_t n)
{
    uint64_t end = first + n;

    for (; first < end; first = (first / WORD_BITS + 1) * WORD_BITS)
        word_store(b, first / WORD_BITS, b->any[0][first / WORD_BITS] & ~word_mask(first, end));
}

/*
 * From a bit found at that level down to the first wanted bit below it. `flip` makes clear bits the wanted
 * ones.
 */
static uint64_t descend_first(const struct bitmap *b, uint64_t *const *levels, unsigned level, uint64_t bit,
                              uint64_t flip)
{
    while (level > 0 && bit < b->n_bits[level]) {
        level--;
        bit = bit * WORD_BITS + (unsigned)__builtin_ctzll(levels[level][bit] ^ flip);
    }
    return bit < b->n_bits[level] ? bit : BITMAP_NONE; /* bits beyond the end count as clear */
}

/*
 * Climbs from the place on until some level knows of a wanted bit further on, then goes down to it. Whoever
 * looks for clear bits passes the summaries of full words and flips all bits as they are read.
 */
static uint64_t find_next(const struct bitmap *b, uint64_t *const *levels, uint64_t from, uint64_t flip)
{
    for (unsigned level = 0; level < b->n_levels && from < b->n_bits[level]; level++) {
        uint64_t word = (levels[level][from / WORD_BITS] ^ flip) & ALL_ONES << (from % WORD_BITS);

        if (word)
            return descend_first(b, levels, level,
                                 from / WORD_BITS * WORD_BITS + (unsigned)__builtin_ctzll(word), flip);
        from = from / WORD_BITS + 1;
    }
    return BITMAP_NONE;
}

/* The same, to the last one. It cannot leave the bitmap: what find_prev() comes from is inside. */
static uint64_t descend_last(uint64_t *const *levels, unsigned level, uint64_t bit, uint64_t flip)
{
    while (level > 0) {
        level--;
        bit = bit * WORD_BITS + WORD_BITS - 1 - (unsigned)__builtin_clzll(levels[level][bit] ^ flip);
    }
    return bit;
}

static uint64_t find_prev(const struct bitmap *b, uint64_t *const *levels, uint64_t from, uint64_t flip)
{
    from = MIN(from, b->n_bits[0] - 1);
    for (unsigned level = 0; level < b->n_levels; level++) {
        uint64_t index = from / WORD_BITS;
        uint64_t word = (levels[level][index] ^ flip) & ALL_ONES >> (WORD_BITS - 1 - from % WORD_BITS);

        if (word)
            return descend_last(levels, level,
                                index * WORD_BITS + WORD_BITS - 1 - (unsigned)__builtin_clzll(word), flip);
        if (index == 0)
            return BITMAP_NONE;
        from = index - 1;
    }
    return BITMAP_NONE;
}

uint64_t bitmap_next_set(const struct bitmap *b, uint64_t from)
{
    return find_next(b, b->any, from, 0);
}

uint64_t bitmap_next_clear(const struct bitmap *b, uint64_t from)
{
    return find_next(b, b->all, from, ALL_ONES);
}

uint64_t bitmap_prev_set(const struct bitmap *b, uint64_t from)
{
    return find_prev(b, b->any, from, 0);
}

uint64_t bitmap_prev_clear(const struct bitmap *b, uint64_t from)
{
    return find_prev(b, b->all, from, ALL_ONES);
}
