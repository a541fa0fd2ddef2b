/* SPDX-License-Identifier: MIT */
/* Books: what the daemon's control socket says of one arena. */
#pragma once

#include <stdint.h>

struct books {
    uint64_t grace_periods, batches, drains, purges_queued, holes;
    uint64_t freed_objects, pending_objects, refused_records, backed_bytes;
    uint64_t gp_last_usec;
    uint64_t synchronizes, callbacks_ahead;                            /* callbacks_ahead: of all these */
    uint64_t direct_wakes, worker_wakes, fifo_wakes, max_direct_wakes; /* who woke them */
    double objects_per_page;
};

/* What the daemon counts for all arenas together. */
struct daemon_books {
    uint64_t callbacks_waiting, n_callbacks; /* entries in the callback FIFO now, and all that ran */
    uint64_t n_membarriers;
};

/* One connection for as many questions as one likes. control: path of the socket. All: -errno, with
 * words_set(). */
struct varlink_client;
int books_connect(const char *control, struct varlink_client **ret);
int books_read(struct varlink_client *client, const char *arena, struct books *ret);
int books_read_daemon(struct varlink_client *client, struct daemon_books *ret);

/* One of an arena's own, for as long as the arena is there. */
int books_set_parameter(struct varlink_client *client, const char *arena, const char *name,
                        const char *value);
