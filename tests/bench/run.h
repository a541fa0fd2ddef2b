/* SPDX-License-Identifier: MIT */
/*
 * Run: one measurement of one backend in a process of its own, with what every test needs around its team:
 * daemon, arena, sampler, and the figures that are the same for all.
 */
#pragma once

#include <reclaim/reclaim.h>
#include <stdbool.h>

#include "basic/parse.h"
#include "books.h"
#include "figures.h"
#include "neighbour.h"
#include "options.h"
#include "sampler.h"
#include "service.h"
#include "team.h"

struct bench_run {
    const struct bench_options *options;
    const char *backend;
    const char *directory;   /* private and empty, removed afterwards */
    struct figures *figures; /* shared with the process that started the run */
    struct service service;  /* pid 0: the backend needs none */
    char arena[ARENA_NAME_BYTES];
    struct reclaim *reclaim; /* the coordinator's own handle, which keeps the arena */
    struct sampler sampler;
    struct neighbour neighbours[_NEIGHBOUR_MAX];
    struct varlink_client *control;   /* from the arena's making until the team's end */
    struct books books;               /* as the workers start */
    struct daemon_books daemon_books; /* the same */
    uint64_t daemon_cpu_ns, wakeups;  /* the same */
};

/* A test of the table in main.c. */
struct bench_test {
    const char *const *backends; /* NULL-terminated; the first is the default */
    enum figure main_figure;     /* what ratios and plots are about */
    int (*run)(struct bench_run *run);
    void (*print)(const struct bench_run *run); /* of one run, for people; still in the run's process */
    const char *(*complain)(
        const struct figures *f); /* may be NULL: why a run that went through is a failure */
};

/* Whether the backend is the daemon's: reclaim, or a variant that is called reclaim-something. */
bool run_uses_daemon(const char *backend);

/* Opens the run's arena in this process. -errno, with words_set(). */
int run_open_arena(const struct bench_run *run, unsigned flags, struct reclaim **ret);

/* The same of another one. */
int run_open_arena_named(const struct bench_run *run, const char *name, unsigned flags, uint64_t bytes,
                         struct reclaim **ret);

/* Runs the team and fills in what is the same for all tests: times of client and daemon, books, wake-ups,
 * footprint. */
int run_team(struct bench_run *run, const struct team_ops *ops, void *job, struct team_result *ret);

/* A failed call of the library, in words. Returns r. */
int run_library_failed(int r, const char *call);
