/* SPDX-License-Identifier: MIT */
/*
 * Memory pressure: what the service manager says in MEMORY_PRESSURE_WATCH (a PSI file, FIFO or socket), else
 * the kernel's /proc/pressure/memory, whose windows are whole multiples of two seconds for the unprivileged.
 * An event calls act(), then events are let pass for a while: what was asked for takes its time. Both are
 * counted. Where nothing can be watched one message says so, and the service goes on. Main thread.
 */
#ifndef RECLAIMD_PRESSURE_H
#define RECLAIMD_PRESSURE_H

#include <stdbool.h>
#include <stdint.h>

struct event_base;
struct pressure;

/* -ENOMEM. Nothing is watched yet. */
int pressure_new(struct event_base *base, void (*act)(void *userdata), void *userdata, struct pressure **ret);
struct pressure *pressure_free(struct pressure *p);

/* memory-pressure = auto or off; acts at once. Again: tries again, where nothing could be watched. */
void pressure_set(struct pressure *p, bool watch);

/* An event came in the last ten seconds. */
bool pressure_is_high(const struct pressure *p);

/* Events that were acted upon, and those let pass meanwhile. */
uint64_t pressure_n_acted(const struct pressure *p);
uint64_t pressure_n_passed(const struct pressure *p);

#endif
