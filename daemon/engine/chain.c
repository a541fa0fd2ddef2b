/* SPDX-License-Identifier: MIT */
/*
 * The chain: deferred frees threaded through the objects themselves, for clients whose ring is full. Everything in it is
 * hostile: a link is checked against bounds and the truth before the object that it names is looked at, sequence numbers
 * must go down one by one, and a walk ends with the last object that was seen before, not with a pointer to it (that
 * object may have been freed and put on the chain again meanwhile). Spin: tests/model/chain.pml.
 */
#include <errno.h>

#include "basic/ordering.h"
#include "basic/testpoint.h"
#include "engine/lane.h"

#define LINK_HEAD_BITS 24

/* Links hold 40 bits of granule, blocks are 32 bits: larger ones name no block of any arena. */
static uint32_t link_block(uint64_t link)
{
    uint64_t block = link >> (LINK_HEAD_BITS + 5);

    return block > UINT32_MAX ? 0 : (uint32_t)block;
}

static uint32_t link_bit(uint64_t link)
{
    return 1u << (link >> LINK_HEAD_BITS & 31);
}

bool lane_has_chain(const struct lane *l)
{
    if (l->walk.link)
        return true;
    /* Acquire: the head and the objects that it leads to; pairs with reclaim_defer_free_head(). */
    return (int32_t)(load_acquire(&l->shared->chain_count) - l->state->chain_seen) > 0;
}

/* Where the link's own head stands, or NULL when that is in no object that is handed out. */
static const struct abi_chain_head *link_head(const struct heap *h, const void *base, uint64_t link)
{
    uint64_t granules = link & ((1u << LINK_HEAD_BITS) - 1), offset = granules * ABI_GRANULE_BYTES;
    uint32_t block = link_block(link);

    if (!heap_is_out(h, block, link_bit(link)) ||
        offset + sizeof(struct abi_chain_head) > heap_object_bytes(h, block))
        return NULL;
    return (const void *)((const char *)base + (link >> LINK_HEAD_BITS) * ABI_GRANULE_BYTES + offset);
}

/* The newest object and its number. False: nothing new, or nothing that makes sense. */
static bool walk_begin(struct lane *l, const struct heap *h, const void *base)
{
    const struct abi_chain_head *head;
    uint64_t link;

    if (!lane_has_chain(l))
        return false;
    link = load_acquire(&l->shared->chain_head); /* pairs with reclaim_defer_free_head() */
    head = link_head(h, base, link);
    /* ordered by the acquire above */
    if (head)
        l->walk.top = l->walk.seq = load_relaxed(&head->seq);
    else
        l->walk.top = load_relaxed(&l->shared->chain_count); /* cut: go on after it */
    if (head && (int32_t)(l->walk.top - l->state->chain_seen) > 0) {
        l->walk.link = link;
        return true;
    }
    store_relaxed(&l->account->refused, l->account->refused + 1); /* a figure; the worker's alone to write */
    l->state->chain_seen = l->walk.top;
    return false;
}

static void walk_end(struct lane *l)
{
    l->walk.link = 0;
    compiler_fence(); /* what was taken is pending before; a walk that is cut by our death begins anew */
    l->state->chain_seen = l->walk.top;
    RECLAIM_TEST_POINT("chain-seen");
}

/* One object. False: the walk is over, or was cut. */
static bool walk_step(struct lane *l, struct intake *in, const void *base, int *ret_error)
{
    const struct abi_chain_head *head = link_head(in->heap, base, l->walk.link), *next_head;
    uint64_t next = head ? load_relaxed(&head->next) : 0; /* read before the object is anybody else's */
    uint64_t refused = in->n_refused;

    *ret_error = pending_take(in, link_block(l->walk.link), link_bit(l->walk.link));
    RECLAIM_TEST_POINT("chain-pending");
    if (l->walk.seq == l->state->chain_seen + 1)
        return false;
    next_head = link_head(in->heap, base, next);
    if (!next_head || load_relaxed(&next_head->seq) != l->walk.seq - 1 || in->n_refused > refused + 1) {
        in->n_refused++; /* cut: what lies behind it is lost, to this arena's client alone */
        return false;
    }
    l->walk.link = next;
    l->walk.seq--;
    return true;
}

int lane_chain_collect(struct lane *l, struct heap *h, struct pending *pending, const void *base,
                       uint32_t max_objects, struct lane_look *ret)
{
    struct intake in;
    int r = 0;

    *ret = (struct lane_look){0};
    if (l->quarantined)
        return -EPROTO;
    if (pending->starved)
        return -ENOBUFS;
    if (!l->walk.link && !walk_begin(l, h, base))
        return 0;
    pending_intake_begin(&in, pending, h, l->account);
    while (max_objects-- > 0 && r == 0)
        if (!walk_step(l, &in, base, &r)) {
            walk_end(l);
            break;
        }
    pending_intake_end(&in);
    ret->n_objects = (uint32_t)in.n_accepted;
    return r;
}
