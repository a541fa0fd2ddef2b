/* SPDX-License-Identifier: MIT */
/*
 * How a stall is told: to the log with its fields, to those who trace, and to the client itself. Whether and
 * when is grace-stall.c's. The grace-period thread calls all of it.
 */
#ifndef RECLAIMD_STALL_REPORT_H
#define RECLAIMD_STALL_REPORT_H

#include <stdbool.h>
#include <stdint.h>

#include "client.h"

/*
 * The ids of the messages: journalctl MESSAGE_ID=.. finds them, and systemd/reclaimd.catalog explains them.
 * They stay as they are for ever.
 */
#define MESSAGE_STALL "d65d5172b2a242d7b1f5880f56a90954"
#define MESSAGE_STALL_ENDED "074db3454a814723a3622270a960ed87"
#define MESSAGE_STALL_KILLED "03b7f26a9afe4892af3ebe04435cc3bb"
#define MESSAGE_STALL_NOT_KILLED "1bf78164aff4434382b2fefff7b997b6"

/* One reader that holds up, or held up, a grace period. */
struct stall_report {
    struct client *client;
    struct client_lane *lane;
    uint64_t number, usec;   /* which one, and for how long so far or in all */
    uint64_t objects, bytes; /* deferred and not free yet: they wait for it or for a later one */
    uint64_t waiters;        /* of synchronize and the like */
    uint32_t tid;            /* as the client says; 0: not known */
};

/* The thread that has the lane, as the client says, or 0: what it says can be no thread's number. */
uint32_t stall_tid(const struct client_lane *cl);

/* log: whether also to the log, which has its limit. */
void stall_report(struct arena *a, const struct stall_report *r, bool log);
void stall_report_ended(struct arena *a, const struct stall_report *r, bool log);

/* After reports to this client, whatever their number: wakes who listens there. */
void stall_report_wake(struct client *c);

/* error: 0, it is killed; else why it cannot be. */
void stall_report_kill(struct arena *a, const struct client *c, uint64_t number, int error, bool log);

#endif
