/* SPDX-License-Identifier: MIT */
/* What all tests share around their team: the arena, and the state of daemon and memory before and after. */
#include "run.h"

#include <errno.h>
#include <string.h>

#include "basic/varlink-frame.h"
#include "procfs.h"
#include "words.h"

bool run_uses_daemon(const char *backend)
{
    return strcmp(backend, "reclaim") == 0 || strncmp(backend, "reclaim-", 8) == 0;
}

int run_library_failed(int r, const char *call)
{
    return words_set(r, "%s: %s", call, reclaim_strerror(r));
}

int run_open_arena_named(const struct bench_run *run, const char *name, unsigned flags, uint64_t bytes,
                         struct reclaim **ret)
{
    char message[256] = "";
    struct reclaim_open_options options = {
        .size = sizeof(options),
        .flags = flags,
        .arena_bytes = bytes,
        .runtime_directory = run->service.paths.directory,
        .message = message,
        .message_size = sizeof(message),
    };
    int r = reclaim_open(name, &options, ret);

    if (r < 0)
        return words_set(r, "cannot open arena %s: %s", name, *message ? message : reclaim_strerror(r));
    return 0;
}

int run_open_arena(const struct bench_run *run, unsigned flags, struct reclaim **ret)
{
    return run_open_arena_named(run, run->arena, flags, run->options->arena_bytes, ret);
}

/* The neighbours that are there before the team, so that what they hold is not the team's. */
static int start_neighbours(struct bench_run *run)
{
    int r = neighbour_start(run->neighbours, NEIGHBOUR_FIFO, run);

    return r < 0 ? r : neighbour_start(run->neighbours, NEIGHBOUR_STALL, run);
}

/*
 * Before any worker attaches: memory as it is without them. Then the arena, which the coordinator keeps, so
 * that it is there for all workers and still there when the last of them has closed.
 */
static int before_attach(void *userdata, const pid_t *pids, unsigned n_pids)
{
    struct bench_run *run = userdata;
    int r = run->service.pid ? start_neighbours(run) : 0;

    if (r < 0)
        return r;
    run->sampler.daemon = run->service.pid;
    run->sampler.n_pids = MIN(n_pids, (unsigned)SAMPLER_PIDS_MAX);
    memcpy(run->sampler.pids, pids, run->sampler.n_pids * sizeof(*pids));
    sampler_mark_start(&run->sampler);
    if (!run->service.pid)
        return 0;
    r = run_open_arena(run, RECLAIM_CREATE | RECLAIM_EXCL | RECLAIM_TRANSIENT, &run->reclaim);
    return r < 0 ? r : books_connect(run->service.paths.control, &run->control);
}

/* All are attached and wait: what the daemon did for that is not the test's. */
static int before_start(void *userdata)
{
    struct bench_run *run = userdata;
    int r = 0;

    if (run->service.pid) {
        r = neighbour_start(run->neighbours, NEIGHBOUR_UPDATES, run);
        if (r >= 0)
            r = books_read(run->control, run->arena, &run->books);
        if (r >= 0)
            r = books_read_daemon(run->control, &run->daemon_books);
        run->daemon_cpu_ns = procfs_cpu_ns(run->service.pid);
        run->wakeups = procfs_wakeups(run->service.pid);
    }
    return r < 0 ? r : sampler_start(&run->sampler);
}

