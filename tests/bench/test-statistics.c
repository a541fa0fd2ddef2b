/* SPDX-License-Identifier: MIT */
/* Medians, quantiles and spread against numbers that can be checked by hand. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "basic/macro.h"
#include "statistics.h"

static void test_median_odd(void **state)
{
    double values[] = {5, 1, 4};

    assert_float_equal(statistics_median(values, 3), 4, 0);
}

static void test_median_even_is_the_middle_of_two(void **state)
{
    double values[] = {9, 1, 4, 2};

    assert_float_equal(statistics_median(values, 4), 3, 0);
}

static void test_median_of_one(void **state)
{
    double value = 7;

    assert_float_equal(statistics_median(&value, 1), 7, 0);
}

/* Nearest rank: of 1..100 the p-th percentile is p itself. */
static void test_quantile_is_nearest_rank(void **state)
{
    double values[100];

    for (int i = 0; i < 100; i++)
        values[i] = 100 - i;
    assert_float_equal(statistics_quantile(values, 100, 0.50), 50, 0);
    assert_float_equal(statistics_quantile(values, 100, 0.99), 99, 0);
    assert_float_equal(statistics_quantile(values, 100, 0), 1, 0);
    assert_float_equal(statistics_quantile(values, 100, 1), 100, 0);
}

static void test_quantile_of_few_is_one_of_them(void **state)
{
    double values[] = {10, 30, 20};

    assert_float_equal(statistics_quantile(values, 3, 0.99), 30, 0);
    assert_float_equal(statistics_quantile(values, 3, 0.33), 10, 0);
    assert_float_equal(statistics_quantile(values, 3, 0.34), 20, 0);
}

static void test_spread_leaves_the_values_alone(void **state)
{
    const double values[] = {3, 1, 2, 8};
    struct spread spread;

    assert_int_equal(statistics_spread(values, 4, &spread), 0);
    assert_float_equal(spread.median, 2.5, 0);
    assert_float_equal(spread.min, 1, 0);
    assert_float_equal(spread.max, 8, 0);
    assert_float_equal(values[0], 3, 0);
    assert_float_equal(values[3], 8, 0);
}

static void test_figure_skips_runs_without_it(void **state)
{
    struct figures runs[3] = {0};
    struct spread spread = {-1, -1, -1};

    assert_int_equal(statistics_figure(runs, 3, FIGURE_DRAINS, &spread), -ENODATA);
    assert_float_equal(spread.median, -1, 0);
    figures_set(&runs[0], FIGURE_DRAINS, 10);
    figures_set(&runs[2], FIGURE_DRAINS, 20);
    assert_int_equal(statistics_figure(runs, 3, FIGURE_DRAINS, &spread), 0);
    assert_float_equal(spread.median, 15, 0);
    assert_float_equal(spread.min, 10, 0);
    assert_float_equal(spread.max, 20, 0);
}

/* Each figure has its own median: they need not come from one run. */
static void test_medians_are_of_each_figure(void **state)
{
    struct figures runs[3] = {0}, medians;
    const double total[] = {1, 2, 3}, freed[] = {9, 7, 8};

    for (int i = 0; i < 3; i++) {
        figures_set(&runs[i], FIGURE_TOTAL_NS, total[i]);
        figures_set(&runs[i], FIGURE_FREED_NS, freed[i]);
    }
    assert_int_equal(statistics_medians(runs, 3, &medians), 0);
    assert_float_equal(medians.value[FIGURE_TOTAL_NS], 2, 0);
    assert_float_equal(medians.value[FIGURE_FREED_NS], 8, 0);
    assert_false(medians.present[FIGURE_BATCHES]);
}

static void test_latencies(void **state)
{
    struct figures f = {0};
    uint64_t ns[200];

    for (unsigned i = 0; i < 200; i++)
        ns[i] = 1000 + i;
    assert_int_equal(statistics_latencies(ns, 200, &f), 0);
    assert_float_equal(f.value[FIGURE_P50_NS], 1099, 0);
    assert_float_equal(f.value[FIGURE_P99_NS], 1197, 0);
    assert_float_equal(f.value[FIGURE_CALLS], 200, 0);
    assert_int_equal(ns[0], 1000);
}

static void test_every_figure_has_a_name_of_its_own(void **state)
{
    for (enum figure a = 0; a < _FIGURE_MAX; a++) {
        assert_non_null(figure_to_string(a));
        for (enum figure b = 0; b < a; b++)
            assert_string_not_equal(figure_to_string(a), figure_to_string(b));
    }
    assert_null(figure_to_string(_FIGURE_MAX));
    assert_null(figure_to_string(_FIGURE_INVALID));
}

static void test_figures_for_people(void **state)
{
    char text[32];

    assert_string_equal(figure_format(FIGURE_NS_PER_OBJECT, 3.714, text, sizeof(text)), "3.71 ns");
    assert_string_equal(figure_format(FIGURE_P50_NS, 32498, text, sizeof(text)), "32.5 us");
    assert_string_equal(figure_format(FIGURE_TOTAL_NS, 6.5e9, text, sizeof(text)), "6.50 s");
    assert_string_equal(figure_format(FIGURE_FOOTPRINT_BYTES, 64.0 * 1024 * 1024, text, sizeof(text)),
                        "64.0 MB");
    assert_string_equal(figure_format(FIGURE_OBJECTS, 1234567, text, sizeof(text)), "1234567");
    assert_string_equal(figure_format(FIGURE_OBJECTS_PER_PAGE, 437.25, text, sizeof(text)), "437.2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_median_odd),
        cmocka_unit_test(test_median_even_is_the_middle_of_two),
        cmocka_unit_test(test_median_of_one),
        cmocka_unit_test(test_quantile_is_nearest_rank),
        cmocka_unit_test(test_quantile_of_few_is_one_of_them),
        cmocka_unit_test(test_spread_leaves_the_values_alone),
        cmocka_unit_test(test_figure_skips_runs_without_it),
        cmocka_unit_test(test_medians_are_of_each_figure),
        cmocka_unit_test(test_latencies),
        cmocka_unit_test(test_every_figure_has_a_name_of_its_own),
        cmocka_unit_test(test_figures_for_people),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
