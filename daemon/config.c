/* SPDX-License-Identifier: MIT */
/* The configuration files. inih splits the lines; which lines it may see is decided in config-reader.c. */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ini.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "abi.h"
#include "basic/cleanup.h"
#include "basic/macro.h"
#include "config-reader.h"

/* One file while it is read. */
struct config_parse {
    struct config *config;
    struct config_reader reader;
    bool out_of_memory;
};

/*
 * Never fails: a mistake whose words cannot be kept is still counted, and a configuration with a count is
 * not used.
 */
void config_errors_add(struct config_errors *errors, const char *file, unsigned line, const char *format, ...)
{
    _cleanup_free_ char *words = NULL;
    va_list arguments;
    int r;

    if (errors->n == CONFIG_ERRORS_MAX) {
        errors->n_more++;
        return;
    }
    va_start(arguments, format);
    r = vasprintf(&words, format, arguments);
    va_end(arguments);
    if (r < 0) {
        words = NULL;
        errors->n_more++;
        return;
    }
    if (line > 0)
        r = asprintf(&errors->lines[errors->n], "%s:%u: %s", file, line, words);
    else
        r = asprintf(&errors->lines[errors->n], "%s: %s", file, words);
    if (r < 0)
        errors->n_more++; /* without memory for its words it still counts */
    else
        errors->n++;
}

void config_errors_deinit(struct config_errors *errors)
{
    for (size_t i = 0; i < errors->n; i++)
        free(errors->lines[i]);
    *errors = (struct config_errors){};
}

/* Linear: arenas made at start are named by hand. */
const struct config_arena *config_arenas_find(const struct config_arenas *arenas, const char *name)
{
    for (size_t i = 0; i < arenas->n; i++)
        if (strcmp(arenas->items[i].name, name) == 0)
            return &arenas->items[i];
    return NULL;
}

/* The one of that name, added without size if it is not there. */
static struct config_arena *arenas_need(struct config_arenas *arenas, const char *name)
{
    struct config_arena *arena = (struct config_arena *)config_arenas_find(arenas, name);
    struct config_arena *items;

    if (arena)
        return arena;
    items = reallocarray(arenas->items, arenas->n + 1, sizeof(*items));
    if (!items)
        return NULL;
    arenas->items = items;
    arena = &items[arenas->n++];
    memset(arena, 0, sizeof(*arena));
    strncpy(arena->name, name, sizeof(arena->name) - 1);
    return arena;
}

/*
 * The same bounds for file and command line: those of what can be mapped at all. arena-size-max is not for
 * us.
 */
int config_arena_size_parse(const char *text, uint64_t *ret_bytes, struct error_line *ret_why)
{
    char min[FORMAT_BYTES], max[FORMAT_BYTES];
    struct error_line line;
    uint64_t bytes;
    int r;

    r = parse_bytes(text, &bytes);
    if (r == -EINVAL) {
        parse_error_describe(PARSE_SIZE, r, text, &line);
        return error_line_set(ret_why, r, "size: %.*s", ERROR_LINE_BYTES - 16, line.text);
    }
    if (r < 0 || bytes < ABI_ARENA_BYTES_MIN || bytes > ABI_ARENA_BYTES_MAX)
        return error_line_set(ret_why, -ERANGE, "size: '%s' is not between %s and %s", text_quote(text).text,
                              format_bytes(ABI_ARENA_BYTES_MIN, min), format_bytes(ABI_ARENA_BYTES_MAX, max));
    *ret_bytes = bytes;
    return 0;
}

/* A later file, and --arena, replace the size and with it the place that is told of it. */
int config_arenas_put(struct config_arenas *arenas, const char *name, uint64_t size_bytes, const char *file,
                      unsigned line)
{
    _cleanup_free_ char *copy = file ? strdup(file) : NULL;
    struct config_arena *arena = file && !copy ? NULL : arenas_need(arenas, name);

    if (!arena)
        return -ENOMEM;
    free(arena->file);
    arena->file = steal_pointer(copy);
    arena->line = line;
    arena->size_bytes = size_bytes;
    return 0;
}

