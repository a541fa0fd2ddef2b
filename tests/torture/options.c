/* SPDX-License-Identifier: MIT */
/* The command line: a table of options, and what each may hold. */
#include "options.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "basic/macro.h"
#include "basic/parse.h"
#include "basic/text.h"

enum option_kind {
    OPTION_NUMBER,
    OPTION_TIME,
    OPTION_SIZE,
    OPTION_FLAG,
    OPTION_NO_FLAG,
    OPTION_STRING,
};

struct option {
    const char *name, *argument; /* argument: its name in --help, NULL for a flag */
    enum option_kind kind;
    size_t offset; /* of its field in struct torture_options */
    uint64_t min, max;
    const char *help;
};

#define FIELD(field) .offset = offsetof(struct torture_options, field)

/* clang-format off: a line or two an option */
static const struct option option_table[] = {
    {"duration", "S", OPTION_TIME, FIELD(duration_usec), USEC_PER_SEC, 7 * 24 * USEC_PER_HOUR,
     "how long, in seconds or like 5min (default 30s)"},
    {"readers", "N", OPTION_NUMBER, FIELD(n_readers), 0, READERS_MAX, "reader threads in all (default 4)"},
    {"writers", "N", OPTION_NUMBER, FIELD(n_writers), 0, WRITERS_MAX, "writer threads in all (default 2)"},
    {"processes", "N", OPTION_NUMBER, FIELD(n_processes), 1, PROCESSES_MAX,
     "processes that the threads are spread over (default 3)"},
    {"seed", "N", OPTION_NUMBER, FIELD(seed), 0, UINT64_MAX,
     "the seed of an earlier run (default: a new one)"},
    {"arena-size", "SIZE", OPTION_SIZE, FIELD(arena_bytes), 16 << 20, (uint64_t)64 << 30,
     "size of the arena; a small one is often full (default 256M)"},
    {"signals", NULL, OPTION_FLAG, FIELD(signals),
     .help = "a signal handler reads in each thread, up to 10,000 times a second (the default)"},
    {"no-signals", NULL, OPTION_NO_FLAG, FIELD(signals), .help = "without these handlers"},
    {"kill-clients", NULL, OPTION_FLAG, FIELD(kill_clients),
     .help = "processes are killed at random moments"},
    {"hostile", NULL, OPTION_FLAG, FIELD(hostile),
     .help = "beside them, processes of another user that attack the daemon"},
    {"tune", NULL, OPTION_FLAG, FIELD(tune), .help = "every parameter changes all the time, to any value"},
    {"kill-points", NULL, OPTION_FLAG, FIELD(kill_points),
     .help = "instead: one client after the other dies at each test point of the library"},
    {"broken", NULL, OPTION_FLAG, FIELD(broken),
     .help = "writers reuse memory without a grace period, so the run must fail"},
    {"runtime-directory", "DIR", OPTION_STRING, FIELD(runtime_directory),
     .help = "use the daemon that runs there instead of a private one"},
    {"help", NULL, OPTION_FLAG, FIELD(help), .help = "this text"},
};
/* clang-format on */

struct parser {
    struct torture_options options;
    char *message;
    size_t size;
};

_printf_(2, 3) static int refuse(struct parser *p, const char *format, ...)
{
    va_list ap;

    va_start(ap, format);
    (void)vsnprintf(p->message, p->size, format, ap);
    va_end(ap);
    return -EINVAL;
}

static const char *option_name(size_t i)
{
    return i < ARRAY_SIZE(option_table) ? option_table[i].name : NULL;
}

static const char *format_number(enum option_kind kind, uint64_t n, char text[static FORMAT_BYTES])
{
    if (kind == OPTION_TIME)
        return format_usec(n, text);
    if (kind == OPTION_SIZE)
        return format_bytes(n, text);
    (void)snprintf(text, FORMAT_BYTES, "%" PRIu64, n);
    return text;
}

static int parse_number(struct parser *p, const struct option *o, const char *text, uint64_t *ret)
{
    char min[FORMAT_BYTES], max[FORMAT_BYTES];
    uint64_t n = 0;
    int r = o->kind == OPTION_TIME   ? parse_usec(text, &n)
            : o->kind == OPTION_SIZE ? parse_bytes(text, &n)
                                     : parse_u64(text, 0, UINT64_MAX, &n);

    if (r < 0 || n < o->min || n > o->max)
        return refuse(p, "--%s %s: use %s to %s", o->name, text_quote(text).text,
                      format_number(o->kind, o->min, min), format_number(o->kind, o->max, max));
    *ret = n;
    return 0;
}

