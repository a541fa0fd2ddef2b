/* SPDX-License-Identifier: MIT */
/* kfree, backend urcu-defer: malloc, and defer_rcu's queue of each thread. */
#include "urcu-inline.h"

#include <stdlib.h>
#include <string.h>

#include "kfree.h"
#include "words.h"

#define KFREE_NAME(name) defer_##name
#define KFREE_CONTEXT void
#define KFREE_ALLOC(c, bytes) malloc(bytes)
#define KFREE_DEFER(c, t, p) (urcu_memb_defer_rcu(free, p), 0)
#include "kfree-loop.h"

static int defer_thread_init(struct team_thread *t)
{
    int r = urcu_memb_defer_register_thread();

    if (r != 0)
        return words_set(-ENOMEM, "liburcu does not register a thread for defer_rcu: %d", r);
    urcu_memb_register_thread();
    return defer_fill(t);
}

/* The thread's own queue first: all threads at once, as a program that ends would. */
static int defer_thread_flush(struct team_thread *t)
{
    urcu_memb_defer_barrier_thread();
    return 0;
}

static int defer_process_barrier(struct team_thread *t)
{
    urcu_memb_defer_barrier();
    return 0;
}

static void defer_thread_deinit(struct team_thread *t)
{
    defer_empty(t);
    urcu_memb_defer_unregister_thread();
    urcu_memb_unregister_thread();
}

const struct kfree_backend kfree_urcu_defer = {
    .name = "urcu-defer",
    .ops = {.thread_init = defer_thread_init,
            .thread_run = defer_run,
            .thread_flush = defer_thread_flush,
            .process_barrier = defer_process_barrier,
            .thread_deinit = defer_thread_deinit},
};
