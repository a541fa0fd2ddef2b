/* SPDX-License-Identifier: MIT */
/*
 * Where each parameter's value comes from. Values are layered, and the last one that is set wins:
 *
 *     built-in < file [reclaimd] < file [arena A] < --set < runtime, daemon-wide < runtime, arena A
 *
 * A drop-in is part of the file layer, read after the main file. Every layer keeps what was said, so that
 * reset uncovers what lies below, and a reload exchanges the file layer under the others. Pure: no file,
 * clock, log or thread; the daemon publishes copies of the effective structs itself.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "basic/parse.h"
#include "parameters.h"

enum parameter_source {
    PARAMETER_BUILT_IN,
    PARAMETER_FILE,
    PARAMETER_COMMAND_LINE, /* --set */
    PARAMETER_RUNTIME,
    PARAMETER_SOURCE_MAX,
    PARAMETER_SOURCE_INVALID = -1,
};

/* Who set the value in force. The file's name lives until the store's file layer is replaced. */
struct parameter_origin {
    enum parameter_source source;
    bool of_arena; /* set for this arena alone */
    const char *file;
    unsigned line;
};

enum {
    PARAMETER_ORIGIN_BYTES = 112, /* a longer path loses its beginning: it must fit a line of a file */
};

/* "built-in", "/etc/reclaimd/reclaimd.conf:12", "--set", "runtime", "runtime (arena)". Printable. */
char *parameter_origin_format(const struct parameter_origin *origin, char ret[static PARAMETER_ORIGIN_BYTES]);

/*
 * One layer: for the daemon and for any number of arenas, what is set and where it was said. An arena is
 * named by its name; NULL is the daemon-wide part.
 */
struct parameter_layer;

int parameter_layer_new(struct parameter_layer **ret);
struct parameter_layer *parameter_layer_free(struct parameter_layer *layer);

/*
 * Sets one from text. file may be NULL. -ENOKEY: no such parameter; -EINVAL, -ERANGE: not such a value, or a
 * parameter of the whole daemon set for an arena; -ENOMEM. All with one line of words.
 */
int parameter_layer_set(struct parameter_layer *layer, const char *arena, const char *name, const char *text,
                        const char *file, unsigned line, struct error_line *ret_why);

/* Where the layer has the parameter from; false when it does not set it. */
bool parameter_layer_find(const struct parameter_layer *layer, const char *arena,
                          const struct parameter *parameter, struct parameter_origin *ret);

/* The i-th arena for which the layer sets anything, or NULL. */
const char *parameter_layer_arena(const struct parameter_layer *layer, size_t i);

struct parameter_store;

int parameter_store_new(struct parameter_store **ret);
struct parameter_store *parameter_store_free(struct parameter_store *store);

/* The effective values, all layers considered. Never fails: the built-in layer sets everything. */
void parameters_effective_daemon(const struct parameter_store *store, struct daemon_parameters *ret);
void parameters_effective_arena(const struct parameter_store *store, const char *arena,
                                struct arena_parameters *ret);

/* One effective value as text, and who set it (NULL: nobody asks). */
char *parameter_store_format(const struct parameter_store *store, const char *arena,
                             const struct parameter *parameter, struct parameter_origin *ret_origin,
                             char ret[static PARAMETER_TEXT_BYTES]);

struct parameter_assignment {
    const char *name;
    const char *value;
};

/* What became of one value. */
struct parameter_change {
    const struct parameter *parameter;
    char arena[ARENA_NAME_BYTES]; /* empty: daemon-wide */
    char before[PARAMETER_TEXT_BYTES];
    char after[PARAMETER_TEXT_BYTES]; /* the same where nothing changed; kept: what the layers below say */
    bool kept;                        /* a reload left it, as it was set at runtime */
};

struct parameter_changes {
    struct parameter_change *items;
    size_t n;
};

void parameter_changes_deinit(struct parameter_changes *changes);

/*
 * Sets several in one layer (--set or runtime), or none if one of them is wrong or named twice. Each gives
 * one change, in order. dry_run: everything is checked and told, nothing is set. Errors as
 * parameter_layer_set().
 */
int parameter_store_set(struct parameter_store *store, enum parameter_source source, const char *arena,
                        const struct parameter_assignment *assignments, size_t n, bool dry_run,
                        struct parameter_changes *ret_changes, struct error_line *ret_why);

/* Takes names out of the runtime layer, of this arena or daemon-wide; n = 0 means all. All or nothing. */
int parameter_store_reset(struct parameter_store *store, const char *arena, const char *const *names,
                          size_t n, bool dry_run, struct parameter_changes *ret_changes,
                          struct error_line *ret_why);

/*
 * Exchanges the file layer and tells what that changes and what runtime values keep. On success the store
 * owns the layer; on failure (-ENOMEM) it is still the caller's and nothing has changed.
 */
int parameter_store_replace_file(struct parameter_store *store, struct parameter_layer *layer,
                                 struct parameter_changes *ret_changes);

/* The file layer in force, to see which arenas it speaks of. */
const struct parameter_layer *parameter_store_file(const struct parameter_store *store);

/* Drops what was set at runtime for an arena that is gone. */
void parameter_store_forget_arena(struct parameter_store *store, const char *arena);
