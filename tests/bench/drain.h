/* SPDX-License-Identifier: MIT */
/* drain: frees that come by the drop (drain.c), or all at once after a rest (drain-flood.c, --flood). */
#pragma once

#include "run.h"

enum {
    DRAIN_FLOODS_MAX = 100000,
};

struct drain_job {
    struct bench_run *run;
    uint64_t *n_floods;         /* shared, as the next two: of each flood, */
    uint64_t *first_ns, *gp_ns; /* until its first object was free, and what a grace period took then */
};

/* In a worker: allocates and defers so many. */
int drain_free_some(struct team_thread *t, unsigned n);

int drain_flood_prepare(struct drain_job *job);
int drain_flood_run(struct team_thread *t);
int drain_flood_set_figures(const struct drain_job *job, struct figures *f);
