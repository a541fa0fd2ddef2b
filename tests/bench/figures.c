/* SPDX-License-Identifier: MIT */
/* The figures' names and how people read them. One table, so that JSON, tables and plots agree. */
#include "figures.h"

#include <stdio.h>

#include "basic/macro.h"

enum figure_kind {
    KIND_COUNT,
    KIND_NS,
    KIND_BYTES,
    KIND_RATIO, /* a mean: keeps its decimals */
};

static const struct figure_info {
    const char *name;
    enum figure_kind kind;
} figure_table[] = {
    [FIGURE_OBJECTS] = {"objects", KIND_COUNT},
    [FIGURE_TOTAL_NS] = {"total_ns", KIND_NS},
    [FIGURE_FREED_NS] = {"freed_ns", KIND_NS},
    [FIGURE_NS_PER_OBJECT] = {"ns_per_object", KIND_NS},
    [FIGURE_CLIENT_CPU_NS] = {"client_cpu_ns", KIND_NS},
    [FIGURE_DAEMON_CPU_NS] = {"daemon_cpu_ns", KIND_NS},
    [FIGURE_GRACE_PERIODS] = {"grace_periods", KIND_COUNT},
    [FIGURE_BATCHES] = {"batches", KIND_COUNT},
    [FIGURE_DRAINS] = {"drains", KIND_COUNT},
    [FIGURE_OBJECTS_PER_PAGE] = {"objects_per_page", KIND_RATIO},
    [FIGURE_WAKEUPS] = {"wakeups", KIND_COUNT},
    [FIGURE_PURGES_QUEUED] = {"purges_queued", KIND_COUNT},
    [FIGURE_HOLES] = {"holes", KIND_COUNT},
    [FIGURE_FOOTPRINT_BYTES] = {"footprint_bytes", KIND_BYTES},
    [FIGURE_P50_NS] = {"p50_ns", KIND_NS},
    [FIGURE_P99_NS] = {"p99_ns", KIND_NS},
    [FIGURE_CALLS] = {"calls", KIND_COUNT},
    [FIGURE_ALONE_P50_NS] = {"alone_p50_ns", KIND_NS},
    [FIGURE_ALONE_P99_NS] = {"alone_p99_ns", KIND_NS},
    [FIGURE_CALLBACKS_AHEAD] = {"callbacks_ahead", KIND_RATIO},
    [FIGURE_FIFO_ENTRY_NS] = {"fifo_entry_ns", KIND_NS},
    [FIGURE_CALLBACKS] = {"callbacks", KIND_COUNT},
    [FIGURE_MEMBARRIERS] = {"membarriers", KIND_COUNT},
    [FIGURE_DIRECT_WAKES] = {"direct_wakes", KIND_COUNT},
    [FIGURE_WORKER_WAKES] = {"worker_wakes", KIND_COUNT},
    [FIGURE_FIFO_WAKES] = {"fifo_wakes", KIND_COUNT},
    [FIGURE_MAX_DIRECT_WAKES] = {"max_direct_wakes", KIND_COUNT},
    [FIGURE_OBJECTS_PER_GP] = {"objects_per_gp", KIND_RATIO},
    [FIGURE_FIRST_FREE_NS] = {"first_free_ns", KIND_NS},
    [FIGURE_FIRST_FREE_P99_NS] = {"first_free_p99_ns", KIND_NS},
    [FIGURE_GP_NS] = {"gp_ns", KIND_NS},
    [FIGURE_OTHER_BYTES] = {"other_bytes", KIND_BYTES},
    [FIGURE_FREED_OBJECTS] = {"freed_objects", KIND_COUNT},
    [FIGURE_PENDING_OBJECTS] = {"pending_objects", KIND_COUNT},
    [FIGURE_REFUSED_RECORDS] = {"refused_records", KIND_COUNT},
    [FIGURE_BACKED_BYTES] = {"backed_bytes", KIND_BYTES},
    [FIGURE_RETRIES] = {"retries", KIND_COUNT},
};
assert_cc(ARRAY_SIZE(figure_table) == _FIGURE_MAX);

const char *figure_to_string(enum figure figure)
{
    return figure >= 0 && figure < _FIGURE_MAX ? figure_table[figure].name : NULL;
}

/* The unit that leaves one to three digits before the point. */
static const char *scaled(double value, double base, const char *const *units, size_t n_units, char *text,
                          size_t size)
{
    size_t i = 0;

    while (i + 1 < n_units && value >= base) {
        value /= base;
        i++;
    }
    (void)snprintf(text, size, value < 10 ? "%.2f %s" : value < 100 ? "%.1f %s" : "%.0f %s", value, units[i]);
    return text;
}

const char *figure_format(enum figure figure, double value, char *text, size_t size)
{
    static const char *const times[] = {"ns", "us", "ms", "s"};
    static const char *const sizes[] = {"B", "KB", "MB", "GB"};

    switch (figure_table[figure].kind) {
    case KIND_NS:
        return scaled(value, 1000, times, ARRAY_SIZE(times), text, size);
    case KIND_BYTES:
        return scaled(value, 1024, sizes, ARRAY_SIZE(sizes), text, size);
    case KIND_RATIO:
        (void)snprintf(text, size, "%.1f", value);
        return text;
    default:
        (void)snprintf(text, size, "%.0f", value);
        return text;
    }
}
