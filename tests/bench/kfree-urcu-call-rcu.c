/* SPDX-License-Identifier: MIT */
/* kfree, backend urcu-call-rcu: malloc, and a callback for each object through the default call_rcu thread.
 */
#include "urcu-inline.h"

#include <stddef.h>
#include <stdlib.h>

#include "kfree.h"

assert_cc(sizeof(struct rcu_head) <= sizeof(((struct kfree_object *)NULL)->head));

static void free_object(struct rcu_head *head)
{
    free(container_of(head, struct kfree_object, head));
}

#define KFREE_NAME(name) call_rcu_##name
#define KFREE_CONTEXT void
#define KFREE_ALLOC(c, bytes) malloc(bytes)
#define KFREE_DEFER(c, t, p) (urcu_memb_call_rcu((struct rcu_head *)(p)->head, free_object), 0)
#include "kfree-loop.h"

static int call_rcu_thread_init(struct team_thread *t)
{
    urcu_memb_register_thread();
    return call_rcu_fill(t);
}

static int call_rcu_process_barrier(struct team_thread *t)
{
    urcu_memb_barrier();
    return 0;
}

static void call_rcu_thread_deinit(struct team_thread *t)
{
    call_rcu_empty(t);
    urcu_memb_unregister_thread();
}

const struct kfree_backend kfree_urcu_call_rcu = {
    .name = "urcu-call-rcu",
    .ops = {.thread_init = call_rcu_thread_init,
            .thread_run = call_rcu_run,
            .process_barrier = call_rcu_process_barrier,
            .thread_deinit = call_rcu_thread_deinit},
};
