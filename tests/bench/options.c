/* SPDX-License-Identifier: MIT */
/* The command line: a table of options, what each may hold, and which tests it belongs to. */
#include "options.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "basic/macro.h"
#include "basic/parse.h"
#include "basic/text.h"

enum option_kind {
    OPTION_NUMBER, /* these three: a uint64_t with bounds and a default */
    OPTION_TIME,
    OPTION_SIZE,
    OPTION_FLAG,
    OPTION_STRING,
    OPTION_SETTING,
};

#define FOR(test) (1u << TEST_##test)
#define FOR_ALL ((1u << _TEST_MAX) - 1)
#define FOR_PROCESSES                                                                                        \
    (FOR(READ) | FOR(SYNC) | FOR(PURGE) | FOR(ATTACH)) /* kfree has a name of its own for it */

struct option {
    const char *name, *argument; /* argument: its name in --help, NULL for a flag */
    enum option_kind kind;
    unsigned tests;
    size_t offset; /* of its field in struct bench_options */
    uint64_t min, max;
    uint64_t defaults[_TEST_MAX];
    const char *help;
};

#define FIELD(field) .offset = offsetof(struct bench_options, field)
#define EACH(number)                                                                                         \
    {                                                                                                        \
        number, number, number, number, number, number, number, number                                       \
    }

