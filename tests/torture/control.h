/* SPDX-License-Identifier: MIT */
/* Control: what the daemon says about the run's arena, and what it is told. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "tune.h"

struct control_figures {
    uint64_t clients, lanes, in_use_objects, in_use_bytes, cached_objects, pending_objects, refused_records,
        frees, grace_periods;
};

/* All: -errno with words_set(). path: of the control socket. */
int control_figures(const char *path, const char *arena, struct control_figures *ret);

/* Every invariant of the arena's books: fails with the first complaint. */
int control_audit(const char *path, const char *arena);

/* values: a JSON object of names and texts. arena NULL: the daemon's own. */
int control_set(const char *path, const char *arena, const char *values);

/* The parameters that there are: an arena's, and with_daemon the others too. */
int control_tunables(const char *path, bool with_daemon, struct tunable *tunables, unsigned max,
                     unsigned *ret_n);
