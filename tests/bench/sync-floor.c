/* SPDX-License-Identifier: MIT */
/*
 * sync, backend floor: what no service in another process can beat. The client writes an eventfd and sleeps
 * on a futex; the server reads the eventfd, does one membarrier over all processes, and wakes everybody who
 * asked before it.
 */
#include <errno.h>
#include <linux/membarrier.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "basic/macro.h"
#include "basic/ordering.h"
#include "futex.h"
#include "sync.h"
#include "words.h"

enum {
    WAIT_MS = 1000,
    WAITS_MAX = 60, /* after a minute the server must be dead */
};

struct floor_ticket { /* one a waiter */
    uint32_t asked;   /* the waiter writes: its newest call */
    uint32_t done;    /* the server writes: the newest call served; the waiter sleeps on it */
    uint32_t taken;   /* the server's own: asked, as the barrier began */
} __attribute__((aligned(CACHE_LINE_BYTES)));

struct floor {
    int bell;
    pid_t server;
    size_t n_tickets;
    struct floor_ticket tickets[];
};

/* Pairs with the compiler barriers of whoever registered. */
static int global_membarrier(int command)
{
    return syscall(SYS_membarrier, command, 0, 0) < 0 ? -errno : 0;
}

/* One round: note who asked, one barrier, then answer those and nobody who came later. */
static void floor_serve(struct floor *f)
{
    for (size_t i = 0; i < f->n_tickets; i++)
        f->tickets[i].taken = load_acquire(&f->tickets[i].asked); /* pairs with floor_synchronize() */
    if (global_membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED) < 0)
        _exit(EXIT_FAILURE);
    for (size_t i = 0; i < f->n_tickets; i++) {
        if (f->tickets[i].taken == f->tickets[i].done)
            continue;
        store_release(&f->tickets[i].done,
                      f->tickets[i].taken); /* after the barrier; pairs with floor_synchronize() */
        futex_wake(&f->tickets[i].done, 1);
    }
}

static void floor_server_main(struct floor *f)
{
    uint64_t n;

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (read(f->bell, &n, sizeof(n)) == (ssize_t)sizeof(n))
        floor_serve(f);
    _exit(EXIT_FAILURE);
}

/* As libreclaim's clients are, so that the server's barrier has somebody to reach; pairs with floor_serve(). */
static int floor_register(void)
{
    int r = global_membarrier(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED);

    return r < 0 ? words_set(r, "membarrier: %s", strerror(-r)) : 0;
}

/* The server is a process of its own, as the daemon is. */
static int floor_prepare(struct sync_job *job)
{
    size_t n = job->run->options->n_threads;
    struct floor *f = team_share(sizeof(*f) + n * sizeof(f->tickets[0]));
    pid_t pid;

    if (!f)
        return words_set(-ENOMEM, "no memory for %zu waiters", n);
    f->n_tickets = n;
    f->bell = eventfd(0, EFD_CLOEXEC);
    if (f->bell < 0)
        return words_set(-errno, "eventfd: %s", strerror(errno));
    pid = fork(); /* into a local: the child shares f */
    if (pid < 0)
        return words_set(-errno, "cannot fork: %s", strerror(errno));
    if (pid == 0)
        floor_server_main(f);
    f->server = pid;
    job->shared = f;
    /* the run's process, which only samples: with the daemon it is a client, whom a barrier reaches, too */
    return floor_register();
}

static void floor_finish(struct sync_job *job)
{
    struct floor *f = job->shared;

    (void)kill(f->server, SIGKILL);
    (void)waitpid(f->server, NULL, 0);
    (void)close(f->bell);
}

static int floor_process_init(void *job, void **ret)
{
    return floor_register();
}

static int floor_synchronize(struct floor *f, struct floor_ticket *ticket)
{
    uint32_t call = ticket->asked + 1, done, n_waits = 0;
    const uint64_t one = 1;

    store_release(&ticket->asked, call); /* after what came before the call; pairs with floor_serve() */
    if (write(f->bell, &one, sizeof(one)) != (ssize_t)sizeof(one))
        return words_set(-errno, "eventfd: %s", strerror(errno));
    while ((done = load_acquire(&ticket->done)) !=
           call) { /* what comes after the call; pairs with floor_serve() */
        if (n_waits++ == WAITS_MAX)
            return words_set(-ETIMEDOUT, "the floor's server does not answer");
        futex_wait(&ticket->done, done, WAIT_MS);
    }
    return 0;
}

static int floor_thread_run(struct team_thread *t)
{
    const struct sync_job *job = t->job;
    uint64_t *latencies = sync_latencies(t, job->latencies);
    struct floor *f = job->shared;

    for (uint64_t i = 0; i < job->n_calls; i++) {
        uint64_t start;
        int r;

        sync_meet(job);
        start = clock_now_ns();
        r = floor_synchronize(f, &f->tickets[t->index]);
        if (r < 0)
            return r;
        latencies[i] = clock_now_ns() - start;
    }
    t->n_done = job->n_calls;
    return 0;
}

const struct sync_backend sync_floor = {
    .name = "floor",
    .ops = {.process_init = floor_process_init, .thread_run = floor_thread_run},
    .prepare = floor_prepare,
    .finish = floor_finish,
};
