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
#define REFUSED_MAX                                                                                          \
    64u /* objects of one look that are not to be freed: then the chain is none, maybe a circle */

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

/* The object that an interrupted walk goes on with; 0: none. Whoever succeeds a killed daemon goes on with it too. */
static uint64_t walk_interrupted(const struct lane *l)
{
    return (int32_t)(l->state->walk_top - l->state->chain_seen) > 0 ? l->state->walk_link : 0;
}

bool lane_has_chain(const struct lane *l)
{
    if (walk_interrupted(l))
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

/* Where a walk is: between two objects of which the next is `link`, with number `seq`. */
struct walk {
    uint64_t link;
    uint32_t seq, top;
};

/*
 * Goes on with the interrupted walk, else begins at the newest object. False: nothing new, or nothing that makes sense;
 * then the chain is cut by the count, as a head's own number may lie behind us and would be looked at for ever.
 */
static bool walk_begin(struct lane *l, const struct heap *h, const void *base, struct walk *w)
{
    const struct abi_chain_head *head;
    uint64_t interrupted = walk_interrupted(l);

    /* Acquire: the object that it leads to; pairs with reclaim_defer_free_head(). */
    w->link = interrupted ? interrupted : load_acquire(&l->shared->chain_head);
    head = link_head(h, base, w->link);
    w->seq = head ? load_relaxed(&head->seq) : l->state->chain_seen; /* ordered by the acquire above */
    w->top = interrupted ? l->state->walk_top : w->seq;
    if ((int32_t)(w->seq - l->state->chain_seen) > 0 && (int32_t)(w->top - w->seq) >= 0)
        return true;
    store_relaxed(&l->account->refused, l->account->refused + 1); /* a figure; the worker's alone to write */
    l->state->chain_seen = load_relaxed(&l->shared->chain_count);
    compiler_fence(); /* as in walk_end(); pairs with walk_interrupted() */
    l->state->walk_link = 0;
    return false;
}

/* What was taken is pending before, for whoever finds us killed here; pairs with walk_interrupted(). */
static void walk_end(struct lane *l, const struct walk *w)
{
    compiler_fence();
    l->state->chain_seen = w->top;
    RECLAIM_TEST_POINT("chain-seen");
    compiler_fence(); /* from here on walk_top is not newer and the link means nothing; pairs with walk_interrupted() */
    l->state->walk_link = 0;
}

/* Before anything of it expires: a walk that began anew would follow links through objects that are others' by then. */
static void walk_interrupt(struct lane *l, const struct walk *w)
{
    l->state->walk_top = w->top;
    compiler_fence(); /* in between there is no link, or one of this very walk; pairs with walk_interrupted() */
    l->state->walk_link = w->link;
    RECLAIM_TEST_POINT("chain-interrupted");
}

/* One object. False: the walk is over, or was cut. */
static bool walk_step(struct lane *l, struct intake *in, const void *base, struct walk *w, int *ret_error)
{
    const struct abi_chain_head *head = link_head(in->heap, base, w->link), *next_head;
    uint64_t next = head ? load_relaxed(&head->next) : 0; /* read before the object is anybody else's */

    *ret_error = pending_take(in, link_block(w->link), link_bit(w->link));
    RECLAIM_TEST_POINT("chain-pending");
    if (w->seq == l->state->chain_seen + 1)
        return false;
    next_head = link_head(in->heap, base, next);
    if (!next_head || load_relaxed(&next_head->seq) != w->seq - 1 || in->n_refused > REFUSED_MAX) {
        in->n_refused++; /* cut: what lies behind it is lost, to this arena's client alone */
        return false;
    }
    w->link = next;
    w->seq--;
    return true;
}

int lane_chain_collect(struct lane *l, struct heap *h, struct pending *pending, const void *base,
                       uint32_t max_objects, struct lane_look *ret)
{
    struct intake in;
    struct walk w;
    bool more = true;
    int r = 0;

    *ret = (struct lane_look){0};
    if (l->quarantined)
        return -EPROTO;
    if (pending->starved)
        return -ENOBUFS;
    if (!lane_has_chain(l) || !walk_begin(l, h, base, &w))
        return 0;
    pending_intake_begin(&in, pending, h, l->account);
    while (more && max_objects-- > 0 && r == 0)
        more = walk_step(l, &in, base, &w, &r);
    pending_intake_end(&in);
    if (more)
        walk_interrupt(l, &w);
    else
        walk_end(l, &w);
    ret->n_objects = (uint32_t)in.n_accepted;
    return r;
}
