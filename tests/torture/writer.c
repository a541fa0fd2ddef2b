/* SPDX-License-Identifier: MIT */
/*
 * A writer: makes objects, puts them where readers look, takes others out and frees them, in every way that
 * the library offers. Whoever takes an object out of its cell owns it, whoever made it.
 *
 * What a writer holds privately is counted before it is so and until after it is over, so that after a kill
 * the count says at least what is lost.
 */
#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <string.h>

#include "abi.h"
#include "bench/clock.h"
#include "thread.h"

enum {
    SMALL_ARENA_BYTES = 32 << 20,
    NEVER_PUBLISHED_MAX = 6,
    BURST = 6000, /* half as many again as a ring has records */
    ENTRY_PROBES = 64,
    SHORT_TIMEOUT_NS = 300000,
    POLLS_MAX = 200,
};

struct held {
    unsigned n;
    void *objects[HELD_MAX];
};

/* ---- What is private ---- */

static void hold(struct torture_thread *t, uint64_t bytes)
{
    store_relaxed(&t->count->held_objects, t->count->held_objects + 1);
    store_relaxed(&t->count->held_bytes, t->count->held_bytes + bytes);
    /* a kill stops the thread between two instructions, after all stores before; pairs with worker_lost() */
    compiler_fence();
}

static void let_go(struct torture_thread *t, uint64_t bytes)
{
    compiler_fence(); /* as in hold(); pairs with worker_lost() */
    store_relaxed(&t->count->held_objects, t->count->held_objects - 1);
    store_relaxed(&t->count->held_bytes, t->count->held_bytes - bytes);
}

static uint32_t object_bytes(const struct torture_thread *t, const void *p)
{
    return load_relaxed(&object_entry(t->board, object_id(p))->bytes); /* ours */
}

/* ---- Making and publishing ---- */

/* In a small arena so many that the cells hold more than it does, and it is full again and again. */
static uint32_t extents_one_in(const struct torture_thread *t)
{
    return t->world->options.arena_bytes <= SMALL_ARENA_BYTES ? 8 : 64;
}

/* One of this place's entries whose last object is long gone. */
static struct entry *entry_take(struct torture_thread *t)
{
    uint32_t first = (t->place - (uint32_t)t->world->options.n_readers) * ENTRIES_A_WRITER;

    for (unsigned i = 0; i < ENTRY_PROBES; i++) {
        struct entry *e = &t->board->entries[first + t->next++ % ENTRIES_A_WRITER];

        if (load_acquire(&e->pipe) == PIPE_FREE) /* pairs with pipe_advance() */
            return e;
    }
    return NULL;
}

/* Did an object start here before? Then memory goes round. */
static void count_circulation(struct torture_thread *t, const void *p)
{
    uint64_t granule =
        (uint64_t)((const char *)p - (const char *)reclaim_base(t->reclaim)) / ABI_GRANULE_BYTES;
    uint64_t bit = UINT64_C(1) << (granule & 63);

    t->count->made++;
    if (granule < t->world->n_granules && (fetch_or_relaxed(&t->world->granules[granule / 64], bit) & bit))
        t->count->reused++;
}

/* NULL: no room now, or the run fails. */
static void *allocate(struct torture_thread *t, uint32_t bytes)
{
    void *p = reclaim_alloc(t->lane, bytes);

    if (p) {
        count_circulation(t, p);
        return p;
    }
    if (errno == ENOMEM)
        t->count->full++;
    else
        (void)world_call_failed(t->world, -errno, "reclaim_alloc");
    return NULL;
}

