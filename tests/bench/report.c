/* SPDX-License-Identifier: MIT */
/* The table and the JSON of a comparison. */
#include "report.h"

#include <errno.h>
#include <gnu/libc-version.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>

#include "basic/cleanup.h"
#include "statistics.h"
#include "words.h"

enum {
    COLUMN_MIN = 14, /* characters: a figure with its unit, or "12 against 0", and a gap */
    ROW_NAME = 18,
};

/* Wide enough for the label, so that a row of figures stays under its entry. */
static int column_width(const struct entry *e)
{
    return MAX(COLUMN_MIN, (int)strlen(e->label) + 2);
}

static void print_labels(const struct comparison *c)
{
    printf("%-*s", ROW_NAME, "");
    for (size_t i = 0; i < c->n_entries; i++)
        printf("%*s", column_width(&c->entries[i]), c->entries[i].label);
    printf("\n");
}

/* false: no entry has it, or 0 in all of them, as what other tests are about. */
static bool is_worth_a_row(const struct comparison *c, const struct figures *medians, enum figure figure)
{
    for (size_t i = 0; i < c->n_entries; i++)
        if (medians[i].present[figure] && medians[i].value[figure] != 0)
            return true;
    return false;
}

static void print_figure(const struct comparison *c, const struct figures *medians, enum figure figure)
{
    char text[32];

    printf("%-*s", ROW_NAME, figure_to_string(figure));
    for (size_t i = 0; i < c->n_entries; i++)
        printf("%*s", column_width(&c->entries[i]),
               medians[i].present[figure]
                   ? figure_format(figure, medians[i].value[figure], text, sizeof(text))
                   : "-");
    printf("\n");
}

/* How far the runs of a figure lie apart: the highest by the lowest. */
static void print_evenness(const struct comparison *c, enum figure figure)
{
    printf("  %-*s", ROW_NAME - 2, "highest/lowest");
    for (size_t i = 0; i < c->n_entries; i++) {
        struct spread spread;
        char text[32] = "-";

        if (statistics_figure(c->entries[i].runs, c->n_runs, figure, &spread) == 0 && spread.min > 0)
            (void)snprintf(text, sizeof(text), "%.2fx", spread.max / spread.min);
        printf("%*s", column_width(&c->entries[i]), text);
    }
    printf("\n");
}

/* The lowest or highest run of the main figure. */
static int print_spread(const struct comparison *c, const char *name, bool highest)
{
    enum figure figure = c->test->main_figure;
    char text[32];

    printf("  %-*s", ROW_NAME - 2, name);
    for (size_t i = 0; i < c->n_entries; i++) {
        struct spread spread;
        int r = statistics_figure(c->entries[i].runs, c->n_runs, figure, &spread);

        if (r < 0 && r != -ENODATA)
            return r;
        printf("%*s", column_width(&c->entries[i]),
               r < 0 ? "-" : figure_format(figure, highest ? spread.max : spread.min, text, sizeof(text)));
    }
    printf("\n");
    return 0;
}

/* Of the main figure's medians. false: one of them is absent or the divisor is 0. */
static bool ratio_of(const struct comparison *c, const struct figures *a, const struct figures *b,
                     double *ret)
{
    enum figure figure = c->test->main_figure;

    if (!a->present[figure] || !b->present[figure] || b->value[figure] == 0)
        return false;
    *ret = a->value[figure] / b->value[figure];
    return true;
}

/* "1.50x"; where 0 can divide nothing the two figures themselves, "6 against 0". */
static void format_ratio(const struct comparison *c, const struct figures *a, const struct figures *b,
                         char *text, size_t size)
{
    enum figure figure = c->test->main_figure;
    char left[32], right[32];
    double ratio;

    if (ratio_of(c, a, b, &ratio))
        (void)snprintf(text, size, "%.2fx", ratio);
    else if (a->present[figure] && a->value[figure] != 0 && b->present[figure])
        (void)snprintf(text, size, "%s against %s",
                       figure_format(figure, a->value[figure], left, sizeof(left)),
                       figure_format(figure, b->value[figure], right, sizeof(right)));
    else
        (void)snprintf(text, size, "-");
}

