/* SPDX-License-Identifier: MIT */
/* kfree, backend reclaim: libreclaim and its daemon. Twice the same loops: records in the ring, and heads in
 * objects. */
#include <reclaim/reclaim.h>

#include "kfree.h"
#include "lane.h"
#include "words.h"

#define KFREE_NAME(name) ring_##name
#define KFREE_CONTEXT struct reclaim_lane
#define KFREE_ALLOC(c, bytes) reclaim_alloc(c, bytes)
#define KFREE_DEFER(c, t, p) lane_defer(c, t, p)
#include "kfree-loop.h"

static inline int context_defer_head(struct reclaim_lane *l, struct kfree_object *p)
{
    int r = reclaim_defer_free_head(l, p, (struct reclaim_head *)p->head);

    return likely(r == 0) ? 0 : run_library_failed(r, "reclaim_defer_free_head");
}

#define KFREE_NAME(name) head_##name
#define KFREE_CONTEXT struct reclaim_lane
#define KFREE_ALLOC(c, bytes) reclaim_alloc(c, bytes)
#define KFREE_DEFER(c, t, p) context_defer_head(c, p)
#include "kfree-loop.h"

assert_cc(sizeof(struct reclaim_head) <= sizeof(((struct kfree_object *)NULL)->head));

#define RECLAIM_OPS(prefix)                                                                                  \
    {                                                                                                        \
        .process_init = lane_process_init, .thread_init = prefix##_thread_init, .thread_run = prefix##_run,  \
        .process_barrier = lane_process_barrier, .barrier_covers_all = true,                                 \
        .thread_deinit = prefix##_thread_deinit, .process_deinit = lane_process_deinit                       \
    }

static int ring_thread_init(struct team_thread *t)
{
    int r = lane_thread_init(t);

    return r < 0 ? r : ring_fill(t);
}

static void ring_thread_deinit(struct team_thread *t)
{
    ring_empty(t);
    lane_thread_deinit(t);
}

static int head_thread_init(struct team_thread *t)
{
    int r = lane_thread_init(t);

    return r < 0 ? r : head_fill(t);
}

static void head_thread_deinit(struct team_thread *t)
{
    head_empty(t);
    lane_thread_deinit(t);
}

const struct kfree_backend kfree_reclaim = {
    .name = "reclaim",
    .ops = RECLAIM_OPS(ring),
    .head_ops = RECLAIM_OPS(head),
};
