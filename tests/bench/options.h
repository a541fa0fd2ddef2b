/* SPDX-License-Identifier: MIT */
/*
 * Options: one table of everything that can be typed, from which parsing, --help and the JSON's "options"
 * follow. A number that nobody typed gets the test's own default, so that after options_parse() every field
 * is what is run.
 */
#pragma once

#include <json-c/json.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum bench_test_id {
    TEST_KFREE,
    TEST_READ,
    TEST_SYNC,
    TEST_DRAIN,
    TEST_PURGE,
    TEST_IDLE,
    TEST_ATTACH,
    TEST_POLL,
    _TEST_MAX,
    _TEST_INVALID = -1,
};

enum {
    SETTINGS_MAX = 64,          /* --set: more than there are parameters */
    PURGE_EXTENT_BYTES = 16384, /* a kernel stack on the machine of the sources */
    ENTRIES_MAX = 32, /* what one --compare or --compare-set may list: a table that still fits a screen */
};

struct bench_options {
    enum bench_test_id test;
    const char *backend;
    uint64_t n_threads, n_processes;
    uint64_t n_loops, n_alloc, mult, window;
    uint64_t n_pairs, n_calls, n_callbacks, n_updates, n_waiters, n_clients;
    uint64_t n_purge_allocs, n_purge_burst;
    uint64_t duration_usec, arena_bytes, n_runs;
    bool interleaved, head, expedited, stalled_neighbour, flood;
    const char *settings[SETTINGS_MAX]; /* NAME=VALUE, for the private daemon */
    size_t n_settings;
    const char *compare, *compare_set;
    const char *json_path, *plot_path, *runtime_directory;
    bool help;
};

/*
 * 0, or -EINVAL with one line in message: what, where, what would be right. Strings are argv's own. With
 * --help only `help` (and `test`, if it stood first) are to be looked at.
 */
int options_parse(int argc, char **argv, struct bench_options *ret, char *message, size_t size);

/* The whole help text. */
void options_print_help(void);

/* What was run, as a JSON object: every option that the test uses. NULL: no memory. */
struct json_object *options_to_json(const struct bench_options *options);

const char *test_to_string(enum bench_test_id test);
enum bench_test_id test_from_string(const char *name);
