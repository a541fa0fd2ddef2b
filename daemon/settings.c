/* SPDX-License-Identifier: MIT */
/* Files and command line, put together; and the actions that end before a daemon would run. */
#include "settings.h"

#include <errno.h>
#include <string.h>

#include "basic/cleanup.h"

/* The command line stands above the files here too. */
static int arenas_merge(struct config_arenas *arenas, const struct config_arenas *over)
{
    int r = 0;

    for (size_t i = 0; r >= 0 && i < over->n; i++)
        r = config_arenas_put(arenas, over->items[i].name, over->items[i].size_bytes, NULL, 0);
    return r;
}

/* One by one, so that of two for the same name the later wins. They were checked when they were parsed. */
static int sets_apply(struct parameter_store *store, const struct options *options)
{
    int r = 0;

    for (size_t i = 0; r >= 0 && i < options->n_sets; i++) {
        _cleanup_(parameter_changes_deinit) struct parameter_changes changes = {};

        r = parameter_store_set(store, PARAMETER_COMMAND_LINE, NULL, &options->sets[i], 1, false, &changes,
                                NULL);
    }
    return r;
}

/* A load is a reload of an empty store: one path, so the two cannot come to differ. */
int settings_load(const struct options *options, struct settings *ret, struct config_errors *errors)
{
    _cleanup_(settings_deinit) struct settings settings = {};
    _cleanup_(parameter_changes_deinit) struct parameter_changes changes = {};
    int r;

    r = parameter_store_new(&settings.store);
    if (r >= 0)
        r = sets_apply(settings.store, options);
    if (r >= 0)
        r = settings_reload(&settings, options, &changes, errors);
    if (r < 0)
        return r;
    *ret = settings;
    settings = (struct settings){};
    return 0;
}

/* What arena-size-max will be: a value set at runtime stays, else what files and command line say. */
static int size_max_ahead(const struct settings *settings, const struct options *options, uint64_t *ret)
{
    _cleanup_(config_deinit) struct config config = {};
    _cleanup_(parameter_changes_deinit) struct parameter_changes changes = {};
    _cleanup_(config_errors_deinit) struct config_errors errors = {};
    struct settings ahead = {};
    struct daemon_parameters parameters;
    struct parameter_origin origin;
    const struct parameter *parameter;
    char text[PARAMETER_TEXT_BYTES];
    int r = parameter_find("arena-size-max", &parameter, NULL);

    if (r >= 0)
        r = parameter_store_new(&ahead.store);
    if (r >= 0)
        r = sets_apply(ahead.store, options);
    if (r >= 0)
        r = config_load(options->config_file, options->config_is_named, &config, &errors);
    if (r >= 0)
        r = parameter_store_replace_file(ahead.store, config.parameters, &changes);
    if (r >= 0) {
        config.parameters = NULL; /* the store's now */
        (void)parameter_store_format(settings->store, NULL, parameter, &origin, text);
        parameters_effective_daemon(origin.source == PARAMETER_RUNTIME ? settings->store : ahead.store,
                                    &parameters);
        *ret = parameters.arena_size_max_bytes;
    }
    settings_deinit(&ahead);
    return r;
}

/* An arena that could not be made is a mistake of the file that names it, told with the others. */
static int sizes_check(const struct settings *settings, const struct options *options,
                       const struct config_arenas *arenas, struct config_errors *errors)
{
    char size[FORMAT_BYTES], most[FORMAT_BYTES];
    uint64_t max;
    int r = size_max_ahead(settings, options, &max);

    for (size_t i = 0; r >= 0 && i < arenas->n; i++) {
        const struct config_arena *arena = &arenas->items[i];

        if (arena->size_bytes > max)
            config_errors_add(errors, arena->file ? arena->file : "--arena", arena->line,
                              "size of arena %s: %s is more than arena-size-max = %s allows", arena->name,
                              format_bytes(arena->size_bytes, size), format_bytes(max, most));
    }
    return r < 0 ? r : errors->n > 0 ? -EBADMSG : 0;
}

/*
 * The steps that can fail build something new beside what is in force; the exchange at the end cannot fail.
 */
int settings_reload(struct settings *settings, const struct options *options,
                    struct parameter_changes *ret_changes, struct config_errors *errors)
{
    _cleanup_(config_deinit) struct config config = {};
    int r;

    r = config_load(options->config_file, options->config_is_named, &config, errors);
    if (r >= 0)
        r = arenas_merge(&config.arenas, &options->arenas);
    if (r >= 0)
        r = sizes_check(settings, options, &config.arenas, errors);
    if (r >= 0)
        r = parameter_store_replace_file(settings->store, config.parameters, ret_changes);
    if (r < 0)
        return r;
    config.parameters = NULL; /* the store's now */
    config_arenas_deinit(&settings->arenas);
    settings->arenas = config.arenas;
    config.arenas = (struct config_arenas){};
    return 0;
}

