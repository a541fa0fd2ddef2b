/* SPDX-License-Identifier: MIT */
/* What the kernel counts of this process. */
#ifndef RECLAIMD_PROCESS_FIGURES_H
#define RECLAIMD_PROCESS_FIGURES_H

#include <stdint.h>

struct process_figures {
    uint64_t voluntary_switches; /* of all threads: how often one went to sleep */
    uint64_t rss_bytes;
};

void process_figures_read(struct process_figures *ret);

#endif