/* A new object, held. */
static void *object_make(struct torture_thread *t, bool extents)
{
    uint32_t bytes = object_random_bytes(&t->random, extents ? extents_one_in(t) : 0);
    struct entry *e = entry_take(t);
    uint64_t id;
    void *p;

    if (!e) {
        (void)sched_yield();
        return NULL;
    }
    hold(t, object_real_bytes(bytes));
    p = allocate(t, bytes);
    if (!p) {
        let_go(t, object_real_bytes(bytes));
        return NULL;
    }
    id = e->id + (1u << ENTRY_BITS);
    store_relaxed(&e->id, id); /* published by the cell, like the object */
    store_relaxed(&e->bytes, bytes);
    store_relaxed(&e->pipe, 0u);
    object_fill(p, id, bytes);
    return p;
}

/*
 * Puts p (held; or NULL) into a cell and holds what was there. For a moment nobody knows how much that is, so
 * the largest is held for it.
 */
static void *cell_exchange(struct torture_thread *t, void *p)
{
    uint32_t cell = cell_random(&t->random);
    uint64_t bytes = p ? object_real_bytes(object_bytes(t, p)) : 0;
    const char *wrong;
    void *old;

    hold(t, OBJECT_BYTES_MAX);
    /* acquire: its maker's words; release: ours; pairs with reader_look() and with other writers */
    old = exchange_acq_rel(&t->board->cells[cell], p);
    if (p)
        let_go(t, bytes);
    if (old) {
        wrong = object_verify(t->board, old, object_id(old), &t->random);
        if (wrong) {
            (void)world_fail(t->world, "a writer took object %p out of its cell: %s", old, wrong);
            return NULL;
        }
        hold(t, object_real_bytes(object_bytes(t, old)));
        /* release: it was taken out before; pairs with pipe_advance() */
        store_release(&object_entry(t->board, object_id(old))->pipe, 1u);
        t->count->replaced++;
    }
    let_go(t, OBJECT_BYTES_MAX);
    return old;
}

/* ---- Freeing ---- */

/* False: this section must end first. head: NULL, or the object's, for the way that never waits. */
static bool defer(struct torture_thread *t, void *p, uint32_t bytes, struct reclaim_head *head)
{
    int r;

    if (head)
        r = reclaim_defer_free_head(t->lane, p, head);
    else
        while ((r = reclaim_defer_free(t->lane, p)) == -EAGAIN)
            t->count->again++;
    if (r == -EDEADLK && !head)
        return false;
    if (r < 0)
        (void)world_call_failed(t->world, r, "reclaim_defer_free");
    let_go(t, object_real_bytes(bytes));
    t->count->deferred++;
    return true;
}

static void held_defer(struct torture_thread *t, struct held *held)
{
    unsigned kept = 0;

    while (held->n > 0) {
        unsigned i = random_below(&t->random, held->n);
        void *p = held->objects[i];
        uint32_t bytes = object_bytes(t, p);
        struct reclaim_head *head = random_one_in(&t->random, 2) ? object_head(p, object_id(p), bytes) : NULL;

        held->objects[i] = held->objects[--held->n];
        if (!defer(t, p, bytes, head))
            held->objects[HELD_MAX - ++kept] = p; /* at the other end: there are HELD_MAX places */
    }
    for (unsigned i = 0; i < kept; i++)
        held->objects[i] = held->objects[HELD_MAX - kept + i];
    held->n = kept;
}

/* After a grace period of their own nobody sees them: spoiling shows it. Freed at once, or the usual way. */
static void held_spoil(struct torture_thread *t, struct held *held)
{
    for (unsigned i = 0; i < held->n; i++) {
        uint32_t bytes = object_bytes(t, held->objects[i]);
        int r;

        object_spoil(held->objects[i], bytes);
        if (random_one_in(&t->random, 2)) {
            (void)defer(t, held->objects[i], bytes, NULL);
            continue;
        }
        r = reclaim_free(t->lane, held->objects[i]);
        if (r < 0)
            (void)world_call_failed(t->world, r, "reclaim_free");
        let_go(t, object_real_bytes(bytes));
    }
    held->n = 0;
}

