/* SPDX-License-Identifier: MIT */
/* The coordinator's life. See run.h. */
#include "run.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "basic/cleanup.h"
#include "bench/clock.h"
#include "bench/procfs.h"
#include "bench/words.h"
#include "hostile.h"
#include "thread.h"

#define NS_PER_MS UINT64_C(1000000)
#define NS_PER_S UINT64_C(1000000000)

enum {
    TURN_MS = 1,
    KILL_MIN_MS = 20, /* hundreds of kills a minute */
    KILL_MAX_MS = 220,
    TUNE_MS = 20,
    PROGRESS_S = 60, /* a run in which nothing moves for so long has failed */
    MEMORY_GROWTH_MIB = 256,
    LOG_LINES = 20,
};

static volatile sig_atomic_t interrupted;

static void interrupt(int signal_number)
{
    (void)signal_number;
    interrupted = 1;
}

/* ---- Beginning and end ---- */

static int begin_daemon(struct torture_run *run)
{
    static const char *const settings[] = {"purge-delay=500ms", "purge-threshold=8M"};
    const char *temporary = getenv("TMPDIR");

    if (run->options->runtime_directory)
        return service_find(&run->service, run->options->runtime_directory);
    (void)snprintf(run->directory, sizeof(run->directory), "%.40s/torture-XXXXXX",
                   temporary && *temporary ? temporary : "/tmp");
    if (!mkdtemp(run->directory)) {
        run->directory[0] = '\0';
        return words_set(-errno, "cannot make a folder for the daemon: %s", strerror(errno));
    }
    if (chmod(run->directory, 0755) < 0) /* also for who is hostile */
        return words_set(-errno, "cannot open the daemon's folder to others: %s", strerror(errno));
    return service_start(&run->service, run->directory, settings, ARRAY_SIZE(settings));
}

int run_begin(struct torture_run *run, const struct torture_options *options)
{
    int r;

    *run = (struct torture_run){.options = options, .random = random_make(options->seed, UINT32_MAX)};
    if (words_init() < 0)
        return -ENOMEM;
    (void)signal(SIGINT, interrupt);
    (void)signal(SIGTERM, interrupt);
    run->world = world_new(options);
    if (!run->world)
        return words_set(-ENOMEM, "no memory");
    run->crew.world = run->world;
    r = begin_daemon(run);
    if (r < 0)
        return r;
    (void)snprintf(run->world->directory, sizeof(run->world->directory), "%s", run->service.paths.directory);
    (void)snprintf(run->world->arena, sizeof(run->world->arena), "torture-%d", (int)getpid());
    return 0;
}

/* The daemon's last words, where a run failed. */
static void print_log(const char *path)
{
    _cleanup_fclose_ FILE *f = fopen(path, "re");
    char lines[LOG_LINES][400];
    unsigned n = 0;

    while (f && fgets(lines[n % LOG_LINES], sizeof(lines[0]), f))
        n++;
    for (unsigned i = n > LOG_LINES ? n - LOG_LINES : 0; i < n; i++)
        printf("daemon: %s", lines[i % LOG_LINES]);
}

void run_end(struct torture_run *run, bool failed)
{
    pipe_deinit(&run->pipe);
    reclaim_close(run->reclaim);
    service_stop(&run->service);
    if (!run->directory[0])
        return;
    if (failed)
        print_log(run->service.log);
    (void)unlink(run->service.log);
    (void)unlink(run->service.paths.control);
    (void)unlink(run->service.paths.client);
    if (rmdir(run->directory) < 0)
        printf("torture: the folder %s stays: %s\n", run->directory, strerror(errno));
}

int run_open(struct torture_run *run)
{
    int r = world_open(run->world, RECLAIM_CREATE | RECLAIM_EXCL | RECLAIM_TRANSIENT, &run->reclaim);

    if (r < 0)
        return r;
    r = reclaim_lane_get(run->reclaim, &run->lane);
    if (r < 0)
        return words_set(r, "reclaim_lane_get: %s", reclaim_strerror(r));
    r = world_make_board(run->world, run->reclaim, run->lane, &run->board);
    if (r >= 0)
        r = pipe_init(&run->pipe, run->board);
    /* a daemon that others use keeps what it has for all of them */
    if (r >= 0 && run->options->tune)
        r = tuning_init(&run->tuning, run->service.paths.control, run->service.ours);
    return r;
}

int run_check_daemon(struct torture_run *run)
{
    int status;

    if (!run->service.ours || waitpid(run->service.pid, &status, WNOHANG) != run->service.pid)
        return 0;
    run->service.pid = 0;
    if (WIFSIGNALED(status))
        printf("The daemon died of signal %d (%s)\n", WTERMSIG(status), strsignal(WTERMSIG(status)));
    else
        printf("The daemon ended with status %d\n", WEXITSTATUS(status));
    return words_set(-ECHILD, "the daemon ended while it was needed");
}

/* ---- While it runs ---- */

