/* SPDX-License-Identifier: MIT */
/* Statistics over runs and latencies: median, quantiles, spread. */
#include "statistics.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "basic/cleanup.h"

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

double statistics_quantile(double *values, size_t n, double share)
{
    size_t rank = (size_t)ceil(share * (double)n);

    qsort(values, n, sizeof(*values), compare_doubles);
    return values[rank == 0 ? 0 : rank > n ? n - 1 : rank - 1];
}

double statistics_median(double *values, size_t n)
{
    qsort(values, n, sizeof(*values), compare_doubles);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

int statistics_spread(const double *values, size_t n, struct spread *ret)
{
    _cleanup_free_ double *copy = calloc(n, sizeof(*copy));

    if (!copy)
        return -ENOMEM;
    memcpy(copy, values, n * sizeof(*copy));
    ret->median = statistics_median(copy, n); /* sorts */
    ret->min = copy[0];
    ret->max = copy[n - 1];
    return 0;
}

int statistics_figure(const struct figures *runs, size_t n_runs, enum figure figure, struct spread *ret)
{
    _cleanup_free_ double *values = calloc(n_runs + 1, sizeof(*values));
    size_t n = 0;

    if (!values)
        return -ENOMEM;
    for (size_t i = 0; i < n_runs; i++)
        if (runs[i].present[figure])
            values[n++] = runs[i].value[figure];
    return n == 0 ? -ENODATA : statistics_spread(values, n, ret);
}

int statistics_medians(const struct figures *runs, size_t n_runs, struct figures *ret)
{
    struct figures medians = {0};

    for (enum figure figure = 0; figure < _FIGURE_MAX; figure++) {
        struct spread spread;
        int r = statistics_figure(runs, n_runs, figure, &spread);

        if (r == -ENODATA)
            continue;
        if (r < 0)
            return r;
        figures_set(&medians, figure, spread.median);
    }
    *ret = medians;
    return 0;
}

int statistics_latencies(const uint64_t *ns, size_t n, struct figures *ret)
{
    _cleanup_free_ double *values = calloc(n, sizeof(*values));

    if (!values)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++)
        values[i] = (double)ns[i];
    figures_set(ret, FIGURE_P50_NS, statistics_quantile(values, n, 0.50));
    figures_set(ret, FIGURE_P99_NS, statistics_quantile(values, n, 0.99));
    figures_set(ret, FIGURE_CALLS, (double)n);
    return 0;
}