/* clang-format off */
/* In the order of --help. The highest numbers are where a 64-bit product of them still fits. */
static const struct option option_table[] = {
    {"backend", "NAME", OPTION_STRING, FOR_ALL, FIELD(backend), .help = "what to run (default reclaim)"},
    {"kfree-nthreads", "N", OPTION_NUMBER, FOR(KFREE), FIELD(n_threads), 1, 1024, EACH(1),
     "threads in all processes together"},
    {"kfree-nprocs", "N", OPTION_NUMBER, FOR(KFREE), FIELD(n_processes), 1, 256, EACH(1),
     "processes; the threads are spread over them"},
    {"kfree-loops", "N", OPTION_NUMBER, FOR(KFREE), FIELD(n_loops), 1, 1000000000, EACH(10),
     "loops of each thread"},
    {"kfree-alloc-num", "N", OPTION_NUMBER, FOR(KFREE), FIELD(n_alloc), 1, 100000000, EACH(8000),
     "objects a loop"},
    {"kfree-mult", "N", OPTION_NUMBER, FOR(KFREE), FIELD(mult), 1, 1048576, EACH(1),
     "objects of 32 bytes times N"},
    {"interleaved", NULL, OPTION_FLAG, FOR(KFREE), FIELD(interleaved), .help = "allocate one, free one"},
    {"random", "WINDOW", OPTION_NUMBER, FOR(KFREE), FIELD(window), 1, 100000000, EACH(0),
     "replace a random one of WINDOW live objects"},
    {"head", NULL, OPTION_FLAG, FOR(KFREE), FIELD(head), .help = "reclaim: defer with a head in the object"},
    {"fifo-load", "N", OPTION_NUMBER, FOR(KFREE), FIELD(n_callbacks), 1, 1000000, EACH(0),
     "reclaim: another client keeps N callback FIFO entries queued"},
    {"nthreads", "N", OPTION_NUMBER, FOR(READ), FIELD(n_threads), 1, 1024, EACH(1),
     "threads in all processes together"},
    {"nprocs", "N", OPTION_NUMBER, FOR_PROCESSES, FIELD(n_processes), 1, 256, {1, 1, 0, 1, 4, 1, 1, 1},
     "processes (default 1; purge 4; sync 1 for each 128 waiters)"},
    {"loops", "N", OPTION_NUMBER, FOR(READ) | FOR(ATTACH) | FOR(POLL), FIELD(n_loops), 1, 1000000000,
     {[TEST_READ] = 10, [TEST_ATTACH] = 1000, [TEST_POLL] = 10}, "loops of each thread (default 10; attach 1000)"},
    {"pairs", "N", OPTION_NUMBER, FOR(READ), FIELD(n_pairs), 1, 10000000000, EACH(10000000),
     "lock+unlock pairs a loop"},
    {"polls", "N", OPTION_NUMBER, FOR(POLL), FIELD(n_pairs), 1, 10000000000, EACH(10000000),
     "calls a loop"},
    {"calls", "N", OPTION_NUMBER, FOR(SYNC), FIELD(n_calls), 1, 100000000, EACH(0),
     "synchronize calls of each waiter (default 2000; 1 from 64 waiters on)"},
    {"waiters", "N", OPTION_NUMBER, FOR(SYNC), FIELD(n_waiters), 1, 1024, EACH(1),
     "threads that call, all at once if they do so once"},
    {"callbacks", "N", OPTION_NUMBER, FOR(SYNC), FIELD(n_callbacks), 1, 100000, EACH(0),
     "reclaim: another client keeps N callback FIFO entries queued ahead"},
    {"updates", "N", OPTION_NUMBER, FOR(SYNC), FIELD(n_updates), 1, 1000000, EACH(0),
     "reclaim: another client defers N frees each ms in the same arena"},
    {"stalled-neighbour", NULL, OPTION_FLAG, FOR(SYNC), FIELD(stalled_neighbour),
     .help = "reclaim: in each other block of calls another arena's reader stalls"},
    {"expedited", NULL, OPTION_FLAG, FOR(SYNC), FIELD(expedited), .help = "reclaim: expedited grace periods"},
    {"duration", "TIME", OPTION_TIME, FOR(DRAIN) | FOR(IDLE), FIELD(duration_usec), USEC_PER_MSEC,
     24 * USEC_PER_HOUR, EACH(10 * USEC_PER_SEC), "how long to watch, like 500ms or 1min (default 10s)"},
    {"flood", NULL, OPTION_FLAG, FOR(DRAIN), FIELD(flood),
     .help = "floods instead: how soon is the first object freed?"},
    {"clients", "N", OPTION_NUMBER, FOR(IDLE), FIELD(n_clients), 1, 1000, EACH(8), "attached processes"},
    {"purge-allocs", "N", OPTION_NUMBER, FOR(PURGE), FIELD(n_purge_allocs), 1, 1000000000, EACH(100000),
     "extents of 16 KiB, of all processes together"},
    {"purge-burst", "N", OPTION_NUMBER, FOR(PURGE), FIELD(n_purge_burst), 1, 1000000, EACH(2048),
     "extents that a process holds before it frees them"},
    {"arena-size", "SIZE", OPTION_SIZE, FOR_ALL, FIELD(arena_bytes), 1048576, (uint64_t)2 << 40,
     EACH((uint64_t)1 << 30), "size of the arena, like 64M (default 1G)"},
    {"set", "NAME=VALUE", OPTION_SETTING, FOR_ALL, 0,
     .help = "a parameter of the private daemon; repeatable"},
    {"compare", "A,B,..", OPTION_STRING, FOR_ALL, FIELD(compare), .help = "run these backends in turn"},
    {"compare-set", "NAME=A,B,..", OPTION_STRING, FOR_ALL, FIELD(compare_set),
     .help = "run reclaim with these settings in turn"},
    {"runs", "N", OPTION_NUMBER, FOR_ALL, FIELD(n_runs), 1, 1000, EACH(0),
     "measured runs of each (default 9 when comparing, else 1)"},
    {"json", "FILE", OPTION_STRING, FOR_ALL, FIELD(json_path), .help = "write the figures there"},
    {"plot", "FILE.svg", OPTION_STRING, FOR_ALL, FIELD(plot_path), .help = "draw the main figure there"},
    {"runtime-directory", "DIR", OPTION_STRING, FOR_ALL, FIELD(runtime_directory),
     .help = "use the daemon that runs there instead of a private one"},
    {"help", NULL, OPTION_FLAG, FOR_ALL, FIELD(help), .help = "this text"},
};
/* clang-format on */

static const struct {
    const char *name, *summary;
} test_table[] = {
    [TEST_KFREE] = {"kfree", "allocate and defer-free objects until all are freed"},
    [TEST_READ] = {"read", "the cost of one read section"},
    [TEST_SYNC] = {"sync", "how long a synchronize takes"},
    [TEST_DRAIN] = {"drain", "a phone's trickle: 1 to 6 frees each 8 ms"},
    [TEST_PURGE] = {"purge", "large extents come and go; how often a purge is queued"},
    [TEST_IDLE] = {"idle", "clients that do nothing; fails if a daemon thread wakes up"},
    [TEST_ATTACH] = {"attach", "open an arena, get a lane, close"},
    [TEST_POLL] = {"poll", "the cost of asking for a grace period that is over"},
};
assert_cc(ARRAY_SIZE(test_table) == _TEST_MAX);

