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

enum {
    STALL_BLOCKS = 10, /* turns of the neighbour that stalls, so that a machine's moods meet both alike */
};

/* Shared memory for all waiters' meetings. With many calls each of them goes at its own pace. */
static int make_barrier(struct sync_job *job, unsigned n)
{
    pthread_barrierattr_t attributes;

    if (n == 1 || (job->n_calls > 1 && !job->stall_block))
        return 0;
    job->barrier = team_share(sizeof(*job->barrier));
    if (!job->barrier)
        return words_set(-ENOMEM, "no memory for %u waiters", n);
    (void)pthread_barrierattr_init(&attributes);
    (void)pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    return -pthread_barrier_init(job->barrier, &attributes, n);
}

/* --expedited and all neighbours are the daemon's; the other backends run as they are. */
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
        .ahead = team_share(bytes),
        .stall_block = daemon && o->stalled_neighbour ? MAX(o->n_calls / STALL_BLOCKS, UINT64_C(1)) : 0,
    };
    if (!job->latencies || !job->ahead)
        return words_set(-ENOMEM, "no memory for %" PRIu64 " latencies a waiter", o->n_calls);
    return make_barrier(job, (unsigned)o->n_threads);
}

static int set_ahead(const struct sync_job *job, size_t n, struct figures *f)
{
    _cleanup_free_ double *ahead = calloc(n, sizeof(*ahead));

    if (!ahead)
        return words_set(-ENOMEM, "no memory for the latencies");
    for (size_t i = 0; i < n; i++)
        ahead[i] = (double)job->ahead[i];
    figures_set(f, FIGURE_CALLBACKS_AHEAD, statistics_median(ahead, n));
    return 0;
}

/* The calls during which the neighbour stalled, or those during which it did not. Returns how many. */
static size_t pick(const struct sync_job *job, size_t n, bool stalled, uint64_t *ret)
{
    size_t picked = 0;

    for (size_t i = 0; i < n; i++)
        if (sync_is_stalled(job, i % job->n_calls) == stalled)
            ret[picked++] = job->latencies[i];
    return picked;
}

/* Apart: beside the neighbour that stalls, and without. */
static int set_stall_figures(const struct sync_job *job, size_t n, struct figures *f)
{
    _cleanup_free_ uint64_t *some = calloc(n, sizeof(*some));
    struct figures alone = {0};
    size_t n_stalled;
    int r = some ? statistics_latencies(some, pick(job, n, false, some), &alone) : -ENOMEM;

    if (r < 0)
        return r;
    figures_set(f, FIGURE_ALONE_P50_NS, alone.value[FIGURE_P50_NS]);
    figures_set(f, FIGURE_ALONE_P99_NS, alone.value[FIGURE_P99_NS]);
    n_stalled = pick(job, n, true, some);
    return n_stalled ? statistics_latencies(some, n_stalled, f) : 0;
}

static int set_figures(const struct sync_job *job, const struct team_result *result, struct figures *f)
{
    size_t n = job->n_calls * job->run->options->n_threads;
    int r = job->stall_block ? set_stall_figures(job, n, f) : statistics_latencies(job->latencies, n, f);

    if (r < 0)
        return words_set(r, "no memory for the latencies");
    figures_set(f, FIGURE_TOTAL_NS, (double)result->total_ns);
    return job->n_callbacks ? set_ahead(job, n, f) : 0;
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

/* Which calls count is part of what the latencies mean. */
static void print_fifo(uint64_t n_callbacks, const struct figures *f)
{
    printf("callback FIFO: %.0f entries ahead (median), at most %.1f ns an entry\n",
           f->value[FIGURE_CALLBACKS_AHEAD], f->value[FIGURE_FIFO_ENTRY_NS]);
    printf("calls count with %" PRIu64 " to %" PRIu64 " entries ahead; %.0f left out\n", n_callbacks / 2,
           2 * n_callbacks, f->value[FIGURE_RETRIES]);
}

static void sync_print(const struct bench_run *run)
{
    const struct figures *f = run->figures;

    printf("synchronize: p50 %.0f ns, p99 %.0f ns, %.0f calls by %" PRIu64 " waiter%s\n",
           f->value[FIGURE_P50_NS], f->value[FIGURE_P99_NS], f->value[FIGURE_CALLS], run->options->n_waiters,
           run->options->n_waiters == 1 ? "" : "s");
    if (f->present[FIGURE_MEMBARRIERS])
        printf("daemon: %.0f grace periods, %.0f membarriers", f->value[FIGURE_GRACE_PERIODS],
               f->value[FIGURE_MEMBARRIERS]);
    if (f->value[FIGURE_OBJECTS_PER_GP] > 0)
        printf(", %.1f objects freed a grace period", f->value[FIGURE_OBJECTS_PER_GP]);
    if (f->present[FIGURE_MEMBARRIERS])
        printf("\n");
    if (f->present[FIGURE_ALONE_P50_NS])
        printf("while the neighbour does not stall: p50 %.0f ns, p99 %.0f ns\n",
               f->value[FIGURE_ALONE_P50_NS], f->value[FIGURE_ALONE_P99_NS]);
    if (f->present[FIGURE_CALLBACKS_AHEAD])
        print_fifo(run->options->n_callbacks, f);
}

const struct bench_test test_sync = {
    .backends = backend_names,
    .main_figure = FIGURE_P50_NS,
    .run = sync_run,
    .print = sync_print,
};
