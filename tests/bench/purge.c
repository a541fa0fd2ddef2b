/* SPDX-License-Identifier: MIT */
/*
 * purge: processes take extents of 16 KiB by the burst and give them back, as a machine that forks takes and
 * gives back stacks. How often is a purge queued, and how many holes does it take?
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "lane.h"
#include "tests.h"
#include "words.h"

struct purge_job {
    struct bench_run *run;
    void **extents; /* n_purge_burst of each process, shared */
};

/* One burst: all are alive at once, and each is written to, so that it needs memory. */
static int burst(struct team_thread *t, void **extents, uint64_t n)
{
    int r = 0;

    for (uint64_t i = 0; i < n; i++) {
        extents[i] = reclaim_alloc(t->data, PURGE_EXTENT_BYTES);
        if (!extents[i])
            return run_library_failed(-errno, "reclaim_alloc");
        *(uint64_t *)extents[i] = i;
    }
    for (uint64_t i = 0; i < n && r >= 0; i++)
        r = lane_defer(t->data, t, extents[i]);
    t->n_done += n;
    return r;
}

static int purge_thread_run(struct team_thread *t)
{
    const struct purge_job *job = t->job;
    const struct bench_options *o = job->run->options;
    uint64_t n = o->n_purge_allocs / o->n_processes + (t->index < o->n_purge_allocs % o->n_processes);

    while (t->n_done < n) {
        int r = burst(t, job->extents + t->index * o->n_purge_burst, MIN(o->n_purge_burst, n - t->n_done));

        if (r < 0)
            return r;
    }
    return 0;
}

static int purge_run(struct bench_run *run)
{
    static const struct team_ops ops = LANE_OPS(purge_thread_run);
    const struct bench_options *o = run->options;
    struct purge_job job = {run, team_share(o->n_purge_burst * o->n_processes * sizeof(void *))};
    struct figures *f = run->figures;
    struct team_result result;
    int r;

    if (!job.extents)
        return words_set(-ENOMEM, "no memory for %" PRIu64 " pointers a process", o->n_purge_burst);
    r = run_team(run, &ops, &job, &result);
    if (r < 0)
        return r;
    figures_set(f, FIGURE_OBJECTS, (double)result.n_done);
    figures_set(f, FIGURE_TOTAL_NS, (double)result.total_ns);
    figures_set(f, FIGURE_FREED_NS, (double)result.freed_ns);
    figures_set(f, FIGURE_NS_PER_OBJECT, (double)result.freed_ns / (double)result.n_done);
    return 0;
}

static void purge_print(const struct bench_run *run)
{
    const struct figures *f = run->figures;

    printf("%.0f extents of 16 KiB by %" PRIu64
           " processes: %.0f purges queued, %.0f holes, %.0f ns an extent, "
           "%.0fMB at the peak, %.0fMB at the end\n",
           f->value[FIGURE_OBJECTS], run->options->n_processes, f->value[FIGURE_PURGES_QUEUED],
           f->value[FIGURE_HOLES], f->value[FIGURE_NS_PER_OBJECT],
           f->value[FIGURE_FOOTPRINT_BYTES] / (1024 * 1024), f->value[FIGURE_BACKED_BYTES] / (1024 * 1024));
}

static const char *const backend_names[] = {"reclaim", NULL};

const struct bench_test test_purge = {
    .backends = backend_names,
    .main_figure = FIGURE_PURGES_QUEUED,
    .run = purge_run,
    .print = purge_print,
};
