/* SPDX-License-Identifier: MIT */
/* /proc/self, for status; see process-figures.h. */
#include "process-figures.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/types.h>

#include "basic/cleanup.h"

static uint64_t status_number(const char *path, const char *format)
{
    _cleanup_fclose_ FILE *f = fopen(path, "re");
    char line[256];
    uint64_t n;

    while (f && fgets(line, sizeof(line), f))
        if (sscanf(line, format, &n) == 1)
            return n;
    return 0;
}

void process_figures_read(struct process_figures *ret)
{
    _cleanup_closedir_ DIR *tasks = opendir("/proc/self/task");
    struct dirent *entry;
    char path[300];

    *ret =
        (struct process_figures){.rss_bytes = status_number("/proc/self/status", "VmRSS: %" SCNu64) * 1024};
    while (tasks && (entry = readdir(tasks))) {
        (void)snprintf(path, sizeof(path), "/proc/self/task/%s/status", entry->d_name);
        if (entry->d_name[0] != '.')
            ret->voluntary_switches += status_number(path, "voluntary_ctxt_switches: %" SCNu64);
    }
}
