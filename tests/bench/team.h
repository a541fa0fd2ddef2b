/* SPDX-License-Identifier: MIT */
/*
 * Team: processes with threads that do one job together, measured from a common start until their work is
 * freed.
 *
 *     coordinator (the run's process)            workers
 *     fork                                       wait
 *     hooks: before_attach                       wait
 *                                                process_init, thread_init: may attach to the daemon
 *     hooks: before_start, once all are ready    wait
 *                                                thread_run, thread_flush; one process_barrier a process
 *     hooks: after_end, once all are through     wait
 *                                                thread_deinit, process_deinit, exit
 *
 * Thread 0 of a process is its main thread, so that a process with one thread really is single-threaded. All
 * functions return 0 or a negative errno, with words_set() for the user; the first failure ends the team.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct team_thread {
    unsigned index;   /* among all threads of the team */
    unsigned process; /* which process it is in */
    unsigned n_in_process;
    void *job;                 /* the team's */
    void *process_data, *data; /* the worker's own: set by process_init and thread_init */
    uint64_t retries;          /* counted by thread_run */
    uint64_t n_done;           /* objects, calls: counted by thread_run */
};

struct team_ops {
    int (*process_init)(void *job, void **ret_process_data); /* may be NULL, as all but thread_run */
    int (*thread_init)(struct team_thread *t);
    int (*thread_run)(struct team_thread *t);
    int (*thread_flush)(struct team_thread *t); /* until this thread's own objects are freed */
    int (*process_barrier)(
        struct team_thread *t); /* until the process's objects are freed; in its main thread */
    bool barrier_covers_all;    /* the last process's barrier is enough */
    void (*thread_deinit)(struct team_thread *t);
    void (*process_deinit)(void *process_data);
};

struct team_hooks {
    int (*before_attach)(void *userdata, const pid_t *pids, unsigned n_pids);
    int (*before_start)(void *userdata);
    int (*after_end)(void *userdata);
    void *userdata;
};

struct team_result {
    uint64_t total_ns;    /* first start to last end of thread_run */
    uint64_t freed_ns;    /* first start to the end of the last flush or barrier */
    uint64_t mean_run_ns; /* of one thread's thread_run */
    uint64_t cpu_ns;      /* user and system time of all processes, start to freed */
    uint64_t n_done, retries;
};

int team_run(const struct team_ops *ops, void *job, unsigned n_processes, unsigned n_threads,
             const struct team_hooks *hooks, struct team_result *ret);

/* Memory that the team shares, zeroed; made before team_run(). NULL and errno. Gone with the run's process.
 */
void *team_share(size_t bytes);
