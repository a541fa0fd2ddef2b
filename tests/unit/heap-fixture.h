/* SPDX-License-Identifier: MIT */
/*
 * A heap on a state of its own, over an arena that is not there: the fixture plays the operating system and
 * notes which pages have memory behind them. For the tests of daemon/engine's heap files.
 */
#ifndef RECLAIMD_TESTS_HEAP_FIXTURE_H
#define RECLAIMD_TESTS_HEAP_FIXTURE_H

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "engine/heap.h"

#define MIB (1ull << 20)
#define BACK_CALLS_MAX 64

static const struct heap_purge_bounds heap_all = {0, UINT64_MAX};

struct fixture {
    struct state *state;
    struct heap *heap;
    int fd;       /* of the state */
    bool *memory; /* a page: backed and not punched since; NULL: nobody wants to know */
    struct heap_hole calls[BACK_CALLS_MAX]; /* the last calls of back() */
    unsigned n_calls;
    int fail;            /* the errno that back() returns .. */
    unsigned fail_after; /* .. after so many calls that it lets through */
};

static int fixture_back(void *userdata, uint64_t offset, uint64_t bytes)
{
    struct fixture *f = userdata;

    assert_int_equal(offset % ABI_PAGE_BYTES, 0);
    assert_int_equal(bytes % ABI_PAGE_BYTES, 0);
    assert_true(offset >= ABI_CHUNK_BYTES && bytes > 0 && offset + bytes <= f->state->arena_bytes);
    if (f->fail && f->fail_after-- == 0) {
        f->fail_after = 0;
        return -f->fail;
    }
    f->calls[f->n_calls++ % BACK_CALLS_MAX] = (struct heap_hole){.offset = offset, .bytes = bytes};
    for (uint64_t p = offset / ABI_PAGE_BYTES; f->memory && p < (offset + bytes) / ABI_PAGE_BYTES; p++)
        f->memory[p] = true;
    return 0;
}

static inline void fixture_punch(struct fixture *f, const struct heap_hole *hole)
{
    for (uint64_t p = hole->offset / ABI_PAGE_BYTES; p < (hole->offset + hole->bytes) / ABI_PAGE_BYTES; p++)
        f->memory[p] = false;
}

static inline int fixture_start(struct fixture *f)
{
    struct heap_ops ops = {.back = fixture_back, .userdata = f};

    return heap_new(f->state, &ops, &f->heap);
}

/* With a page behind it that nobody may touch. */
static inline void *fixture_map(int fd, uint64_t bytes)
{
    void *map =
        mmap(NULL, bytes + ABI_PAGE_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    assert_ptr_not_equal(map, MAP_FAILED);
    assert_ptr_equal(mmap(map, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, fd, 0),
                     map);
    return map;
}

static inline void fixture_init(struct fixture *f, uint64_t arena_bytes)
{
    *f = (struct fixture){.fd = memfd_create("heap-test", MFD_CLOEXEC)};
    assert_true(f->fd >= 0);
    assert_int_equal(ftruncate(f->fd, (off_t)state_bytes(arena_bytes)), 0);
    f->state = fixture_map(f->fd, state_bytes(arena_bytes));
    state_init(f->state, arena_bytes, ABI_WINDOW_START);
    if (arena_bytes <= 1024 * MIB) {
        f->memory = calloc(arena_bytes / ABI_PAGE_BYTES, sizeof(bool));
        assert_non_null(f->memory);
    }
    assert_int_equal(fixture_start(f), 0);
}

static inline void fixture_deinit(struct fixture *f)
{
    f->heap = heap_free(f->heap);
    assert_int_equal(munmap(f->state, f->state->bytes + ABI_PAGE_BYTES), 0);
    assert_int_equal(close(f->fd), 0);
    free(f->memory);
}

/*
 * A second fixture with a copy of the state, as a successor would find it; its heap is not made. Lanes are
 * not copied.
 */
static inline void fixture_copy_state(const struct fixture *from, struct fixture *to)
{
    memcpy(to->state, from->state, from->state->lane_offset);
    memcpy((char *)to->state + from->state->truth_offset,
           (const char *)from->state + from->state->truth_offset,
           from->state->bytes - from->state->truth_offset);
}

static inline void fixture_complain(void *userdata, const char *line)
{
    print_error("audit: %s\n", line);
}

#define assert_audit_clean(f) assert_int_equal(heap_audit((f)->heap, fixture_complain, NULL), 0)

static inline struct heap_figures fixture_figures(const struct fixture *f)
{
    struct heap_figures figures;

    heap_figures(f->heap, &figures);
    return figures;
}

/* One word of that class, out. */
static inline uint64_t fixture_alloc_word(struct fixture *f, unsigned class_index, uint64_t max_bytes)
{
    uint64_t word;
    int error = 0;

    assert_int_equal(heap_reserve(f->heap, class_index, &word, 1, max_bytes, &error), 1);
    heap_commit(f->heap, word);
    return word;
}

/* An extent, out. */
static inline uint64_t fixture_alloc_pages(struct fixture *f, uint64_t n_pages)
{
    uint64_t word;

    assert_int_equal(heap_extent_reserve(f->heap, n_pages, &word), 0);
    heap_commit(f->heap, word);
    return word;
}

static inline uint32_t fixture_take(struct fixture *f, uint64_t word)
{
    uint64_t bytes;
    bool extent;

    return heap_take(f->heap, abi_word_block(word), abi_word_mask(word), &bytes, &extent);
}

static inline void fixture_free(struct fixture *f, uint64_t word)
{
    assert_int_equal(fixture_take(f, word), abi_word_mask(word));
    heap_expire(f->heap, word);
}

static inline uint64_t word_offset(uint64_t word)
{
    return (uint64_t)abi_word_block(word) * ABI_BLOCK_BYTES +
           (unsigned)__builtin_ctz(abi_word_mask(word)) * ABI_GRANULE_BYTES;
}

static inline uint32_t word_chunk(uint64_t word)
{
    return abi_word_block(word) / ABI_BLOCKS_PER_CHUNK;
}

static inline struct chunk_entry *word_entry(struct fixture *f, uint64_t word)
{
    return &state_chunks(f->state)[word_chunk(word)];
}

/* Random, but the same in each run. */
static inline uint64_t fixture_random(uint64_t *seed, uint64_t below)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed % below;
}

#endif
