/* SPDX-License-Identifier: MIT */
/* The journal or stderr; see log.h. */
#include "log.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>

#define SD_JOURNAL_SUPPRESS_LOCATION
#include <systemd/sd-journal.h>

static int log_max_level = LOG_INFO;
static bool log_to_journal;

/* JOURNAL_STREAM names the device and inode of the stream that the service manager connected to the journal.
 */
static bool stderr_is_journal(void)
{
    const char *stream = getenv("JOURNAL_STREAM");
    uint64_t device, inode;
    struct stat st;

    return stream && sscanf(stream, "%" SCNu64 ":%" SCNu64, &device, &inode) == 2 && fstat(2, &st) == 0 &&
           st.st_dev == device && st.st_ino == inode;
}

void log_init(int max_level)
{
    log_max_level = max_level;
    log_to_journal = stderr_is_journal();
}

static struct iovec text_iovec(char *text)
{
    return (struct iovec){.iov_base = text, .iov_len = strlen(text)};
}

/* By length, so whatever is in a value stays in it. */
static void log_to_journal_with(int level, const struct log_fields *fields, char *message)
{
    struct iovec iovecs[LOG_FIELDS_MAX + 2];
    char priority[16];
    int n = 0;

    (void)snprintf(priority, sizeof(priority), "PRIORITY=%d", level);
    iovecs[n++] = text_iovec(message);
    iovecs[n++] = text_iovec(priority);
    for (unsigned i = 0; fields && i < fields->n; i++)
        iovecs[n++] = text_iovec((char *)fields->text[i]);
    (void)sd_journal_sendv(iovecs, n);
}

static void log_line(int level, const struct log_fields *fields, const char *format, va_list args)
{
    static const char prefix[] = "MESSAGE=";
    char line[sizeof(prefix) + 1024];

    if (level > log_max_level)
        return;
    (void)strcpy(line, prefix);
    (void)vsnprintf(line + strlen(prefix), sizeof(line) - strlen(prefix), format, args);
    if (log_to_journal)
        log_to_journal_with(level, fields, line);
    else
        (void)fprintf(stderr, "reclaimd: %s\n", line + strlen(prefix));
}

void log_message(int level, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    log_line(level, NULL, format, args);
    va_end(args);
}

void log_message_with(int level, const struct log_fields *fields, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    log_line(level, fields, format, args);
    va_end(args);
}

void log_fields_add(struct log_fields *f, const char *format, ...)
{
    va_list args;

    assert(f->n < LOG_FIELDS_MAX);
    va_start(args, format);
    (void)vsnprintf(f->text[f->n++], LOG_FIELD_BYTES, format, args);
    va_end(args);
}

bool log_rate_pass(struct log_rate *rate, uint64_t now_usec, uint64_t interval_usec, uint32_t burst,
                   uint32_t *ret_held)
{
    if (rate->begun_usec == 0 || now_usec - rate->begun_usec >= interval_usec) {
        *ret_held = rate->n_held;
        *rate = (struct log_rate){.begun_usec = now_usec, .n_passed = 1};
        return true;
    }
    *ret_held = 0;
    if (rate->n_passed < burst) {
        rate->n_passed++;
        return true;
    }
    rate->n_held++;
    return false;
}
