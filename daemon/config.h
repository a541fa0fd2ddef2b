/* SPDX-License-Identifier: MIT */
/*
 * The configuration files: FILE, then FILE.d/<name>.conf in the order of their names, all into one fresh
 * layer of parameters. What is read later wins. Everything wrong is collected, with file, line and what would
 * be right, and a configuration with anything wrong is not returned, so a bad reload changes nothing.
 *
 *     [reclaimd]            NAME = VALUE of any parameter
 *     [arena routes]        NAME = VALUE of those that an arena may have of its own
 *     size = 64M            and the arena is made at start
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "basic/parse.h"
#include "parameter-store.h"

#ifndef RECLAIMD_CONFIG_FILE
#define RECLAIMD_CONFIG_FILE "/etc/reclaimd/reclaimd.conf"
#endif

enum {
    CONFIG_ERRORS_MAX = 20,              /* a screenful; the rest is counted */
    CONFIG_LINE_MAX = 199,               /* bytes without the newline: what inih reads as one line */
    CONFIG_FILE_BYTES_MAX = 1024 * 1024, /* hundreds of arenas fit; /dev/zero does not */
};

/* An arena that is made at start. */
struct config_arena {
    char name[ARENA_NAME_BYTES];
    uint64_t size_bytes;
    char *file; /* where its size was said; NULL: --arena */
    unsigned line;
};

struct config_arenas {
    struct config_arena *items;
    size_t n;
};

/* A size that an arena can have, from text. -EINVAL or -ERANGE with words. */
int config_arena_size_parse(const char *text, uint64_t *ret_bytes, struct error_line *ret_why);

/* Adds one, or gives one that is there this size and place. -ENOMEM. */
int config_arenas_put(struct config_arenas *arenas, const char *name, uint64_t size_bytes, const char *file,
                      unsigned line);
const struct config_arena *config_arenas_find(const struct config_arenas *arenas, const char *name);
void config_arenas_deinit(struct config_arenas *arenas);

/* What is wrong, each one line of words: "/etc/reclaimd/reclaimd.conf:12: drain-interval: ...". */
struct config_errors {
    char *lines[CONFIG_ERRORS_MAX];
    size_t n;      /* lines that are kept */
    size_t n_more; /* and how many were not */
};

/* Adds "FILE:LINE: words", or "FILE: words" for line 0. */
void config_errors_add(struct config_errors *errors, const char *file, unsigned line, const char *format, ...)
    _printf_(4, 5);
void config_errors_deinit(struct config_errors *errors);

struct config {
    struct parameter_layer *parameters;
    struct config_arenas arenas;
};

/*
 * Reads it all. A missing main file is nothing wrong unless it was named by somebody (file_must_exist). 0;
 * -EBADMSG: something is wrong, `errors` (empty at first) says what; -ENOMEM.
 */
int config_load(const char *file, bool file_must_exist, struct config *ret, struct config_errors *errors);
void config_deinit(struct config *config);
