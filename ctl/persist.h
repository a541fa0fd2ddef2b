/* SPDX-License-Identifier: MIT */
/*
 * The drop-in that --persist writes, 50-reclaimctl.conf beside the daemon's configuration file: its lines
 * (persist.c), where it lies and what the daemon would not read (persist-place.c).
 */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

struct persist;

struct persist_key {
    const char *name, *value;
};

/*
 * Reads the drop-in and writes its next version beside it, with these keys of [reclaimd] (arena NULL) or of
 * an arena's section set, or removed where the value is NULL; all others stay as they are. config_file: the
 * one that the daemon reads. Nothing has changed for anybody until persist_commit().
 */
int persist_prepare(const char *config_file, const char *arena, const struct persist_key *keys, size_t n,
                    struct persist **ret);

/* The next version takes its place, whole. The path, for words. */
int persist_commit(struct persist *p);
const char *persist_path(const struct persist *p);

/*
 * Whether a drop-in that the daemon reads has the key, and which one: for those who change only the running
 * value. Says nothing; a file that cannot be read has none.
 */
bool persist_has(const char *config_file, const char *arena, const char *name, char ret_path[static PATH_MAX]);

/* Forgets what was not committed. */
struct persist *persist_free(struct persist *p);
void persist_freep(struct persist **p);

/* The path of the drop-in that the daemon itself reads, if there is one: true. Says nothing. */
bool persist_place_read_by(const char *config_file, char ret[static PATH_MAX]);

/*
 * The path of the drop-in: in FILE.d of the daemon's, or where RECLAIMD_CONFIG_DIRECTORY says. CTL_DONE, or it
 * has said why there is no place. Makes nothing.
 */
int persist_place_find(const char *config_file, char ret[static PATH_MAX]);

/* The directory of the drop-in and the one that holds it, if they are not there. A negative errno. */
int persist_place_make(const char *path);

/* Whether the daemon reads that directory, by whatever path. */
bool persist_place_is_read(const char *path, const char *config_file);

/* CTL_DONE, or it has said which line the daemon would refuse, and with it the whole configuration. */
int persist_check_lines(const char *path, char *const *lines, size_t n);