static void print_ratios(const struct comparison *c, const struct figures *medians)
{
    printf("  %-*s", ROW_NAME - 2, "to the first");
    for (size_t i = 0; i < c->n_entries; i++) {
        char text[80];

        format_ratio(c, &medians[i], &medians[0], text, sizeof(text));
        printf(" %*s", column_width(&c->entries[i]) - 1, text);
    }
    printf("\n");
}

/* One figures of medians an entry. */
static int find_medians(const struct comparison *c, struct figures *ret)
{
    for (size_t i = 0; i < c->n_entries; i++) {
        int r = statistics_medians(c->entries[i].runs, c->n_runs, &ret[i]);

        if (r < 0)
            return r;
    }
    return 0;
}

int report_print(const struct comparison *c)
{
    _cleanup_free_ struct figures *medians = calloc(c->n_entries, sizeof(*medians));
    int r = medians ? find_medians(c, medians) : -ENOMEM;

    if (r < 0)
        return words_set(r, "no memory for the table");
    if (c->n_runs == 1)
        printf("%s: one run each, in turn after a warm-up\n", test_to_string(c->options->test));
    else
        printf("%s: medians of %zu runs each, in turn after a warm-up\n", test_to_string(c->options->test),
               c->n_runs);
    print_labels(c);
    print_figure(c, medians, c->test->main_figure);
    r = print_spread(c, "lowest", false);
    if (r >= 0)
        r = print_spread(c, "highest", true);
    if (r < 0)
        return r;
    print_ratios(c, medians);
    for (enum figure figure = 0; figure < _FIGURE_MAX; figure++) {
        if (figure != c->test->main_figure && is_worth_a_row(c, medians, figure))
            print_figure(c, medians, figure);
        if (figure == FIGURE_FOOTPRINT_BYTES && medians[0].present[figure])
            print_evenness(c, figure);
    }
    return 0;
}

/* Whole numbers without a point: most figures are counts. */
static struct json_object *number_to_json(double value)
{
    return value == floor(value) && fabs(value) < 9e15 ? json_object_new_int64((int64_t)value)
                                                       : json_object_new_double(value);
}

static void add(struct json_object *object, const char *key, struct json_object *value)
{
    (void)json_object_object_add(object, key, value);
}

/* Name and value apart, for programs. */
static struct json_object *settings_to_json(const struct comparison *c, const struct entry *e)
{
    struct json_object *set = json_object_new_object();
    const char *settings[SETTINGS_MAX + 1];
    size_t n = entry_settings(c, e, settings);

    for (size_t i = 0; i < n; i++) {
        const char *equals = strchr(settings[i], '=');
        _cleanup_free_ char *name = strndup(settings[i], (size_t)(equals - settings[i]));

        if (name)
            add(set, name, json_object_new_string(equals + 1));
    }
    return set;
}

/* One figure's lowest and highest run. NULL: it has none. */
static struct json_object *spread_to_json(const struct comparison *c, const struct entry *e,
                                          enum figure figure)
{
    struct json_object *range;
    struct spread spread;

    if (statistics_figure(e->runs, c->n_runs, figure, &spread) < 0)
        return NULL;
    range = json_object_new_object();
    add(range, "min", number_to_json(spread.min));
    add(range, "max", number_to_json(spread.max));
    return range;
}

/* Beside the medians: that of the main figure, and all by their names. */
static void add_spreads(const struct comparison *c, const struct entry *e, struct json_object *run)
{
    struct json_object *spreads = json_object_new_object(),
                       *spread = spread_to_json(c, e, c->test->main_figure);

    if (spread)
        add(run, "spread", spread);
    for (enum figure figure = 0; figure < _FIGURE_MAX; figure++) {
        spread = spread_to_json(c, e, figure);
        if (spread)
            add(spreads, figure_to_string(figure), spread);
    }
    add(run, "spreads", spreads);
}

