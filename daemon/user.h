/* SPDX-License-Identifier: MIT */
/* What one user of the machine has of us: arenas and the memory behind them, each with a named limit. */
#ifndef RECLAIMD_USER_H
#define RECLAIMD_USER_H

#include <stdint.h>
#include <sys/types.h>

struct user {
    struct user *next;
    uid_t uid;
    uint32_t n_arenas;     /* main thread */
    uint64_t backed_bytes; /* any thread */
    uint64_t limit_bytes;  /* user-bytes-max; main writes, workers read */
};

#endif
