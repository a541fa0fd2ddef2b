/* SPDX-License-Identifier: MIT */
/*
 * Words for people: the one-line error that travels beside a negative errno, safe quoting of what somebody
 * else typed or sent, and the nearest known name for a mistyped one.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "basic/macro.h"

enum {
    ERROR_LINE_BYTES = 320, /* room for a quoted value, a long path's end and advice; longer lines are cut */
    QUOTED_TEXT_BYTES = 64, /* enough to recognise what was typed */
};

/* What went wrong, where and what would be right, without a newline. */
struct error_line {
    char text[ERROR_LINE_BYTES];
};

/* Formats the line (NULL: nobody wants it) and returns the error, so that a caller may forward it at once. */
int error_line_set(struct error_line *line, int error, const char *format, ...) _printf_(3, 4);

struct text_quoted {
    char text[QUOTED_TEXT_BYTES];
};

/*
 * A copy that is safe to print on a terminal, in a log and in JSON: bytes outside printable ASCII become '?',
 * a long text ends in "...". The result lives until the end of the full expression: text_quote(s).text.
 */
struct text_quoted text_quote(const char *text);

/*
 * The candidate that the word is most likely a mistyping of, or NULL when none is near. get() returns the
 * i-th candidate and NULL after the last one.
 */
const char *text_nearest(const char *word, const char *(*get)(size_t i));

/* Skips leading blanks and cuts trailing ones, in place. */
char *text_strip(char *text);

/* The same text, or both NULL. */
bool text_equal(const char *a, const char *b);
