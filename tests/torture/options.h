/* SPDX-License-Identifier: MIT */
/* Options: what can be typed. After options_parse() every field is what is run. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    READERS_MAX = 64,
    WRITERS_MAX = 32,
    PROCESSES_MAX = 32,
};

struct torture_options {
    uint64_t duration_usec, n_readers, n_writers, n_processes, seed, arena_bytes;
    bool kill_clients, kill_points, hostile, tune, broken;
    bool signals;
    bool help;
    const char *runtime_directory; /* argv's own */
};

/* 0, or -EINVAL with one line in message: what, where, what would be right. */
int options_parse(int argc, char **argv, struct torture_options *ret, char *message, size_t size);

void options_print_help(void);
