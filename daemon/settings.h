/* SPDX-License-Identifier: MIT */
/*
 * All that reclaimd is told before it runs: files and command line, put together into the store of parameters
 * and the list of arenas to make at start.
 */
#pragma once

#include <stdio.h>

#include "config.h"
#include "options.h"
#include "parameter-store.h"

struct settings {
    struct parameter_store *store;
    struct config_arenas arenas; /* of the files, with those of --arena over them */
};

/* As config_load(): -EBADMSG with the errors, or -ENOMEM. */
int settings_load(const struct options *options, struct settings *ret, struct config_errors *errors);

/*
 * Reads the files again: all or nothing. ret_changes tells what changed and what runtime values keep. An
 * arena that is new in the list is for the caller to make; one that is gone from it stays until it is
 * removed.
 */
int settings_reload(struct settings *settings, const struct options *options,
                    struct parameter_changes *ret_changes, struct config_errors *errors);
void settings_deinit(struct settings *settings);

/* All effective values as a configuration file, each with where it comes from. */
void settings_print(const struct settings *settings, FILE *stream);

/* One line each, and how many more there were. */
void config_errors_print(const struct config_errors *errors, FILE *stream);

/*
 * What main() does first: parses, loads, and does what needs no daemon. -1: run it, with both filled in; else
 * the exit status: 0 done, 1 a bad configuration, 2 a bad command line.
 */
int settings_start(int argc, char *argv[], FILE *out, FILE *err, struct options *ret_options,
                   struct settings *ret_settings);
