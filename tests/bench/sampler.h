/* SPDX-License-Identifier: MIT */
/*
 * Sampler: a thread of the coordinator that looks at the memory each 10 ms and keeps the peak. Either the
 * daemon's memfds (arena, channels, domain, state) and anonymous memory, or the anonymous memory of the
 * measured processes. Memfds that were there at the start are other clients': their bytes are kept apart.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "procfs.h"

enum {
    SAMPLER_PIDS_MAX = 256, /* as many as --kfree-nprocs allows */
};

struct sampler {
    pid_t daemon; /* 0: look at pids instead */
    pid_t pids[SAMPLER_PIDS_MAX];
    unsigned n_pids;
    uint64_t start_bytes; /* anonymous */
    uint64_t peak_bytes;
    uint64_t others_peak_bytes;
    struct procfs_memfds others, now;
    uint32_t stop; /* a futex word: 1 ends the thread */
    pthread_t thread;
    bool running;
};

/* What is there now and does not count: the peak is above it. */
void sampler_mark_start(struct sampler *s);

/* -errno, with words_set(). */
int sampler_start(struct sampler *s);

/* The peak above the start. Ends the thread. Twice is harmless. */
uint64_t sampler_stop(struct sampler *s);
