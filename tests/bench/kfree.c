/* SPDX-License-Identifier: MIT */
/* kfree: chooses backend and shape, runs the team, and prints the sources' own line. */
#include "kfree.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "words.h"

static const struct kfree_backend *const backends[] = {
    &kfree_reclaim, &kfree_malloc, &kfree_urcu_call_rcu, &kfree_urcu_defer, &kfree_ck_epoch,
#if HAVE_DPDK
    &kfree_dpdk_dq,
#endif
};

static const char *const backend_names[] = {
    "reclaim", "malloc", "urcu-call-rcu", "urcu-defer", "ck-epoch",
#if HAVE_DPDK
    "dpdk-dq",
#endif
    NULL,
};
assert_cc(ARRAY_SIZE(backend_names) == ARRAY_SIZE(backends) + 1);

int kfree_alloc_failed(const struct team_thread *t, int error)
{
    return words_set(-error, "thread %u: no memory for an object: %s", t->index, strerror(error));
}

static const struct kfree_backend *find_backend(const char *name)
{
    for (size_t i = 0; i < ARRAY_SIZE(backends); i++)
        if (strcmp(backends[i]->name, name) == 0)
            return backends[i];
    return NULL;
}

/* The job is made before the fork, so every worker finds it as it was typed. */
static int job_init(struct kfree_job *job, struct bench_run *run)
{
    const struct bench_options *o = run->options;

    *job = (struct kfree_job){
        .run = run,
        .shape = o->window        ? KFREE_RANDOM
                 : o->interleaved ? KFREE_INTERLEAVED
                                  : KFREE_BATCHES,
        .n_loops = o->n_loops,
        .n_alloc = o->n_alloc,
        .window = o->window,
        .bytes = KFREE_OBJECT_BYTES * o->mult,
    };
    job->n_array = job->shape == KFREE_BATCHES ? job->n_alloc : MAX(job->window, UINT64_C(1));
    /* shared, so that no backend's footprint counts it */
    job->arrays = team_share(job->n_array * o->n_threads * sizeof(*job->arrays));
    return job->arrays ? 0 : words_set(-ENOMEM, "no memory for %" PRIu64 " pointers a thread", job->n_array);
}

/* With --head the other loops of the daemon's backend; peers that have heads always use them. */
static int kfree_run(struct bench_run *run)
{
    const struct kfree_backend *backend = find_backend(run->backend);
    const struct team_ops *ops = &backend->ops;
    struct figures *f = run->figures;
    struct team_result result;
    struct kfree_job job;
    int r = job_init(&job, run);

    if (run->options->head && run_uses_daemon(run->backend))
        ops = &backend->head_ops;
    if (r >= 0)
        r = run_team(run, ops, &job, &result);
    if (r < 0)
        return r;
    figures_set(f, FIGURE_OBJECTS, (double)result.n_done);
    figures_set(f, FIGURE_TOTAL_NS, (double)result.total_ns);
    figures_set(f, FIGURE_FREED_NS, (double)result.freed_ns);
    figures_set(f, FIGURE_NS_PER_OBJECT, (double)result.freed_ns / (double)result.n_done);
    return 0;
}

/* Batches of a backend that does not count any are said to be 0, as the line has a place for them. */
static void kfree_print(const struct bench_run *run)
{
    const struct figures *f = run->figures;

    printf("Total time taken by all kfree'ers: %.0f ns, loops: %" PRIu64
           ", batches: %.0f, memory footprint: %.0fMB\n",
           f->value[FIGURE_TOTAL_NS], run->options->n_loops, f->value[FIGURE_BATCHES],
           f->value[FIGURE_FOOTPRINT_BYTES] / (1024 * 1024));
    printf("All freed after: %.0f ns (%.2f ns an object)\n", f->value[FIGURE_FREED_NS],
           f->value[FIGURE_NS_PER_OBJECT]);
}

const struct bench_test test_kfree = {
    .backends = backend_names,
    .main_figure = FIGURE_NS_PER_OBJECT,
    .run = kfree_run,
    .print = kfree_print,
};
