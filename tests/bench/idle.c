/* SPDX-License-Identifier: MIT */
/* idle: clients are attached and do nothing; no thread of the daemon may wake up. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "clock.h"
#include "lane.h"
#include "procfs.h"
#include "tests.h"

enum {
    SETTLE_MS = 1000, /* what attaching began may end first */
    THREADS_MAX = 64, /* of the daemon; it has about five */
};

struct idle_thread {
    pid_t tid;
    char name[32];
    uint64_t before, after; /* voluntary context switches */
};

struct idle_job {
    struct bench_run *run;
    struct idle_thread
        *threads; /* THREADS_MAX, shared: thread 0 of the team watches, the coordinator prints */
};

static struct idle_job job; /* of the run's process */

static struct idle_thread *find_thread(struct idle_thread *threads, pid_t tid)
{
    for (size_t i = 0; i < THREADS_MAX; i++)
        if (threads[i].tid == tid || threads[i].tid == 0)
            return &threads[i];
    return NULL;
}

static void note_before(void *data, pid_t tid, const char *name, uint64_t wakeups)
{
    struct idle_thread *thread = find_thread(data, tid);

    if (!thread)
        return;
    thread->tid = tid;
    thread->before = thread->after = wakeups;
    (void)snprintf(thread->name, sizeof(thread->name), "%s", name);
}

/* A thread that was not there before has woken up for certain: it counts from 0. */
static void note_after(void *data, pid_t tid, const char *name, uint64_t wakeups)
{
    struct idle_thread *thread = find_thread(data, tid);

    if (!thread)
        return;
    if (thread->tid == 0)
        note_before(data, tid, name, 0);
    thread->after = wakeups;
}

/* Every client has read once, so that its lane is a real one; then all are silent, and the first of them
 * watches. */
static int idle_thread_run(struct team_thread *t)
{
    const struct idle_job *j = t->job;
    const struct bench_options *o = j->run->options;

    (void)reclaim_read_lock(t->data);
    reclaim_read_unlock(t->data);
    clock_sleep_ms(SETTLE_MS);
    if (t->index == 0)
        procfs_threads(j->run->service.pid, note_before, j->threads);
    clock_sleep_ms(o->duration_usec / USEC_PER_MSEC);
    if (t->index == 0)
        procfs_threads(j->run->service.pid, note_after, j->threads);
    else
        clock_sleep_ms(SETTLE_MS); /* stays until the first has looked */
    return 0;
}

static int idle_run(struct bench_run *run)
{
    static const struct team_ops ops = {.process_init = lane_process_init,
                                        .thread_init = lane_thread_init,
                                        .thread_run = idle_thread_run,
                                        .thread_deinit = lane_thread_deinit,
                                        .process_deinit = lane_process_deinit};
    struct team_result result;
    double wakeups = 0;
    int r;

    job = (struct idle_job){run, team_share(THREADS_MAX * sizeof(struct idle_thread))};
    if (!job.threads)
        return -ENOMEM;
    r = run_team(run, &ops, &job, &result);
    if (r < 0)
        return r;
    for (size_t i = 0; i < THREADS_MAX; i++)
        wakeups += (double)(job.threads[i].after - job.threads[i].before);
    figures_set(run->figures, FIGURE_WAKEUPS, wakeups);
    figures_set(run->figures, FIGURE_TOTAL_NS, (double)run->options->duration_usec * 1000);
    return 0;
}

static void idle_print(const struct bench_run *run)
{
    printf("Voluntary context switches in %" PRIu64 " ms with %" PRIu64 " clients attached:\n",
           run->options->duration_usec / USEC_PER_MSEC, run->options->n_clients);
    for (size_t i = 0; i < THREADS_MAX && job.threads[i].tid; i++)
        printf("  %-16s %" PRIu64 "\n", job.threads[i].name, job.threads[i].after - job.threads[i].before);
    printf("  %-16s %.0f\n", "all", run->figures->value[FIGURE_WAKEUPS]);
}

static const char *idle_complain(const struct figures *f)
{
    return f->value[FIGURE_WAKEUPS] != 0 ? "the daemon woke up although nobody asked for anything" : NULL;
}

static const char *const backend_names[] = {"reclaim", NULL};

const struct bench_test test_idle = {
    .backends = backend_names,
    .main_figure = FIGURE_WAKEUPS,
    .run = idle_run,
    .print = idle_print,
    .complain = idle_complain,
};
