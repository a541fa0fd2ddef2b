/* SPDX-License-Identifier: MIT */
/* What all tests share around their team: the arena, and the state of daemon and memory before and after. */
#include "run.h"

#include <errno.h>
#include <string.h>

#include "procfs.h"
#include "words.h"

bool run_uses_daemon(const char *backend)
{
    return strcmp(backend, "reclaim") == 0;
}

int run_library_failed(int r, const char *call)
{
    return words_set(r, "%s: %s", call, reclaim_strerror(r));
}

int run_open_arena(const struct bench_run *run, unsigned flags, struct reclaim **ret)
{
    char message[256] = "";
    struct reclaim_open_options options = {
        .size = sizeof(options),
        .flags = flags,
        .arena_bytes = run->options->arena_bytes,
        .runtime_directory = run->service.paths.directory,
        .message = message,
        .message_size = sizeof(message),
    };
    int r = reclaim_open(run->arena, &options, ret);

    if (r < 0)
        return words_set(r, "cannot open arena %s: %s", run->arena, *message ? message : reclaim_strerror(r));
    return 0;
}

/*
 * Before any worker attaches: memory as it is without them. Then the arena, which the coordinator keeps, so
 * that it is there for all workers and still there when the last of them has closed.
 */
static int before_attach(void *userdata, const pid_t *pids, unsigned n_pids)
{
    struct bench_run *run = userdata;

    run->sampler.daemon = run->service.pid;
    run->sampler.n_pids = MIN(n_pids, (unsigned)SAMPLER_PIDS_MAX);
    memcpy(run->sampler.pids, pids, run->sampler.n_pids * sizeof(*pids));
    sampler_mark_start(&run->sampler);
    if (!run->service.pid)
        return 0;
    return run_open_arena(run, RECLAIM_CREATE | RECLAIM_EXCL | RECLAIM_TRANSIENT, &run->reclaim);
}

/* All are attached and wait: what the daemon did for that is not the test's. */
static int before_start(void *userdata)
{
    struct bench_run *run = userdata;

    if (run->service.pid) {
        int r = books_read(run->service.paths.control, run->arena, &run->books);

        if (r < 0)
            return r;
        run->daemon_cpu_ns = procfs_cpu_ns(run->service.pid);
        run->wakeups = procfs_wakeups(run->service.pid);
    }
    return sampler_start(&run->sampler);
}

/* What happened in between; of what is left, what is left. */
static void set_books(struct bench_run *run, const struct books *now)
{
    const struct books *then = &run->books;
    struct figures *f = run->figures;

    figures_set(f, FIGURE_GRACE_PERIODS, (double)(now->grace_periods - then->grace_periods));
    figures_set(f, FIGURE_BATCHES, (double)(now->batches - then->batches));
    figures_set(f, FIGURE_DRAINS, (double)(now->drains - then->drains));
    figures_set(f, FIGURE_PURGES_QUEUED, (double)(now->purges_queued - then->purges_queued));
    figures_set(f, FIGURE_HOLES, (double)(now->holes - then->holes));
    figures_set(f, FIGURE_OBJECTS_PER_PAGE, now->objects_per_page);
    figures_set(f, FIGURE_FREED_OBJECTS, (double)(now->freed_objects - then->freed_objects));
    figures_set(f, FIGURE_PENDING_OBJECTS, (double)now->pending_objects);
    figures_set(f, FIGURE_REFUSED_RECORDS, (double)(now->refused_records - then->refused_records));
    figures_set(f, FIGURE_BACKED_BYTES, (double)now->backed_bytes);
}

/* CPU time and wake-ups first: asking for the books costs the daemon both. */
static int after_end(void *userdata)
{
    struct bench_run *run = userdata;
    struct figures *f = run->figures;
    struct books now;
    int r;

    if (!run->service.pid) {
        figures_set(f, FIGURE_FOOTPRINT_BYTES, (double)sampler_stop(&run->sampler));
        return 0;
    }
    figures_set(f, FIGURE_DAEMON_CPU_NS, (double)(procfs_cpu_ns(run->service.pid) - run->daemon_cpu_ns));
    figures_set(f, FIGURE_WAKEUPS, (double)(procfs_wakeups(run->service.pid) - run->wakeups));
    figures_set(f, FIGURE_FOOTPRINT_BYTES, (double)sampler_stop(&run->sampler));
    r = books_read(run->service.paths.control, run->arena, &now);
    if (r >= 0)
        set_books(run, &now);
    return r;
}

int run_team(struct bench_run *run, const struct team_ops *ops, void *job, struct team_result *ret)
{
    const struct team_hooks hooks = {before_attach, before_start, after_end, run};
    int r = team_run(ops, job, (unsigned)run->options->n_processes, (unsigned)run->options->n_threads, &hooks,
                     ret);

    (void)sampler_stop(&run->sampler);
    reclaim_close(run->reclaim);
    run->reclaim = NULL;
    if (r < 0)
        return r;
    figures_set(run->figures, FIGURE_CLIENT_CPU_NS, (double)ret->cpu_ns);
    if (ret->retries)
        figures_set(run->figures, FIGURE_RETRIES, (double)ret->retries);
    return 0;
}
