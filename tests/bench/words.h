/* SPDX-License-Identifier: MIT */
/*
 * Words: why a run failed. A run is a small family of processes, and the one that fails is seldom the one
 * that talks to the user, so the first failure's line is kept in memory that all of them share.
 */
#pragma once

#include <stddef.h>

#include "basic/macro.h"

enum {
    WORDS_BYTES = 512, /* a line, with a path or two in it */
};

/* Makes the shared line empty; call before the first fork of a run. -errno. */
int words_init(void);

/* Keeps the line unless there is one already. Returns r. */
int words_set(int r, const char *format, ...) _printf_(2, 3);

/* The line, or NULL. */
const char *words_get(void);
