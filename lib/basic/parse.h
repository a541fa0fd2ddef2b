/* SPDX-License-Identifier: MIT */
/*
 * Reading and writing the values that people type: times and sizes as systemd writes them, percentages,
 * booleans, numbers, arena names, NAME=VALUE and NAME:SIZE.
 *
 * Every parser returns 0, -EINVAL (not such a value) or -ERANGE (such a value, but it does not fit); those
 * that allocate also -ENOMEM. Outputs stay as they are on failure; parse_error_describe() says the error in
 * one line for a person.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "basic/text.h"

#define USEC_PER_MSEC UINT64_C(1000)
#define USEC_PER_SEC UINT64_C(1000000)
#define USEC_PER_MINUTE (60 * USEC_PER_SEC)
#define USEC_PER_HOUR (60 * USEC_PER_MINUTE)
#define USEC_INFINITY UINT64_MAX

enum {
    ARENA_NAME_MAX = 48,                   /* characters */
    ARENA_NAME_BYTES = ARENA_NAME_MAX + 1, /* with the NUL */
    FORMAT_BYTES = 64,                     /* every format_*() result fits */
};

enum parse_kind {
    PARSE_TIME,
    PARSE_SIZE,
    PARSE_PERCENT,
    PARSE_BOOLEAN,
    PARSE_NUMBER,
    PARSE_ARENA_NAME,
    PARSE_ASSIGNMENT, /* NAME=VALUE */
    PARSE_NAME_SIZE,  /* NAME:SIZE */
    PARSE_KIND_MAX,
    PARSE_KIND_INVALID = -22,
};

/* "250ms", "1min 30s", "1.5h", "0"; a number without unit counts seconds. "infinity" is refused. */
int parse_usec(const char *text, uint64_t *ret_usec);

/* The same, where "infinity" is USEC_INFINITY. */
int parse_usec_infinity(const char *text, uint64_t *ret_usec);

/* "64M", "1.5G", "4096": base 1024, B K M G T P E; a number without unit counts bytes. */
int parse_bytes(const char *text, uint64_t *ret_bytes);

/* "25%": 0..100, whole numbers. */
int parse_percent(const char *text, unsigned *ret_percent);

/* yes/no, true/false, on/off, y/n, t/f, 1/0, in any case. */
int parse_boolean(const char *text, bool *ret_boolean);

/* Decimal digits only, min..max inclusive. */
int parse_u64(const char *text, uint64_t min, uint64_t max, uint64_t *ret_number);

/* 1..48 of [A-Za-z0-9._-]. */
bool arena_name_is_valid(const char *name);

/* Splits at the first '='. Both point into one allocation that the caller frees through ret_name. */
int parse_assignment(const char *text, char **ret_name, char **ret_value);

/* "routes:64M": an arena's name and its size. */
int parse_name_size(const char *text, char ret_name[static ARENA_NAME_BYTES], uint64_t *ret_bytes);

/* "'5x' is not a time; write it like 250ms, 1min 30s or 1h". */
void parse_error_describe(enum parse_kind kind, int error, const char *text, struct error_line *ret_line);

/* "1min 30s": exact, parse_usec_infinity() reads it back. */
char *format_usec(uint64_t usec, char ret[static FORMAT_BYTES]);

/* "64M" or "65537": exact, parse_bytes() reads it back. */
char *format_bytes(uint64_t bytes, char ret[static FORMAT_BYTES]);

/* "1.5G", "512B": for reading only, cut to one decimal. */
char *format_bytes_human(uint64_t bytes, char ret[static FORMAT_BYTES]);