/* What happened in between; of what is left, what is left. */
static void set_books(struct bench_run *run, const struct books *now)
{
    const struct books *then = &run->books;
    struct figures *f = run->figures;
    uint64_t n_gps = now->grace_periods - then->grace_periods,
             n_freed = now->freed_objects - then->freed_objects;

    figures_set(f, FIGURE_GRACE_PERIODS, (double)n_gps);
    figures_set(f, FIGURE_BATCHES, (double)(now->batches - then->batches));
    figures_set(f, FIGURE_DRAINS, (double)(now->drains - then->drains));
    figures_set(f, FIGURE_PURGES_QUEUED, (double)(now->purges_queued - then->purges_queued));
    figures_set(f, FIGURE_HOLES, (double)(now->holes - then->holes));
    figures_set(f, FIGURE_OBJECTS_PER_PAGE, now->objects_per_page);
    figures_set(f, FIGURE_FREED_OBJECTS, (double)n_freed);
    figures_set(f, FIGURE_PENDING_OBJECTS, (double)now->pending_objects);
    figures_set(f, FIGURE_REFUSED_RECORDS, (double)(now->refused_records - then->refused_records));
    figures_set(f, FIGURE_BACKED_BYTES, (double)now->backed_bytes);
    figures_set(f, FIGURE_DIRECT_WAKES, (double)(now->direct_wakes - then->direct_wakes));
    figures_set(f, FIGURE_WORKER_WAKES, (double)(now->worker_wakes - then->worker_wakes));
    figures_set(f, FIGURE_FIFO_WAKES, (double)(now->fifo_wakes - then->fifo_wakes));
    figures_set(f, FIGURE_MAX_DIRECT_WAKES, (double)now->max_direct_wakes);
    if (n_gps > 0)
        figures_set(f, FIGURE_OBJECTS_PER_GP, (double)n_freed / (double)n_gps);
}

static int read_books(struct bench_run *run)
{
    struct figures *f = run->figures;
    struct daemon_books daemon;
    struct books now;
    int r = books_read(run->control, run->arena, &now);

    if (r >= 0)
        r = books_read_daemon(run->control, &daemon);
    if (r < 0)
        return r;
    set_books(run, &now);
    figures_set(f, FIGURE_CALLBACKS, (double)(daemon.n_callbacks - run->daemon_books.n_callbacks));
    figures_set(f, FIGURE_MEMBARRIERS, (double)(daemon.n_membarriers - run->daemon_books.n_membarriers));
    return 0;
}

/* CPU time and wake-ups first: asking for the books costs the daemon both. */
static int after_end(void *userdata)
{
    struct bench_run *run = userdata;
    struct figures *f = run->figures;
    int r;

    if (!run->service.pid) {
        figures_set(f, FIGURE_FOOTPRINT_BYTES, (double)sampler_stop(&run->sampler));
        return 0;
    }
    figures_set(f, FIGURE_DAEMON_CPU_NS, (double)(procfs_cpu_ns(run->service.pid) - run->daemon_cpu_ns));
    figures_set(f, FIGURE_WAKEUPS, (double)(procfs_wakeups(run->service.pid) - run->wakeups));
    figures_set(f, FIGURE_FOOTPRINT_BYTES, (double)sampler_stop(&run->sampler));
    if (run->sampler.others_peak_bytes)
        figures_set(f, FIGURE_OTHER_BYTES, (double)run->sampler.others_peak_bytes);
    r = read_books(run);
    return r < 0 ? r : neighbours_stop(run->neighbours, false);
}

/* The FIFO as the neighbour that keeps it filled saw it: what an entry took, and how long it was. */
static void set_fifo_figures(struct bench_run *run)
{
    const struct neighbour_shared *s = run->neighbours[NEIGHBOUR_FIFO].shared;

    if (s && s->n_run > 0)
        figures_set(run->figures, FIGURE_FIFO_ENTRY_NS, (double)s->run_ns / (double)s->n_run);
    if (s && s->n_looks > 0)
        figures_set(run->figures, FIGURE_CALLBACKS_AHEAD, (double)s->n_waiting / (double)s->n_looks);
}

int run_team(struct bench_run *run, const struct team_ops *ops, void *job, struct team_result *ret)
{
    const struct team_hooks hooks = {before_attach, before_start, after_end, run};
    int r = 0;

    if (run->service.pid)
        r = neighbours_prepare(run->neighbours, run->options);
    if (r >= 0)
        r = team_run(ops, job, (unsigned)run->options->n_processes, (unsigned)run->options->n_threads, &hooks,
                     ret);
    (void)sampler_stop(&run->sampler);
    (void)neighbours_stop(run->neighbours, true);
    (void)varlink_client_free(run->control);
    reclaim_close(run->reclaim);
    run->control = NULL;
    run->reclaim = NULL;
    if (r < 0)
        return r;
    figures_set(run->figures, FIGURE_CLIENT_CPU_NS, (double)ret->cpu_ns);
    if (ret->retries)
        figures_set(run->figures, FIGURE_RETRIES, (double)ret->retries);
    set_fifo_figures(run);
    return 0;
}
