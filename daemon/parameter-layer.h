/* SPDX-License-Identifier: MIT */
/* What parameter-store.c and parameter-change.c share: the inside of layers. For nobody else. */
#pragma once

#include "parameter-store.h"

/* One value as it was said. */
struct parameter_setting {
    bool is_set;
    unsigned line;
    char *file; /* owned; NULL outside the file layer */
    struct parameter_value value;
};

/* What one layer says for the daemon (empty name) or for one arena. */
struct parameter_part {
    struct parameter_part *next;
    char arena[ARENA_NAME_BYTES];
    struct parameter_setting settings[N_PARAMETERS];
};

struct parameter_layer {
    struct parameter_part *parts;
};

/* By source; all are always there, and the built-in one sets everything. */
struct parameter_store {
    struct parameter_layer *layers[PARAMETER_SOURCE_MAX];
};

/* NULL when the layer says nothing for the arena. */
struct parameter_part *parameter_layer_part(const struct parameter_layer *layer, const char *arena);
int parameter_layer_need_part(struct parameter_layer *layer, const char *arena, struct parameter_part **ret);

/* The row of that name, if the arena (NULL: the daemon) may set it. */
int parameter_scope_find(const char *arena, const char *name, const struct parameter **ret,
                         struct error_line *ret_why);

/* The row and the value of NAME=TEXT, on the same terms. */
int parameter_assignment_check(const char *arena, const char *name, const char *text,
                               const struct parameter **ret_parameter, struct parameter_value *ret_value,
                               struct error_line *ret_why);

/* The setting in force. Never NULL. */
const struct parameter_setting *parameter_store_find(const struct parameter_store *store, const char *arena,
                                                     size_t index, struct parameter_origin *ret_origin);
