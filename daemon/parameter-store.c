/* SPDX-License-Identifier: MIT */
/* The layers, and which of them a value comes from. Changing several at once is in parameter-change.c. */
#include "parameter-store.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "basic/cleanup.h"
#include "basic/macro.h"
#include "parameter-layer.h"

/* The end of a path, in one line whatever its bytes, cut between characters. */
static void path_format(const char *file, unsigned line, char ret[static PARAMETER_ORIGIN_BYTES])
{
    enum { PATH_SHOWN = PARAMETER_ORIGIN_BYTES - 16 /* for "...", ':', ten digits and the NUL */ };
    size_t n = strlen(file);
    const char *shown = file + (n > PATH_SHOWN ? n - PATH_SHOWN : 0);

    while ((*shown & 0xc0) == 0x80) /* the rest of a UTF-8 character */
        shown++;
    (void)snprintf(ret, PARAMETER_ORIGIN_BYTES, "%s%s:%u", shown > file ? "..." : "", shown, line);
    for (char *c = ret; *c; c++)
        if ((unsigned char)*c < ' ' || *c == '\x7f')
            *c = '?';
}

char *parameter_origin_format(const struct parameter_origin *origin, char ret[static PARAMETER_ORIGIN_BYTES])
{
    switch (origin->source) {
    case PARAMETER_FILE:
        path_format(origin->file, origin->line, ret);
        return ret;
    case PARAMETER_COMMAND_LINE:
        return strcpy(ret, "--set");
    case PARAMETER_RUNTIME:
        return strcpy(ret, origin->of_arena ? "runtime (arena)" : "runtime");
    default:
        return strcpy(ret, "built-in");
    }
}

/* Empty; its parts are made as they are first named. */
int parameter_layer_new(struct parameter_layer **ret)
{
    struct parameter_layer *layer = calloc(1, sizeof(*layer));

    if (!layer)
        return -ENOMEM;
    *ret = layer;
    return 0;
}

/* Only settings of the file layer own anything. */
static struct parameter_part *part_free(struct parameter_part *part)
{
    for (size_t i = 0; i < N_PARAMETERS; i++)
        free(part->settings[i].file);
    free(part);
    return NULL;
}

struct parameter_layer *parameter_layer_free(struct parameter_layer *layer)
{
    if (!layer)
        return NULL;
    while (layer->parts) {
        struct parameter_part *next = layer->parts->next;

        (void)part_free(layer->parts);
        layer->parts = next;
    }
    free(layer);
    return NULL;
}

/* Linear over the arenas that somebody gave parameters of their own: few, and never on a hot path. */
struct parameter_part *parameter_layer_part(const struct parameter_layer *layer, const char *arena)
{
    const char *name = arena ? arena : "";

    for (struct parameter_part *part = layer->parts; part; part = part->next)
        if (strcmp(part->arena, name) == 0)
            return part;
    return NULL;
}

/* The part, made and appended if it is not there: arenas keep the order in which they were first named. */
int parameter_layer_need_part(struct parameter_layer *layer, const char *arena, struct parameter_part **ret)
{
    struct parameter_part *part = parameter_layer_part(layer, arena);
    struct parameter_part **end = &layer->parts;

    if (!part) {
        part = calloc(1, sizeof(*part));
        if (!part)
            return -ENOMEM;
        (void)snprintf(part->arena, sizeof(part->arena), "%s", arena ? arena : "");
        while (*end)
            end = &(*end)->next;
        *end = part;
    }
    *ret = part;
    return 0;
}

/*
 * An arena that could set what is the daemon's would look as if it had been heard; so it is refused, and
 * the words say where it belongs.
 */
int parameter_scope_find(const char *arena, const char *name, const struct parameter **ret,
                         struct error_line *ret_why)
{
    const struct parameter *parameter;
    int r;

    r = parameter_find(name, &parameter, ret_why);
    if (r < 0)
        return r;
    if (arena && parameter->scope == PARAMETER_SCOPE_DAEMON)
        return error_line_set(ret_why, -EINVAL, "%s belongs to the whole daemon; name it without an arena",
                              parameter->name);
    *ret = parameter;
    return 0;
}

/* Name, scope, value: the checks that need no layer, in the order in which a person would want them told. */
int parameter_assignment_check(const char *arena, const char *name, const char *text,
                               const struct parameter **ret_parameter, struct parameter_value *ret_value,
                               struct error_line *ret_why)
{
    const struct parameter *parameter = NULL;
    int r;

    r = parameter_scope_find(arena, name, &parameter, ret_why);
    if (r < 0)
        return r;
    r = parameter_value_parse(parameter, text, ret_value, ret_why);
    if (r < 0)
        return r;
    *ret_parameter = parameter;
    return 0;
}

/* Everything that can fail comes first, so a setting is never half replaced. */
int parameter_layer_set(struct parameter_layer *layer, const char *arena, const char *name, const char *text,
                        const char *file, unsigned line, struct error_line *ret_why)
{
    const struct parameter *parameter;
    struct parameter_setting *setting;
    struct parameter_value value;
    struct parameter_part *part;
    _cleanup_free_ char *copy = NULL;
    int r;

    r = parameter_assignment_check(arena, name, text, &parameter, &value, ret_why);
    if (r < 0)
        return r;
    copy = file ? strdup(file) : NULL;
    if ((file && !copy) || parameter_layer_need_part(layer, arena, &part) < 0)
        return error_line_set(ret_why, -ENOMEM, "not enough memory");
    setting = &part->settings[parameter_index(parameter)];
    free(setting->file);
    *setting = (struct parameter_setting){true, line, steal_pointer(copy), value};
    return 0;
}

