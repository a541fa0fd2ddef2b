/* SPDX-License-Identifier: MIT */
/* Sleeping on a word in memory that several processes share. */
#pragma once

#include <linux/futex.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Sleeps while *word == value, at most timeout_ms; may return early. */
static inline void futex_wait(uint32_t *word, uint32_t value, unsigned timeout_ms)
{
    struct timespec t = {.tv_sec = timeout_ms / 1000, .tv_nsec = (long)(timeout_ms % 1000) * 1000000};

    (void)syscall(SYS_futex, word, FUTEX_WAIT, value, &t, NULL, 0);
}

static inline void futex_wake(uint32_t *word, int n_waiters)
{
    (void)syscall(SYS_futex, word, FUTEX_WAKE, n_waiters, NULL, NULL, 0);
}
