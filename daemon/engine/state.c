/* SPDX-License-Identifier: MIT */
/* The layout of the state segment, and the one piece of it that is finished before anything is derived. */
#include "engine/state.h"

#include "basic/ordering.h"

#define INTENT_SET (1ull << 63)

/* Where the parts begin. The sparse ones are whole pages, so that untouched parts of neighbours share none.
 */
struct layout {
    uint64_t chunks, lanes, truth, end;
};

static struct layout layout_of(uint64_t arena_bytes)
{
    struct layout l;

    l.chunks = ALIGN_UP((uint64_t)sizeof(struct state), ABI_PAGE_BYTES);
    l.lanes = ALIGN_UP(l.chunks + state_n_chunks(arena_bytes) * sizeof(struct chunk_entry), ABI_PAGE_BYTES);
    l.truth = ALIGN_UP(l.lanes + (uint64_t)STATE_LANES_MAX * sizeof(struct state_lane), ABI_PAGE_BYTES);
    l.end = ALIGN_UP(l.truth + state_n_blocks(arena_bytes) * sizeof(truth_t), ABI_PAGE_BYTES);
    return l;
}

uint64_t state_bytes(uint64_t arena_bytes)
{
    return layout_of(arena_bytes).end;
}

void state_init(struct state *s, uint64_t arena_bytes, uint64_t base)
{
    struct layout l = layout_of(arena_bytes);

    s->version = STATE_VERSION;
    s->fingerprint = ABI_FINGERPRINT;
    s->base = base;
    s->arena_bytes = arena_bytes;
    s->next_client_id = 1;
    s->chunk_offset = l.chunks;
    s->lane_offset = l.lanes;
    s->truth_offset = l.truth;
    s->bytes = l.end;
    /* Killed before this store: no magic, and the segment is thrown away. */
    compiler_fence(); /* pairs with the check in heap_new() */
    s->magic = STATE_MAGIC;
}

void state_intent_redo(struct state *s)
{
    uint64_t lane = s->intent >> 40 & 0x3fffff, class_index = s->intent >> 32 & 0xff;
    uint64_t n = s->intent >> 16 & 0xffff, index = s->intent & 0xffff;

    if (!(s->intent & INTENT_SET) || lane >= STATE_LANES_MAX || class_index >= ABI_CLASSES ||
        n > ABI_MAGAZINE_WORDS)
        return;
    for (uint64_t i = 0; i < n; i++) {
        /* The index was cut to 16 bits, of which the magazine's place needs ten. */
        uint64_t word = state_lane(s, (uint32_t)lane)->shadow[class_index][(index + i) % ABI_MAGAZINE_WORDS];
        truth_t *truth = &state_truth(s)[abi_word_block(word)];

        if (abi_word_block(word) < state_n_blocks(s->arena_bytes))
            store_relaxed(truth,
                          *truth |
                              abi_word_mask(word)); /* read by this process alone; whole for a crash's sake */
    }
}
