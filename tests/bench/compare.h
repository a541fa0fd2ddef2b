/* SPDX-License-Identifier: MIT */
/*
 * Compare: what is run how often. Entries are backends, settings of the daemon, or both; all of them take
 * turns, so that a machine's moods meet each alike, and each run is a process of its own with a daemon of its
 * own.
 */
#pragma once

#include <stddef.h>

#include "figures.h"
#include "options.h"
#include "run.h"

struct entry {
    char backend[64];
    char setting[256];    /* NAME=VALUE of --compare-set, or empty */
    char label[320];      /* of the two, whatever tells it from the others */
    struct figures *runs; /* n_runs of them */
};

struct comparison {
    const struct bench_options *options;
    const struct bench_test *test;
    struct entry entries[ENTRIES_MAX];
    size_t n_entries;
    size_t n_runs; /* measured */
};

/* From --backend, --compare and --compare-set. -EINVAL with one line in message. */
int comparison_init(struct comparison *c, const struct bench_options *options, const struct bench_test *test,
                    char *message, size_t size);
void comparison_deinit(struct comparison *c);

/* Runs all. -errno, with words_set(); -EINTR after Ctrl-C. */
int comparison_run(struct comparison *c);

/* All settings of an entry, --set first. Returns how many. */
size_t entry_settings(const struct comparison *c, const struct entry *e,
                      const char *ret[static SETTINGS_MAX + 1]);
