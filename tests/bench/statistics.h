/* SPDX-License-Identifier: MIT */
/* Statistics: what is said of several runs. Pure functions over arrays of numbers. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "figures.h"

struct spread {
    double median, min, max;
};

/*
 * The value below which a share of 0..1 of the values lies: nearest rank, so it is always one of them; the
 * median of an even number is the mean of the middle two. Sorts values. n must not be 0.
 */
double statistics_quantile(double *values, size_t n, double share);
double statistics_median(double *values, size_t n);

/* n must not be 0. Leaves values alone. -ENOMEM. */
int statistics_spread(const double *values, size_t n, struct spread *ret);

/* One figure over runs that have it. -ENODATA if none has it. */
int statistics_figure(const struct figures *runs, size_t n_runs, enum figure figure, struct spread *ret);

/* Each figure's median; a figure that no run has stays absent. */
int statistics_medians(const struct figures *runs, size_t n_runs, struct figures *ret);

/* p50 and p99 of n latencies, n > 0. -ENOMEM. */
int statistics_latencies(const uint64_t *ns, size_t n, struct figures *ret);
