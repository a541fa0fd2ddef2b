/* SPDX-License-Identifier: MIT */
/*
 * Threads of a worker process. Each has a place in the world (readers first), which the next thread in that
 * place takes over, also after the process was killed.
 *
 *   worker.c   the process: opens the arena, starts threads, starts them anew, closes, opens again
 *   reader.c   a thread's life as a reader
 *   writer.c   as a writer
 *   handler.c  the signal handler that reads in the middle of either
 */
#pragma once

#include "object.h"

enum {
    HELD_MAX = 8, /* objects that a writer has taken out and not yet given to the daemon */
    SEEN_MAX = 3, /* objects that one read section looks at */
};

/* An object that somebody saw, and what it was then. */
struct seen {
    const void *object;
    uint64_t id;
};

struct torture_thread {
    struct world *world;
    struct reclaim *reclaim;
    struct reclaim_lane *lane;
    struct board *board;
    struct thread_count *count;
    struct torture_random random;
    unsigned place;        /* in the world */
    uint32_t next;         /* writer: where to look for an entry, from the first of its own */
    uint64_t end_ns;       /* of this life */
    const uint32_t *pause; /* its process wants to close the arena */
};

static inline bool thread_is_writer(const struct torture_thread *t)
{
    return t->place >= t->world->options.n_readers;
}

static inline bool thread_stops(const struct torture_thread *t)
{
    return world_stops(t->world) || load_relaxed(t->pause); /* a moment late is harmless */
}

static inline uint32_t cell_random(struct torture_random *random)
{
    return random_below(random, random_one_in(random, 2) ? CELLS_HOT : CELLS);
}

void reader_live(struct torture_thread *t);
void writer_live(struct torture_thread *t);

/* A writer's next n acts. */
void writer_act(struct torture_thread *t, unsigned n);

/* One act that fills the ring and more. */
void writer_burst(struct torture_thread *t);

/* One whole read section: looks, waits, looks again. */
void reader_section(struct torture_thread *t);

/* In a section: an object of a random cell, verified. False: the cell is empty, or it failed. */
bool reader_look(struct torture_thread *t, struct seen *ret);

/* The worker's signal action, once a process. */
int handler_install(void);

/* From now on a signal up to 10,000 times a second reads with this thread's lane, until the lane is NULL. */
int handler_start(const struct torture_thread *t);
void handler_stop(void);
/* Between two lives a thread has no lane. */
void handler_set_lane(const struct torture_thread *t);

/* A process, from fork to exit: 0, or 1 when the run is to fail. */
int worker_main(struct world *w, unsigned process, uint64_t incarnation);
