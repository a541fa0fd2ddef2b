/* SPDX-License-Identifier: MIT */
/*
 * Lanes: made at a thread's first call, given back at its exit, by reclaim_lane_put() or by reclaim_close().
 *
 * The owner word. A thread holds the lane's robust mutex for as long as it has the lane, so that the kernel
 * tells the daemon of its death. glibc and the kernel keep a list of a thread's robust mutexes through the
 * mutexes themselves: memory with a locked one in it must stay mapped, and only its owner can unlink it.
 * reclaim_close() therefore does for lanes of *other* threads what it can (slot = 0, owner word = 0, message)
 * and leaves the lane's first page mapped. The owner finds the orphan at its next look-up or at its exit,
 * puts its number back into the word, unlocks and unmaps.
 *
 * Guarantees
 *  N1 Cursors are zero (by the daemon) and the owner is locked before `phase` says that the lane lives.
 *  N2 The slot is zero before the owner word is: a lane that looks given back delays no grace period.
 *  N3 A signal handler that interrupts the giving back finds the lane whole or gone (-ESTALE): the private
 *     pointer to the slot goes first, because once the owner word is zero the slot may be another thread's.
 *  N4 A child of a fork never touches the parent's lanes: it sees zeroes.
 */
#include "handle.h"

#include <linux/futex.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "basic/ordering.h"
#include "basic/testpoint.h"

assert_cc(sizeof(pthread_mutex_t) <= sizeof(((struct abi_lane *)NULL)->owner));
assert_cc(offsetof(struct abi_lane, owner) + sizeof(pthread_mutex_t) <= ABI_PAGE_BYTES);

static pthread_mutex_t *lane_owner(struct abi_lane *shared)
{
    return (pthread_mutex_t *)(void *)shared->owner;
}

static uint32_t thread_number(void)
{
    return (uint32_t)syscall(SYS_gettid);
}

/*
 * Does the C library know this process? After a raw clone() it goes by the parent's thread number and list of
 * robust mutexes, and locking one more would write into memory that is not there. fork() and _Fork() are
 * fine.
 */
static bool thread_is_known(void)
{
#ifdef __GLIBC__
    pthread_mutex_t probe = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
    bool known;

    (void)pthread_mutex_lock(&probe);
    known = (uint32_t)probe.__data.__owner == thread_number();
    (void)pthread_mutex_unlock(&probe);
    return known;
#else
    return true;
#endif
}

/* The kernel looks at word 0 and expects our number there; a C library that does otherwise cannot be used. */
static int lane_claim(struct abi_lane *shared)
{
    pthread_mutexattr_t attributes;
    int r;

    (void)pthread_mutexattr_init(&attributes);
    (void)pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    (void)pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    r = -pthread_mutex_init(lane_owner(shared), &attributes);
    (void)pthread_mutexattr_destroy(&attributes);
    if (r == 0)
        r = -pthread_mutex_lock(lane_owner(shared));
    if (r < 0)
        return r;
    if ((load_relaxed(&shared->owner[0]) & FUTEX_TID_MASK) == thread_number())
        return 0;
    (void)pthread_mutex_unlock(lane_owner(shared));
    return -ENOTSUP;
}

/*
 * N1. The daemon has cleared the cursors before it said the lane's number: a lane without an owner is its
 * alone to write. What it leaves are the former owner's last ticket and the answer to it, since its
 * grace-period thread may still be looking at them. So numbers go on from there: had we begun at 1 again, the
 * end of a ticket of the former owner could be taken for that of ours, or ours for one served long ago.
 */
static int lane_start(struct lane *l)
{
    int r = lane_claim(l->shared);

    if (r < 0)
        return r;
    RECLAIM_TEST_POINT("lane-owner");
    /* Relaxed: its writer was a thread of this process, dead before the daemon gave us the lane. */
    l->ticket_sequence = (uint32_t)(load_relaxed(&l->shared->ticket) >> 32);
    /* the owner before it; pairs with lane_is_dead() */
    store_release(&l->shared->phase, l->generation);
    RECLAIM_TEST_POINT("lane-phase");
    return 0;
}

/* Our side of a lane that the daemon gave. For observers and fenced lanes the inline functions do nothing. */
static struct lane *lane_new(struct reclaim *r, uint32_t number, uint32_t generation)
{
    struct lane *l = wiped_new(sizeof(*l));

    if (!l)
        return NULL;
    l->shared = segment_lane(r, number);
    l->front.slot = &segment_slot(r, number)->word;
    l->front.started = &r->domain->started;
    l->front.first = (uintptr_t)r->base + ARENA_FIRST_BYTES;
    l->front.record = l->shared->ring; /* no record is open, so nobody writes there yet */
    l->front.want = &l->shared->want;
    l->front.take = &l->shared->take[0].cur;
    l->front.fence = r->fence;
    l->domain = r->domain;
    l->eventfd = r->eventfd;
    l->r = r;
    l->number = number;
    l->generation = generation;
    if (r->read_only)
        return l;
    l->front.small_bytes = SMALL_BYTES_MAX;
    l->n_granules = (r->arena_bytes - ARENA_FIRST_BYTES) / ABI_GRANULE_BYTES;
    if (!r->fence)
        l->front.n_granules = l->n_granules;
    return l;
}

/* Only to be quick about it: the owner word says the same. */
static void lane_tell_put(struct reclaim *r, uint32_t number, uint32_t generation)
{
    struct abi_request request = talk_request(ABI_OP_LANE_PUT);

    request.lane = number;
    request.generation = generation;
    talk_tell(r, &request);
}

