/* SPDX-License-Identifier: MIT */
/*
 * Tickets: synchronize, gp_wait and barrier as clients ask for them. A lane's thread waits for one at a
 * time, the newest; those that it gave up (timeout, signal) run to their end beside it, and the newest does
 * not wait for them until there are TICKETS_A_LANE.
 *
 * The client stores `ticket` (release) and rings; the grace-period thread sees the new sequence and serves
 * it; whoever completes it stores ticket_done, fences, and wakes the futex if ticket_waiting says so.
 *
 * Guarantees (spin: tests/model/ticket.pml)
 *  T1 The newest ticket is served: at the bell that came after it, or, if none was IDLE then, when one
 *     becomes it: `starved`, a fence, then one more look for an idle one; IDLE, a fence, then a look at
 *     `starved`.
 *  T2 Only the newest ticket's end is told, and no end of an older one afterwards: those who complete take
 *     turns, and each looks whether its own is still the newest.
 */
#ifndef RECLAIMD_TICKET_H
#define RECLAIMD_TICKET_H

#include "client.h"

struct arena;
struct grace;

/* Grace-period thread: is there a new ticket in this lane? Serves it. */
void ticket_look(struct grace *g, struct arena *a, struct client_lane *cl);

void tickets_init(struct client_lane *cl);
void tickets_deinit(struct client_lane *cl);

/* The arena's worker: none is on anybody's list. */
bool tickets_are_idle(const struct client_lane *cl);

/* Ends it with 0 or a negative errno. Grace-period thread or a worker, whoever has it. */
void ticket_complete(struct ticket *t, int error);

#endif
