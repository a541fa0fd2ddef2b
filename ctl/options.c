/* SPDX-License-Identifier: MIT */
/*
 * The command line: options, the verb, and everything that can be wrong with them; then the verb runs.
 *
 * Options may stand anywhere, before the verb or behind it. Some go with every verb and say how to reach the
 * daemon and how to print; the others go with a few verbs, whose rows in the table name them, and are refused
 * elsewhere: an option that is silently ignored is a mistake that nobody sees. A mistyped verb or option is
 * answered with the nearest one that exists.
 *
 * Whatever is wrong with the line is told before the daemon is looked for, with exit status 2.
 */
#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "basic/cleanup.h"
#include "basic/text.h"
#include "basic/varlink-frame.h"
#include "ctl.h"

enum {
    OPTION_HELP = 1000,
    OPTION_VERSION,
    OPTION_RUNTIME_DIRECTORY,
    OPTION_CONTROL,
    OPTION_JSON,
    OPTION_NO_LEGEND,
    OPTION_NO_PAGER,
    OPTION_OF_VERB, /* + the bit's number of an enum ctl_option */
};

#define OF_VERB(option) (OPTION_OF_VERB + __builtin_ctz(option))

static const struct option options[] = {
    {"help", no_argument, NULL, OPTION_HELP},
    {"version", no_argument, NULL, OPTION_VERSION},
    {"runtime-directory", required_argument, NULL, OPTION_RUNTIME_DIRECTORY},
    {"control", required_argument, NULL, OPTION_CONTROL},
    {"json", required_argument, NULL, OPTION_JSON},
    {"no-legend", no_argument, NULL, OPTION_NO_LEGEND},
    {"no-pager", no_argument, NULL, OPTION_NO_PAGER},
    {"arena", required_argument, NULL, OF_VERB(CTL_ARENA)},
    {"dry-run", no_argument, NULL, OF_VERB(CTL_DRY_RUN)},
    {"persist", no_argument, NULL, OF_VERB(CTL_PERSIST)},
    {"force", no_argument, NULL, OF_VERB(CTL_FORCE)},
    {"kill", no_argument, NULL, OF_VERB(CTL_KILL)},
    {"size", required_argument, NULL, OF_VERB(CTL_SIZE)},
    {"owner", required_argument, NULL, OF_VERB(CTL_OWNER)},
    {"group", required_argument, NULL, OF_VERB(CTL_GROUP)},
    {"mode", required_argument, NULL, OF_VERB(CTL_MODE)},
    {"transient", no_argument, NULL, OF_VERB(CTL_TRANSIENT)},
    {"interval", required_argument, NULL, OF_VERB(CTL_INTERVAL)},
    {"count", required_argument, NULL, OF_VERB(CTL_COUNT)},
    {"events", required_argument, NULL, OF_VERB(CTL_EVENTS)},
    {},
};

/* What each of them means, in the order of the help; NULL ends it. */
static const char *const options_help[] = {
    "--runtime-directory DIR    the daemon's sockets are in DIR",
    "--control PATH             the daemon's control socket is PATH",
    "--json pretty|short|off    print what machines read",
    "--no-legend                no header above tables",
    "--no-pager                 do not page on a terminal",
    "--arena ARENA              get, set, reset, list-parameters: of that arena",
    "--dry-run                  set, reset: say what would change, change nothing",
    "--persist                  set, reset: also in the daemon's next start",
    "--force                    remove-arena: although it has clients",
    "--kill                     evict: end the process",
    "--size SIZE                create-arena: 64M, 2G",
    "--owner USER, --group GROUP, --mode MODE, --transient",
    "                           create-arena: whose it is, who may use it (0660);",
    "                           transient ones go with their last client",
    "--interval TIME            monitor: 1s unless said",
    "--count N                  monitor: so many lines, then end",
    "--events LIST              trace: only these, as gp_start,gp_end",
    "--help, --version",
    NULL,
};

/*
 * Everything that goes wrong is told through here: one line, on standard error, with our name before it.
 */
static void print_line(const char *format, va_list arguments)
{
    (void)fputs("reclaimctl: ", stderr);
    (void)vfprintf(stderr, format, arguments);
    (void)fputc('\n', stderr);
}

/* For what the user asked rightly and could not be done. */
int ctl_fail(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    print_line(format, arguments);
    va_end(arguments);
    return CTL_FAILED;
}

/*
 * For what makes no sense whatever the daemon's state; scripts tell the two apart by the exit status.
 */
int ctl_usage(const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    print_line(format, arguments);
    va_end(arguments);
    return CTL_USAGE;
}

/*
 * Follows the table of verbs; a test holds the shell completion to it. Wide enough for the longest verb
 * with its arguments, narrow enough for 80 columns.
 */
