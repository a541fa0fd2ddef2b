/* SPDX-License-Identifier: MIT */
/* A reader: sections of all lengths and depths, which verify what they see at once and at their end. */
#include <errno.h>
#include <inttypes.h>
#include <sched.h>

#include "abi.h"
#include "bench/clock.h"
#include "thread.h"

enum {
    DEPTH_MAX = 6,
    DEPTH_EXTREME = 2000,
    DELAY_SPINS = 400,
    DELAY_LONG_MS = 8,
    DELAY_VERY_LONG_MS = 300,
};

/* The words of the arena that a section's age is told by. The library's own reader looks at one of them. */
static const struct abi_domain *domain_of(const struct torture_thread *t)
{
    return container_of(t->lane->started, struct abi_domain, started);
}

static bool verify(struct torture_thread *t, const struct seen *seen, const char *when)
{
    const char *wrong = object_verify(t->board, seen->object, seen->id, &t->random);

    t->count->verified++;
    if (wrong)
        (void)world_fail(t->world, "a reader's object %p, number %#" PRIx64 ", %s: %s", seen->object,
                         seen->id, when, wrong);
    return !wrong;
}

bool reader_look(struct torture_thread *t, struct seen *ret)
{
    struct seen seen;

    /* pairs with the writer's exchange */
    seen.object = reclaim_dereference(t->board->cells[cell_random(&t->random)]);
    if (!seen.object)
        return false;
    seen.id = object_id(seen.object);
    if (!verify(t, &seen, "just seen"))
        return false;
    *ret = seen;
    return true;
}

/* Mostly short, seldom so long that grace periods pile up behind it. */
static void delay(struct torture_thread *t)
{
    uint32_t dice = random_below(&t->random, 1 << 20);

    if (dice < 1)
        clock_sleep_ms(random_between(&t->random, DELAY_LONG_MS, DELAY_VERY_LONG_MS));
    else if (dice < 256)
        clock_sleep_ms(random_between(&t->random, 1, DELAY_LONG_MS));
    else if (dice < 1 << 14)
        (void)sched_yield();
    else if (dice < 1 << 19)
        for (uint32_t n = random_below(&t->random, DELAY_SPINS); n > 0; n--)
            pause_cpu();
}

/* The same objects once more, and their pipe. */
static void look_again(struct torture_thread *t, const struct seen *seen, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        uint32_t pipe;

        if (!verify(t, &seen[i], "at the end of its section"))
            return;
        /* the coordinator counts up after a whole grace period, so a stale one is as good */
        pipe = MIN(load_relaxed(&object_entry(t->board, seen[i].id)->pipe), (uint32_t)PIPE_FREE);
        t->count->pipe[pipe]++;
        if (pipe > 1)
            (void)world_fail(t->world, "Reader Pipe %u: %u grace periods ended over a reader's object %p",
                             pipe, pipe - 1, seen[i].object);
    }
}

/* Grace periods that ended within the section: those under way when it began, which is one at most. */
static void count_batch(struct torture_thread *t, uint64_t completed)
{
    uint64_t n = load_relaxed(&domain_of(t)->completed) - completed; /* only grows; a stale one is lower */

    t->count->batch[MIN(n, (uint64_t)BATCHES_MAX_SEEN)]++;
    t->count->sections++;
    if (n > 1)
        (void)world_fail(t->world,
                         "Reader Batch %" PRIu64 ": so many grace periods ended in one read section", n);
}

static unsigned lock_deeper(struct torture_thread *t)
{
    unsigned depth = 0, wanted = random_below(&t->random, DEPTH_MAX);

    if (random_one_in(&t->random, 20000))
        wanted = DEPTH_EXTREME;
    while (depth < wanted) {
        int r = reclaim_read_lock(t->lane);

        if (r < 0) {
            (void)world_call_failed(t->world, r, "reclaim_read_lock, nested");
            break;
        }
        depth++;
    }
    return depth;
}

void reader_section(struct torture_thread *t)
{
    unsigned n = 0, wanted = random_between(&t->random, 1, SEEN_MAX), depth = 0;
    int r = reclaim_read_lock(t->lane);
    struct seen seen[SEEN_MAX];
    uint64_t completed;

    if (r < 0) {
        (void)world_call_failed(t->world, r, "reclaim_read_lock");
        return;
    }
    for (unsigned i = 0; i < wanted; i++)
        n += reader_look(t, &seen[n]);
    /* Not above the looks, which are to meet what read_lock alone orders. A stale number would count too
       many; pairs with the membarrier of grace_start(). */
    full_fence();
    completed = load_relaxed(&domain_of(t)->completed);
    if (random_one_in(&t->random, 4))
        depth = lock_deeper(t);
    delay(t);
    while (depth-- > 0)
        reclaim_read_unlock(t->lane);
    look_again(t, seen, n);
    count_batch(t, completed);
    reclaim_read_unlock(t->lane);
}

void reader_live(struct torture_thread *t)
{
    while (!thread_stops(t) && clock_now_ns() < t->end_ns)
        reader_section(t);
}