const char *test_to_string(enum bench_test_id test)
{
    return test >= 0 && test < _TEST_MAX ? test_table[test].name : NULL;
}

enum bench_test_id test_from_string(const char *name)
{
    for (enum bench_test_id test = 0; test < _TEST_MAX; test++)
        if (strcmp(test_table[test].name, name) == 0)
            return test;
    return _TEST_INVALID;
}

struct parser {
    struct bench_options options;
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

/* Where the table says that this option's value lives. */
static void *field_of(const struct option *o, struct bench_options *options)
{
    return (char *)options + o->offset;
}

/* The bound or value as people write it. */
static const char *format_number(const struct option *o, uint64_t n, char text[static FORMAT_BYTES])
{
    if (o->kind == OPTION_TIME)
        return format_usec(n, text);
    if (o->kind == OPTION_SIZE)
        return format_bytes(n, text);
    (void)snprintf(text, FORMAT_BYTES, "%" PRIu64, n);
    return text;
}

/* Numbers, times and sizes: the same bounds, the same words. */
static int parse_number(struct parser *p, const struct option *o, const char *text)
{
    static const char *const what[] = {"a whole number", "a time", "a size"};
    char min[FORMAT_BYTES], max[FORMAT_BYTES];
    uint64_t n = 0;
    int r;

    if (o->kind == OPTION_TIME)
        r = parse_usec(text, &n);
    else if (o->kind == OPTION_SIZE)
        r = parse_bytes(text, &n);
    else
        r = parse_u64(text, o->min, o->max, &n);
    if (r < 0 || n < o->min || n > o->max)
        return refuse(p, "--%s %s: %s from %s to %s would be right", o->name, text_quote(text).text,
                      what[o->kind], format_number(o, o->min, min), format_number(o, o->max, max));
    *(uint64_t *)field_of(o, &p->options) = n;
    return 0;
}

/* Name and value are for the daemon to judge; here only that there are two. */
static int parse_setting(struct parser *p, const char *text)
{
    if (text[0] == '=' || !strchr(text, '='))
        return refuse(p, "--set %s: NAME=VALUE would be right", text);
    if (p->options.n_settings == SETTINGS_MAX)
        return refuse(p, "--set %s: at most %d settings", text, SETTINGS_MAX);
    p->options.settings[p->options.n_settings++] = text;
    return 0;
}

static int parse_value(struct parser *p, const struct option *o, const char *text)
{
    switch (o->kind) {
    case OPTION_NUMBER:
    case OPTION_TIME:
    case OPTION_SIZE:
        return parse_number(p, o, text);
    case OPTION_SETTING:
        return parse_setting(p, text);
    default:
        if (!*text)
            return refuse(p, "--%s: %s must not be empty", o->name, o->argument);
        *(const char **)field_of(o, &p->options) = text;
        return 0;
    }
}

/* The option of that name; of two with one name, the one that this test has. */
static const struct option *find_option(const char *name, size_t length, unsigned tests)
{
    const struct option *found = NULL;

    for (size_t i = 0; i < ARRAY_SIZE(option_table); i++) {
        const struct option *o = &option_table[i];

        if (strlen(o->name) == length && memcmp(o->name, name, length) == 0 && (!found || (o->tests & tests)))
            found = o;
    }
    return found;
}

static const char *option_name(size_t i)
{
    return i < ARRAY_SIZE(option_table) ? option_table[i].name : NULL;
}

static int refuse_unknown(struct parser *p, const char *argument, size_t length)
{
    char word[64];
    const char *near;

    (void)snprintf(word, sizeof(word), "%.*s", (int)MIN(length, sizeof(word)), length ? argument + 2 : "");
    near = *word ? text_nearest(word, option_name) : NULL;
    if (near)
        return refuse(p, "%s: no such option; did you mean --%s?", text_quote(argument).text, near);
    return refuse(p, "%s: no such option; --help lists them", text_quote(argument).text);
}

/* One argument, and the next one if it is its value. Returns how many it took. */
static int parse_option(struct parser *p, const char *argument, const char *next)
{
    unsigned tests = 1u << p->options.test;
    size_t length = strncmp(argument, "--", 2) == 0 ? strcspn(argument + 2, "=") : 0;
    const struct option *o = length ? find_option(argument + 2, length, tests) : NULL;
    const char *value = length && argument[2 + length] == '=' ? argument + 3 + length : NULL;
    int r;

    if (!o)
        return refuse_unknown(p, argument, length);
    if (!(o->tests & tests))
        return refuse(p, "--%s: test %s has no such option; --help lists them", o->name,
                      test_to_string(p->options.test));
    if (o->kind == OPTION_FLAG) {
        if (value)
            return refuse(p, "--%s: takes no value", o->name);
        *(bool *)field_of(o, &p->options) = true;
        return 1;
    }
    if (!value && !next)
        return refuse(p, "--%s: %s is missing", o->name, o->argument);
    r = parse_value(p, o, value ? value : next);
    return r < 0 ? r : value ? 1 : 2;
}

/* What contradicts itself, though each option alone is right: about the daemon. */
static int check_settings(struct parser *p)
{
    const struct bench_options *o = &p->options;

    if (o->runtime_directory && (o->n_settings || o->compare_set))
        return refuse(
            p,
            "--set and --compare-set are for a private daemon; set those of a running one with reclaimctl");
    if (o->compare_set && (o->compare_set[0] == '=' || !strchr(o->compare_set, '=')))
        return refuse(p, "--compare-set %s: NAME=A,B,.. would be right", o->compare_set);
    return 0;
}

/* The same: about what is run. */
static int check_together(struct parser *p)
{
    const struct bench_options *o = &p->options;

    if (o->n_processes > o->n_threads)
        return refuse(p, "%" PRIu64 " processes cannot share %" PRIu64 " threads: each needs one at least",
                      o->n_processes, o->n_threads);
    if (o->interleaved && o->window)
        return refuse(p, "--interleaved and --random: one shape at a time");
    if (o->test == TEST_PURGE && o->n_purge_burst > o->arena_bytes / PURGE_EXTENT_BYTES / o->n_processes)
        return refuse(p,
                      "--purge-burst %" PRIu64 ": --nprocs times 16 KiB of them do not fit into --arena-size",
                      o->n_purge_burst);
    if (o->stalled_neighbour && (o->n_callbacks || o->n_calls < 2))
        return refuse(p, "--stalled-neighbour: two --calls at least, and no --callbacks");
    if (o->backend && o->compare)
        return refuse(p, "--backend and --compare: one of them");
    return 0;
}

/* Before anything typed is looked at, so that what was typed stays. */
static void apply_defaults(struct bench_options *options)
{
    for (size_t i = 0; i < ARRAY_SIZE(option_table); i++) {
        const struct option *o = &option_table[i];

        if (o->kind <= OPTION_SIZE && (o->tests & (1u << options->test)))
            *(uint64_t *)field_of(o, options) = o->defaults[options->test];
    }
}

enum {
    WAITERS_A_PROCESS = 128, /* half of what lanes-max allows */
    BURST_WAITERS = 64,      /* so many at once are a burst, which is looked at by itself */
};

/* Waiters: as many as lanes-max allows in a process; calls: enough for a percentile, or one burst. */
static void settle_sync(struct bench_options *options)
{
    options->n_threads = options->n_waiters;
    if (options->n_processes == 0)
        options->n_processes = (options->n_waiters + WAITERS_A_PROCESS - 1) / WAITERS_A_PROCESS;
    if (options->n_calls == 0)
        options->n_calls = options->n_waiters < BURST_WAITERS ? 2000 : 1;
}

/* What follows from what was typed. */
static void settle(struct bench_options *options)
{
    if (options->n_runs == 0)
        options->n_runs = options->compare || options->compare_set ? 9 : 1;
    if (options->test == TEST_SYNC)
        settle_sync(options);
    else if (options->test == TEST_PURGE || options->test == TEST_ATTACH)
        options->n_threads = options->n_processes;
    else if (options->test == TEST_IDLE)
        options->n_threads = options->n_processes = options->n_clients;
    else if (options->test == TEST_DRAIN || options->test == TEST_POLL)
        options->n_threads = options->n_processes = 1;
}

/* All that the tests are called, for a message. */
static const char *list_tests(char *text, size_t size)
{
    size_t used = 0;

    for (enum bench_test_id test = 0; test < _TEST_MAX && used < size; test++)
        used += (size_t)snprintf(text + used, size - used, "%s%s", test ? ", " : "", test_to_string(test));
    return text;
}

static bool wants_help(int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return true;
    return false;
}

/* --help wins over everything that may be wrong beside it. */
static int parse_all(struct parser *p, int argc, char **argv)
{
    char tests[128];
    int r;

    p->options.help = wants_help(argc, argv);
    if (p->options.help)
        return 0;
    if (argc < 2)
        return refuse(p, "which TEST? One of %s", list_tests(tests, sizeof(tests)));
    p->options.test = test_from_string(argv[1]);
    if (p->options.test == _TEST_INVALID)
        return refuse(p, "%s: no such test; one of %s", argv[1], list_tests(tests, sizeof(tests)));
    apply_defaults(&p->options);
    for (int i = 2; i < argc; i += r) {
        r = parse_option(p, argv[i], i + 1 < argc ? argv[i + 1] : NULL);
        if (r < 0)
            return r;
    }
    r = check_settings(p);
    if (r < 0)
        return r;
    settle(&p->options);
    return check_together(p);
}

int options_parse(int argc, char **argv, struct bench_options *ret, char *message, size_t size)
{
    struct parser p = {.message = message, .size = size};
    int r = parse_all(&p, argc, argv);

    if (r < 0)
        return r;
    *ret = p.options;
    return 0;
}

static void print_tests_of(unsigned tests)
{
    const char *separator = " [";

    if (tests == FOR_ALL)
        return;
    for (enum bench_test_id test = 0; test < _TEST_MAX; test++) {
        if (!(tests & (1u << test)))
            continue;
        printf("%s%s", separator, test_to_string(test));
        separator = ", ";
    }
    printf("]");
}

/* The default that its tests share, if the help does not name it itself. */
static void print_default(const struct option *o)
{
    enum bench_test_id first = (enum bench_test_id)__builtin_ctz(o->tests);

    if (o->kind == OPTION_NUMBER && o->defaults[first] && !strstr(o->help, "default"))
        printf(" (default %" PRIu64 ")", o->defaults[first]);
}

void options_print_help(void)
{
    printf("Usage: reclaim-scale TEST [OPTION]...\n\n"
           "Measures reclaimd and its peers. Starts a private daemon for each run unless --runtime-directory "
           "is given.\n\n"
           "Tests:\n");
    for (enum bench_test_id test = 0; test < _TEST_MAX; test++)
        printf("  %-26s %s\n", test_table[test].name, test_table[test].summary);
    printf("\nOptions, and the tests that have them:\n");
    for (size_t i = 0; i < ARRAY_SIZE(option_table); i++) {
        const struct option *o = &option_table[i];
        char left[64];

        (void)snprintf(left, sizeof(left), "--%s %s", o->name, o->argument ? o->argument : "");
        printf("  %-26s %s", left, o->help);
        print_default(o);
        print_tests_of(o->tests);
        printf("\n");
    }
    printf("\nThe daemon is $RECLAIMD, else the one of this build, else reclaimd in PATH.\n"
           "Exit status: 0 done, 1 failed, 2 usage.\n");
}

/* NULL: nothing was said. */
static struct json_object *option_to_json(const struct option *o, const struct bench_options *options)
{
    const void *field = (const char *)options + o->offset;
    const char *text;

    switch (o->kind) {
    case OPTION_NUMBER:
    case OPTION_TIME:
    case OPTION_SIZE:
        return json_object_new_uint64(*(const uint64_t *)field);
    case OPTION_FLAG:
        return json_object_new_boolean(*(const bool *)field);
    default:
        text = *(const char *const *)field;
        return text ? json_object_new_string(text) : NULL;
    }
}

struct json_object *options_to_json(const struct bench_options *options)
{
    struct json_object *all = json_object_new_object(), *value;

    for (size_t i = 0; all && i < ARRAY_SIZE(option_table); i++) {
        const struct option *o = &option_table[i];

        if (!(o->tests & (1u << options->test)) || o->kind == OPTION_SETTING || strcmp(o->name, "help") == 0)
            continue;
        value = option_to_json(o, options);
        if (value)
            (void)json_object_object_add(all, o->name, value);
    }
    return all;
}
