/* SPDX-License-Identifier: MIT */
/* read: chooses the backend, runs the team, and says what one lock+unlock pair costs a thread. */
#include "read.h"

#include <stdio.h>
#include <string.h>

static const struct read_backend *const backends[] = {
    &read_reclaim,
    &read_urcu_memb,
    &read_ck_epoch,
#if HAVE_DPDK
    &read_dpdk_qsbr,
#endif
};

static const char *const backend_names[] = {
    "reclaim",   "urcu-memb", "ck-epoch",
#if HAVE_DPDK
    "dpdk-qsbr",
#endif
    NULL,
};
assert_cc(ARRAY_SIZE(backend_names) == ARRAY_SIZE(backends) + 1);

static const struct read_backend *find_backend(const char *name)
{
    for (size_t i = 0; i < ARRAY_SIZE(backends); i++)
        if (strcmp(backends[i]->name, name) == 0)
            return backends[i];
    return NULL;
}

/* The pair's cost is a thread's own time: with more threads than processors it contains what they wait for
 * each other. */
static int read_run(struct bench_run *run)
{
    struct read_job job = {run, run->options->n_pairs * run->options->n_loops};
    struct figures *f = run->figures;
    struct team_result result;
    int r = run_team(run, &find_backend(run->backend)->ops, &job, &result);

    if (r < 0)
        return r;
    figures_set(f, FIGURE_OBJECTS, (double)result.n_done);
    figures_set(f, FIGURE_TOTAL_NS, (double)result.total_ns);
    figures_set(f, FIGURE_NS_PER_OBJECT, (double)result.mean_run_ns / (double)job.n_pairs);
    return 0;
}

static void read_print(const struct bench_run *run)
{
    const struct figures *f = run->figures;

    printf("%.3f ns a lock+unlock pair with one dereference (%.0f pairs)\n", f->value[FIGURE_NS_PER_OBJECT],
           f->value[FIGURE_OBJECTS]);
}

const struct bench_test test_read = {
    .backends = backend_names,
    .main_figure = FIGURE_NS_PER_OBJECT,
    .run = read_run,
    .print = read_print,
};
