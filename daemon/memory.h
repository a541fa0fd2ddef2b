/* SPDX-License-Identifier: MIT */
/*
 * Is there memory left to back pages with? To allocate past a control group's limit kills whoever does it, so
 * headroom is asked for first: MemAvailable less memory-reserve, and what is left below memory.max and
 * memory.high of every control group that we are in.
 */
#ifndef RECLAIMD_MEMORY_H
#define RECLAIMD_MEMORY_H

#include <stdint.h>

/* Any thread. 0: that much may be backed now; -ENOMEM. */
int memory_take(uint64_t bytes);

/* memory-reserve, in percent of the machine's memory. Acts at once. */
void memory_set_reserve(uint64_t percent);

/* Memory of the machine. */
uint64_t memory_total_bytes(void);

#endif
