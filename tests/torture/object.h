/* SPDX-License-Identifier: MIT */
/*
 * Objects: every word of one follows from where it lies, which object it is and how long it is, so that
 * whoever reads it can tell whether it still is what it was.
 *
 *   word 0  id: which object of its entry << ENTRY_BITS | the entry's index
 *   word 1  check sum of address, id and length
 *   others  the check sum mixed with their index, but words 2 and 3 of every other long enough object:
 *           there is its head, which the chain of deferred frees overwrites
 *
 * All words are loaded and stored whole, in no order: what publishes them is the cell.
 */
#pragma once

#include "random.h"
#include "world.h"

enum {
    OBJECT_BYTES_MIN = 16, /* smaller ones have 16, too */
    OBJECT_HEAD_BYTES_MIN = 48,
    OBJECT_SMALL_MAX = 3584,
    OBJECT_BYTES_MAX = 256 * 1024,
};

/* A length of any size class, or, once in so many times (0: never), of an extent. */
uint32_t object_random_bytes(struct torture_random *random, uint32_t extents);

/* What the arena takes for so many bytes. */
uint64_t object_real_bytes(uint32_t bytes);

/* NULL: it has none. */
struct reclaim_head *object_head(void *p, uint64_t id, uint32_t bytes);

void object_fill(void *p, uint64_t id, uint32_t bytes);

/* Makes it wrong from end to end: whoever still reads it sees that it is gone. */
void object_spoil(void *p, uint32_t bytes);

uint64_t object_id(const void *p);

/* The entry of that id; NULL: it is no id of this board. */
struct entry *object_entry(const struct board *b, uint64_t id);

/*
 * All words of a short one, some of a long one. NULL: it is whole; else what is wrong. id: what it was when
 * it was first seen.
 */
const char *object_verify(const struct board *b, const void *p, uint64_t id, struct torture_random *random);
