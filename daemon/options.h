/* SPDX-License-Identifier: MIT */
/* The command line of reclaimd: what was asked for, checked as far as that needs no file. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "config.h"
#include "parameter-store.h"

enum options_action {
    OPTIONS_RUN,
    OPTIONS_CHECK_CONFIG,
    OPTIONS_PRINT_CONFIG,
    OPTIONS_VERSION,
    OPTIONS_HELP,
    OPTIONS_ACTION_MAX,
    OPTIONS_ACTION_INVALID = -1,
};

struct options {
    enum options_action action;
    const char *config_file;           /* RECLAIMD_CONFIG_FILE, or of argv */
    bool config_is_named;              /* with --config: then it must exist */
    const char *runtime_directory;     /* of argv; NULL: not said */
    int log_level;                     /* LOG_ERR .. LOG_DEBUG of syslog.h */
    struct parameter_assignment *sets; /* in the order given: of two for one name the later wins */
    size_t n_sets;
    struct config_arenas arenas;
};

/* -EINVAL: a mistake, in one line of words; -ENOMEM. argv must outlive the options. */
int options_parse(int argc, char *argv[], struct options *ret, struct error_line *ret_why);
void options_deinit(struct options *options);

void options_print_help(FILE *stream);
