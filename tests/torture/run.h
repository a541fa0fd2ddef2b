/* SPDX-License-Identifier: MIT */
/*
 * Run: the coordinator. It starts everything, kills, tunes, moves the pipe on, tells how it goes, and in the
 * end is the survivor that takes all objects out and asks the daemon for its books.
 */
#pragma once

#include "bench/service.h"
#include "control.h"
#include "crew.h"
#include "pipe.h"
#include "random.h"
#include "tune.h"

struct torture_run {
    const struct torture_options *options;
    struct world *world;
    struct service service;
    char directory[64]; /* a private daemon's, removed in the end */
    struct torture_random random;
    struct reclaim *reclaim;
    struct reclaim_lane *lane;
    struct board *board;
    struct torture_pipe pipe;
    struct crew crew;
    uint64_t start_ns, tell_ns, kill_ns, tune_ns, progress_ns; /* when, or when next */
    uint64_t progress;                                         /* sections and replacements at that time */
    uint64_t lost_objects, lost_bytes; /* at most so much was private to those killed */
    struct tuning tuning;
    uint64_t memory_bytes;      /* the daemon's, at the start */
    struct control_figures end; /* once all is freed */
};

/* The whole run: 0 or -errno with words_set(). Prints its figures. */
int run_torture(const struct torture_options *options);

/* --kill-points: the same. -ENOTSUP: the library has no test points. */
int run_kill_points(const struct torture_options *options);

/* Their common beginning and end: daemon, world, folder. */
int run_begin(struct torture_run *run, const struct torture_options *options);
void run_end(struct torture_run *run, bool failed);

/* The daemon still runs, if it is ours to know. -errno with words_set(). */
int run_check_daemon(struct torture_run *run);

/* Makes arena and board; the coordinator's handle and lane. */
int run_open(struct torture_run *run);

/*
 * Empties all cells, frees the board if wanted, and waits for the books: nothing is pending, so many clients
 * are attached, and none of them has a lane.
 */
int run_empty(struct torture_run *run, bool board, unsigned n_clients);

/* The books must be right: audit, refusals, and beside n_kept objects what is not freed is what was lost. */
int run_judge(struct torture_run *run, unsigned n_kept);

/* One line of how it goes; the table of the end. */
void run_tell(struct torture_run *run, uint64_t now_ns);
void run_tell_end(const struct torture_run *run);
