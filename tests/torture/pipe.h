/* SPDX-License-Identifier: MIT */
/* Pipe: counts each object that was taken out of its cell one up for every whole grace period after that. */
#pragma once

#include "world.h"

struct torture_pipe {
    struct board *board;
    uint64_t *cookies; /* of each entry; 0: none was taken for its present count */
    uint64_t advanced;
};

int pipe_init(struct torture_pipe *p, struct board *board);
void pipe_deinit(struct torture_pipe *p);

/* One look at all entries. -errno with words_set(). */
int pipe_advance(struct torture_pipe *p, struct reclaim *r, struct reclaim_lane *l);
