/* SPDX-License-Identifier: MIT */
/*
 * The two listening sockets: from the service manager (LISTEN_FDNAMES client and control), or made in the
 * runtime directory, which is locked for the daemon's life so that a second one there is refused in words. A
 * stale socket is replaced, a live one is not.
 */
#ifndef RECLAIMD_SOCKETS_H
#define RECLAIMD_SOCKETS_H

#include <stdbool.h>

#include "basic/runtime.h"

struct sockets {
    int control_fd, client_fd; /* taken by whoever serves them: steal_fd() */
    int lock_fd;
    struct runtime_paths paths;
    bool made; /* ours to remove */
};

/* Errors are one line in why. */
int sockets_open(const char *runtime_directory, struct sockets *ret, struct error_line *why);
void sockets_close(struct sockets *s);

#endif