static int option_take(struct parser *p, const struct option *o, const char *value)
{
    void *field = (char *)&p->options + o->offset;

    switch (o->kind) {
    case OPTION_FLAG:
    case OPTION_NO_FLAG:
        *(bool *)field = o->kind == OPTION_FLAG;
        return 0;
    case OPTION_STRING:
        *(const char **)field = value;
        return 0;
    default:
        return parse_number(p, o, value, field);
    }
}

static const struct option *option_find(const char *name, size_t length)
{
    for (size_t i = 0; i < ARRAY_SIZE(option_table); i++)
        if (strlen(option_table[i].name) == length && strncmp(option_table[i].name, name, length) == 0)
            return &option_table[i];
    return NULL;
}

static int refuse_unknown(struct parser *p, const char *word)
{
    const char *near = strncmp(word, "--", 2) == 0 ? text_nearest(word + 2, option_name) : NULL;

    if (near)
        return refuse(p, "unknown option %s; did you mean --%s?", text_quote(word).text, near);
    return refuse(p, "unknown argument %s; --help lists what there is", text_quote(word).text);
}

/* One option and, in the same or in the next word, its value. Moves *i to the last word used. */
static int parse_word(struct parser *p, int argc, char **argv, int *i)
{
    const char *word = argv[*i], *equals = strchrnul(word, '='), *value = *equals ? equals + 1 : NULL;
    const struct option *o = NULL;

    if (strncmp(word, "--", 2) == 0)
        o = option_find(word + 2, (size_t)(equals - word) - 2);
    if (!o)
        return refuse_unknown(p, word);
    if (!o->argument && value)
        return refuse(p, "--%s takes no value", o->name);
    if (o->argument && !value) {
        if (*i + 1 == argc)
            return refuse(p, "--%s needs a value: --%s %s", o->name, o->name, o->argument);
        value = argv[++*i];
    }
    return option_take(p, o, value);
}

static int check_together(struct parser *p)
{
    const struct torture_options *o = &p->options;

    if (o->n_readers + o->n_writers == 0)
        return refuse(p, "--readers 0 and --writers 0: nothing would run; use at least one of either");
    if (o->kill_points && (o->kill_clients || o->hostile || o->tune || o->broken))
        return refuse(p,
                      "--kill-points runs by itself, without --kill-clients, --hostile, --tune and --broken");
    if (o->broken && (o->n_readers == 0 || o->n_writers == 0))
        return refuse(p, "--broken needs readers and writers");
    return 0;
}

int options_parse(int argc, char **argv, struct torture_options *ret, char *message, size_t size)
{
    struct parser p = {.message = message, .size = size};
    int r = 0;

    p.options = (struct torture_options){
        .duration_usec = 30 * USEC_PER_SEC,
        .n_readers = 4,
        .n_writers = 2,
        .n_processes = 3,
        .arena_bytes = 256 << 20,
        .signals = true,
    };
    if (getrandom(&p.options.seed, sizeof(p.options.seed), 0) != sizeof(p.options.seed))
        p.options.seed = (uint64_t)(uintptr_t)&p; /* any number will do */
    for (int i = 1; i < argc && r >= 0 && !p.options.help; i++)
        r = parse_word(&p, argc, argv, &i);
    if (r >= 0 && !p.options.help)
        r = check_together(&p);
    if (r >= 0)
        *ret = p.options;
    return r;
}

void options_print_help(void)
{
    printf(
        "Usage: reclaim-torture [OPTION]...\n\n"
        "Readers, writers and killers share an arena, and all that readers see is checked. Starts a private\n"
        "daemon unless --runtime-directory is given.\n\n");
    for (size_t i = 0; i < ARRAY_SIZE(option_table); i++) {
        const struct option *o = &option_table[i];
        char left[64];

        (void)snprintf(left, sizeof(left), "--%s %s", o->name, o->argument ? o->argument : "");
        printf("  %-24s %s\n", left, o->help);
    }
    printf("\nThe daemon is $RECLAIMD, else the one of this build, else reclaimd in PATH.\n"
           "Exit status: 0 success, 1 failure, 2 usage, 77 not possible in this build.\n");
}
