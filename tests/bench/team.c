/* SPDX-License-Identifier: MIT */
/* The team: forks, starts together, waits, adds up. What the processes share is one anonymous mapping. */
#include "team.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "basic/cleanup.h"
#include "basic/macro.h"
#include "basic/ordering.h"
#include "clock.h"
#include "futex.h"
#include "words.h"

enum {
    CHECK_MS = 100, /* how often whoever waits looks whether somebody died: only failures wait that long */
};

enum team_phase {
    PHASE_FORKED,
    PHASE_ATTACH,
    PHASE_RUN,
    PHASE_END,
};

struct team_slot { /* one a thread, each written by that thread alone */
    uint64_t start_ns, end_ns, freed_ns, n_done, retries;
} __attribute__((aligned(CACHE_LINE_BYTES)));

struct team_shared {
    uint32_t phase;     /* coordinator writes, all wait on it */
    uint32_t failed;    /* anybody, once */
    uint32_t n_ready;   /* threads that are initialised; coordinator waits on it */
    uint32_t n_through; /* processes whose objects are freed; coordinator waits on it */
    uint32_t n_run;     /* threads that have run, of all processes */
    uint32_t *n_run_in; /* the same of each process, which waits on it */
    uint64_t *cpu_ns;   /* of each process */
    struct team_slot *slots;
};

struct team {
    const struct team_ops *ops;
    void *job;
    unsigned n_processes, n_threads;
    struct team_shared *shared;
    pid_t *pids;
};

struct team_worker { /* in its process only */
    struct team *team;
    struct team_thread thread;
    pthread_t handle;
    uint64_t cpu_start_ns; /* of the process, as this thread began to run */
};

void *team_share(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    return p == MAP_FAILED ? NULL : p;
}

/* From any process of the team; everybody who waits looks at it. */
static void team_fail(struct team *team)
{
    store_relaxed(&team->shared->failed, 1); /* the words have their own order */
}

static bool team_failed(const struct team *team)
{
    return load_relaxed(&team->shared->failed);
}

/* Adds one and wakes who waits for the count. */
static void count_up(uint32_t *word)
{
    full_fence(); /* what this thread wrote comes before the count; pairs with await() and team_await() */
    (void)fetch_add_relaxed(word, 1);
    futex_wake(word, INT32_MAX);
}

/* In a worker: waits until the word is at least that much, or the team failed. */
static void await(struct team *team, uint32_t *word, uint32_t least)
{
    uint32_t value;

    /* acquire: what was written before the word was raised; pairs with count_up() and set_phase() */
    while ((value = load_acquire(word)) < least && !team_failed(team))
        futex_wait(word, value, CHECK_MS);
}

static void set_phase(struct team *team, enum team_phase phase)
{
    store_release(&team->shared->phase, phase); /* after the hooks; pairs with await() */
    futex_wake(&team->shared->phase, INT32_MAX);
}

/* Of all threads of this process, helpers that a peer's library started included. */
static uint64_t own_cpu_ns(void)
{
    struct rusage usage;

    (void)getrusage(RUSAGE_SELF, &usage);
    return ((uint64_t)usage.ru_utime.tv_sec + (uint64_t)usage.ru_stime.tv_sec) * 1000000000u +
           ((uint64_t)usage.ru_utime.tv_usec + (uint64_t)usage.ru_stime.tv_usec) * 1000u;
}

/* Calls one step of the job unless somebody failed. */
static void worker_step(struct team_worker *w, int (*step)(struct team_thread *t))
{
    if (step && !team_failed(w->team) && step(&w->thread) < 0)
        team_fail(w->team);
}

/* Init and run of one thread; its slot tells the times. */
static void worker_work(struct team_worker *w)
{
    struct team *team = w->team;
    struct team_slot *slot = &team->shared->slots[w->thread.index];

    worker_step(w, team->ops->thread_init);
    count_up(&team->shared->n_ready);
    await(team, &team->shared->phase, PHASE_RUN);
    w->cpu_start_ns = own_cpu_ns();
    slot->start_ns = clock_now_ns();
    worker_step(w, team->ops->thread_run);
    slot->end_ns = clock_now_ns();
    worker_step(w, team->ops->thread_flush);
    slot->freed_ns = clock_now_ns();
    slot->n_done = w->thread.n_done;
    slot->retries = w->thread.retries;
    count_up(&team->shared->n_run);
    count_up(&team->shared->n_run_in[w->thread.process]);
}

