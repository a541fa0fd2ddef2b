/* SPDX-License-Identifier: MIT */
/*
 * read, backend dpdk-qsbr. Its lock and unlock are for debugging and compile to nothing; what ends a section
 * for a writer is the report of a quiescent state. So that a pair means the same for all backends, each
 * reports one.
 */
#include "dpdk.h"

#include <stdlib.h>

#include "read.h"
#include "words.h"

struct dpdk_context {
    struct rte_rcu_qsbr *v;
    unsigned thread;
};

static struct read_object object = {1}, *root = &object;

#define READ_NAME(name) dpdk_##name
#define READ_LOCALS(t)                                                                                       \
    struct rte_rcu_qsbr *v = ((struct dpdk_context *)(t)->data)->v;                                          \
    unsigned thread = ((struct dpdk_context *)(t)->data)->thread;
#define READ_ROOT root
#define READ_LOCK() rte_rcu_qsbr_lock(v, thread)
#define READ_UNLOCK()                                                                                        \
    do {                                                                                                     \
        rte_rcu_qsbr_unlock(v, thread);                                                                      \
        rte_rcu_qsbr_quiescent(v, thread);                                                                   \
    } while (0)
/* acquire: what the object held as it was published, as for the other backends; nobody publishes while this
 * runs */
#define READ_DEREFERENCE(p) __atomic_load_n(&(p), __ATOMIC_ACQUIRE)
#include "read-loop.h"

static int dpdk_process_init(void *userdata, void **ret)
{
    const struct read_job *job = userdata;

    return dpdk_init(job->run->directory, (unsigned)job->run->options->n_threads,
                     (struct rte_rcu_qsbr **)ret);
}

static int dpdk_read_thread_init(struct team_thread *t)
{
    struct dpdk_context *c = calloc(1, sizeof(*c));

    if (!c)
        return words_set(-ENOMEM, "no memory for a thread's state");
    c->v = t->process_data;
    c->thread = t->index;
    t->data = c;
    return dpdk_thread_init(c->v, c->thread);
}

static void dpdk_thread_deinit(struct team_thread *t)
{
    struct dpdk_context *c = t->data;

    rte_rcu_qsbr_thread_offline(c->v, c->thread);
    (void)rte_rcu_qsbr_thread_unregister(c->v, c->thread);
    free(c);
}

const struct read_backend read_dpdk_qsbr = {
    .name = "dpdk-qsbr",
    .ops = {.process_init = dpdk_process_init,
            .thread_init = dpdk_read_thread_init,
            .thread_run = dpdk_run,
            .thread_deinit = dpdk_thread_deinit},
};
