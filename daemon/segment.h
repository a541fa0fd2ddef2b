/* SPDX-License-Identifier: MIT */
/*
 * Shared memory segments: memfds that nobody can shrink, grow, execute or unseal, mode 0600. So no peer can
 * make us fault by truncating what it was given; a hole that it punches reads as zeros, which is hostile
 * input like any other.
 */
#ifndef RECLAIMD_SEGMENT_H
#define RECLAIMD_SEGMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "basic/macro.h"

/* Makes one. name: for /proc/PID/maps. Falls back one flag at a time on old kernels, then verifies the seals.
 */
int segment_new(const char *name, uint64_t bytes, int *ret_fd) _must_check_;

/* A second, read-only descriptor of the same memory, for those who may only look. */
int segment_reopen_read_only(int fd, int *ret_fd) _must_check_;

/* Maps it shared; anywhere (at NULL) or exactly there: -EEXIST when that address is in use. */
int segment_map(int fd, uint64_t bytes, void *at, bool writable, void **ret) _must_check_;

void segment_unmap(void *address, uint64_t bytes);

/* Reserves nothing, but draws a random address of the window where so many bytes are free in this process,
 * and maps there. */
int segment_map_arena(int fd, uint64_t bytes, void **ret) _must_check_;

/* Memory behind it, in bytes: what the kernel says. */
int segment_backed_bytes(int fd, uint64_t *ret);

#endif
