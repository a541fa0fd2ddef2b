/* SPDX-License-Identifier: MIT */
/*
 * When readers that hold up a grace period are told of (STALL). A pure decision from a snapshot.
 *
 * Told at stall-timeout, at three times it, and then each time that the age has tripled, but never later than
 * STALL_GAP_USEC, or twice the timeout if that is longer, after the time before: with the usual 21 s at 21 s,
 * 63 s, 189 s, 567 s, and from there every ten minutes.
 *
 * Guarantees
 *  S1 The times follow from the timeout of the moment and from when it was told last, so a changed one acts
 *     on a stall under way, and nothing is told twice for one time.
 *  S2 However long a stall lasts, the next time is at most that gap away.
 *  S3 A kill that was asked for happens once a grace period as soon as the timeout is over, also when
 *     stall-action is changed later, and is tried again each time that the stall is told of.
 */
#ifndef RECLAIMD_ENGINE_STALL_H
#define RECLAIMD_ENGINE_STALL_H

#include <stdbool.h>
#include <stdint.h>

#define STALL_NEVER UINT64_MAX
#define STALL_GAP_USEC                                                                                       \
    600000000ull /* ten minutes: often enough for who comes to look, too seldom to fill a log */

struct stall_input {
    uint64_t timeout_usec; /* STALL_NEVER: off */
    uint64_t waited_usec;  /* by the grace period, since it began */
    uint64_t told_usec;    /* how long it had waited when it was told of last; 0: not yet */
    bool kill, killed;     /* wanted now; done in this grace period */
};

struct stall_decision {
    bool tell, kill;
    uint64_t next_usec; /* look again once it has waited so long, or STALL_NEVER */
};

struct stall_decision stall_decide(const struct stall_input *in);

#endif
