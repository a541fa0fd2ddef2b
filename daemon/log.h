/* SPDX-License-Identifier: MIT */
/* Messages for whoever runs the daemon: to the journal when it is our stderr, else to stderr. One layer logs
 * each failure. */
#ifndef RECLAIMD_LOG_H
#define RECLAIMD_LOG_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <syslog.h>

#include "basic/macro.h"

/* Messages above this level (LOG_ERR .. LOG_DEBUG) are dropped. Called once, before any thread. */
void log_init(int max_level);

void log_message(int level, const char *format, ...) _printf_(2, 3);

/*
 * What a message says once more for machines: fields NAME=value of the journal, added one by one. On stderr
 * they are left out. What is too long is cut, what is too much is a mistake in here.
 */
#define LOG_FIELDS_MAX 16u
#define LOG_FIELD_BYTES 96u /* the longest name, an arena's name or a quoted text */

struct log_fields {
    unsigned n;
    char text[LOG_FIELDS_MAX][LOG_FIELD_BYTES];
};

void log_fields_add(struct log_fields *f, const char *format, ...) _printf_(2, 3);
void log_message_with(int level, const struct log_fields *fields, const char *format, ...) _printf_(3, 4);

#define log_error(...) log_message(LOG_ERR, __VA_ARGS__)
#define log_warning(...) log_message(LOG_WARNING, __VA_ARGS__)
#define log_notice(...) log_message(LOG_NOTICE, __VA_ARGS__)
#define log_info(...) log_message(LOG_INFO, __VA_ARGS__)
#define log_debug(...) log_message(LOG_DEBUG, __VA_ARGS__)

/*
 * At most `burst` messages in `interval_usec`; how many were held back is returned with the first that passes
 * again. Embedded in what is spoken of; one thread uses it.
 */
struct log_rate {
    uint64_t begun_usec;
    uint32_t n_passed, n_held;
};

bool log_rate_pass(struct log_rate *rate, uint64_t now_usec, uint64_t interval_usec, uint32_t burst,
                   uint32_t *ret_held);

#endif
