/* SPDX-License-Identifier: MIT */
/*
 * A reader of lines for inih that makes up for what it lets pass: it counts lines, and turns away those that
 * inih would cut, join to the line before, or only report as the first of several. Sections it reads itself,
 * since inih cuts their names below what an arena's may have. inih sees an empty line in place of all these.
 */
#pragma once

#include <stdio.h>

#include "config.h"

enum config_section {
    CONFIG_SECTION_NONE, /* no section has begun */
    CONFIG_SECTION_DAEMON,
    CONFIG_SECTION_ARENA,
    CONFIG_SECTION_WRONG, /* complained of; its keys are skipped */
};

struct config_reader {
    const char *file; /* as it is called in errors */
    FILE *stream;
    struct config_errors *errors;
    unsigned line;  /* of the line that inih looks at now, from 1 */
    size_t n_bytes; /* read so far */
    enum config_section section;
    char arena[ARENA_NAME_BYTES]; /* of which section */
};

/* What ini_parse_stream() calls, with a struct config_reader as its stream. */
char *config_reader_read(char *buffer, int size, void *reader);