void settings_deinit(struct settings *settings)
{
    settings->store = parameter_store_free(settings->store);
    config_arenas_deinit(&settings->arenas);
}

/* The origin is a comment that inih strips, so what is printed can be read back as it is. */
static void value_print(const struct settings *settings, const char *arena, const struct parameter *parameter,
                        FILE *stream)
{
    char text[PARAMETER_TEXT_BYTES], origin_text[PARAMETER_ORIGIN_BYTES];
    struct parameter_origin origin;

    (void)parameter_store_format(settings->store, arena, parameter, &origin, text);
    if (arena && !origin.of_arena)
        return; /* as the daemon's */
    (void)fprintf(stream, "%-19s = %-8s ; %s\n", parameter->name, text,
                  parameter_origin_format(&origin, origin_text));
}

/* Its size if it is made at start, and the values that it does not share with the daemon. */
static void arena_print(const struct settings *settings, const char *name, FILE *stream)
{
    const struct config_arena *arena = config_arenas_find(&settings->arenas, name);
    char text[FORMAT_BYTES], origin_text[PARAMETER_ORIGIN_BYTES];

    (void)fprintf(stream, "\n[arena %s]\n", name);
    if (arena && arena->file) {
        struct parameter_origin origin = {PARAMETER_FILE, true, arena->file, arena->line};

        (void)fprintf(stream, "%-19s = %-8s ; %s\n", "size", format_bytes(arena->size_bytes, text),
                      parameter_origin_format(&origin, origin_text));
    } else if (arena) {
        (void)fprintf(stream, "%-19s = %-8s ; --arena\n", "size", format_bytes(arena->size_bytes, text));
    }
    for (size_t i = 0; parameter_get(i); i++)
        value_print(settings, name, parameter_get(i), stream);
}

/* Arenas that are made at start first, then those that only have parameters of their own. */
void settings_print(const struct settings *settings, FILE *stream)
{
    const struct parameter_layer *file = parameter_store_file(settings->store);
    const char *name;

    (void)fprintf(stream, "[reclaimd]\n");
    for (size_t i = 0; parameter_get(i); i++)
        value_print(settings, NULL, parameter_get(i), stream);
    for (size_t i = 0; i < settings->arenas.n; i++)
        arena_print(settings, settings->arenas.items[i].name, stream);
    for (size_t i = 0; (name = parameter_layer_arena(file, i)); i++)
        if (!config_arenas_find(&settings->arenas, name))
            arena_print(settings, name, stream);
}

/* Each as FILE:LINE: words, the form that editors jump to. */
void config_errors_print(const struct config_errors *errors, FILE *stream)
{
    for (size_t i = 0; i < errors->n; i++)
        (void)fprintf(stream, "%s\n", errors->lines[i]);
    if (errors->n_more > 0)
        (void)fprintf(stream, "and %zu more\n", errors->n_more);
}

/* Loads, and checks or prints when that was asked for. Returns as settings_start(). */
static int load_and_act(const struct options *options, FILE *out, FILE *err, struct settings *ret)
{
    _cleanup_(config_errors_deinit) struct config_errors errors = {};
    _cleanup_(settings_deinit) struct settings settings = {};
    int r;

    r = settings_load(options, &settings, &errors);
    if (r < 0) {
        config_errors_print(&errors, err);
        if (r != -EBADMSG)
            (void)fprintf(err, "reclaimd: cannot load the configuration: %s\n", strerror(-r));
        return 1;
    }
    if (options->action == OPTIONS_CHECK_CONFIG)
        (void)fprintf(out, "OK\n");
    else if (options->action == OPTIONS_PRINT_CONFIG)
        settings_print(&settings, out);
    if (options->action != OPTIONS_RUN)
        return fflush(out) == 0 ? 0 : 1;
    *ret = settings;
    settings = (struct settings){};
    return -1;
}

/*
 * Help and version come before any file is read: they must work when the configuration is what is broken.
 * Usage errors go to err with a pointer to --help, bad files without one: help would not help.
 */
int settings_start(int argc, char *argv[], FILE *out, FILE *err, struct options *ret_options,
                   struct settings *ret_settings)
{
    _cleanup_(options_deinit) struct options options = {};
    struct error_line why;
    int status;

    if (options_parse(argc, argv, &options, &why) < 0) {
        (void)fprintf(err, "reclaimd: %s\nTry 'reclaimd --help'.\n", why.text);
        return 2;
    }
    if (options.action == OPTIONS_HELP || options.action == OPTIONS_VERSION) {
        if (options.action == OPTIONS_HELP)
            options_print_help(out);
        else
            (void)fprintf(out, "reclaimd %s\n", RECLAIMD_VERSION);
        return fflush(out) == 0 ? 0 : 1;
    }
    status = load_and_act(&options, out, err, ret_settings);
    if (status == -1) {
        *ret_options = options;
        options = (struct options){};
    }
    return status;
}
