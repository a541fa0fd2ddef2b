/* SPDX-License-Identifier: MIT */
/* Crew: the processes of a run: started, killed at will, started anew and, in the end, waited for. */
#pragma once

#include <sys/types.h>

#include "world.h"

enum {
    CREW_MAX = PROCESSES_MAX + 8,
};

/* What a process does from fork to exit; its value is the exit status. number: among those of its kind. */
typedef int (*crew_main_fn)(struct world *w, unsigned number, uint64_t incarnation);

struct member {
    pid_t pid;
    const char *kind; /* for people */
    crew_main_fn main;
    unsigned number;
    bool reckless; /* it may end as it likes, by a signal too; a status of 1 is a failure all the same */
    bool killed;   /* by us */
};

struct crew {
    struct world *world;
    struct member members[CREW_MAX];
    unsigned n;
    uint64_t incarnations, kills, killed_by_others, ends;
    bool others_kill; /* the daemon may, for stalling */
    void (*lost)(struct crew *c,
                 const struct member *m); /* a process was killed; before the next takes its place */
};

/* Starts one more. -errno with words_set(). */
int crew_add(struct crew *c, const char *kind, crew_main_fn main, unsigned number, bool reckless);

/* Whoever ended is started anew, unless it must not have ended. -errno with words_set(). */
int crew_look_after(struct crew *c);

/* Kills one and waits for its end; the next crew_look_after() starts it anew. */
void crew_kill(struct crew *c, struct member *m);

/* Waits until all have ended, which they do by themselves. -errno with words_set(), and they are killed. */
int crew_finish(struct crew *c);
