/* SPDX-License-Identifier: MIT */
/* attach: what it costs a process to open an arena, get a lane, and close it again. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "clock.h"
#include "statistics.h"
#include "tests.h"
#include "words.h"

struct attach_job {
    struct bench_run *run;
    uint64_t n_loops;
    uint64_t *latencies; /* n_loops of each process, shared */
};

static int attach_once(const struct bench_run *run)
{
    struct reclaim_lane *lane;
    struct reclaim *reclaim;
    int r = run_open_arena(run, 0, &reclaim);

    if (r < 0)
        return r;
    r = reclaim_lane_get(reclaim, &lane);
    reclaim_close(reclaim);
    return r < 0 ? run_library_failed(r, "reclaim_lane_get") : 0;
}

static int attach_thread_run(struct team_thread *t)
{
    const struct attach_job *job = t->job;
    uint64_t *latencies = job->latencies + t->index * job->n_loops;

    for (uint64_t i = 0; i < job->n_loops; i++) {
        uint64_t start = clock_now_ns();
        int r = attach_once(job->run);

        if (r < 0)
            return r;
        latencies[i] = clock_now_ns() - start;
    }
    t->n_done = job->n_loops;
    return 0;
}

static int attach_run(struct bench_run *run)
{
    static const struct team_ops ops = {.thread_run = attach_thread_run};
    const struct bench_options *o = run->options;
    size_t n = o->n_loops * o->n_processes;
    struct attach_job job = {run, o->n_loops, team_share(n * sizeof(uint64_t))};
    struct figures *f = run->figures;
    struct team_result result;
    int r;

    if (!job.latencies)
        return words_set(-ENOMEM, "no memory for %zu latencies", n);
    r = run_team(run, &ops, &job, &result);
    if (r < 0)
        return r;
    figures_set(f, FIGURE_OBJECTS, (double)result.n_done);
    figures_set(f, FIGURE_TOTAL_NS, (double)result.total_ns);
    figures_set(f, FIGURE_NS_PER_OBJECT, (double)result.mean_run_ns / (double)o->n_loops);
    return statistics_latencies(job.latencies, n, f);
}

static void attach_print(const struct bench_run *run)
{
    const struct figures *f = run->figures;

    printf("open + lane + close: %.0f ns on average, p50 %.0f ns, p99 %.0f ns (%.0f times)\n",
           f->value[FIGURE_NS_PER_OBJECT], f->value[FIGURE_P50_NS], f->value[FIGURE_P99_NS],
           f->value[FIGURE_OBJECTS]);
}

static const char *const backend_names[] = {"reclaim", NULL};

const struct bench_test test_attach = {
    .backends = backend_names,
    .main_figure = FIGURE_NS_PER_OBJECT,
    .run = attach_run,
    .print = attach_print,
};
