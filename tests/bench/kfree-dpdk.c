/* SPDX-License-Identifier: MIT */
/* kfree, backend dpdk-dq: malloc, and a defer queue of DPDK's RCU library for each thread. */
#include "dpdk.h"

#include <stdio.h>
#include <stdlib.h>

#include "kfree.h"
#include "words.h"

enum {
    QUEUE_ENTRIES = 8192,  /* its ring is of fixed size: room for one loop of the default shape */
    RECLAIM_LIMIT = 1024,  /* from so many waiting on, enqueueing frees some */
    RECLAIM_ENTRIES = 512, /* as many at most */
    QUIESCENT_EACH = 64,   /* as often as a packet loop would: once a burst */
};

struct dpdk_context {
    struct rte_rcu_qsbr *v;
    struct rte_rcu_qsbr_dq *queue;
    unsigned thread, n_calls;
};

static void free_objects(void *userdata, void *entries, unsigned int n)
{
    for (unsigned i = 0; i < n; i++)
        free(((void **)entries)[i]);
}

/* A full queue frees some of itself as soon as everybody has been quiescent. */
static inline int context_defer(struct dpdk_context *c, struct kfree_object *p)
{
    if (unlikely(++c->n_calls % QUIESCENT_EACH == 0))
        rte_rcu_qsbr_quiescent(c->v, c->thread);
    while (unlikely(rte_rcu_qsbr_dq_enqueue(c->queue, &p) != 0)) {
        if (rte_errno != ENOSPC)
            return words_set(-rte_errno, "rte_rcu_qsbr_dq_enqueue: %s", rte_strerror(rte_errno));
        rte_rcu_qsbr_quiescent(c->v, c->thread); /* full: our own silence may be why */
    }
    return 0;
}

#define KFREE_NAME(name) dpdk_##name
#define KFREE_CONTEXT struct dpdk_context
#define KFREE_ALLOC(c, bytes) malloc(bytes)
#define KFREE_DEFER(c, t, p) context_defer(c, p)
#include "kfree-loop.h"

static int dpdk_process_init(void *userdata, void **ret)
{
    const struct kfree_job *job = userdata;

    return dpdk_init(job->run->directory, (unsigned)job->run->options->n_threads,
                     (struct rte_rcu_qsbr **)ret);
}

/* A queue a thread, so that none pays for being safe from the others. */
static int dpdk_queue_new(struct dpdk_context *c)
{
    char name[32];
    const struct rte_rcu_qsbr_dq_parameters parameters = {
        .name = name,
        .flags = RTE_RCU_QSBR_DQ_MT_UNSAFE, /* each thread has its own */
        .size = QUEUE_ENTRIES,
        .esize = sizeof(void *),
        .trigger_reclaim_limit = RECLAIM_LIMIT,
        .max_reclaim_size = RECLAIM_ENTRIES,
        .free_fn = free_objects,
        .v = c->v,
    };

    (void)snprintf(name, sizeof(name), "queue-%u", c->thread);
    c->queue = rte_rcu_qsbr_dq_create(&parameters);
    return c->queue ? 0 : words_set(-rte_errno, "rte_rcu_qsbr_dq_create: %s", rte_strerror(rte_errno));
}

static int dpdk_kfree_thread_init(struct team_thread *t)
{
    struct dpdk_context *c = calloc(1, sizeof(*c));
    int r;

    if (!c)
        return words_set(-ENOMEM, "no memory for a thread's state");
    c->v = t->process_data;
    c->thread = t->index;
    t->data = c;
    r = dpdk_queue_new(c);
    if (r >= 0)
        r = dpdk_thread_init(c->v, c->thread);
    return r < 0 ? r : dpdk_fill(t);
}

/* Offline first: a thread that waits here must not be waited for. */
static int dpdk_thread_flush(struct team_thread *t)
{
    struct dpdk_context *c = t->data;
    unsigned freed, pending, available;

    rte_rcu_qsbr_thread_offline(c->v, c->thread);
    do
        (void)rte_rcu_qsbr_dq_reclaim(c->queue, QUEUE_ENTRIES, &freed, &pending, &available);
    while (pending);
    return 0;
}

static void dpdk_thread_deinit(struct team_thread *t)
{
    dpdk_empty(t); /* offline: all that it frees may be freed at once */
    (void)dpdk_thread_flush(t);
}

const struct kfree_backend kfree_dpdk_dq = {
    .name = "dpdk-dq",
    .ops = {.process_init = dpdk_process_init,
            .thread_init = dpdk_kfree_thread_init,
            .thread_run = dpdk_run,
            .thread_flush = dpdk_thread_flush,
            .thread_deinit = dpdk_thread_deinit},
};
