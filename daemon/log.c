/* SPDX-License-Identifier: MIT */
/* The journal or stderr; see log.h. */
#include "log.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

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

void log_message(int level, const char *format, ...)
{
    char line[1024];
    va_list args;

    if (level > log_max_level)
        return;
    va_start(args, format);
    (void)vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    if (log_to_journal)
        (void)sd_journal_print(level, "%s", line);
    else
        (void)fprintf(stderr, "reclaimd: %s\n", line);
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
