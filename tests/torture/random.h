/* SPDX-License-Identifier: MIT */
/* Random numbers that a seed brings back: one generator a thread, cheap enough for each read section. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct torture_random {
    uint64_t state; /* never 0 */
};

/* Spreads the bits of a number over all 64: for seeds, check sums and patterns. */
static inline uint64_t random_mix(uint64_t n)
{
    n ^= n >> 32;
    n *= 0xd6e8feb86659fd93u;
    n ^= n >> 32;
    n *= 0xd6e8feb86659fd93u;
    return n ^ n >> 32;
}

/* stream: which of the generators that share a seed. */
static inline struct torture_random random_make(uint64_t seed, uint64_t stream)
{
    uint64_t state = random_mix(seed + random_mix(stream + 1));

    return (struct torture_random){state ? state : 1};
}

static inline uint64_t random_next(struct torture_random *r)
{
    r->state ^= r->state << 13;
    r->state ^= r->state >> 7;
    r->state ^= r->state << 17;
    return r->state * 0x2545f4914f6cdd1du;
}

/* 0 .. n - 1; n is at least 1 and below 2^32. */
static inline uint32_t random_below(struct torture_random *r, uint32_t n)
{
    return (uint32_t)((random_next(r) >> 32) * n >> 32);
}

static inline uint32_t random_between(struct torture_random *r, uint32_t min, uint32_t max)
{
    return min + random_below(r, max - min + 1);
}

/* True once in n times. */
static inline bool random_one_in(struct torture_random *r, uint32_t n)
{
    return random_below(r, n) == 0;
}
