/* SPDX-License-Identifier: MIT */
/* Manager: owns everything, runs the main thread. */
#ifndef RECLAIMD_MANAGER_H
#define RECLAIMD_MANAGER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "arena.h"
#include "control.h"
#include "options.h"
#include "settings.h"

struct event_base;
struct manager;

/* Takes over options and settings (they stay the caller's to deinit, after manager_free()). Errors are
 * logged. */
int manager_new(const struct options *options, struct settings *settings, struct manager **ret);

/* Serves until a signal ends it. */
int manager_run(struct manager *m);
struct manager *manager_free(struct manager *m);

/* For the parts below. */
struct reclaimer *manager_reclaimer(struct manager *m);
struct grace *manager_grace(struct manager *m);
struct callbacks *manager_callbacks(struct manager *m);
struct mainqueue *manager_mainqueue(struct manager *m);
struct purger *manager_purger(struct manager *m);
struct event_base *manager_event_base(struct manager *m);

/* Arenas, by name; main thread. */
struct arena *manager_arena_find(struct manager *m, const char *name);

/* Every limit is checked here and named in words. asked_by: whose limits count, unless root. */
int manager_arena_create(struct manager *m, const struct arena_request *request, uid_t asked_by,
                         struct arena **ret, struct error_line *why);

/* Off the table; its clients are told (-ESHUTDOWN); freed when the last reference is gone. */
void manager_arena_remove(struct manager *m, struct arena *a);
void manager_arena_gone(struct manager *m, struct arena *a); /* from arena_unref() */

/* purge-threshold = auto. */
uint64_t manager_purge_threshold(struct manager *m);

/* Parameters of the moment. */
const struct daemon_parameters *manager_parameters(struct manager *m);

#endif
