/* SPDX-License-Identifier: MIT */
/* The command line of reclaimd. */
#include "options.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>

#include "basic/cleanup.h"
#include "basic/macro.h"

enum {
    OPTION_CONFIG = 0x100, /* above every character, so that no short option is meant */
    OPTION_SET,
    OPTION_ARENA,
    OPTION_RUNTIME_DIRECTORY,
    OPTION_CHECK_CONFIG,
    OPTION_PRINT_CONFIG,
    OPTION_LOG_LEVEL,
    OPTION_VERSION,
};

static const struct option long_options[] = {
    {"config", required_argument, NULL, OPTION_CONFIG},
    {"set", required_argument, NULL, OPTION_SET},
    {"arena", required_argument, NULL, OPTION_ARENA},
    {"runtime-directory", required_argument, NULL, OPTION_RUNTIME_DIRECTORY},
    {"check-config", no_argument, NULL, OPTION_CHECK_CONFIG},
    {"print-config", no_argument, NULL, OPTION_PRINT_CONFIG},
    {"log-level", required_argument, NULL, OPTION_LOG_LEVEL},
    {"version", no_argument, NULL, OPTION_VERSION},
    {"help", no_argument, NULL, 'h'},
    {},
};

/* For the nearest name; the empty row at the end is the NULL that it needs. */
static const char *option_name_get(size_t i)
{
    return long_options[i].name;
}

void options_print_help(FILE *stream)
{
    (void)fprintf(stream,
                  "Usage: reclaimd [OPTION]...\n"
                  "Decides when memory that several processes share may be reused, and frees it.\n"
                  "\n"
                  "  --config FILE            read FILE and FILE.d/*.conf (%s)\n"
                  "  --set NAME=VALUE         set a parameter, over what the files say\n"
                  "  --arena NAME:SIZE        make an arena at start\n"
                  "  --runtime-directory DIR  where the sockets are ($RECLAIMD_RUNTIME_DIRECTORY,\n"
                  "                           /run/reclaimd for root, $XDG_RUNTIME_DIR/reclaimd)\n"
                  "  --check-config           say what is wrong with the configuration, and exit\n"
                  "  --print-config           print all parameters as a configuration file, and exit\n"
                  "  --log-level LEVEL        err, warning, notice, info (the default) or debug\n"
                  "  --version                print the version, and exit\n"
                  "  -h, --help               print this, and exit\n"
                  "\n"
                  "reclaimctl shows and changes a running daemon. See reclaimd(8), reclaimd.conf(5).\n",
                  RECLAIMD_CONFIG_FILE);
}

/*
 * Checked to its value now, so that a mistake on the command line is told as one, with its own exit status,
 * before any file is looked at. Name and value are one allocation.
 */
static int set_add(struct options *options, const char *text, struct error_line *ret_why)
{
    struct parameter_assignment *sets;
    const struct parameter *parameter = NULL;
    struct parameter_value value_of_it;
    _cleanup_free_ char *name = NULL;
    char *value;
    int r;

    r = parse_assignment(text, &name, &value);
    if (r < 0) {
        parse_error_describe(PARSE_ASSIGNMENT, r, text, ret_why);
        return r;
    }
    r = parameter_find(name, &parameter, ret_why);
    if (r >= 0)
        r = parameter_value_parse(parameter, value, &value_of_it, ret_why);
    if (r < 0)
        return -EINVAL;
    sets = reallocarray(options->sets, options->n_sets + 1, sizeof(*sets));
    if (!sets)
        return error_line_set(ret_why, -ENOMEM, "not enough memory");
    options->sets = sets;
    sets[options->n_sets++] = (struct parameter_assignment){steal_pointer(name), value};
    return 0;
}

/*
 * Twice the same name is more likely a slip than a wish; files, which may correct each other, are read
 * otherwise.
 */
static int arena_add(struct options *options, const char *text, struct error_line *ret_why)
{
    const char *colon = strchr(text, ':');
    char name[ARENA_NAME_BYTES];
    struct error_line line = {""};
    uint64_t bytes;
    int r;

    /* The size first and by itself, for its range and its words. */
    r = colon ? config_arena_size_parse(colon + 1, &bytes, &line) : 0;
    if (r >= 0) {
        r = parse_name_size(text, name, &bytes);
        if (r < 0)
            parse_error_describe(PARSE_NAME_SIZE, r, text, &line);
    }
    if (r < 0)
        return error_line_set(ret_why, -EINVAL, "--arena: %.*s", ERROR_LINE_BYTES - 16, line.text);
    if (config_arenas_find(&options->arenas, name))
        return error_line_set(ret_why, -EINVAL, "--arena: %s is named twice; give it one size", name);
    return config_arenas_put(&options->arenas, name, bytes, NULL, 0);
}

