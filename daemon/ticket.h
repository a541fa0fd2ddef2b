/* SPDX-License-Identifier: MIT */
/*
 * Tickets: synchronize, gp_wait and barrier as clients ask for them, one at a time a lane.
 *
 * The client stores `ticket` (release) and rings; the grace-period thread sees the new sequence and serves
 * it; whoever completes it stores ticket_done, fences, and wakes the futex if ticket_waiting says so. A
 * client that gave up (timeout) and asks anew is served when the old one is done: ticket_complete() looks
 * again after it has become IDLE, and so does the client's bell, so one of the two sees it (spin:
 * tests/model/wait.pml).
 */
#ifndef RECLAIMD_TICKET_H
#define RECLAIMD_TICKET_H

#include "client.h"

struct arena;
struct grace;

/* Grace-period thread: is there a new ticket in this lane? Serves it. */
void ticket_look(struct grace *g, struct arena *a, struct client_lane *cl);

/* Ends it with 0 or a negative errno. Grace-period thread or a worker, whoever has it. */
void ticket_complete(struct ticket *t, int error);

#endif