static void print_help(const struct ctl_verb *verbs)
{
    char call[64];

    (void)printf(
        "reclaimctl [OPTION...] VERB [ARGUMENT...]\n\n"
        "Look at reclaimd, tune it and make it work, while it runs.\n\nVerbs (without ARENA: all of them)\n");
    for (const struct ctl_verb *v = verbs; v->name; v++) {
        (void)snprintf(call, sizeof(call), "%s %s", v->name, v->arguments);
        (void)printf("  %-29s %s\n", call, v->help);
    }
    (void)printf("\nOptions\n");
    for (size_t i = 0; options_help[i]; i++)
        (void)printf("  %s\n", options_help[i]);
    (void)printf("\nreclaimctl(1) says more.\n");
}

/* The index of the word is the value of the enum. */
static int parse_json(struct ctl *ctl, const char *text)
{
    static const char *const words[] = {"off", "short", "pretty"};

    for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
        if (strcmp(text, words[i]) != 0)
            continue;
        ctl->json = (enum ctl_json)i;
        return CTL_DONE;
    }
    return ctl_usage("--json=%s: there are pretty, short and off", text_quote(text).text);
}

/* --control counts more than --runtime-directory, whatever their order. */
static int parse_control(struct ctl *ctl, const char *path)
{
    if (strlen(path) >= sizeof(ctl->control_path))
        return ctl_usage("--control: the path is too long for a socket; %zu bytes are the most",
                         sizeof(ctl->control_path) - 1);
    (void)strcpy(ctl->control_path, path);
    return CTL_DONE;
}

/* Notes that it was given, for check_options(), and its value if it has one. */
static void note_verb_option(struct ctl *ctl, unsigned option, const char *argument)
{
    ctl->given |= option;
    if (option == CTL_ARENA)
        ctl->arena = argument;
    else if (option == CTL_SIZE)
        ctl->size = argument;
    else if (option == CTL_OWNER)
        ctl->owner = argument;
    else if (option == CTL_GROUP)
        ctl->group = argument;
    else if (option == CTL_MODE)
        ctl->mode = argument;
    else if (option == CTL_INTERVAL)
        ctl->interval = argument;
    else if (option == CTL_COUNT)
        ctl->count = argument;
    else if (option == CTL_EVENTS)
        ctl->events = argument;
}

/* For text_nearest(), which ends at NULL. */
static const char *option_name(size_t i)
{
    return i < ARRAY_SIZE(options) ? options[i].name : NULL;
}

/* As it was meant, with or without a value behind it; NULL: nothing is near. */
static const char *option_nearest(const char *text)
{
    _cleanup_free_ char *name = strndup(text, strcspn(text, "="));

    return name ? text_nearest(name, option_name) : NULL;
}

/* getopt_long() has not said anything; the word is the one before its index, or it stopped within one. */
static int fail_option(int what, char **argv)
{
    const char *word = argv[optind - 1], *near;

    if (what == ':')
        return ctl_usage("%s needs a value; see reclaimctl --help", text_quote(word).text);
    if (strncmp(word, "--", 2) == 0 && strchr(word, '=') && optopt)
        return ctl_usage("%s takes no value; see reclaimctl --help", text_quote(word).text);
    near = strncmp(word, "--", 2) == 0 ? option_nearest(word + 2) : NULL;
    if (near)
        return ctl_usage("unknown option '%s'; did you mean --%s?", text_quote(word).text, near);
    return ctl_usage("unknown option '%s'; see reclaimctl --help", text_quote(word).text);
}

struct line {
    const char *runtime_directory;
    bool help, version;
};

/*
 * One option. What goes with some verbs only is noted: whether it goes with this one is known when all
 * words have been seen, as options may stand before the verb and behind it.
 */
static int parse_option(struct ctl *ctl, struct line *line, int c, char **argv)
{
    switch (c) {
    case 'h':
    case OPTION_HELP:
        line->help = true;
        return CTL_DONE;
    case OPTION_VERSION:
        line->version = true;
        return CTL_DONE;
    case OPTION_RUNTIME_DIRECTORY:
        line->runtime_directory = optarg;
        return CTL_DONE;
    case OPTION_CONTROL:
        return parse_control(ctl, optarg);
    case OPTION_JSON:
        return parse_json(ctl, optarg);
    case OPTION_NO_LEGEND:
        ctl->no_legend = true;
        return CTL_DONE;
    case OPTION_NO_PAGER:
        ctl->no_pager = true;
        return CTL_DONE;
    case '?':
    case ':':
        return fail_option(c, argv);
    default:
        note_verb_option(ctl, 1u << (c - OPTION_OF_VERB), optarg);
        return CTL_DONE;
    }
}

/*
 * getopt_long() moves the options to the front, so that the verb and its arguments remain. Its own
 * messages are off: they would be a second line, in other words.
 */
static int parse_options(struct ctl *ctl, struct line *line, int argc, char **argv)
{
    int c, status = CTL_DONE;

    opterr = 0;
    while (status == CTL_DONE && (c = getopt_long(argc, argv, ":h", options, NULL)) >= 0)
        status = parse_option(ctl, line, c, argv);
    return status;
}