void config_arenas_deinit(struct config_arenas *arenas)
{
    for (size_t i = 0; i < arenas->n; i++)
        free(arenas->items[i].file);
    free(arenas->items);
    *arenas = (struct config_arenas){};
}

void config_deinit(struct config *config)
{
    config->parameters = parameter_layer_free(config->parameters);
    config_arenas_deinit(&config->arenas);
}

/* Tells of a second value for the same key in the same file; later files may have their own. */
static bool is_duplicate(struct config_parse *parse, const char *name, const char *file, unsigned line)
{
    if (!text_equal(file, parse->reader.file))
        return false;
    config_errors_add(parse->reader.errors, parse->reader.file, parse->reader.line,
                      "%s is already set in line %u; keep one of the two", name, line);
    return true;
}

/* An arena's size is no parameter: it cannot change, so it is in none of the layers. */
static int size_set(struct config_parse *parse, const char *text, struct error_line *ret_why)
{
    const struct config_reader *reader = &parse->reader;
    const struct config_arena *there = config_arenas_find(&parse->config->arenas, reader->arena);
    uint64_t bytes;
    int r;

    if (there && is_duplicate(parse, "size", there->file, there->line))
        return 0;
    r = config_arena_size_parse(text, &bytes, ret_why);
    if (r < 0)
        return r;
    return config_arenas_put(&parse->config->arenas, reader->arena, bytes, reader->file, reader->line);
}

/*
 * The scope is checked here as well as in the layer, since a file has other words for where a parameter
 * belongs.
 */
static int parameter_key_set(struct config_parse *parse, const char *name, const char *text,
                             struct error_line *ret_why)
{
    const struct config_reader *reader = &parse->reader;
    const char *arena = reader->section == CONFIG_SECTION_ARENA ? reader->arena : NULL;
    const struct parameter *parameter;
    struct parameter_origin origin;
    int r;

    if (!arena && strcmp(name, "size") == 0)
        return error_line_set(ret_why, -ENOKEY, "size belongs to an arena; write it below [arena NAME]");
    r = parameter_find(name, &parameter, ret_why);
    if (r < 0)
        return r;
    if (arena && parameter->scope == PARAMETER_SCOPE_DAEMON)
        return error_line_set(ret_why, -EINVAL, "%s belongs to the whole daemon; write it below [reclaimd]",
                              name);
    if (parameter_layer_find(parse->config->parameters, arena, parameter, &origin) &&
        is_duplicate(parse, name, origin.file, origin.line))
        return 0;
    return parameter_layer_set(parse->config->parameters, arena, name, text, reader->file, reader->line,
                               ret_why);
}

/*
 * inih calls this for each NAME = VALUE, while the reader's line and section are that line's. Its own idea of
 * the section is empty, as it never sees one.
 */
static int key_handle(void *user, const char *no_section, const char *name, const char *value)
{
    struct config_parse *parse = user;
    struct config_reader *reader = &parse->reader;
    struct error_line why = {.text = "not enough memory"};
    int r;

    if (reader->section == CONFIG_SECTION_WRONG)
        return 1;
    if (reader->section == CONFIG_SECTION_NONE) {
        r = error_line_set(&why, -EINVAL, "this stands before any section; write [reclaimd] above it");
        reader->section = CONFIG_SECTION_WRONG; /* once is enough */
    } else if (reader->section == CONFIG_SECTION_ARENA && strcmp(name, "size") == 0) {
        r = size_set(parse, value, &why);
    } else {
        r = parameter_key_set(parse, name, value, &why);
    }
    if (r < 0)
        config_errors_add(reader->errors, reader->file, reader->line, "%s", why.text);
    parse->out_of_memory = parse->out_of_memory || r == -ENOMEM;
    return 1;
}

