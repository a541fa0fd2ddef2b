/* SPDX-License-Identifier: MIT */
/*
 * A client without the library: it sends whatever it is told, and writes whatever it likes into what it was given.
 */
#ifndef RECLAIM_TEST_CASE_RAW_H
#define RECLAIM_TEST_CASE_RAW_H

#include "daemon-fixture.h"

struct raw {
    int socket;
    int fds[ABI_OPEN_FDS];
    struct abi_reply reply;
    const struct abi_domain *domain;
    struct abi_channel *channel;
    struct abi_lane *lane; /* after raw_lane() */
    uint32_t number;
};

int raw_connect(const char *path, int type);
struct abi_request raw_request(uint32_t op, const char *name);
/* Sends bytes of data with n descriptors. False: the peer has hung up. */
bool raw_send(int socket, const void *data, size_t bytes, const int *fds, unsigned n);
/* A whole answer: true. False: the peer has hung up. The descriptors go to fds, or are closed when that is NULL. */
bool raw_receive(int socket, struct abi_reply *ret, int fds[ABI_OPEN_FDS]);
/* The daemon has closed the connection, or does so. */
bool raw_is_closed(int socket);
/* One question, one answer. */
bool raw_ask(int socket, const struct abi_request *request, struct abi_reply *ret);
/* OPEN with the segments mapped. Negative: the answer's error. */
int raw_open(struct raw *raw, const struct daemon *d, const char *arena, uint32_t flags);
void raw_lane(struct raw *raw); /* a lane, owned by this thread as far as the words say */
void raw_ring(const struct raw *raw);
void raw_close(struct raw *raw);

#endif
