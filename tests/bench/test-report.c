/* SPDX-License-Identifier: MIT */
/* Entries of a comparison, their JSON and their plot, from figures that are made up here. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "basic/macro.h"
#include "report.h"
#include "words.h"

static const char *const backends[] = {"reclaim", "malloc", "ck-epoch", NULL};
static const struct bench_test fake_test = {.backends = backends, .main_figure = FIGURE_NS_PER_OBJECT};
static struct comparison comparison;
static char message[512];

static int make(const char *compare, const char *compare_set, uint64_t n_runs)
{
    static struct bench_options options;

    options = (struct bench_options){.test = TEST_KFREE,
                                     .compare = compare,
                                     .compare_set = compare_set,
                                     .n_runs = n_runs,
                                     .settings = {"zero-on-free=yes"},
                                     .n_settings = 1};
    return comparison_init(&comparison, &options, &fake_test, message, sizeof(message));
}

static int teardown(void **state)
{
    comparison_deinit(&comparison);
    return 0;
}

static struct json_object *get(struct json_object *object, const char *key)
{
    struct json_object *value;

    assert_true(json_object_object_get_ex(object, key, &value));
    return value;
}

static void test_backends_by_settings(void **state)
{
    assert_int_equal(make("reclaim,malloc", "batches=1,4", 3), 0);
    assert_int_equal(comparison.n_entries, 3); /* malloc has no settings to vary */
    assert_string_equal(comparison.entries[0].label, "reclaim batches=1");
    assert_string_equal(comparison.entries[1].label, "reclaim batches=4");
    assert_string_equal(comparison.entries[2].label, "malloc");
}

static void test_settings_alone(void **state)
{
    const char *settings[SETTINGS_MAX + 1];

    assert_int_equal(make(NULL, "drain-interval=20ms,1s", 3), 0);
    assert_int_equal(comparison.n_entries, 2);
    assert_string_equal(comparison.entries[1].backend, "reclaim");
    assert_string_equal(comparison.entries[1].label, "drain-interval=1s");
    assert_int_equal(entry_settings(&comparison, &comparison.entries[1], settings), 2);
    assert_string_equal(settings[0], "zero-on-free=yes");
    assert_string_equal(settings[1], "drain-interval=1s");
}

static void test_unknown_backend(void **state)
{
    assert_int_equal(make("reclaim,mallok", NULL, 3), -EINVAL);
    assert_non_null(strstr(message, "mallok"));
    assert_non_null(strstr(message, "ck-epoch"));
    assert_int_equal(make("malloc,", NULL, 3), -EINVAL);
    assert_int_equal(make(NULL, "a=1,,2", 3), -EINVAL);
}

/* Two entries of three runs: reclaim 3, 4, 20 and malloc 8, 8, 9 ns an object. */
static void fill(void)
{
    static const double ns[2][3] = {{20, 3, 4}, {8, 9, 8}};

    assert_int_equal(make("reclaim,malloc", NULL, 3), 0);
    for (size_t i = 0; i < 2; i++)
        for (size_t run = 0; run < 3; run++)
            figures_set(&comparison.entries[i].runs[run], FIGURE_NS_PER_OBJECT, ns[i][run]);
    figures_set(&comparison.entries[0].runs[1], FIGURE_BATCHES, 7);
}

static void test_json_holds_medians_and_ratios(void **state)
{
    struct json_object *all, *runs, *first, *ratios;

    fill();
    all = report_to_json(&comparison);
    runs = get(all, "runs");
    first = json_object_array_get_idx(runs, 0);
    ratios = get(all, "ratios");
    assert_string_equal(json_object_get_string(get(all, "test")), "kfree");
    assert_int_equal(json_object_array_length(runs), 2);
    assert_string_equal(json_object_get_string(get(first, "backend")), "reclaim");
    assert_float_equal(json_object_get_double(get(first, "ns_per_object")), 4, 0);
    assert_float_equal(json_object_get_double(get(get(first, "spread"), "max")), 20, 0);
    assert_float_equal(json_object_get_double(get(get(get(first, "spreads"), "batches"), "min")), 7, 0);
    assert_float_equal(json_object_get_double(get(get(get(first, "spreads"), "ns_per_object"), "min")), 3, 0);
    assert_string_equal(json_object_get_string(get(get(first, "set"), "zero-on-free")), "yes");
    assert_float_equal(json_object_get_double(get(ratios, "reclaim/malloc")), 0.5, 0);
    assert_float_equal(json_object_get_double(get(ratios, "malloc/reclaim")), 2, 0);
    assert_true(json_object_get_int(get(get(all, "machine"), "cpus")) >= 1);
    json_object_put(all);
}

