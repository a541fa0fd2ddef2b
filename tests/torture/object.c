/* SPDX-License-Identifier: MIT */
/* Filling and verifying objects. See object.h. */
#include "object.h"

#include "abi.h"

enum {
    WORDS_ALL = 64, /* up to so many words are all verified */
    WORDS_SOME = 24,
};

uint32_t object_random_bytes(struct torture_random *random, uint32_t extents)
{
    unsigned class_index;

    if (extents && random_one_in(random, extents))
        return random_between(random, OBJECT_SMALL_MAX + 1,
                              random_one_in(random, 8) ? OBJECT_BYTES_MAX : 5 * ABI_PAGE_BYTES);
    class_index = random_below(random, ABI_CLASS_EXTENT);
    if (class_index == 0)
        return OBJECT_BYTES_MIN;
    return random_between(random, abi_class_bytes(class_index - 1) + 1, abi_class_bytes(class_index));
}

uint64_t object_real_bytes(uint32_t bytes)
{
    unsigned class_index = abi_class_of(bytes);

    return class_index == ABI_CLASS_EXTENT ? ALIGN_UP((uint64_t)bytes, ABI_PAGE_BYTES)
                                           : abi_class_bytes(class_index);
}

static uint64_t check_sum(const void *p, uint64_t id, uint32_t bytes)
{
    return random_mix((uint64_t)(uintptr_t)p ^ random_mix(id) ^ (uint64_t)bytes << 48);
}

static inline uint64_t word_at(uint64_t sum, uint32_t i)
{
    return sum ^ i * 0x9e3779b97f4a7c15u;
}

static bool has_head(uint64_t id, uint32_t bytes)
{
    return bytes >= OBJECT_HEAD_BYTES_MIN && id >> ENTRY_BITS & 1;
}

/* The first word that follows from the check sum. */
static uint32_t first_word(uint64_t id, uint32_t bytes)
{
    return has_head(id, bytes) ? 4 : 2;
}

struct reclaim_head *object_head(void *p, uint64_t id, uint32_t bytes)
{
    return has_head(id, bytes) ? (struct reclaim_head *)(void *)((char *)p + 16) : NULL;
}

void object_fill(void *p, uint64_t id, uint32_t bytes)
{
    uint64_t *words = p, sum = check_sum(p, id, bytes);

    store_relaxed(&words[0], id); /* published by the cell, as all words */
    store_relaxed(&words[1], sum);
    for (uint32_t i = first_word(id, bytes); i < bytes / 8; i++)
        store_relaxed(&words[i], word_at(sum, i));
}

void object_spoil(void *p, uint32_t bytes)
{
    uint64_t *words = p;

    for (uint32_t i = 0; i < bytes / 8; i++)
        store_relaxed(&words[i], UINT64_C(0xdeadfa11dead0000) + i);
}

uint64_t object_id(const void *p)
{
    return load_relaxed((const uint64_t *)p); /* ordered by the cell */
}

struct entry *object_entry(const struct board *b, uint64_t id)
{
    uint64_t i = id & ((1u << ENTRY_BITS) - 1);

    return i < b->n_entries ? &b->entries[i] : NULL;
}

static bool words_are_right(const uint64_t *words, uint64_t sum, uint32_t first, uint32_t n,
                            struct torture_random *random)
{
    bool right = n <= first || load_relaxed(&words[n - 1]) == word_at(sum, n - 1); /* ordered by the cell */

    if (n > WORDS_ALL) {
        for (uint32_t i = 0; i < WORDS_SOME && right; i++) {
            uint32_t at = random_between(random, first, n - 1);

            right = load_relaxed(&words[at]) == word_at(sum, at);
        }
        return right;
    }
    for (uint32_t i = first; i < n && right; i++)
        right = load_relaxed(&words[i]) == word_at(sum, i);
    return right;
}

const char *object_verify(const struct board *b, const void *p, uint64_t id, struct torture_random *random)
{
    const struct entry *e = object_entry(b, id);
    const uint64_t *words = p;
    uint32_t bytes;
    uint64_t sum;

    if (object_id(p) != id)
        return "its number changed";
    if (!e)
        return "it names an entry that there is not";
    if (load_relaxed(&e->id) != id) /* written before the cell */
        return "its entry is another object's";
    bytes = load_relaxed(&e->bytes);
    if (bytes < OBJECT_BYTES_MIN || bytes > OBJECT_BYTES_MAX)
        return "its entry's length is none";
    sum = check_sum(p, id, bytes);
    if (load_relaxed(&words[1]) != sum)
        return "its check sum is wrong";
    return words_are_right(words, sum, first_word(id, bytes), bytes / 8, random) ? NULL
                                                                                 : "its contents changed";
}
