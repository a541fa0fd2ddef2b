/* SPDX-License-Identifier: MIT */
/*
 * Where the daemon's sockets are. Daemon, control tool and library must agree, so all three ask here. The
 * first that applies: the argument (--runtime-directory), $RECLAIMD_RUNTIME_DIRECTORY, /run/reclaimd for
 * root, $XDG_RUNTIME_DIR/reclaimd. Libc only: no allocation, nothing is created or opened.
 */
#pragma once

#include "basic/text.h"

enum {
    RUNTIME_PATH_BYTES = 108, /* sizeof(sun_path), NUL included: a longer path cannot be connected to */
};

struct runtime_paths {
    char directory[RUNTIME_PATH_BYTES];
    char control[RUNTIME_PATH_BYTES]; /* the Varlink socket */
    char client[RUNTIME_PATH_BYTES];  /* where libreclaim attaches */
};

/*
 * 0; -EINVAL: the argument is empty; -ENXIO: an ordinary user without $XDG_RUNTIME_DIR and nothing said;
 * -ENAMETOOLONG: a socket's path would not fit. The argument may be NULL; an empty variable counts as unset.
 */
int runtime_paths_find(const char *argument, struct runtime_paths *ret);

/* What to tell a person about an error of runtime_paths_find(). */
void runtime_error_describe(int error, struct error_line *ret_line);