static void test_json_leaves_out_what_is_absent(void **state)
{
    struct json_object *all, *runs;

    fill();
    all = report_to_json(&comparison);
    runs = get(all, "runs");
    assert_int_equal(json_object_get_int(get(json_object_array_get_idx(runs, 0), "batches")), 7);
    assert_false(json_object_object_get_ex(json_object_array_get_idx(runs, 1), "batches", NULL));
    assert_false(json_object_object_get_ex(json_object_array_get_idx(runs, 0), "holes", NULL));
    assert_int_equal(json_object_object_length(get(json_object_array_get_idx(runs, 1), "set")), 0);
    json_object_put(all);
}

/* Nothing by zero: an entry whose figure is 0 divides nobody. */
static void test_no_ratio_to_zero(void **state)
{
    struct json_object *all, *ratios;

    fill();
    for (size_t run = 0; run < 3; run++)
        figures_set(&comparison.entries[1].runs[run], FIGURE_NS_PER_OBJECT, 0);
    all = report_to_json(&comparison);
    ratios = get(all, "ratios");
    assert_false(json_object_object_get_ex(ratios, "reclaim/malloc", NULL));
    assert_float_equal(json_object_get_double(get(ratios, "malloc/reclaim")), 0, 0);
    json_object_put(all);
}

static char table[4096];

/* What report_print() prints. */
static void print_table(void)
{
    FILE *f = tmpfile();
    int saved = dup(STDOUT_FILENO);

    assert_non_null(f);
    (void)fflush(stdout);
    assert_true(dup2(fileno(f), STDOUT_FILENO) >= 0);
    assert_int_equal(report_print(&comparison), 0);
    (void)fflush(stdout);
    assert_true(dup2(saved, STDOUT_FILENO) >= 0);
    (void)close(saved);
    rewind(f);
    table[fread(table, 1, sizeof(table) - 1, f)] = '\0';
    (void)fclose(f);
}

static void test_table_has_no_rows_of_zeros(void **state)
{
    fill();
    for (size_t run = 0; run < 3; run++) {
        figures_set(&comparison.entries[0].runs[run], FIGURE_HOLES, 0);
        figures_set(&comparison.entries[1].runs[run], FIGURE_NS_PER_OBJECT, 0);
    }
    print_table();
    assert_non_null(strstr(table, "medians of 3 runs"));
    assert_non_null(strstr(table, "batches"));
    assert_null(strstr(table, "holes"));
    assert_non_null(strstr(table, "0.00x"));
}

static void test_table_of_one_run_from_zero(void **state)
{
    assert_int_equal(make("reclaim,malloc", NULL, 1), 0);
    figures_set(&comparison.entries[0].runs[0], FIGURE_NS_PER_OBJECT, 0);
    figures_set(&comparison.entries[1].runs[0], FIGURE_NS_PER_OBJECT, 6);
    print_table();
    assert_non_null(strstr(table, "one run each"));
    assert_non_null(strstr(table, "6.00 ns against 0.00 ns"));
}

/* How often a word stands in a file. */
static unsigned count(const char *path, const char *word)
{
    FILE *f = fopen(path, "re");
    char line[1024];
    unsigned n = 0;

    assert_non_null(f);
    while (fgets(line, sizeof(line), f))
        for (char *p = line; (p = strstr(p, word)); p++)
            n++;
    (void)fclose(f);
    return n;
}

static void test_plot_has_a_bar_an_entry(void **state)
{
    char path[] = "/tmp/test-report-XXXXXX";
    int fd = mkstemp(path);

    assert_true(fd >= 0);
    (void)close(fd);
    fill();
    (void)snprintf(comparison.entries[1].label, sizeof(comparison.entries[1].label), "a<b&c");
    assert_int_equal(report_write_plot(&comparison, path), 0);
    assert_int_equal(count(path, "<rect x="), 2);
    assert_int_equal(count(path, ">a&lt;b&amp;c<"), 1);
    assert_int_equal(count(path, "</svg>"), 1);
    assert_int_equal(count(path, ">4.00 ns<"), 2); /* the bar's median, and a line of the grid */
    (void)unlink(path);
}

static void test_unwritable_files_are_said(void **state)
{
    fill();
    assert_int_equal(words_init(), 0);
    assert_true(report_write_plot(&comparison, "/nonexistent/x.svg") < 0);
    assert_non_null(strstr(words_get(), "/nonexistent/x.svg"));
    assert_true(report_write_json(&comparison, "/nonexistent/x.json") < 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_backends_by_settings, teardown),
        cmocka_unit_test_teardown(test_settings_alone, teardown),
        cmocka_unit_test_teardown(test_unknown_backend, teardown),
        cmocka_unit_test_teardown(test_json_holds_medians_and_ratios, teardown),
        cmocka_unit_test_teardown(test_json_leaves_out_what_is_absent, teardown),
        cmocka_unit_test_teardown(test_no_ratio_to_zero, teardown),
        cmocka_unit_test_teardown(test_table_has_no_rows_of_zeros, teardown),
        cmocka_unit_test_teardown(test_table_of_one_run_from_zero, teardown),
        cmocka_unit_test_teardown(test_plot_has_a_bar_an_entry, teardown),
        cmocka_unit_test_teardown(test_unwritable_files_are_said, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