/*
 * Asked after the command line has been found right, so that a user without any runtime directory hears
 * of his mistake in the verb first.
 */
static int find_control(struct ctl *ctl, const struct line *line)
{
    struct runtime_paths paths;
    struct error_line why;
    int r;

    if (ctl->control_path[0])
        return CTL_DONE;
    r = runtime_paths_find(line->runtime_directory, &paths);
    if (r < 0) {
        runtime_error_describe(r, &why);
        return ctl_fail("%s", why.text);
    }
    (void)strcpy(ctl->control_path, paths.control);
    return CTL_DONE;
}

static const struct ctl_verb *nearest_verbs; /* for text_nearest(), which passes no data */

/* For text_nearest(): the table ends with a name that is NULL. */
static const char *verb_name(size_t i)
{
    return nearest_verbs[i].name;
}

/* Says itself what is wrong when there is no such verb. */
static const struct ctl_verb *find_verb(const struct ctl_verb *verbs, const char *name)
{
    const char *near;

    for (const struct ctl_verb *v = verbs; v->name; v++)
        if (strcmp(v->name, name) == 0)
            return v;
    nearest_verbs = verbs;
    near = text_nearest(name, verb_name);
    if (near)
        (void)ctl_usage("unknown verb '%s'; did you mean %s?", text_quote(name).text, near);
    else
        (void)ctl_usage("unknown verb '%s'; reclaimctl --help lists them", text_quote(name).text);
    return NULL;
}

/* The first option that was given and does not go with the verb. */
static int check_options(const struct ctl *ctl, const struct ctl_verb *v)
{
    unsigned wrong = ctl->given & ~v->options;

    for (size_t i = 0; wrong && options[i].name; i++)
        if (options[i].val == OPTION_OF_VERB + __builtin_ctz(wrong))
            return ctl_usage("--%s does not go with %s; see reclaimctl --help", options[i].name, v->name);
    return CTL_DONE;
}

/* The number of arguments is the table's business, what they are is the verb's. */
static int check_arguments(const struct ctl_verb *v, int n)
{
    if (n >= v->min && n <= v->max)
        return CTL_DONE;
    return ctl_usage("%s %s; usage: reclaimctl %s%s%s", v->name,
                     n < v->min ? "needs an argument" : "has too many arguments", v->name,
                     *v->arguments ? " " : "", v->arguments);
}

/*
 * The one place where output is checked, whoever printed: a full disk or a closed pipe must not look like
 * success. What is longer than a buffer was written before, and a later flush has nothing left to fail with;
 * only the stream remembers. errno may then be anybody's.
 */
static int check_output(int status)
{
    int r = fflush(stdout), error = errno;

    if (r != 0)
        return ctl_fail("cannot write the output: %s", strerror(error));
    if (ferror(stdout))
        return ctl_fail("cannot write the output: some of it is lost; is the disk full?");
    return status;
}

/* A pager that was left early took all that its reader wanted. */
static int run_verb(struct ctl *ctl, const struct ctl_verb *v, int argc, char **argv)
{
    int status;

    if (v->options & CTL_PAGER)
        ctl_pager_begin(ctl);
    status = v->run(ctl, argc, argv);
    ctl_pager_end(ctl);
    ctl->client = varlink_client_free(ctl->client);
    return status;
}

/* `help` is no verb of the table: it needs no daemon, and the completion need not know it. */
static bool asks_for_help(const struct line *line, char *const *words)
{
    return line->help || (words[0] && strcmp(words[0], "help") == 0);
}

/* Help and version answer before anything else is looked at, wherever they stand on the line. */
static int run_line(int argc, char **argv, const struct ctl_verb *verbs)
{
    struct ctl ctl = {.out = stdout};
    struct line line = {};
    const struct ctl_verb *v;
    int status = parse_options(&ctl, &line, argc, argv);

    if (status != CTL_DONE)
        return status;
    if (asks_for_help(&line, argv + optind)) {
        print_help(verbs);
        return CTL_DONE;
    }
    if (line.version) {
        (void)printf("reclaimctl %s\n", RECLAIMD_VERSION);
        return CTL_DONE;
    }
    if (optind == argc)
        return ctl_usage("no verb; try 'reclaimctl status', or --help for all of them");
    v = find_verb(verbs, argv[optind]);
    if (!v)
        return CTL_USAGE;
    status = check_arguments(v, argc - optind - 1);
    if (status == CTL_DONE)
        status = check_options(&ctl, v);
    if (status == CTL_DONE)
        status = find_control(&ctl, &line);
    return status == CTL_DONE ? run_verb(&ctl, v, argc - optind - 1, argv + optind + 1) : status;
}

/* Whatever ran, and whatever came of it, lost output is told. */
int ctl_main(int argc, char **argv, const struct ctl_verb *verbs)
{
    return check_output(run_line(argc, argv, verbs));
}
