/* SPDX-License-Identifier: MIT */
/*
 * --kill-points: for each test point of the library a victim that dies there, at its first passage and at
 * later ones, and then a survivor that must find everything in order.
 *
 *   keeper     has the arena open all the time
 *   victim     works as a writer does, and dies
 *   survivor   empties the cells, waits, and asks for the books; a new process each time
 *
 * All three are children: a process reads the point's name at the first point that it passes, so this one
 * must not pass any.
 */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/clock.h"
#include "bench/words.h"
#include "run.h"
#include "thread.h"

#ifdef RECLAIM_TEST_POINTS
enum {
    LIVES = 3, /* of a victim, each with a lane of its own */
    ACTS = 150,
    BURSTS = 10,
    LATER_MAX = 60, /* passages: about as many as the rarest point has */
    TRIALS = 4,     /* of each point */
};

static const char *const points[] = {
#include "kill-points.inc"
};

static struct torture_run *shared_run; /* before any fork */

/* ---- The three ---- */

static int keeper_main(struct world *w, unsigned number, uint64_t incarnation)
{
    (void)number;
    (void)incarnation;
    if (run_open(shared_run) < 0)
        return 1;
    reclaim_lane_put(shared_run->lane);
    store_release(&w->n_observer, 1u); /* the board is there; pairs with wait_keeper() */
    while (!world_stops(w))
        clock_sleep_ms(5);
    reclaim_close(shared_run->reclaim);
    return 0;
}

static int victim_life(struct torture_thread *t)
{
    int r = reclaim_lane_get(t->reclaim, &t->lane);
    uint64_t cookie;

    if (r < 0)
        return world_call_failed(t->world, r, "reclaim_lane_get of a victim");
    (void)reclaim_gp_start(t->lane, &cookie); /* which a writer's acts may never come to */
    writer_act(t, ACTS);
    for (unsigned i = 0; i < BURSTS; i++) /* whether one overflows the ring is the daemon's to say */
        writer_burst(t);
    reclaim_lane_put(t->lane);
    return load_relaxed(&t->world->failed) ? -EPROTO : 0;
}

/* number: of its trial, from which its work follows. */
static int victim_main(struct world *w, unsigned number, uint64_t incarnation)
{
    const uint32_t pause = 0;
    struct torture_thread t = {
        .world = w,
        .place = (unsigned)w->options.n_readers,
        .random = random_make(w->options.seed, number),
        .pause = &pause,
    };
    int r;

    (void)incarnation;
    t.count = &w->counts[t.place];
    r = world_open(w, 0, &t.reclaim);
    if (r >= 0)
        r = world_find_board(t.reclaim, &t.board);
    for (unsigned i = 0; i < LIVES && r >= 0; i++)
        r = victim_life(&t);
    if (t.reclaim)
        reclaim_close(t.reclaim);
    return r < 0;
}

/* last: the board goes, too, and nothing may be left but what was lost. */
static int survivor_main(struct world *w, unsigned last, uint64_t incarnation)
{
    struct torture_run *run = shared_run;
    int r = world_open(w, 0, &run->reclaim);

    (void)incarnation;
    if (r >= 0)
        r = reclaim_lane_get(run->reclaim, &run->lane);
    if (r >= 0)
        r = world_find_board(run->reclaim, &run->board);
    if (r < 0)
        return 1;
    for (uint32_t i = 0; i < run->board->n_entries; i++)
        store_relaxed(&run->board->entries[i].pipe, (uint32_t)PIPE_FREE); /* nobody else is here */
    r = run_empty(run, last, 2);
    if (r >= 0)
        r = run_judge(run, last ? 0 : 2);
    reclaim_close(run->reclaim);
    return r < 0;
}

/* ---- Trials ---- */

/* Runs one to its end; the status is waitpid's. */
static int child_run(struct torture_run *run, crew_main_fn main, unsigned number, int *ret_status)
{
    pid_t pid;

    (void)fflush(stdout);
    pid = fork();
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        _exit(main(run->world, number, 0));
    }
    if (pid < 0 || waitpid(pid, ret_status, 0) != pid)
        return words_set(-errno, "cannot run a child: %s", strerror(errno));
    return 0;
}

static int survive(struct torture_run *run, const char *point, bool last)
{
    int status, r = child_run(run, survivor_main, last, &status);

    if (r >= 0 && (!WIFEXITED(status) || WEXITSTATUS(status) != 0))
        r = words_set(-EPROTO, "the survivor of point %s ended with status %d", point, status);
    if (r < 0)
        printf("  after a victim at point %s\n", point);
    return r < 0 ? r : run_check_daemon(run);
}

/* 1: it died at that passage; 0: it does not pass so often. */
static int trial(struct torture_run *run, const char *point, unsigned passage, unsigned number)
{
    struct thread_count *count = &run->world->counts[run->options->n_readers];
    char variable[128];
    int status, r;

    (void)snprintf(variable, sizeof(variable), "%s:kill@%u", point, passage);
    (void)setenv("RECLAIM_TEST_POINT", variable, 1);
    r = child_run(run, victim_main, number, &status);
    (void)unsetenv("RECLAIM_TEST_POINT");
    if (r < 0)
        return r;
    run->lost_objects += count->held_objects; /* the victim is dead */
    run->lost_bytes += count->held_bytes;
    count->held_objects = count->held_bytes = 0;
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
        r = 1;
    else if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return words_set(-EPROTO, "a victim for point %s, passage %u, ended with status %d", point, passage,
                         status);
    status = survive(run, point, false);
    return status < 0 ? status : r;
}

static int trials(struct torture_run *run, unsigned i)
{
    unsigned died = 0;

    for (unsigned n = 0; n < TRIALS; n++) {
        unsigned passage = n < 2 ? n + 1 : random_between(&run->random, 3, LATER_MAX);
        int r = trial(run, points[i], passage, i * TRIALS + n);

        if (r < 0)
            return r;
        died += r > 0;
    }
    printf("  %-20s %u victims died there\n", points[i], died);
    return died > 0 ? 0 : words_set(-EPROTO, "no victim passes the point %s", points[i]);
}

static int wait_keeper(struct torture_run *run)
{
    int r = crew_add(&run->crew, "keeper", keeper_main, 0, false), status;

    while (r >= 0 && !load_acquire(&run->world->n_observer)) { /* pairs with keeper_main() */
        if (waitpid(run->crew.members[0].pid, &status, WNOHANG) != 0)
            return words_set(-ECHILD, "the keeper of the arena ended with status %d", status);
        clock_sleep_ms(1);
    }
    return r;
}

int run_kill_points(const struct torture_options *options)
{
    static struct torture_run run; /* large */
    int r = run_begin(&run, options), finished;

    shared_run = &run;
    if (r >= 0)
        r = wait_keeper(&run);
    for (unsigned i = 0; i < ARRAY_SIZE(points) && r >= 0; i++)
        r = trials(&run, i);
    if (r >= 0)
        r = survive(&run, "all", true);
    if (run.crew.n > 0) {
        finished = crew_finish(&run.crew);
        r = r < 0 ? r : finished;
    }
    run_end(&run, r < 0);
    return r;
}
#else
int run_kill_points(const struct torture_options *options)
{
    (void)options;
    if (words_init() < 0)
        return -ENOMEM;
    return words_set(-ENOTSUP, "this build has no test points; configure it with -Dtest_points=true");
}
#endif