static void held_take(struct torture_thread *t, struct held *held, unsigned n, bool publish)
{
    while (n-- > 0 && held->n < HELD_MAX && !world_stops(t->world)) {
        void *p = publish ? object_make(t, n == 0) : NULL, *old;

        old = p || !publish ? cell_exchange(t, p) : NULL;
        if (old)
            held->objects[held->n++] = old;
    }
}

/* ---- What a writer does ---- */

static void do_replace(struct torture_thread *t)
{
    struct held held = {0};

    held_take(t, &held, 1, true);
    held_defer(t, &held);
}

static void do_replace_many(struct torture_thread *t)
{
    struct held held = {0};

    held_take(t, &held, random_between(&t->random, 2, HELD_MAX), true);
    held_defer(t, &held);
}

static void do_remove(struct torture_thread *t)
{
    struct held held = {0};

    held_take(t, &held, random_between(&t->random, 1, 4), false);
    held_defer(t, &held);
}

/* Deferring is allowed in a section, and what this thread sees there stays until its end. */
static void do_in_section(struct torture_thread *t)
{
    struct held held = {0};
    struct seen seen;
    const char *wrong;
    int r = reclaim_read_lock(t->lane);

    if (r < 0) {
        (void)world_call_failed(t->world, r, "reclaim_read_lock of a writer");
        return;
    }
    if (reader_look(t, &seen)) {
        held_take(t, &held, random_between(&t->random, 1, HELD_MAX), random_one_in(&t->random, 2));
        held_defer(t, &held);
        wrong = object_verify(t->board, seen.object, seen.id, &t->random);
        if (wrong)
            (void)world_fail(t->world, "object %p in the section of a writer: %s", seen.object, wrong);
    }
    reclaim_read_unlock(t->lane);
    held_defer(t, &held);
}

static void do_unpublished(struct torture_thread *t)
{
    unsigned n = random_between(&t->random, 1, NEVER_PUBLISHED_MAX);
    uint32_t bytes = object_random_bytes(&t->random, n == 1 ? extents_one_in(t) : 0);
    void *objects[NEVER_PUBLISHED_MAX];
    unsigned made = 0;

    for (; made < n; made++) {
        hold(t, object_real_bytes(bytes));
        objects[made] = allocate(t, bytes);
        if (!objects[made]) {
            let_go(t, object_real_bytes(bytes));
            break;
        }
        object_fill(objects[made], made, bytes);
    }
    while (made > 0) {
        unsigned i = random_below(&t->random, made--);
        uint64_t id = object_id(objects[i]);
        int r;

        if (id >= NEVER_PUBLISHED_MAX)
            (void)world_fail(t->world, "object %p, which nobody else had, became number %#" PRIx64,
                             objects[i], id);
        r = reclaim_free(t->lane, objects[i]);
        if (r < 0)
            (void)world_call_failed(t->world, r, "reclaim_free of what was never published");
        let_go(t, object_real_bytes(bytes));
        objects[i] = objects[made];
        t->count->unpublished++;
    }
}

/*
 * More objects at once than the ring has records, each in a record of its own as it comes of another class
 * than the one before: the rest is chained.
 */
void writer_burst(struct torture_thread *t)
{
    const uint64_t id = 1u << ENTRY_BITS; /* of an object with a head, in no entry */
    static __thread void *objects[BURST];
    unsigned n = 0;

    for (; n < BURST; n++) {
        uint32_t bytes = OBJECT_HEAD_BYTES_MIN + n % 2 * 16;

        hold(t, bytes);
        objects[n] = allocate(t, bytes);
        if (!objects[n]) {
            let_go(t, bytes);
            break;
        }
        object_fill(objects[n], id, bytes);
    }
    for (unsigned i = 0; i < n; i++) {
        uint32_t bytes = OBJECT_HEAD_BYTES_MIN + i % 2 * 16;

        if (object_id(objects[i]) != id)
            (void)world_fail(t->world, "object %p of a burst, which nobody else had, changed", objects[i]);
        (void)defer(t, objects[i], bytes, object_head(objects[i], id, bytes));
    }
    t->count->bursts++;
}