/* Lanes and records stay until the coordinator has looked at everything. */
static void worker_end(struct team_worker *w)
{
    await(w->team, &w->team->shared->phase, PHASE_END);
    if (w->team->ops->thread_deinit && !team_failed(w->team))
        w->team->ops->thread_deinit(&w->thread);
}

static void *worker_main(void *userdata)
{
    struct team_worker *w = userdata;

    worker_work(w);
    worker_end(w);
    return NULL;
}

/* The main thread's part after its own run: wait for the siblings, then for the freeing. */
static void process_finish(struct team_worker *main_worker)
{
    struct team *team = main_worker->team;
    struct team_shared *shared = team->shared;
    unsigned process = main_worker->thread.process;

    await(team, &shared->n_run_in[process], main_worker->thread.n_in_process);
    if (!team->ops->barrier_covers_all || load_relaxed(&shared->n_run) == team->n_threads) {
        worker_step(main_worker, team->ops->process_barrier);
        shared->slots[main_worker->thread.index].freed_ns = clock_now_ns();
    }
    shared->cpu_ns[process] = own_cpu_ns() - main_worker->cpu_start_ns;
    count_up(&shared->n_through);
}

/* Threads 1 and up; thread 0 is the caller. */
static int start_siblings(struct team_worker *workers, unsigned n)
{
    for (unsigned i = 1; i < n; i++) {
        int r = pthread_create(&workers[i].handle, NULL, worker_main, &workers[i]);

        if (r != 0)
            return words_set(-r, "cannot start thread %u of a process: %s", i, strerror(r));
    }
    return 0;
}

/* A process of the team, from fork to exit. On failure it just exits: the coordinator sees `failed`. */
static void process_main(struct team *team, unsigned process, unsigned first, unsigned n)
{
    struct team_worker *workers = calloc(n, sizeof(*workers));
    void *process_data = NULL;

    if (!workers)
        return team_fail(team);
    await(team, &team->shared->phase, PHASE_ATTACH);
    if (team->ops->process_init && team->ops->process_init(team->job, &process_data) < 0)
        return team_fail(team);
    for (unsigned i = 0; i < n; i++) {
        workers[i].team = team;
        workers[i].thread = (struct team_thread){.index = first + i,
                                                 .process = process,
                                                 .n_in_process = n,
                                                 .job = team->job,
                                                 .process_data = process_data};
    }
    if (start_siblings(workers, n) < 0)
        return team_fail(team);
    worker_work(&workers[0]);
    process_finish(&workers[0]);
    worker_end(&workers[0]);
    for (unsigned i = 1; i < n && !team_failed(team); i++)
        (void)pthread_join(workers[i].handle, NULL);
    if (team->ops->process_deinit && !team_failed(team))
        team->ops->process_deinit(process_data);
    free(workers);
}

