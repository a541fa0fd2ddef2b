/* SPDX-License-Identifier: MIT */
/*
 * Connections of clients: attach, lanes, roots, and how we learn that a process is gone. Main thread.
 *
 *   accepted --OPEN--> attached --EOF--> hung up (until no lane has a live owner) --> leaving
 *                      attached or hung up --pidfd readable--> leaving --its lanes are free--> gone
 *
 * The protocol (abi.h): one fixed request, one fixed reply, one at a time; the next is not read before the
 * last is answered. Anything else, a descriptor among it, ends the connection.
 */
#ifndef RECLAIMD_CONNECTION_H
#define RECLAIMD_CONNECTION_H

#include <stdbool.h>
#include <stdint.h>

#include "client.h"

struct arena;
struct connections;
struct manager;

int connections_new(struct manager *m, struct connections **ret);

/* Closes all; clients are forgotten. No worker and no grace-period thread may run any more. */
struct connections *connections_free(struct connections *cs);

/* Serves a listening SOCK_SEQPACKET socket and closes it in the end. */
int connections_listen(struct connections *cs, int fd);

uint32_t connections_n_clients(const struct connections *cs);

/* Each attached client, in the order of attachment. Stops at a value other than 0 and returns it. */
int connections_visit(struct connections *cs, int (*visit)(void *data, struct client *c), void *data);

/* No more allocations and frees for it; its readers still count until it is gone. */
void connections_evict(struct connections *cs, struct client *c);

/* Worker: a lane has become free: those who wait for one try again. */
void connections_retry_lanes(struct arena *a);

/* The arena is being removed: its clients are cut off. */
void connections_drop_arena(struct connections *cs, struct arena *a);

#endif