/* The five that the daemon uses, by the names that syslog(3) and systemd give them. */
static int log_level_set(struct options *options, const char *text, struct error_line *ret_why)
{
    static const char *const words[] = {
        [LOG_ERR] = "err",   [LOG_WARNING] = "warning", [LOG_NOTICE] = "notice",
        [LOG_INFO] = "info", [LOG_DEBUG] = "debug",
    };

    for (size_t i = LOG_ERR; i < ARRAY_SIZE(words); i++)
        if (strcmp(words[i], text) == 0) {
            options->log_level = (int)i;
            return 0;
        }
    return error_line_set(ret_why, -EINVAL,
                          "'%s' is not a log level; use err, warning, notice, info or debug",
                          text_quote(text).text);
}

/* An empty value is what an unset variable in a script leaves behind; it is never meant. */
static int text_set(const char **ret, const char *option, const char *text, struct error_line *ret_why)
{
    if (!*text)
        return error_line_set(ret_why, -EINVAL, "--%s is empty; leave it out or name one", option);
    *ret = text;
    return 0;
}

/* As it was meant, with or without a value behind it; NULL: nothing is near. */
static const char *option_nearest(const char *text)
{
    _cleanup_free_ char *name = strndup(text, strcspn(text, "="));

    return name ? text_nearest(name, option_name_get) : NULL;
}

/* What getopt found no option for; it looks at argv[optind - 1], or at one character in optopt. */
static int unknown_complain(char *argv[], struct error_line *ret_why)
{
    const char *argument = argv[optind - 1];
    const char *near;

    if (optopt > 0 && optopt < OPTION_CONFIG)
        return error_line_set(ret_why, -EINVAL, "unknown option '-%s'",
                              text_quote((char[]){(char)optopt, '\0'}).text);
    if (optopt >= OPTION_CONFIG)
        return error_line_set(ret_why, -EINVAL, "'%s' takes no value", text_quote(argument).text);
    near = option_nearest(argument + strspn(argument, "-"));
    if (near)
        return error_line_set(ret_why, -EINVAL, "unknown option '%s'; did you mean --%s?",
                              text_quote(argument).text, near);
    return error_line_set(ret_why, -EINVAL, "unknown option '%s'", text_quote(argument).text);
}

/* One option; what it sets is released by options_deinit() also after a failure. */
static int option_apply(struct options *options, int option, char *argv[], struct error_line *ret_why)
{
    switch (option) {
    case OPTION_CONFIG:
        options->config_is_named = true;
        return text_set(&options->config_file, "config", optarg, ret_why);
    case OPTION_SET:
        return set_add(options, optarg, ret_why);
    case OPTION_ARENA:
        return arena_add(options, optarg, ret_why);
    case OPTION_RUNTIME_DIRECTORY:
        return text_set(&options->runtime_directory, "runtime-directory", optarg, ret_why);
    case OPTION_LOG_LEVEL:
        return log_level_set(options, optarg, ret_why);
    case OPTION_CHECK_CONFIG:
        options->action = MAX(options->action, OPTIONS_CHECK_CONFIG);
        return 0;
    case OPTION_PRINT_CONFIG:
        options->action = MAX(options->action, OPTIONS_PRINT_CONFIG);
        return 0;
    case OPTION_VERSION:
        options->action = MAX(options->action, OPTIONS_VERSION);
        return 0;
    case 'h':
        options->action = OPTIONS_HELP;
        return 0;
    case ':':
        return error_line_set(ret_why, -EINVAL, "'%s' needs a value", text_quote(argv[optind - 1]).text);
    default:
        return unknown_complain(argv, ret_why);
    }
}

/*
 * Of the options that end early the one that does least counts: --help before --version before
 * --print-config before --check-config. What was collected is the caller's only when all of it was right.
 */
int options_parse(int argc, char *argv[], struct options *ret, struct error_line *ret_why)
{
    _cleanup_(options_deinit) struct options options = {
        .config_file = RECLAIMD_CONFIG_FILE,
        .log_level = LOG_INFO,
    };
    int option, r;

    optind = 0; /* GNU: begin anew, as tests parse more than once */
    opterr = 0;
    while (optopt = 0, (option = getopt_long(argc, argv, "+:h", long_options, NULL)) != -1) {
        r = option_apply(&options, option, argv, ret_why);
        if (r < 0)
            return r;
    }
    if (optind < argc)
        return error_line_set(ret_why, -EINVAL, "unexpected argument '%s'; reclaimd takes only options",
                              text_quote(argv[optind]).text);
    *ret = options;
    options = (struct options){};
    return 0;
}

/* Also for options that were never filled, or only in part. */
void options_deinit(struct options *options)
{
    for (size_t i = 0; i < options->n_sets; i++)
        free((char *)options->sets[i].name); /* the value lies in the same allocation */
    free(options->sets);
    config_arenas_deinit(&options->arenas);
    *options = (struct options){};
}
