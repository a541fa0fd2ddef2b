/* SPDX-License-Identifier: MIT */
/*
 * Procfs: what the kernel knows about another process, of the same user or any for root. All functions return
 * 0 for what cannot be read: a process that ends while it is looked at is no failure of the run.
 */
#pragma once

#include <stdint.h>
#include <sys/types.h>

/* CPU time of all its living threads. */
uint64_t procfs_cpu_ns(pid_t pid);

/* Voluntary context switches of all its living threads: how often one of them slept and was woken. */
uint64_t procfs_wakeups(pid_t pid);

/* Visits each thread: its id, name and voluntary context switches. */
typedef void (*procfs_thread_fn)(void *data, pid_t tid, const char *name, uint64_t wakeups);
void procfs_threads(pid_t pid, procfs_thread_fn visit, void *data);

/* Anonymous memory that is resident. */
uint64_t procfs_anonymous_bytes(pid_t pid);

enum {
    PROCFS_MEMFDS_MAX = 4096, /* distinct ones: more clients than any test here attaches */
};

struct procfs_memfds {
    ino_t inodes[PROCFS_MEMFDS_MAX];
    size_t n;
    uint64_t bytes;
};

/*
 * Its memfds and what they take, each counted once however many descriptors name it; without those of `but`,
 * unless NULL, whose bytes are read anew.
 */
void procfs_memfds(pid_t pid, struct procfs_memfds *but, struct procfs_memfds *ret);
