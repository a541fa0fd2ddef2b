/* SPDX-License-Identifier: MIT */
/* read, backend reclaim. The object is in the arena and its pointer is a root, as another process would find
 * it. */
#include <errno.h>
#include <reclaim/reclaim.h>
#include <stdlib.h>

#include "lane.h"
#include "read.h"
#include "words.h"

struct reclaim_context {
    struct reclaim_lane *lane;
    struct read_object **root;
};

#define READ_NAME(name) reclaim_##name
#define READ_LOCALS(t)                                                                                       \
    struct reclaim_lane *lane = ((struct reclaim_context *)(t)->data)->lane;                                 \
    struct read_object **root = ((struct reclaim_context *)(t)->data)->root;
#define READ_ROOT (*root)
#define READ_LOCK() (void)reclaim_read_lock(lane)
#define READ_UNLOCK() reclaim_read_unlock(lane)
#define READ_DEREFERENCE(p) reclaim_dereference(p)
#include "read-loop.h"

/* Whoever comes first publishes. */
static int publish(struct reclaim_context *c)
{
    struct read_object *object = reclaim_alloc(c->lane, sizeof(*object)), *none = NULL;

    if (!object)
        return words_set(-errno, "reclaim_alloc: %s", reclaim_strerror(-errno));
    object->word = 1;
    /* release: the word before the pointer; pairs with reclaim_dereference() */
    if (!__atomic_compare_exchange_n(c->root, &none, object, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        (void)reclaim_free(c->lane, object);
    return 0;
}

static int reclaim_thread_init(struct team_thread *t)
{
    struct reclaim_context *c = calloc(1, sizeof(*c));
    int r = lane_thread_init(t);

    if (!c)
        return words_set(-ENOMEM, "no memory for a thread's state");
    if (r < 0)
        return r;
    c->lane = t->data;
    t->data = c;
    r = reclaim_root(t->process_data, "object", (void ***)&c->root);
    return r < 0 ? run_library_failed(r, "reclaim_root") : publish(c);
}

static void reclaim_thread_deinit(struct team_thread *t)
{
    struct reclaim_context *c = t->data;

    reclaim_lane_put(c->lane);
    free(c);
}

const struct read_backend read_reclaim = {
    .name = "reclaim",
    .ops = {.process_init = lane_process_init,
            .thread_init = reclaim_thread_init,
            .thread_run = reclaim_run,
            .thread_deinit = reclaim_thread_deinit,
            .process_deinit = lane_process_deinit},
};
