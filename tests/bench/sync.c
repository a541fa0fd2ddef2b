/* SPDX-License-Identifier: MIT */
/* sync: chooses the backend, runs the team, and says what the latencies were. */
#include "sync.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "basic/cleanup.h"
#include "statistics.h"
#include "words.h"

static const struct sync_backend *const backends[] = {&sync_reclaim, &sync_urcu_memb, &sync_floor};
static const char *const backend_names[] = {"reclaim", "urcu-memb", "floor", NULL};
assert_cc(ARRAY_SIZE(backend_names) == ARRAY_SIZE(backends) + 1);

static const struct sync_backend *find_backend(const char *name)
{
    for (size_t i = 0; i < ARRAY_SIZE(backends); i++)
        if (strcmp(backends[i]->name, name) == 0)
            return backends[i];
    return NULL;
}

/* --expedited and --callbacks are the daemon's; the other backends run as they are. */
static int job_init(struct sync_job *job, struct bench_run *run)
{
    const struct bench_options *o = run->options;
    bool daemon = run_uses_daemon(run->backend);
    size_t bytes = o->n_calls * o->n_threads * sizeof(*job->latencies);

    *job = (struct sync_job){
        .run = run,
        .n_calls = o->n_calls,
        .n_callbacks = daemon ? o->n_callbacks : 0,
        .flags = daemon && o->expedited ? RECLAIM_EXPEDITED : 0,
        .latencies = team_share(bytes),
        .passed = team_share(bytes),
        .ahead = team_share(bytes),
    };
    if (!job->latencies || !job->passed || !job->ahead)
        return words_set(-ENOMEM, "no memory for %" PRIu64 " latencies a waiter", o->n_calls);
    return 0;
}

/*
 * What one FIFO entry costs whoever waits behind it: at most the median of (time from the question how many
 * there are to the call's return) / as many, since all of them have run by then. The answer's own way is in
 * it, so the more there are, the nearer.
 */
static int set_fifo_figures(const struct sync_job *job, size_t n, struct figures *f)
{
    _cleanup_free_ double *cost = calloc(n, sizeof(*cost)), *ahead = calloc(n, sizeof(*ahead));

    if (!cost || !ahead)
        return words_set(-ENOMEM, "no memory for the latencies");
    for (size_t i = 0; i < n; i++) {
        ahead[i] = (double)job->ahead[i];
        cost[i] = (double)job->passed[i] / ahead[i];
    }
    figures_set(f, FIGURE_CALLBACKS_AHEAD, statistics_median(ahead, n));
    figures_set(f, FIGURE_FIFO_ENTRY_NS, statistics_median(cost, n));
    return 0;
}

static int set_figures(const struct sync_job *job, const struct team_result *result, struct figures *f)
{
    size_t n = job->n_calls * job->run->options->n_threads;
    int r = statistics_latencies(job->latencies, n, f);

    if (r < 0)
        return words_set(r, "no memory for the latencies");
    figures_set(f, FIGURE_TOTAL_NS, (double)result->total_ns);
    return job->n_callbacks ? set_fifo_figures(job, n, f) : 0;
}

static int sync_run(struct bench_run *run)
{
    const struct sync_backend *backend = find_backend(run->backend);
    struct team_result result;
    struct sync_job job;
    int r = job_init(&job, run);

    if (r >= 0 && backend->prepare)
        r = backend->prepare(&job);
    if (r < 0)
        return r;
    r = run_team(run, &backend->ops, &job, &result);
    if (backend->finish)
        backend->finish(&job);
    return r < 0 ? r : set_figures(&job, &result, run->figures);
}

static void sync_print(const struct bench_run *run)
{
    const struct figures *f = run->figures;

    printf("synchronize: p50 %.0f ns, p99 %.0f ns, %.0f calls by %" PRIu64 " waiters\n",
           f->value[FIGURE_P50_NS], f->value[FIGURE_P99_NS], f->value[FIGURE_CALLS], run->options->n_waiters);
    if (f->present[FIGURE_FIFO_ENTRY_NS])
        printf("callback FIFO: %.0f entries ahead, at most %.1f ns an entry\n",
               f->value[FIGURE_CALLBACKS_AHEAD], f->value[FIGURE_FIFO_ENTRY_NS]);
}

const struct bench_test test_sync = {
    .backends = backend_names,
    .main_figure = FIGURE_P50_NS,
    .run = sync_run,
    .print = sync_print,
};
