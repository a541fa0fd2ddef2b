/* SPDX-License-Identifier: MIT */
/*
 * Hostile processes, of another user where we are root: whatever they do, the daemon lives and the honest
 * arena does not notice. All are crew_main_fn.
 */
#pragma once

#include "world.h"

/* Attaches to an arena of its own, then writes all over the channel that it shares with the daemon. */
int hostile_scribble(struct world *w, unsigned number, uint64_t incarnation);

/* Sends anything to both sockets. */
int hostile_talk(struct world *w, unsigned number, uint64_t incarnation);

/*
 * Becomes the other user, for good, and dies of SIGALRM after a while. 1; 0: only root can, so this is the same
 * user still; -errno with words_set().
 */
int hostile_become(void);