static void handle_lane_add(struct reclaim *r, struct lane *l)
{
    process_lock();
    l->next_of_handle = r->lanes;
    r->lanes = l;
    process_unlock();
}

/* Under the process lock. */
static void handle_lane_remove(struct reclaim *r, const struct lane *l)
{
    for (struct lane **at = &r->lanes; *at; at = &(*at)->next_of_handle)
        if (*at == l) {
            *at = l->next_of_handle;
            return;
        }
}

/* N3. The slot, which its caller must clear; from here on every call says -ESTALE. */
static uint64_t *lane_retire(struct lane *l)
{
    uint64_t *slot = l->front.slot;

    l->n_granules = l->front.n_granules = l->front.small_bytes = 0;
    l->front.slot = NULL;
    compiler_fence(); /* before the slot is cleared; pairs with reclaim_read_lock() in a handler of ours */
    return slot;
}

/* N2, N3 */
static void lane_give_back(struct lane *l)
{
    uint64_t *slot = lane_retire(l);

    RECLAIM_TEST_POINT("put-retired");
    store_release(slot, (uint64_t)0); /* all reads are done; pairs with grace_scan() */
    RECLAIM_TEST_POINT("put-slot");
    (void)pthread_mutex_unlock(lane_owner(l->shared)); /* releases; pairs with lane_is_dead() */
    RECLAIM_TEST_POINT("put-owner");
}

/* The thread's exit is seen to before the lane starts: that can fail, and what started must be given back. */
static int lane_make(struct reclaim *r, struct lane **ret)
{
    struct abi_request request = talk_request(ABI_OP_LANE_GET);
    struct abi_reply reply;
    struct lane *l;
    int error;

    if (!thread_is_known())
        return -ESTALE;
    error = talk_ask(r, &request, &reply);
    if (error < 0)
        return error;
    if (reply.lane >= r->channel->n_lanes)
        return -EPROTO;
    l = lane_new(r, reply.lane, reply.generation);
    error = l ? thread_lane_add(l) : -ENOMEM;
    if (error == 0) {
        error = lane_start(l);
        if (error < 0)
            thread_lane_remove(l);
    }
    if (error < 0) {
        lane_tell_put(r, reply.lane, reply.generation);
        (void)wiped_free(l, sizeof(*l));
        return error;
    }
    handle_lane_add(r, l);
    *ret = l;
    return 0;
}

/* See the top: the last that is left of a lane whose handle another thread has closed. */
static void orphan_release(struct abi_lane *shared)
{
    store_relaxed(&shared->owner[0], thread_number()); /* only we and the kernel look at it now */
    (void)pthread_mutex_unlock(lane_owner(shared));
    (void)munmap(shared, ABI_PAGE_BYTES);
}

void lane_release(struct lane *l)
{
    int state = thread_cancel_disable();

    thread_lane_remove(l);
    process_lock(); /* reclaim_close() by another thread comes before all of this, or after it */
    if (l->r) {
        handle_lane_remove(l->r, l);
        lane_give_back(l);
        lane_tell_put(l->r, l->number, l->generation);
    } else {
        orphan_release(l->shared);
    }
    process_unlock();
    (void)wiped_free(l, sizeof(*l));
    thread_cancel_restore(state);
}

/* Another thread's lane: its owner's list of robust mutexes must stay whole, so its first page stays. */
static void lane_orphan(struct reclaim *r, struct lane *l)
{
    store_release(lane_retire(l), (uint64_t)0); /* pairs with grace_scan() */
    store_release(&l->shared->owner[0], 0u);    /* after the slot; pairs with lane_is_dead() */
    lane_tell_put(r, l->number, l->generation);
    /* under the process lock; its owner looks without, at no other fact */
    store_relaxed(&l->r, (struct reclaim *)NULL);
}

/* The pages that must stay are moved out of the way of the channel's munmap() by unmapping around them. */
static void channel_unmap_around(struct reclaim *r, const struct lane *kept)
{
    char *at = (char *)r->channel, *end = at + r->channel_bytes;

    while (at < end) {
        char *next = end;

        for (const struct lane *l = kept; l; l = l->next_of_handle)
            if ((char *)l->shared >= at && (char *)l->shared < next)
                next = (char *)l->shared;
        if (next > at)
            (void)munmap(at, (size_t)(next - at));
        at = next + ABI_PAGE_BYTES;
    }
    r->channel = NULL;
}

/* This thread's own goes the usual way; those of others as the top of this file says. */
void handle_lanes_release(struct reclaim *r)
{
    struct lane *own = thread_lane_find(r);

    if (own)
        lane_release(own);
    process_lock();
    for (struct lane *l = r->lanes; l; l = l->next_of_handle)
        lane_orphan(r, l);
    if (r->lanes)
        channel_unmap_around(r, r->lanes);
    process_unlock();
}

int reclaim_lane_get(struct reclaim *r, struct reclaim_lane **ret)
{
    struct lane *l;
    int state, error;

    error = handle_check(r);
    if (error < 0)
        return error;
    if (!ret)
        return -EINVAL;
    l = thread_lane_find(r);
    if (!l) {
        state = thread_cancel_disable();
        error = lane_make(r, &l);
        thread_cancel_restore(state);
        if (error < 0)
            return error;
    }
    *ret = &l->front;
    return 0;
}

/* NULL, or a lane of another thread or process: nothing. */
void reclaim_lane_put(struct reclaim_lane *l)
{
    struct lane *lane = lane_of(l);

    if (lane && lane->thread == thread_self())
        lane_release(lane);
}