/* For whoever fills the layer, to see what an earlier line or file has said. */
bool parameter_layer_find(const struct parameter_layer *layer, const char *arena,
                          const struct parameter *parameter, struct parameter_origin *ret)
{
    const struct parameter_part *part = parameter_layer_part(layer, arena);
    const struct parameter_setting *setting = part ? &part->settings[parameter_index(parameter)] : NULL;

    if (!setting || !setting->is_set)
        return false;
    *ret = (struct parameter_origin){PARAMETER_FILE, arena != NULL, setting->file, setting->line};
    return true;
}

/* Skips the daemon's part, wherever in the list it came to be. */
const char *parameter_layer_arena(const struct parameter_layer *layer, size_t i)
{
    for (const struct parameter_part *part = layer->parts; part; part = part->next)
        if (*part->arena && i-- == 0)
            return part->arena;
    return NULL;
}

/* The layer of what nobody set. */
static int built_in_fill(struct parameter_layer *layer)
{
    for (size_t i = 0; parameter_get(i); i++) {
        const struct parameter *parameter = parameter_get(i);
        int r = parameter_layer_set(layer, NULL, parameter->name, parameter->default_text, NULL, 0, NULL);

        if (r < 0)
            return r;
    }
    return 0;
}

/* A store always has all of its layers, empty ones too, so that nobody has to ask. */
int parameter_store_new(struct parameter_store **ret)
{
    struct parameter_store *store = calloc(1, sizeof(*store));
    int r = store ? 0 : -ENOMEM;

    for (size_t i = 0; r >= 0 && i < PARAMETER_SOURCE_MAX; i++)
        r = parameter_layer_new(&store->layers[i]);
    if (r >= 0)
        r = built_in_fill(store->layers[PARAMETER_BUILT_IN]);
    if (r < 0) {
        (void)parameter_store_free(store);
        return r;
    }
    *ret = store;
    return 0;
}

struct parameter_store *parameter_store_free(struct parameter_store *store)
{
    if (!store)
        return NULL;
    for (size_t i = 0; i < PARAMETER_SOURCE_MAX; i++)
        store->layers[i] = parameter_layer_free(store->layers[i]);
    free(store);
    return NULL;
}

/* What one layer says for exactly this arena, or for the daemon. */
static const struct parameter_setting *setting_find(const struct parameter_layer *layer, const char *arena,
                                                    size_t index)
{
    const struct parameter_part *part = parameter_layer_part(layer, arena);

    return part && part->settings[index].is_set ? &part->settings[index] : NULL;
}

/* Walks down the layers; within one, what is said for the arena stands above what is said for all. */
const struct parameter_setting *parameter_store_find(const struct parameter_store *store, const char *arena,
                                                     size_t index, struct parameter_origin *ret_origin)
{
    for (int source = PARAMETER_RUNTIME; source >= PARAMETER_BUILT_IN; source--) {
        const struct parameter_layer *layer = store->layers[source];
        const struct parameter_setting *of_arena = arena ? setting_find(layer, arena, index) : NULL;
        const struct parameter_setting *found = of_arena ? of_arena : setting_find(layer, NULL, index);

        if (!found)
            continue;
        if (ret_origin)
            *ret_origin = (struct parameter_origin){(enum parameter_source)source, of_arena != NULL,
                                                    found->file, found->line};
        return found;
    }
    __builtin_unreachable(); /* the built-in layer sets everything */
}

/* Fills the fields of one scope; the others of the table belong to the other struct. */
static void effective_store(const struct parameter_store *store, const char *arena,
                            enum parameter_scope scope, void *target)
{
    for (size_t i = 0; i < N_PARAMETERS; i++)
        if (parameter_get(i)->scope == scope)
            parameter_value_store(parameter_get(i), &parameter_store_find(store, arena, i, NULL)->value,
                                  target);
}

/*
 * Zeroed first: padding and the unused end of a name are the same each time, so that two snapshots can be
 * compared as bytes.
 */
void parameters_effective_daemon(const struct parameter_store *store, struct daemon_parameters *ret)
{
    memset(ret, 0, sizeof(*ret));
    effective_store(store, NULL, PARAMETER_SCOPE_DAEMON, ret);
}

/* An arena that no layer speaks of has the values that arenas begin with. */
void parameters_effective_arena(const struct parameter_store *store, const char *arena,
                                struct arena_parameters *ret)
{
    memset(ret, 0, sizeof(*ret));
    effective_store(store, arena, PARAMETER_SCOPE_ARENA, ret);
}

char *parameter_store_format(const struct parameter_store *store, const char *arena,
                             const struct parameter *parameter, struct parameter_origin *ret_origin,
                             char ret[static PARAMETER_TEXT_BYTES])
{
    const struct parameter_setting *setting =
        parameter_store_find(store, arena, parameter_index(parameter), ret_origin);

    return parameter_value_format(parameter, &setting->value, ret);
}

const struct parameter_layer *parameter_store_file(const struct parameter_store *store)
{
    return store->layers[PARAMETER_FILE];
}

/* What the files say for that name stays: it is for any arena that will have it. */
void parameter_store_forget_arena(struct parameter_store *store, const char *arena)
{
    for (struct parameter_part **at = &store->layers[PARAMETER_RUNTIME]->parts; *at; at = &(*at)->next)
        if (strcmp((*at)->arena, arena) == 0) {
            struct parameter_part *gone = *at;

            *at = gone->next;
            (void)part_free(gone);
            return;
        }
}
