/* SPDX-License-Identifier: MIT */
/*
 * drain: a phone that is used a little. 1 to 6 deferred frees each 8 ms, for a while; a drain that comes too
 * often frees pages of a few records and wakes the daemon for each of them.
 */
#include <inttypes.h>
#include <stdio.h>

#include "clock.h"
#include "drain.h"
#include "lane.h"
#include "tests.h"

enum {
    TICK_NS = 8000000,
    FREES_MAX = 6, /* a tick */
    OBJECT_BYTES = 32,
};

int drain_free_some(struct team_thread *t, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        void *p = reclaim_alloc(t->data, OBJECT_BYTES);
        int r = p ? lane_defer(t->data, t, p) : run_library_failed(-errno, "reclaim_alloc");

        if (r < 0)
            return r;
        t->n_done++;
    }
    return 0;
}

static int drain_thread_run(struct team_thread *t)
{
    const struct drain_job *job = t->job;
    uint64_t now = clock_now_ns(), end = now + job->run->options->duration_usec * 1000;
    unsigned random = 1; /* the same trickle in every run */

    for (; now < end; now += TICK_NS) {
        int r;

        random = random * 1103515245u + 12345u;
        r = drain_free_some(t, 1 + (random >> 16) % FREES_MAX);
        if (r < 0)
            return r;
        clock_sleep_until_ns(now + TICK_NS);
    }
    return 0;
}

static int drain_run(struct bench_run *run)
{
    static const struct team_ops trickle = LANE_OPS(drain_thread_run), flood = LANE_OPS(drain_flood_run);
    struct drain_job job = {.run = run};
    struct figures *f = run->figures;
    struct team_result result;
    int r = drain_flood_prepare(&job);

    if (r >= 0)
        r = run_team(run, run->options->flood ? &flood : &trickle, &job, &result);
    if (r < 0)
        return r;
    figures_set(f, FIGURE_OBJECTS, (double)result.n_done);
    figures_set(f, FIGURE_TOTAL_NS, (double)result.total_ns);
    figures_set(f, FIGURE_FREED_NS, (double)result.freed_ns);
    return run->options->flood ? drain_flood_set_figures(&job, f) : 0;
}

static void drain_print(const struct bench_run *run)
{
    const struct figures *f = run->figures;

    printf("%.0f objects in %.1f s: %.1f objects a page, %.0f drains, %.0f wake-ups of the daemon (%.1f a "
           "second)\n",
           f->value[FIGURE_OBJECTS], f->value[FIGURE_TOTAL_NS] / 1e9, f->value[FIGURE_OBJECTS_PER_PAGE],
           f->value[FIGURE_DRAINS], f->value[FIGURE_WAKEUPS],
           f->value[FIGURE_WAKEUPS] / (f->value[FIGURE_FREED_NS] / 1e9));
    if (f->present[FIGURE_FIRST_FREE_NS])
        printf("%.0f floods: the first object is free after %.0f us (median), 99 %% of them within %.0f us; "
               "a grace "
               "period "
               "takes %.0f us\n",
               f->value[FIGURE_CALLS], f->value[FIGURE_FIRST_FREE_NS] / 1e3,
               f->value[FIGURE_FIRST_FREE_P99_NS] / 1e3, f->value[FIGURE_GP_NS] / 1e3);
}

static const char *const backend_names[] = {"reclaim", NULL};

const struct bench_test test_drain = {
    .backends = backend_names,
    .main_figure = FIGURE_OBJECTS_PER_PAGE,
    .run = drain_run,
    .print = drain_print,
};
