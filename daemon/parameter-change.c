/* SPDX-License-Identifier: MIT */
/*
 * Changing several parameters at once, or none. Everything that can fail (names, values, memory) happens
 * before the first setting is touched; a dry run does the change and takes it back, so it tells what would
 * happen.
 */
#include "parameter-store.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "basic/macro.h"
#include "parameter-layer.h"

void parameter_changes_deinit(struct parameter_changes *changes)
{
    free(changes->items);
    *changes = (struct parameter_changes){};
}

/* Room for one more, which is empty but for its parameter and arena; NULL without memory. */
static struct parameter_change *changes_add(struct parameter_changes *changes,
                                            const struct parameter *parameter, const char *arena)
{
    struct parameter_change *items = reallocarray(changes->items, changes->n + 1, sizeof(*items));
    struct parameter_change *change;

    if (!items)
        return NULL;
    changes->items = items;
    change = &items[changes->n++];
    memset(change, 0, sizeof(*change));
    change->parameter = parameter;
    if (arena)
        strncpy(change->arena, arena, sizeof(change->arena) - 1);
    return change;
}

/* Back to the form that the store wants: NULL for the daemon. */
static const char *change_arena(const struct parameter_change *change)
{
    return *change->arena ? change->arena : NULL;
}

/* Fills `before` or `after` of all changes with what is in force now. */
static void changes_note(struct parameter_changes *changes, const struct parameter_store *store, bool after)
{
    for (size_t i = 0; i < changes->n; i++) {
        struct parameter_change *change = &changes->items[i];

        (void)parameter_store_format(store, change_arena(change), change->parameter, NULL,
                                     after ? change->after : change->before);
    }
}

/* A change of one layer's part that has been checked: settings[i] of the list go into or out of the part. */
struct transaction {
    struct parameter_part *part;
    struct parameter_value values[N_PARAMETERS];
    bool is_named[N_PARAMETERS];
    bool set; /* else reset */
};

/* Names one parameter; a second time is an error, as it would be unclear which one is meant. */
static int transaction_name(struct transaction *transaction, const struct parameter *parameter,
                            const char *arena, struct parameter_changes *changes, struct error_line *ret_why)
{
    size_t index = parameter_index(parameter);

    if (transaction->is_named[index])
        return error_line_set(ret_why, -EINVAL, "%s is named twice; name it once", parameter->name);
    transaction->is_named[index] = true;
    if (!changes_add(changes, parameter, arena))
        return error_line_set(ret_why, -ENOMEM, "not enough memory");
    return 0;
}

/* Also gives each setting its whole new content: a reset leaves no old value behind. */
static void transaction_apply(const struct transaction *transaction)
{
    /* Only the file layer owns file names, and it is never changed in this way. */
    for (size_t i = 0; i < N_PARAMETERS; i++)
        if (transaction->is_named[i])
            transaction->part->settings[i] =
                (struct parameter_setting){.is_set = transaction->set, .value = transaction->values[i]};
}

/* Applies, tells, and takes it back if it was only asked for. Cannot fail. */
static void transaction_run(const struct transaction *transaction, const struct parameter_store *store,
                            bool dry_run, struct parameter_changes *changes)
{
    struct parameter_part saved = *transaction->part;

    changes_note(changes, store, false);
    transaction_apply(transaction);
    changes_note(changes, store, true);
    if (dry_run)
        memcpy(transaction->part->settings, saved.settings, sizeof(saved.settings));
}

/*
 * Fills the transaction, and one change each in the order given, which is the order in which they are told.
 */
static int assignments_check(struct transaction *transaction, const char *arena,
                             const struct parameter_assignment *assignments, size_t n,
                             struct parameter_changes *changes, struct error_line *ret_why)
{
    for (size_t i = 0; i < n; i++) {
        const struct parameter *parameter;
        struct parameter_value value;
        int r = parameter_assignment_check(arena, assignments[i].name, assignments[i].value, &parameter,
                                           &value, ret_why);

        if (r < 0)
            return r;
        r = transaction_name(transaction, parameter, arena, changes, ret_why);
        if (r < 0)
            return r;
        transaction->values[parameter_index(parameter)] = value;
    }
    return 0;
}

/*
 * The part is made even for a dry run, as it is where the change is tried; an empty part says nothing and
 * costs nothing.
 */
int parameter_store_set(struct parameter_store *store, enum parameter_source source, const char *arena,
                        const struct parameter_assignment *assignments, size_t n, bool dry_run,
                        struct parameter_changes *ret_changes, struct error_line *ret_why)
{
    struct transaction transaction = {.set = true};
    struct parameter_changes changes = {};
    int r;

    r = assignments_check(&transaction, arena, assignments, n, &changes, ret_why);
    if (r >= 0) {
        r = parameter_layer_need_part(store->layers[source], arena, &transaction.part);
        if (r < 0)
            (void)error_line_set(ret_why, r, "not enough memory");
    }
    if (r < 0) {
        parameter_changes_deinit(&changes);
        return r;
    }
    transaction_run(&transaction, store, dry_run, &changes);
    *ret_changes = changes;
    return 0;
}

/* The names, or without any all that the part sets. */
static int names_check(struct transaction *transaction, const char *arena, const char *const *names, size_t n,
                       struct parameter_changes *changes, struct error_line *ret_why)
{
    int r = 0;

    for (size_t i = 0; r >= 0 && i < n; i++) {
        const struct parameter *parameter;

        r = parameter_scope_find(arena, names[i], &parameter, ret_why);
        if (r >= 0)
            r = transaction_name(transaction, parameter, arena, changes, ret_why);
    }
    for (size_t i = 0; r >= 0 && n == 0 && i < N_PARAMETERS; i++)
        if (transaction->part->settings[i].is_set)
            r = transaction_name(transaction, parameter_get(i), arena, changes, ret_why);
    return r;
}