/* Waits for a grace period in one of the ways. */
static int wait_grace_period(struct torture_thread *t)
{
    uint64_t cookie;
    int r;

    if (random_one_in(&t->random, 2))
        return reclaim_synchronize(t->lane, random_one_in(&t->random, 2) ? RECLAIM_EXPEDITED : 0, NULL);
    r = reclaim_gp_start(t->lane, &cookie);
    for (unsigned i = 0; r == 0 && i < POLLS_MAX && random_below(&t->random, POLLS_MAX) > 0; i++) {
        r = reclaim_gp_poll(t->reclaim, cookie);
        reader_section(t); /* its own sections in between are no later than the cookie */
    }
    return r < 0 ? r : r > 0 ? 0 : reclaim_gp_wait(t->lane, cookie, NULL);
}

static void do_wait(struct torture_thread *t)
{
    struct held held = {0};
    int r;

    held_take(t, &held, random_between(&t->random, 1, HELD_MAX), random_one_in(&t->random, 2));
    r = wait_grace_period(t);
    if (r < 0)
        (void)world_call_failed(t->world, r, "waiting for a grace period");
    else
        held_spoil(t, &held);
    t->count->waits++;
}

/* A wait that is given up, for time or a signal, leaves its ticket behind: the next is not taken for it. */
static void do_timeout(struct torture_thread *t)
{
    const struct timespec timeout = {.tv_nsec = random_below(&t->random, SHORT_TIMEOUT_NS)};
    unsigned flags = random_one_in(&t->random, 2) ? RECLAIM_INTERRUPTIBLE : 0;
    int r = random_one_in(&t->random, 2) ? reclaim_synchronize(t->lane, flags, &timeout)
                                         : reclaim_barrier_flags(t->lane, flags, &timeout);

    if (r == -ETIMEDOUT || (r == -EINTR && flags))
        t->count->timeouts++;
    else if (r < 0)
        (void)world_call_failed(t->world, r, "a wait with a timeout");
}

static void do_barrier(struct torture_thread *t)
{
    int r = reclaim_barrier(t->lane, NULL);

    if (r < 0)
        (void)world_call_failed(t->world, r, "reclaim_barrier");
    t->count->waits++;
}

/* No wait in a section could end, and the library must say so. */
static void do_refused(struct torture_thread *t)
{
    int r = reclaim_read_lock(t->lane);

    if (r == 0)
        r = reclaim_synchronize(t->lane, 0, NULL);
    if (r != -EDEADLK)
        (void)world_fail(t->world, "reclaim_synchronize in a section says %d instead of -EDEADLK", r);
    reclaim_read_unlock(t->lane);
}

/* --broken: what readers may still see becomes another object at once. */
static void do_broken(struct torture_thread *t)
{
    void *p = cell_exchange(t, NULL);

    if (p)
        object_spoil(p, object_bytes(t, p));
}

static const struct {
    unsigned share; /* of 1024 */
    void (*act)(struct torture_thread *t);
} acts[] = {
    {680, do_replace}, {140, do_replace_many}, {30, do_remove}, {60, do_in_section}, {100, do_unpublished},
    {6, do_wait},      {3, do_timeout},        {1, do_barrier}, {3, do_refused},     {1, writer_burst},
};

static void act_once(struct torture_thread *t)
{
    unsigned dice = random_below(&t->random, 1024), i = 0;

    if (t->world->options.broken && random_one_in(&t->random, 64)) {
        do_broken(t);
        return;
    }
    while (dice >= acts[i].share)
        dice -= acts[i++].share;
    acts[i].act(t);
}

void writer_act(struct torture_thread *t, unsigned n)
{
    while (n-- > 0 && !thread_stops(t))
        act_once(t);
}

void writer_live(struct torture_thread *t)
{
    while (!thread_stops(t) && clock_now_ns() < t->end_ns)
        act_once(t);
}
