/* SPDX-License-Identifier: MIT */
/*
 * What the two halves of demo-load share: demo-work.c does what the processes do, demo-load.c starts them,
 * watches them and prints the figures.
 */
#ifndef DEMO_LOAD_H
#define DEMO_LOAD_H

#include <reclaim/reclaim.h>

#define N_PROCESSES_MAX 64
#define N_TIMES_MAX 4096 /* synchronize calls remembered in a second, a process */

/* What one process has counted. It writes, the parent reads; what is stale shows in the next line. */
struct figures {
    uint64_t n_writes, n_deferred, n_reads, n_torn, n_times;
    uint32_t times_us[N_TIMES_MAX];
};

struct shared {
    int go, stop; /* parent: the table is there; the end has come */
    struct figures figures[N_PROCESSES_MAX];
};

struct options {
    const char *arena;
    int n_writers, n_readers, n_waiters, seconds;
    int rate;        /* objects a second and writer; 0: as many as it can */
    int burst;       /* so many objects, then a writer waits until all is freed; 0: it never waits */
    int n_slots;     /* of the table */
    int pause_usec;  /* of a reader between two sections */
    int extent_each; /* every so manyth object is large; 0: none */
    uint64_t arena_bytes;
};

/* A process's view of the arena. */
struct place {
    struct reclaim *arena;
    struct reclaim_lane *lane;
    void **root;
    void **table; /* n_slots words */
};

extern struct shared *demo_shared;  /* of all processes of one demo-load */
extern struct options demo_options; /* set once, before any process is started */

/* A flag that goes from 0 to 1 once, for all processes: who sees it set sees what was done before. */
int demo_flag_is_set(const int *flag);
void demo_flag_set(int *flag);

void demo_sleep_ns(long ns);
uint64_t demo_now_ns(void);

/* Says on stderr what went wrong, and returns the error. */
int demo_complain(const char *what, int error);

/* Attaches this process; complains when it cannot. */
int demo_place_open(struct place *ret);

/* The parent makes the table, before any child looks. */
int demo_table_make(struct place *place);

/* What a process does until the end has come. 0, or what went wrong, of which it has complained. */
typedef int demo_work_fn(struct place *place, struct figures *figures, uint64_t seed);
demo_work_fn demo_write, demo_read, demo_wait;

#endif
