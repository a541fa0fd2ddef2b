/* SPDX-License-Identifier: MIT */
/*
 * sync --callbacks: a process that defers so many objects, each a callback of its own, that about as many
 * entries as asked for wait in the daemon's FIFO all the time; what a waiter behind them goes through is the
 * source's complaint.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "basic/cleanup.h"
#include "basic/ordering.h"
#include "basic/varlink-frame.h"
#include "futex.h"
#include "sync.h"
#include "words.h"

enum {
    LOOK_MS = 1, /* how often the flooder asks: each answer costs the daemon's main thread some 50 us */
    IN_FLIGHT_FACTOR = 8, /* deferred and not freed, at most so many times the entries wanted: most wait for a
                             grace period */
    FILL_TRIES = 20000,   /* looks until the FIFO must have been full once */
    OBJECT_BYTES = 32,
    STEP_MS = 100,
};

struct flooder {
    const struct sync_job *job;
    struct sync_flood *flood;
    struct reclaim *reclaim;
    struct reclaim_lane *lane;
    struct varlink_client *control;
    uint64_t n_deferred, n_waiting, n_freed;
};

static void set_state(struct sync_flood *f, enum sync_flood_state state)
{
    store_release(&f->state, state); /* after the counts; pairs with the loads of state below */
    futex_wake(&f->state, INT32_MAX);
}

static int flooder_attach(struct flooder *f)
{
    int r = run_open_arena(f->job->run, 0, &f->reclaim);

    if (r < 0)
        return r;
    r = reclaim_lane_get(f->reclaim, &f->lane);
    if (r < 0)
        return run_library_failed(r, "reclaim_lane_get");
    return books_connect(f->job->run->service.paths.control, &f->control);
}

/* As many more as there are missing in the FIFO, unless enough are on their way. */
static int flooder_top_up(struct flooder *f)
{
    uint64_t wanted = f->job->n_callbacks, in_flight = f->n_deferred - f->n_freed;

    if (f->n_waiting >= wanted || in_flight >= wanted * IN_FLIGHT_FACTOR)
        return 0;
    for (uint64_t i = 0; i < wanted; i++) {
        void *p = reclaim_alloc(f->lane, OBJECT_BYTES);
        int r = p ? reclaim_defer_free(f->lane, p) : -errno;

        if (r == -EAGAIN)
            continue;
        if (r < 0)
            return run_library_failed(r, "reclaim_alloc or reclaim_defer_free");
        f->n_deferred++;
    }
    return 0;
}

static int flooder_step(struct flooder *f)
{
    int r = flooder_top_up(f);

    if (r < 0)
        return r;
    clock_sleep_ms(LOOK_MS);
    return books_read_callbacks(f->control, &f->n_waiting, &f->n_freed);
}

static int flooder_fill(struct flooder *f)
{
    for (unsigned i = 0; i < FILL_TRIES; i++) {
        int r = flooder_step(f);

        if (r < 0 || f->n_waiting >= f->job->n_callbacks)
            return r;
    }
    return words_set(-ETIMEDOUT, "the callback FIFO never held %llu entries: is batching=no in force?",
                     (unsigned long long)f->job->n_callbacks);
}

static int flooder_run(struct flooder *f)
{
    int r = flooder_attach(f);

    if (r >= 0)
        r = flooder_fill(f);
    if (r < 0)
        return r;
    set_state(f->flood, SYNC_FLOOD_FULL);
    while (load_acquire(&f->flood->state) != SYNC_FLOOD_STOP) { /* pairs with set_state() */
        r = flooder_step(f);
        if (r < 0)
            return r;
        f->flood->n_waiting += f->n_waiting;
        f->flood->n_samples++;
    }
    return 0;
}

static void flooder_main(struct sync_job *job, struct sync_flood *flood)
{
    struct flooder f = {.job = job, .flood = flood};

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (load_acquire(&flood->state) == SYNC_FLOOD_IDLE) /* pairs with set_state() */
        futex_wait(&flood->state, SYNC_FLOOD_IDLE, STEP_MS);
    if (flooder_run(&f) < 0)
        set_state(flood, SYNC_FLOOD_STOP);
    _exit(EXIT_SUCCESS);
}

int sync_flood_start(struct sync_job *job, struct sync_flood **ret)
{
    struct sync_flood *f = team_share(sizeof(*f));
    pid_t pid;

    if (!f)
        return words_set(-ENOMEM, "no memory for the flooder");
    pid = fork(); /* into a local: the child shares f */
    if (pid < 0)
        return words_set(-errno, "cannot fork: %s", strerror(errno));
    if (pid == 0)
        flooder_main(job, f);
    f->pid = pid;
    *ret = f;
    return 0;
}

void sync_flood_end(struct sync_flood *f)
{
    (void)kill(f->pid, SIGKILL);
    (void)waitpid(f->pid, NULL, 0);
}

int sync_flood_begin(struct sync_flood *f, uint32_t n_waiters)
{
    uint32_t state;

    if (fetch_add_relaxed(&f->n_plain, 1) + 1 == n_waiters)
        set_state(f, SYNC_FLOOD_FILLING);
    while ((state = load_acquire(&f->state)) < SYNC_FLOOD_FULL) /* pairs with set_state() */
        futex_wait(&f->state, state, STEP_MS);
    return state == SYNC_FLOOD_FULL ? 0 : words_set(-ECANCELED, "the flooder failed");
}

void sync_flood_leave(struct sync_flood *f, uint32_t n_waiters)
{
    if (fetch_add_relaxed(&f->n_through, 1) + 1 == n_waiters)
        set_state(f, SYNC_FLOOD_STOP);
}
