/* SPDX-License-Identifier: MIT */
/* The two clocks that the daemon reads. */
#ifndef RECLAIMD_CLOCK_H
#define RECLAIMD_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline uint64_t clock_usec(clockid_t clock)
{
    struct timespec ts;

    (void)clock_gettime(clock, &ts);
    return (uint64_t)ts.tv_sec * 1000000u + (uint64_t)ts.tv_nsec / 1000u;
}

/* For intervals and deadlines. Never 0. */
static inline uint64_t now_usec(void)
{
    return clock_usec(CLOCK_MONOTONIC);
}

#endif
