/* SPDX-License-Identifier: MIT */
/* Headroom; see memory.h. Files are read again every few milliseconds at most, or when much was taken since.
 */
#include "memory.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "basic/cleanup.h"
#include "basic/macro.h"
#include "clock.h"

#define FRESH_USEC 20000u /* a reading serves so long .. */
#define FRESH_SHARE 16u   /* .. or until this part of it was taken */
#define UNLIMITED UINT64_MAX

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t reserve_percent = 5;
static uint64_t read_usec, left_bytes, serve_bytes;

static bool read_number(const char *path, uint64_t *ret)
{
    _cleanup_fclose_ FILE *f = fopen(path, "re");

    return f && fscanf(f, "%" SCNu64, ret) == 1; /* "max" is no number: no limit */
}

static void meminfo_read(uint64_t *ret_total, uint64_t *ret_available)
{
    _cleanup_fclose_ FILE *f = fopen("/proc/meminfo", "re");
    char line[128];
    uint64_t kib;

    *ret_total = *ret_available = UNLIMITED;
    while (f && fgets(line, sizeof(line), f)) {
        if (sscanf(line, "MemTotal: %" SCNu64, &kib) == 1)
            *ret_total = kib * 1024;
        else if (sscanf(line, "MemAvailable: %" SCNu64, &kib) == 1)
            *ret_available = kib * 1024;
    }
}

uint64_t memory_total_bytes(void)
{
    uint64_t total, available;

    meminfo_read(&total, &available);
    return total;
}

/* What one control group leaves: limit less use, of whichever limit file is there. */
static uint64_t group_left(const char *directory, const char *limit_name, const char *use_name)
{
    char path[4096 + 32];
    uint64_t limit, use;

    (void)snprintf(path, sizeof(path), "%s/%s", directory, limit_name);
    if (!read_number(path, &limit))
        return UNLIMITED;
    (void)snprintf(path, sizeof(path), "%s/%s", directory, use_name);
    if (!read_number(path, &use))
        return UNLIMITED;
    return limit > use ? limit - use : 0;
}

/* A group and all those above it, up to the root of the hierarchy. */
static uint64_t groups_left(const char *root, const char *group, bool unified)
{
    char directory[4096];
    size_t root_length = strlen(root);
    uint64_t left = UNLIMITED;

    if (snprintf(directory, sizeof(directory), "%s%s", root, group) >= (int)sizeof(directory))
        return UNLIMITED;
    for (;;) {
        char *slash;

        if (unified) {
            left = MIN(left, group_left(directory, "memory.max", "memory.current"));
            left = MIN(left, group_left(directory, "memory.high", "memory.current"));
        } else {
            left = MIN(left, group_left(directory, "memory.limit_in_bytes", "memory.usage_in_bytes"));
        }
        slash = strrchr(directory, '/');
        if (!slash || (size_t)(slash - directory) < root_length)
            return left;
        *slash = '\0';
    }
}

static uint64_t control_groups_left(void)
{
    _cleanup_fclose_ FILE *f = fopen("/proc/self/cgroup", "re");
    char line[4096];
    uint64_t left = UNLIMITED;

    while (f && fgets(line, sizeof(line), f)) {
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, "0::", 3) == 0)
            left = MIN(left, groups_left("/sys/fs/cgroup", line + 3, true));
        else if (strstr(line, ":memory:"))
            left = MIN(left, groups_left("/sys/fs/cgroup/memory", strstr(line, ":memory:") + 8, false));
    }
    return left;
}

static void headroom_read(uint64_t now)
{
    uint64_t total, available, reserve;

    meminfo_read(&total, &available);
    reserve = total == UNLIMITED ? 0 : total / 100 * reserve_percent;
    left_bytes = available > reserve ? available - reserve : 0;
    left_bytes = MIN(left_bytes, control_groups_left());
    serve_bytes = left_bytes / FRESH_SHARE;
    read_usec = now;
}

int memory_take(uint64_t bytes)
{
    uint64_t now = now_usec();
    int r = -ENOMEM;

    (void)pthread_mutex_lock(&lock);
    if (read_usec == 0 || now - read_usec > FRESH_USEC || bytes > serve_bytes)
        headroom_read(now);
    if (bytes <= left_bytes) {
        left_bytes -= bytes;
        serve_bytes -= MIN(serve_bytes, bytes);
        r = 0;
    }
    (void)pthread_mutex_unlock(&lock);
    return r;
}

void memory_set_reserve(uint64_t percent)
{
    (void)pthread_mutex_lock(&lock);
    reserve_percent = percent;
    read_usec = 0;
    (void)pthread_mutex_unlock(&lock);
}