/* No pipe: it would have us wait for whoever may write into it. */
static FILE *file_open(const char *file)
{
    _cleanup_close_ int fd = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat st;
    FILE *stream;

    if (fd < 0 || fstat(fd, &st) < 0)
        return NULL;
    if (S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode)) {
        errno = EINVAL;
        return NULL;
    }
    stream = fdopen(fd, "r");
    if (stream)
        (void)steal_fd(&fd);
    return stream;
}

/*
 * A file that cannot be opened is a mistake like any other, told with the rest. Only want of memory ends the
 * reading.
 */
static int file_parse(struct config *config, const char *file, bool must_exist, struct config_errors *errors)
{
    _cleanup_fclose_ FILE *stream = file_open(file);
    struct config_parse parse = {.config = config,
                                 .reader = {.file = file, .stream = stream, .errors = errors}};
    int r;

    if (!stream) {
        if (errno == ENOENT && !must_exist)
            return 0;
        if (errno == EINVAL)
            config_errors_add(errors, file, 0, "cannot read it: it is a pipe");
        else
            config_errors_add(errors, file, 0, "cannot open it: %m");
        return 0;
    }
    r = ini_parse_stream(config_reader_read, &parse.reader, key_handle, &parse);
    /* What inih still finds wrong by itself is one line that the reader let pass. */
    if (r > 0)
        config_errors_add(errors, file, (unsigned)r, "this is neither [section] nor NAME = VALUE");
    return r == -2 || parse.out_of_memory ? -ENOMEM : 0;
}

/* No hidden ones, and nothing that an editor or a package manager leaves beside them. */
static int is_drop_in(const struct dirent *entry)
{
    size_t n = strlen(entry->d_name);

    return entry->d_name[0] != '.' && n > 5 && strcmp(entry->d_name + n - 5, ".conf") == 0;
}

/* By bytes, whatever the locale: the same files must mean the same everywhere. */
static int name_compare(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

/* One that vanishes between listing and opening is told: somebody is writing at this moment. */
static int drop_in_parse(struct config *config, const char *directory, const char *name,
                         struct config_errors *errors)
{
    _cleanup_free_ char *path = NULL;

    if (asprintf(&path, "%s/%s", directory, name) < 0) {
        path = NULL;
        return -ENOMEM;
    }
    return file_parse(config, path, true, errors);
}

/* No directory is no drop-ins; one that cannot be read would silently lose what it says. */
static int drop_ins_parse(struct config *config, const char *file, struct config_errors *errors)
{
    _cleanup_free_ struct dirent **entries = NULL;
    _cleanup_free_ char *directory = NULL;
    int n, r = 0;

    if (asprintf(&directory, "%s.d", file) < 0) {
        directory = NULL;
        return -ENOMEM;
    }
    n = scandir(directory, &entries, is_drop_in, name_compare);
    if (n < 0) {
        entries = NULL;
        if (errno == ENOMEM)
            return -ENOMEM;
        /* ENOTDIR: FILE is not what a directory could stand beside, as /dev/fd/3. */
        if (errno != ENOENT && errno != ENOTDIR)
            config_errors_add(errors, directory, 0, "cannot read the directory: %m");
        return 0;
    }
    for (int i = 0; i < n; i++) {
        if (r >= 0)
            r = drop_in_parse(config, directory, entries[i]->d_name, errors);
        free(entries[i]);
    }
    return r;
}

/*
 * All files are read even after a mistake in the first, so that one round of corrections is enough. What
 * was read goes to the caller only when nothing at all was wrong.
 */
int config_load(const char *file, bool file_must_exist, struct config *ret, struct config_errors *errors)
{
    _cleanup_(config_deinit) struct config config = {};
    int r;

    r = parameter_layer_new(&config.parameters);
    if (r >= 0)
        r = file_parse(&config, file, file_must_exist, errors);
    if (r >= 0)
        r = drop_ins_parse(&config, file, errors);
    if (r < 0)
        return r;
    if (errors->n > 0 || errors->n_more > 0)
        return -EBADMSG;
    *ret = config;
    config = (struct config){};
    return 0;
}
