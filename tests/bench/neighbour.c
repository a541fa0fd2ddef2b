/* SPDX-License-Identifier: MIT */
/* Starting and ending neighbours, and telling them what to do. */
#include "neighbour.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "basic/ordering.h"
#include "futex.h"
#include "run.h"
#include "words.h"

enum {
    CHECK_MS = 100, /* how often whoever waits looks whether the other still lives */
    STALL_CHECKS = 100,
};

static int (*const mains[])(const struct bench_run *run, struct neighbour_shared *s) = {
    [NEIGHBOUR_FIFO] = neighbour_fifo_main,
    [NEIGHBOUR_UPDATES] = neighbour_updates_main,
    [NEIGHBOUR_STALL] = neighbour_stall_main,
};
assert_cc(ARRAY_SIZE(mains) == _NEIGHBOUR_MAX);

static bool is_wanted(enum neighbour_kind kind, const struct bench_options *o)
{
    const bool wanted[_NEIGHBOUR_MAX] = {
        [NEIGHBOUR_FIFO] = o->n_callbacks,
        [NEIGHBOUR_UPDATES] = o->n_updates,
        [NEIGHBOUR_STALL] = o->stalled_neighbour,
    };

    return wanted[kind];
}

int neighbours_prepare(struct neighbour *all, const struct bench_options *options)
{
    for (enum neighbour_kind kind = 0; kind < _NEIGHBOUR_MAX; kind++) {
        if (!is_wanted(kind, options))
            continue;
        all[kind].shared = team_share(sizeof(*all[kind].shared));
        if (!all[kind].shared)
            return words_set(-ENOMEM, "no memory for a neighbour");
    }
    return 0;
}

/* Whether it ended, which it does only when told to, or when it failed. */
static int check(struct neighbour *n)
{
    int status;

    if (waitpid(n->pid, &status, WNOHANG) <= 0)
        return 0;
    n->pid = 0;
    return words_set(-ECHILD, "a neighbour of the test ended early (status %#x)", (unsigned)status);
}

int neighbour_start(struct neighbour *all, enum neighbour_kind kind, const struct bench_run *run)
{
    struct neighbour *n = &all[kind];

    if (!n->shared)
        return 0;
    n->pid = fork();
    if (n->pid < 0)
        return words_set(-errno, "cannot fork a neighbour: %s", strerror(errno));
    if (n->pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        _exit(mains[kind](run, n->shared) < 0 ? EXIT_FAILURE : EXIT_SUCCESS);
    }
    while (!load_acquire(&n->shared->ready)) { /* what it did before; pairs with neighbour_is_ready() */
        int r = check(n);

        if (r < 0)
            return r;
        futex_wait(&n->shared->ready, 0, CHECK_MS);
    }
    return 0;
}

static int stop(struct neighbour *n, bool force)
{
    int status = 0;

    if (n->pid <= 0)
        return 0;
    store_relaxed(&n->shared->stop, 1); /* waited for below, so nothing needs its order */
    futex_wake(&n->shared->stop, INT32_MAX);
    futex_wake(&n->shared->want_stall, INT32_MAX);
    if (force)
        (void)kill(n->pid, SIGKILL);
    (void)waitpid(n->pid, &status, 0);
    n->pid = 0;
    return force || status == 0 ? 0 : words_set(-ECHILD, "a neighbour of the test failed");
}

int neighbours_stop(struct neighbour *all, bool force)
{
    int r = 0;

    for (enum neighbour_kind kind = 0; kind < _NEIGHBOUR_MAX; kind++) {
        int error = stop(&all[kind], force);

        r = r < 0 ? r : error;
    }
    return r;
}

bool neighbour_goes_on(struct neighbour_shared *s)
{
    return !load_relaxed(&s->stop); /* as in stop() */
}

void neighbour_is_ready(struct neighbour_shared *s)
{
    store_release(&s->ready, 1); /* after what made it so; pairs with neighbour_start() */
    futex_wake(&s->ready, INT32_MAX);
}

int neighbour_stall(struct neighbour_shared *s, bool stall)
{
    store_relaxed(&s->want_stall, stall); /* one word, nothing beside it */
    futex_wake(&s->want_stall, INT32_MAX);
    for (unsigned i = 0; i < STALL_CHECKS; i++) {
        if (load_acquire(&s->is_stalled) == stall) /* pairs with neighbour_stall_main() */
            return 0;
        futex_wait(&s->is_stalled, !stall, CHECK_MS);
    }
    return words_set(-ETIMEDOUT, "the neighbour does not %s", stall ? "stall" : "let go");
}