/* A worker was killed; what its threads held is lost at most. */
static void worker_lost(struct crew *crew, const struct member *m)
{
    struct torture_run *run = container_of(crew, struct torture_run, crew);
    uint64_t n_threads = run->options->n_readers + run->options->n_writers;

    for (uint64_t i = m->number; i < n_threads; i += run->options->n_processes) {
        struct thread_count *count = &run->world->counts[i];

        run->lost_objects += count->held_objects; /* its writer is dead */
        run->lost_bytes += count->held_bytes;
        count->held_objects = count->held_bytes = 0;
    }
}

static void kill_one(struct torture_run *run)
{
    crew_kill(&run->crew,
              &run->crew.members[random_below(&run->random, (uint32_t)run->options->n_processes)]);
}

static bool due(uint64_t *when_ns, uint64_t now_ns, uint64_t next_ms)
{
    if (now_ns < *when_ns)
        return false;
    *when_ns = now_ns + next_ms * NS_PER_MS;
    return true;
}

static int check_progress(struct torture_run *run, uint64_t now_ns)
{
    uint64_t progress = 0;

    for (unsigned i = 0; i < THREADS_MAX; i++)
        progress += run->world->counts[i].sections + run->world->counts[i].replaced;
    if (progress != run->progress) {
        run->progress = progress;
        run->progress_ns = now_ns;
    }
    if (now_ns - run->progress_ns > PROGRESS_S * NS_PER_S)
        return world_fail(run->world, "for %d seconds nobody read or replaced anything", PROGRESS_S);
    return 0;
}

static int run_turn(struct torture_run *run, uint64_t now_ns)
{
    int r = pipe_advance(&run->pipe, run->reclaim, run->lane);

    if (r >= 0 && run->options->kill_clients &&
        due(&run->kill_ns, now_ns, random_between(&run->random, KILL_MIN_MS, KILL_MAX_MS)))
        kill_one(run);
    if (r >= 0)
        r = crew_look_after(&run->crew);
    if (r >= 0)
        r = run_check_daemon(run);
    if (r >= 0 && run->options->tune && due(&run->tune_ns, now_ns, TUNE_MS))
        r = tuning_change(&run->tuning, run->service.paths.control, run->world->arena, &run->random);
    if (r >= 0)
        r = check_progress(run, now_ns);
    if (due(&run->tell_ns, now_ns, 1000))
        run_tell(run, now_ns);
    return r;
}

static int start_crew(struct torture_run *run)
{
    int r = 0;

    run->crew.lost = worker_lost;
    run->crew.others_kill = run->options->tune;
    for (unsigned i = 0; i < run->options->n_processes && r >= 0; i++)
        r = crew_add(&run->crew, "worker", worker_main, i, false);
    if (run->options->hostile && r >= 0)
        r = crew_add(&run->crew, "scribbling", hostile_scribble, 0, true);
    if (run->options->hostile && r >= 0)
        r = crew_add(&run->crew, "scribbling", hostile_scribble, 1, true);
    if (run->options->hostile && r >= 0)
        r = crew_add(&run->crew, "talking", hostile_talk, 2, true);
    return r;
}

/* Its memory, while it was attacked. Far above what the limits of one user allow. */
static int check_memory(struct torture_run *run)
{
    uint64_t now = procfs_anonymous_bytes(run->service.pid);
    uint64_t growth = now > run->memory_bytes ? now - run->memory_bytes : 0;

    printf("Daemon memory: %" PRIu64 " KiB at the start, %" PRIu64 " KiB at the end\n",
           run->memory_bytes / 1024, now / 1024);
#ifdef __SANITIZE_ADDRESS__
    growth = 0; /* it keeps freed memory in quarantine */
#endif
    if (growth >> 20 > MEMORY_GROWTH_MIB)
        return words_set(-ENOMEM, "the daemon's memory grew by %" PRIu64 " MiB", growth >> 20);
    return 0;
}

static int run_middle(struct torture_run *run)
{
    uint64_t end_ns, now_ns;
    int r = start_crew(run), finished;

    run->start_ns = run->progress_ns = clock_now_ns();
    run->tell_ns = run->start_ns + NS_PER_S;
    run->kill_ns = run->start_ns + KILL_MAX_MS * NS_PER_MS;
    end_ns = run->start_ns + run->options->duration_usec * 1000;
    while (r >= 0 && !interrupted && !world_stops(run->world) && (now_ns = clock_now_ns()) < end_ns) {
        r = run_turn(run, now_ns);
        clock_sleep_ms(TURN_MS);
    }
    finished = crew_finish(&run->crew);
    if (r >= 0 && load_relaxed(&run->world->failed))
        r = -EPROTO; /* the words are there */
    return r < 0 ? r : finished;
}

int run_torture(const struct torture_options *options)
{
    static struct torture_run run; /* large */
    int r = run_begin(&run, options), died;

    if (r >= 0)
        r = run_open(&run);
    if (r >= 0) {
        run.memory_bytes = procfs_anonymous_bytes(run.service.pid);
        r = run_middle(&run);
        run_tell_end(&run);
    }
    died = run_check_daemon(&run); /* also after a failure, of which it would be the reason */
    r = r < 0 ? r : died;
    if (r >= 0)
        r = run_empty(&run, true, 1);
    if (r >= 0)
        r = run_judge(&run, 0);
    if (r >= 0)
        r = check_memory(&run);
    run_end(&run, r < 0);
    return r;
}
