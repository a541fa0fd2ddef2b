/* SPDX-License-Identifier: MIT */
/*
 * Sampler: a thread of the coordinator that looks at the memory each 10 ms and keeps the peak. Either the
 * daemon's memfds (arena, channels, domain, state) and anonymous memory, or the anonymous memory of the
 * measured processes.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum {
    SAMPLER_PIDS_MAX = 256, /* as many as --kfree-nprocs allows */
};

struct sampler {
    pid_t daemon; /* 0: look at pids instead */
    pid_t pids[SAMPLER_PIDS_MAX];
    unsigned n_pids;
    uint64_t start_bytes, peak_bytes;
    uint32_t stop; /* a futex word: 1 ends the thread */
    pthread_t thread;
    bool running;
};

/* The bytes now: what the peak is compared with. */
void sampler_mark_start(struct sampler *s);

/* -errno, with words_set(). */
int sampler_start(struct sampler *s);

/* The peak above the start. Ends the thread. */
uint64_t sampler_stop(struct sampler *s);
