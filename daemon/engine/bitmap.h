/* SPDX-License-Identifier: MIT */
/*
 * A bitmap whose next or previous set or clear bit is found in as many steps as it has levels: each word of a
 * level is summed up by one bit in each of two words above, "any set" and "all set". It lives in zeroed
 * memory that the caller gives (all clear); what was never set takes no memory there.
 */
#ifndef RECLAIMD_ENGINE_BITMAP_H
#define RECLAIMD_ENGINE_BITMAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BITMAP_LEVELS_MAX 6 /* 64^6 bits: more than an arena has chunks */
#define BITMAP_NONE UINT64_MAX

struct bitmap {
    unsigned n_levels;
    uint64_t n_bits[BITMAP_LEVELS_MAX]; /* of each level; [0]: of the bitmap */
    uint64_t *any[BITMAP_LEVELS_MAX];   /* [0]: the bits; above: a bit a word below, which has a bit set */
    uint64_t
        *all[BITMAP_LEVELS_MAX]; /* [0]: the bits too; above: a bit a word below, which has all bits set */
};

/* How much zeroed memory a bitmap of so many bits (at least 1) wants. */
size_t bitmap_bytes(uint64_t n_bits);
void bitmap_init(struct bitmap *b, void *zeroed, uint64_t n_bits);

/* All of [first, first + n), which must be inside. */
void bitmap_set(struct bitmap *b, uint64_t first, uint64_t n);
void bitmap_clear(struct bitmap *b, uint64_t first, uint64_t n);

/*
 * The nearest such bit at or after (next), at or before (prev) that place; BITMAP_NONE. `from` may be beyond
 * the end.
 */
uint64_t bitmap_next_set(const struct bitmap *b, uint64_t from);
uint64_t bitmap_next_clear(const struct bitmap *b, uint64_t from);
uint64_t bitmap_prev_set(const struct bitmap *b, uint64_t from);
uint64_t bitmap_prev_clear(const struct bitmap *b, uint64_t from);

static inline bool bitmap_test(const struct bitmap *b, uint64_t bit)
{
    return b->any[0][bit / 64] >> (bit % 64) & 1;
}

#endif