/*
 * An arena that has no part has nothing to reset, which is no error: the answer is the values as they are.
 * The empty part stands in, and is thrown away with whatever was done to it.
 */
int parameter_store_reset(struct parameter_store *store, const char *arena, const char *const *names,
                          size_t n, bool dry_run, struct parameter_changes *ret_changes,
                          struct error_line *ret_why)
{
    struct parameter_part nothing = {};
    struct transaction transaction = {.part = parameter_layer_part(store->layers[PARAMETER_RUNTIME], arena)};
    struct parameter_changes changes = {};
    int r;

    if (!transaction.part)
        transaction.part = &nothing;
    r = names_check(&transaction, arena, names, n, &changes, ret_why);
    if (r < 0) {
        parameter_changes_deinit(&changes);
        return r;
    }
    transaction_run(&transaction, store, dry_run, &changes);
    *ret_changes = changes;
    return 0;
}

/* What a reload does to one value. Nothing is told of a value that stays as it is because nobody changed it.
 */
static int reload_compare(const struct parameter_store *before, const struct parameter_store *after,
                          const char *arena, size_t index, struct parameter_changes *changes)
{
    const struct parameter *parameter = parameter_get(index);
    const struct parameter_part *runtime = parameter_layer_part(after->layers[PARAMETER_RUNTIME], arena);
    bool kept = runtime && runtime->settings[index].is_set;
    char old_text[PARAMETER_TEXT_BYTES], new_text[PARAMETER_TEXT_BYTES];
    struct parameter_change *change;

    (void)parameter_store_format(before, arena, parameter, NULL, old_text);
    (void)parameter_store_format(after, arena, parameter, NULL, new_text);
    if (!kept && strcmp(old_text, new_text) == 0)
        return 0;
    change = changes_add(changes, parameter, arena);
    if (!change)
        return -ENOMEM;
    change->kept = kept;
    strcpy(change->before, old_text);
    strcpy(change->after, new_text);
    return 0;
}

/* All values of the daemon (NULL) or of one arena. An arena's parts tell only what is its own. */
static int reload_compare_part(const struct parameter_store *before, const struct parameter_store *after,
                               const char *arena, struct parameter_changes *changes)
{
    for (size_t i = 0; i < N_PARAMETERS; i++) {
        struct parameter_origin old_origin = {}, new_origin = {};
        int r;

        (void)parameter_store_find(before, arena, i, &old_origin);
        (void)parameter_store_find(after, arena, i, &new_origin);
        if (arena && !old_origin.of_arena && !new_origin.of_arena)
            continue;
        r = reload_compare(before, after, arena, i, changes);
        if (r < 0)
            return r;
    }
    return 0;
}

/* The arenas of one layer, but for those that an earlier layer has already told of. */
static int reload_compare_arenas(const struct parameter_store *before, const struct parameter_store *after,
                                 const struct parameter_layer *layer, const struct parameter_layer *told[2],
                                 struct parameter_changes *changes)
{
    const char *arena;
    int r = 0;

    for (size_t i = 0; r >= 0 && (arena = parameter_layer_arena(layer, i)); i++)
        if (!(told[0] && parameter_layer_part(told[0], arena)) &&
            !(told[1] && parameter_layer_part(told[1], arena)))
            r = reload_compare_part(before, after, arena, changes);
    return r;
}

/*
 * The daemon's values first, then each arena that the old file, the new file or the runtime layer speaks
 * of, once.
 */
static int reload_compare_all(const struct parameter_store *before, const struct parameter_store *after,
                              struct parameter_changes *changes)
{
    const struct parameter_layer *layers[] = {before->layers[PARAMETER_FILE], after->layers[PARAMETER_FILE],
                                              after->layers[PARAMETER_RUNTIME]};
    int r = reload_compare_part(before, after, NULL, changes);

    for (size_t i = 0; r >= 0 && i < ARRAY_SIZE(layers); i++) {
        const struct parameter_layer *told[2] = {i > 0 ? layers[0] : NULL, i > 1 ? layers[1] : NULL};

        r = reload_compare_arenas(before, after, layers[i], told, changes);
    }
    return r;
}

/* For kept values, what would be in force without the runtime layer. */
static void reload_note_below(const struct parameter_store *after, struct parameter_changes *changes)
{
    struct parameter_layer empty = {};
    struct parameter_store below = *after;

    below.layers[PARAMETER_RUNTIME] = &empty;
    for (size_t i = 0; i < changes->n; i++) {
        struct parameter_change *change = &changes->items[i];

        if (change->kept)
            (void)parameter_store_format(&below, change_arena(change), change->parameter, NULL,
                                         change->after);
    }
}

/*
 * The comparison is between this store and a copy that differs in one pointer, so nothing is exchanged
 * before everything has been told; only then does the old layer go.
 */
int parameter_store_replace_file(struct parameter_store *store, struct parameter_layer *layer,
                                 struct parameter_changes *ret_changes)
{
    struct parameter_store after = *store;
    struct parameter_changes changes = {};
    int r;

    after.layers[PARAMETER_FILE] = layer;
    r = reload_compare_all(store, &after, &changes);
    if (r < 0) {
        parameter_changes_deinit(&changes);
        return r;
    }
    reload_note_below(&after, &changes);
    (void)parameter_layer_free(store->layers[PARAMETER_FILE]);
    store->layers[PARAMETER_FILE] = layer;
    *ret_changes = changes;
    return 0;
}
