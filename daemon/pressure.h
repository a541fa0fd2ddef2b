/* SPDX-License-Identifier: MIT */
/*
 * Memory pressure: what the service manager says in MEMORY_PRESSURE_WATCH (a PSI file, FIFO or socket), else the kernel's
 * /proc/pressure/memory, whose windows are whole multiples of two seconds for the unprivileged. An event calls act(),
 * then events are let pass for a while: what was asked for takes its time. Main thread.
 */
#ifndef RECLAIMD_PRESSURE_H
#define RECLAIMD_PRESSURE_H

#include <stdbool.h>

struct event_base;
struct pressure;

/* 0 also when there is nothing to watch: then nothing happens (and a debug message says so). -ENOMEM. */
int pressure_new(struct event_base *base, void (*act)(void *userdata), void *userdata, struct pressure **ret);
struct pressure *pressure_free(struct pressure *p);

/* memory-pressure = auto or off; acts at once. */
void pressure_set(struct pressure *p, bool watch);

/* An event came in the last ten seconds. */
bool pressure_is_high(const struct pressure *p);

#endif
