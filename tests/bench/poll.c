/* SPDX-License-Identifier: MIT */
/*
 * poll: what it costs to ask for a grace period that is over, which is the usual answer. Backends: reclaim
 * (reclaim_gp_poll), reclaim-wait (reclaim_gp_wait, which must not wait then), and load: one acquire load of a
 * word and the comparison, which is what nothing that asks another process can beat.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "basic/ordering.h"
#include "lane.h"
#include "tests.h"
#include "words.h"

struct poll_job {
    struct bench_run *run;
    uint64_t n_polls;
    uint64_t *word; /* load: shared, as the daemon's is; its `completed` */
};

static int poll_load_run(struct team_thread *t)
{
    const struct poll_job *job = t->job;
    uint64_t cookie = 1, n_over = 0;

    for (uint64_t i = 0; i < job->n_polls; i++) {
        __asm__ volatile("" : "+r"(cookie)); /* a new question each time, as far as the compiler knows */
        n_over += load_acquire(job->word) >= cookie; /* as a user's; pairs with nothing here */
    }
    t->n_done = n_over;
    return 0;
}

/* A cookie of this arena that has expired. */
static int expired_cookie(struct reclaim_lane *lane, uint64_t *ret)
{
    int r = reclaim_gp_start(lane, ret);

    if (r >= 0)
        r = reclaim_gp_wait(lane, *ret, NULL);
    return r < 0 ? run_library_failed(r, "reclaim_gp_start or reclaim_gp_wait") : 0;
}

static int poll_gp_run(struct team_thread *t)
{
    const struct poll_job *job = t->job;
    struct reclaim *reclaim = t->process_data;
    uint64_t cookie, n_over = 0;
    int r = expired_cookie(t->data, &cookie);

    for (uint64_t i = 0; i < job->n_polls && r >= 0; i++) {
        __asm__ volatile("" : "+r"(cookie));
        n_over += reclaim_gp_poll(reclaim, cookie) == 1;
    }
    t->n_done = n_over;
    return r;
}

static int poll_wait_run(struct team_thread *t)
{
    const struct poll_job *job = t->job;
    uint64_t cookie, n_over = 0;
    int r = expired_cookie(t->data, &cookie);

    for (uint64_t i = 0; i < job->n_polls && r >= 0; i++) {
        __asm__ volatile("" : "+r"(cookie));
        n_over += reclaim_gp_wait(t->data, cookie, NULL) == 0;
    }
    t->n_done = n_over;
    return r;
}

#define POLL_OPS(run)                                                                                        \
    {                                                                                                        \
        .process_init = lane_process_init, .thread_init = lane_thread_init, .thread_run = (run),             \
        .thread_deinit = lane_thread_deinit, .process_deinit = lane_process_deinit                           \
    }

static const struct team_ops *find_ops(const char *backend)
{
    static const struct team_ops gp = POLL_OPS(poll_gp_run), wait = POLL_OPS(poll_wait_run),
                                 load = {.thread_run = poll_load_run};

    return strcmp(backend, "load") == 0 ? &load : strcmp(backend, "reclaim") == 0 ? &gp : &wait;
}

/* Every answer must have been that it is over: a wrong one is quick, too. */
static int poll_run(struct bench_run *run)
{
    struct poll_job job = {run, run->options->n_pairs * run->options->n_loops, team_share(sizeof(uint64_t))};
    struct figures *f = run->figures;
    struct team_result result;
    int r;

    if (!job.word)
        return words_set(-ENOMEM, "no memory for a word");
    *job.word = 1;
    r = run_team(run, find_ops(run->backend), &job, &result);
    if (r >= 0 && result.n_done != job.n_polls)
        r = words_set(-EPROTO, "a grace period that was over is said not to be");
    if (r < 0)
        return r;
    figures_set(f, FIGURE_OBJECTS, (double)result.n_done);
    figures_set(f, FIGURE_TOTAL_NS, (double)result.total_ns);
    figures_set(f, FIGURE_NS_PER_OBJECT, (double)result.mean_run_ns / (double)job.n_polls);
    return 0;
}

static void poll_print(const struct bench_run *run)
{
    const struct figures *f = run->figures;

    printf("%.3f ns to ask for a grace period that is over (%.0f calls)\n", f->value[FIGURE_NS_PER_OBJECT],
           f->value[FIGURE_OBJECTS]);
}

static const char *const backend_names[] = {"reclaim", "reclaim-wait", "load", NULL};

const struct bench_test test_poll = {
    .backends = backend_names,
    .main_figure = FIGURE_NS_PER_OBJECT,
    .run = poll_run,
    .print = poll_print,
};
