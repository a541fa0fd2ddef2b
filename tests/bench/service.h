/* SPDX-License-Identifier: MIT */
/* Service: the daemon that a run measures, its own private one or one that is already there. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "basic/runtime.h"

struct service {
    pid_t pid;
    bool ours; /* we started it, so we end it */
    struct runtime_paths paths;
    char log[160]; /* what a private daemon says; removed with its directory */
};

/*
 * Starts reclaimd in that (empty) folder and waits until it answers. Settings: NAME=VALUE. -errno, with
 * words_set(); -ENOENT: there is no reclaimd to start.
 */
int service_start(struct service *s, const char *directory, const char *const *settings, size_t n_settings);

/*
 * Asks the daemon's program whether it would take these settings. -EINVAL: no, and its own line is in message.
 * A program that cannot be asked is left for service_start() to complain about.
 */
int service_check_settings(const char *const *settings, size_t n_settings, char *message, size_t size);

/* Finds the one that serves that folder. */
int service_find(struct service *s, const char *directory);

/* Ends a private one and waits for it; leaves another alone. */
void service_stop(struct service *s);
