/* SPDX-License-Identifier: MIT */
/* Books: what the daemon's control socket says of one arena. */
#pragma once

#include <stdint.h>

struct books {
    uint64_t grace_periods, batches, drains, purges_queued, holes;
    uint64_t freed_objects, pending_objects, refused_records, backed_bytes;
    double objects_per_page;
};

/* The callback FIFO, asked again and again over one connection. */
struct varlink_client;
int books_connect(const char *control, struct varlink_client **ret);
int books_read_callbacks(struct varlink_client *client, uint64_t *ret_waiting, uint64_t *ret_freed_objects);

/* control: path of the socket. -errno, with words_set(). */
int books_read(const char *control, const char *arena, struct books *ret);
