/* SPDX-License-Identifier: MIT */
/*
 * The measured loops of kfree, compiled once for each includer, which defines before (all are undefined at
 * the end):
 *
 *     KFREE_NAME(name)         pastes a prefix of its own to a function's name
 *     KFREE_CONTEXT            type of the thread's data
 *     KFREE_ALLOC(c, bytes)    an object or NULL with errno
 *     KFREE_DEFER(c, t, p)     frees it after a grace period; 0 or a negative errno
 *
 * and gets KFREE_NAME(run), KFREE_NAME(fill) and KFREE_NAME(empty), for team_ops. No guard: it may be
 * included twice.
 */
#include <errno.h>

#include "basic/macro.h"
#include "kfree.h"

/* One object: allocated, its first word written, as a program would. */
static inline struct kfree_object *KFREE_NAME(object)(KFREE_CONTEXT *c, size_t bytes, uint64_t word)
{
    struct kfree_object *p = KFREE_ALLOC(c, bytes);

    if (likely(p))
        *(volatile uint64_t *)&p->word = word; /* volatile: also when nobody reads it */
    return p;
}

static int KFREE_NAME(run_batches)(struct team_thread *t, const struct kfree_job *job)
{
    struct kfree_object **array = kfree_array(t);
    uint64_t n_alloc = job->n_alloc;
    KFREE_CONTEXT *c = t->data;
    size_t bytes = job->bytes;

    for (uint64_t loop = 0; loop < job->n_loops; loop++) {
        for (uint64_t i = 0; i < n_alloc; i++) {
            array[i] = KFREE_NAME(object)(c, bytes, i);
            if (unlikely(!array[i]))
                return kfree_alloc_failed(t, errno);
        }
        for (uint64_t i = 0; i < n_alloc; i++) {
            int r = KFREE_DEFER(c, t, array[i]);

            if (unlikely(r < 0))
                return r;
        }
    }
    return 0;
}

static int KFREE_NAME(run_interleaved)(struct team_thread *t, const struct kfree_job *job)
{
    uint64_t n = job->n_loops * job->n_alloc;
    KFREE_CONTEXT *c = t->data;
    size_t bytes = job->bytes;

    for (uint64_t i = 0; i < n; i++) {
        struct kfree_object *p = KFREE_NAME(object)(c, bytes, i);
        int r;

        if (unlikely(!p))
            return kfree_alloc_failed(t, errno);
        r = KFREE_DEFER(c, t, p);
        if (unlikely(r < 0))
            return r;
    }
    return 0;
}

static int KFREE_NAME(run_random)(struct team_thread *t, const struct kfree_job *job)
{
    uint64_t n = job->n_loops * job->n_alloc, window = job->window,
             random = t->index * 2654435761u + 88172645463325252u;
    struct kfree_object **array = kfree_array(t);
    KFREE_CONTEXT *c = t->data;
    size_t bytes = job->bytes;

    for (uint64_t i = 0; i < n; i++) {
        struct kfree_object *p = KFREE_NAME(object)(c, bytes, i), **place;
        int r;

        random ^= random << 13; /* xorshift: a nanosecond, the same one for every backend */
        random ^= random >> 7;
        random ^= random << 17;
        place = &array[((random >> 32) * window) >> 32];
        if (unlikely(!p))
            return kfree_alloc_failed(t, errno);
        r = KFREE_DEFER(c, t, *place);
        if (unlikely(r < 0))
            return r;
        *place = p;
    }
    return 0;
}

static int KFREE_NAME(run)(struct team_thread *t)
{
    const struct kfree_job *job = t->job;

    t->n_done = job->n_loops * job->n_alloc;
    switch (job->shape) {
    case KFREE_INTERLEAVED:
        return KFREE_NAME(run_interleaved)(t, job);
    case KFREE_RANDOM:
        return KFREE_NAME(run_random)(t, job);
    default:
        return KFREE_NAME(run_batches)(t, job);
    }
}

/* Before the measurement: the window's first objects, and the array's pages. */
static int KFREE_NAME(fill)(struct team_thread *t)
{
    const struct kfree_job *job = t->job;
    struct kfree_object **array = kfree_array(t);

    for (size_t i = 0; i < job->n_array; i++) {
        array[i] = i < job->window ? KFREE_NAME(object)(t->data, job->bytes, i) : NULL;
        if (i < job->window && !array[i])
            return kfree_alloc_failed(t, errno);
    }
    return 0;
}

/* After it: the window's last objects. */
static void KFREE_NAME(empty)(struct team_thread *t)
{
    const struct kfree_job *job = t->job;
    struct kfree_object **array = kfree_array(t);

    for (size_t i = 0; i < job->window; i++)
        (void)KFREE_DEFER(t->data, t, array[i]);
}

#undef KFREE_NAME
#undef KFREE_CONTEXT
#undef KFREE_ALLOC
#undef KFREE_DEFER