/* Threads are spread as evenly as it goes; the first processes have one more. */
static int team_fork(struct team *team)
{
    unsigned first = 0;

    for (unsigned i = 0; i < team->n_processes; i++) {
        unsigned n = team->n_threads / team->n_processes + (i < team->n_threads % team->n_processes);
        pid_t pid = fork();

        if (pid < 0)
            return words_set(-errno, "cannot fork process %u of the test: %s", i, strerror(errno));
        if (pid == 0) {
            (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
            process_main(team, i, first, n);
            _exit(team_failed(team));
        }
        team->pids[i] = pid;
        first += n;
    }
    return 0;
}

/* Whether one of the processes ended, which none does before PHASE_END unless it failed. */
static int team_check(struct team *team)
{
    for (unsigned i = 0; i < team->n_processes; i++) {
        int status;

        if (team->pids[i] <= 0 || waitpid(team->pids[i], &status, WNOHANG) <= 0)
            continue;
        team->pids[i] = 0;
        if (WIFSIGNALED(status))
            return words_set(-ECHILD, "process %u of the test died of signal %d", i, WTERMSIG(status));
        return words_set(-ECHILD, "process %u of the test ended with status %d", i, WEXITSTATUS(status));
    }
    return team_failed(team) ? words_set(-ECANCELED, "a thread of the test failed") : 0;
}

/* In the coordinator: like await(), and looks after the processes. */
static int team_await(struct team *team, uint32_t *word, uint32_t least)
{
    uint32_t value;

    /* acquire: the slots; pairs with count_up() */
    while ((value = load_acquire(word)) < least) {
        int r = team_check(team);

        if (r < 0)
            return r;
        futex_wait(word, value, CHECK_MS);
    }
    return team_failed(team) ? team_check(team) : 0;
}

/* All processes are gone when this returns, by themselves or, when the run failed, by force. */
static void team_reap(struct team *team, bool force)
{
    for (unsigned i = 0; i < team->n_processes; i++) {
        if (team->pids[i] <= 0)
            continue;
        if (force)
            (void)kill(team->pids[i], SIGKILL);
        (void)waitpid(team->pids[i], NULL, 0);
    }
}

/* From the first thread's start: the wake-up of the team is not part of its work. */
static void team_add_up(const struct team *team, struct team_result *ret)
{
    uint64_t start = UINT64_MAX, end = 0, freed = 0, run = 0;
    struct team_result sum = {0};

    for (unsigned i = 0; i < team->n_threads; i++) {
        const struct team_slot *slot = &team->shared->slots[i];

        start = MIN(start, slot->start_ns);
        end = MAX(end, slot->end_ns);
        freed = MAX(freed, slot->freed_ns);
        run += slot->end_ns - slot->start_ns;
        sum.n_done += slot->n_done;
        sum.retries += slot->retries;
    }
    for (unsigned i = 0; i < team->n_processes; i++)
        sum.cpu_ns += team->shared->cpu_ns[i];
    sum.total_ns = end - start;
    sum.freed_ns = MAX(freed, end) - start;
    sum.mean_run_ns = run / team->n_threads;
    *ret = sum;
}

/* The coordinator's side of the phases. */
static int team_conduct(struct team *team, const struct team_hooks *hooks, struct team_result *ret)
{
    int r = team_fork(team);

    if (r >= 0 && hooks->before_attach)
        r = hooks->before_attach(hooks->userdata, team->pids, team->n_processes);
    if (r < 0)
        return r;
    set_phase(team, PHASE_ATTACH);
    r = team_await(team, &team->shared->n_ready, team->n_threads);
    if (r >= 0 && hooks->before_start)
        r = hooks->before_start(hooks->userdata);
    if (r < 0)
        return r;
    set_phase(team, PHASE_RUN);
    r = team_await(team, &team->shared->n_through, team->n_processes);
    if (r >= 0 && hooks->after_end)
        r = hooks->after_end(hooks->userdata);
    if (r < 0)
        return r;
    set_phase(team, PHASE_END);
    team_add_up(team, ret);
    return 0;
}

static int team_shared_new(struct team *team)
{
    team->shared = team_share(sizeof(*team->shared));
    if (!team->shared)
        return -ENOMEM;
    team->shared->n_run_in = team_share(team->n_processes * sizeof(*team->shared->n_run_in));
    team->shared->cpu_ns = team_share(team->n_processes * sizeof(*team->shared->cpu_ns));
    team->shared->slots = team_share(team->n_threads * sizeof(*team->shared->slots));
    return team->shared->n_run_in && team->shared->cpu_ns && team->shared->slots ? 0 : -ENOMEM;
}

int team_run(const struct team_ops *ops, void *job, unsigned n_processes, unsigned n_threads,
             const struct team_hooks *hooks, struct team_result *ret)
{
    _cleanup_free_ pid_t *pids = calloc(n_processes, sizeof(*pids));
    struct team team = {ops, job, n_processes, n_threads, NULL, pids};
    int r;

    if (!pids || team_shared_new(&team) < 0)
        return words_set(-ENOMEM, "no memory for %u processes and %u threads", n_processes, n_threads);
    r = team_conduct(&team, hooks, ret);
    team_reap(&team, r < 0);
    return r;
}