static struct json_object *entry_to_json(const struct comparison *c, const struct entry *e,
                                         const struct figures *medians)
{
    struct json_object *run = json_object_new_object();

    add(run, "backend", json_object_new_string(e->backend));
    add(run, "set", settings_to_json(c, e));
    for (enum figure figure = 0; figure < _FIGURE_MAX; figure++)
        if (medians->present[figure])
            add(run, figure_to_string(figure), number_to_json(medians->value[figure]));
    add_spreads(c, e, run);
    return run;
}

/* Every entry by every other, so that a reader need not know which came first. */
static struct json_object *ratios_to_json(const struct comparison *c, const struct figures *medians)
{
    struct json_object *ratios = json_object_new_object();

    for (size_t i = 0; i < c->n_entries; i++) {
        for (size_t j = 0; j < c->n_entries; j++) {
            char key[2 * sizeof(c->entries[0].label)];
            double ratio;

            if (i == j || !ratio_of(c, &medians[i], &medians[j], &ratio))
                continue;
            (void)snprintf(key, sizeof(key), "%s/%s", c->entries[i].label, c->entries[j].label);
            add(ratios, key, json_object_new_double(ratio));
        }
    }
    return ratios;
}

/* The first "model name" of /proc/cpuinfo; other architectures have none. */
static void add_cpu_model(struct json_object *machine)
{
    _cleanup_fclose_ FILE *f = fopen("/proc/cpuinfo", "re");
    char line[256];

    while (f && fgets(line, sizeof(line), f)) {
        char *colon = strchr(line, ':');

        if (strncmp(line, "model name", 10) != 0 || !colon)
            continue;
        line[strcspn(line, "\n")] = '\0';
        add(machine, "model", json_object_new_string(colon + 1 + strspn(colon + 1, " ")));
        return;
    }
}

/* What a figure's reader must know of the machine to compare it with another. */
static struct json_object *machine_to_json(void)
{
    struct json_object *machine = json_object_new_object();
    struct utsname name;
    struct sysinfo info;

    add(machine, "cpus", json_object_new_int(get_nprocs()));
    add_cpu_model(machine);
    if (uname(&name) == 0) {
        add(machine, "kernel", json_object_new_string(name.release));
        add(machine, "architecture", json_object_new_string(name.machine));
    }
    add(machine, "libc", json_object_new_string(gnu_get_libc_version()));
    if (sysinfo(&info) == 0)
        add(machine, "memory_bytes", json_object_new_uint64((uint64_t)info.totalram * info.mem_unit));
    return machine;
}

struct json_object *report_to_json(const struct comparison *c)
{
    _cleanup_free_ struct figures *medians = calloc(c->n_entries, sizeof(*medians));
    struct json_object *all, *runs;

    if (!medians || find_medians(c, medians) < 0)
        return NULL;
    all = json_object_new_object();
    runs = json_object_new_array();
    for (size_t i = 0; i < c->n_entries; i++)
        (void)json_object_array_add(runs, entry_to_json(c, &c->entries[i], &medians[i]));
    add(all, "test", json_object_new_string(test_to_string(c->options->test)));
    add(all, "machine", machine_to_json());
    add(all, "options", options_to_json(c->options));
    add(all, "main_figure", json_object_new_string(figure_to_string(c->test->main_figure)));
    add(all, "runs", runs);
    add(all, "ratios", ratios_to_json(c, medians));
    return all;
}

int report_write_json(const struct comparison *c, const char *path)
{
    struct json_object *all = report_to_json(c);
    int r = 0;

    if (!all)
        return words_set(-ENOMEM, "no memory for the JSON");
    if (json_object_to_file_ext(path, all, JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_NOSLASHESCAPE) < 0)
        r = words_set(-EIO, "cannot write %s: %s", path, strerror(errno));
    json_object_put(all);
    return r;
}
