/* SPDX-License-Identifier: MIT */
/* lib/basic: what people type is read exactly, written back readably, and refused in words; scopes clean up.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* The points must exist here whatever the build says. */
#ifndef RECLAIM_TEST_POINTS
#define RECLAIM_TEST_POINTS 1
#endif

#include "basic/cleanup.h"
#include "basic/macro.h"
#include "basic/ordering.h"
#include "basic/parse.h"
#include "basic/runtime.h"
#include "basic/testpoint.h"
#include "basic/text.h"

enum {
    UNTOUCHED = 0x5eed, /* what an output holds before a call that must fail */
};

struct quantity_case {
    const char *text;
    int error;
    uint64_t value;
};

static void quantities_check(const struct quantity_case *cases, size_t n,
                             int (*parse)(const char *, uint64_t *))
{
    for (size_t i = 0; i < n; i++) {
        uint64_t value = UNTOUCHED;
        int r = parse(cases[i].text, &value);

        if (r != cases[i].error || value != (r < 0 ? (uint64_t)UNTOUCHED : cases[i].value))
            fail_msg("'%s': returned %d, value %llu", cases[i].text, r, (unsigned long long)value);
    }
}

static void times_are_read(void **state)
{
    static const struct quantity_case cases[] = {
        {"0", 0, 0},
        {"250ms", 0, 250000},
        {"1min 30s", 0, 90000000},
        {"1min30s", 0, 90000000},
        {"1h", 0, 3600000000},
        {"1 hour 1 minute 1 second", 0, 3661000000},
        {"5", 0, 5000000},
        {"1.5s", 0, 1500000},
        {"0.000001s", 0, 1},
        {"0.0000001s", 0, 0},
        {"0.1234567891234s", 0, 123456},
        {"50us", 0, 50},
        {"50\302\265s", 0, 50},
        {"50\316\274s", 0, 50},
        {"50 usec", 0, 50},
        {"2d", 0, UINT64_C(172800000000)},
        {"1w", 0, UINT64_C(604800000000)},
        {"  10ms\t", 0, 10000},
        {"18446744073709551614us", 0, UINT64_MAX - 1},
        {"18446744073709551615us", -ERANGE, 0}, /* would read as infinity */
        {"18446744073709551616us", -ERANGE, 0},
        {"99999999999999h", -ERANGE, 0},
        {"18446744073709551614us 1us 1us", -ERANGE, 0},
        {"", -EINVAL, 0},
        {"   ", -EINVAL, 0},
        {"s", -EINVAL, 0},
        {"5x", -EINVAL, 0},
        {"5 5", -EINVAL, 0},
        {"5s 5", -EINVAL, 0},
        {"-5s", -EINVAL, 0},
        {"+5s", -EINVAL, 0},
        {"5.s", -EINVAL, 0},
        {".5s", -EINVAL, 0},
        {"1.2.3s", -EINVAL, 0},
        {"5S", -EINVAL, 0},
        {"5secondss", -EINVAL, 0},
        {"1s,", -EINVAL, 0},
        {"infinity", -EINVAL, 0},
    };
    uint64_t usec = 0;

    quantities_check(cases, ARRAY_SIZE(cases), parse_usec);
    assert_int_equal(parse_usec_infinity("infinity", &usec), 0);
    assert_true(usec == USEC_INFINITY);
    assert_int_equal(parse_usec_infinity("2ms", &usec), 0);
    assert_int_equal(usec, 2000);
}

static void sizes_are_read(void **state)
{
    static const struct quantity_case cases[] = {
        {"0", 0, 0},
        {"4096", 0, 4096},
        {"4K", 0, 4096},
        {"64M", 0, UINT64_C(64) << 20},
        {"1T", 0, UINT64_C(1) << 40},
        {"1.5G", 0, UINT64_C(3) << 29},
        {"0.5B", 0, 0},
        {"1G 512M", 0, UINT64_C(3) << 29},
        {"15E", 0, UINT64_C(15) << 60},
        {"16E", -ERANGE, 0},
        {"18446744073709551615", 0, UINT64_MAX},
        {"18446744073709551616", -ERANGE, 0},
        {"64m", -EINVAL, 0},
        {"64MB", -EINVAL, 0},
        {"64MiB", -EINVAL, 0},
        {"M", -EINVAL, 0},
        {"0x10", -EINVAL, 0},
        {"64M;", -EINVAL, 0},
        {"", -EINVAL, 0},
    };

    quantities_check(cases, ARRAY_SIZE(cases), parse_bytes);
}

static void percentages_are_read(void **state)
{
    static const struct {
        const char *text;
        int error;
        unsigned percent;
    } cases[] = {
        {"0%", 0, 0},
        {"0", 0, 0},
        {"00", 0, 0},
        {"0x", -EINVAL, 0},
        {"25%", 0, 25},
        {"100%", 0, 100},
        {"101%", -ERANGE, 0},
        {"25", -EINVAL, 0},
        {"%", -EINVAL, 0},
        {"2.5%", -EINVAL, 0},
        {"25%%", -EINVAL, 0},
        {"-1%", -EINVAL, 0},
        {"", -EINVAL, 0},
        {"99999999999999999999%", -ERANGE, 0},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        unsigned percent = UNTOUCHED;

        assert_int_equal(parse_percent(cases[i].text, &percent), cases[i].error);
        assert_int_equal(percent, cases[i].error < 0 ? (unsigned)UNTOUCHED : cases[i].percent);
    }
}

static void booleans_are_read(void **state)
{
    static const char *const yes[] = {"yes", "YES", "true", "on", "y", "t", "1"};
    static const char *const no[] = {"no", "No", "false", "off", "n", "f", "0"};
    static const char *const neither[] = {"", "2", "yess", "auto", " yes"};
    bool value = false;

    for (size_t i = 0; i < ARRAY_SIZE(yes); i++) {
        value = false;
        assert_int_equal(parse_boolean(yes[i], &value), 0);
        assert_true(value);
    }
    for (size_t i = 0; i < ARRAY_SIZE(no); i++) {
        value = true;
        assert_int_equal(parse_boolean(no[i], &value), 0);
        assert_false(value);
    }
    value = true;
    for (size_t i = 0; i < ARRAY_SIZE(neither); i++)
        assert_int_equal(parse_boolean(neither[i], &value), -EINVAL);
    assert_true(value);
}

static void numbers_keep_to_their_range(void **state)
{
    uint64_t number = UNTOUCHED;

    assert_int_equal(parse_u64("0", 1, 10, &number), -ERANGE);
    assert_int_equal(parse_u64("11", 1, 10, &number), -ERANGE);
    assert_int_equal(parse_u64("18446744073709551616", 0, UINT64_MAX, &number), -ERANGE);
    assert_int_equal(parse_u64("", 0, 10, &number), -EINVAL);
    assert_int_equal(parse_u64("5 ", 0, 10, &number), -EINVAL);
    assert_int_equal(parse_u64("0x5", 0, 10, &number), -EINVAL);
    assert_int_equal(number, UNTOUCHED);
    assert_int_equal(parse_u64("1", 1, 10, &number), 0);
    assert_int_equal(parse_u64("10", 1, 10, &number), 0);
    assert_int_equal(number, 10);
    assert_int_equal(parse_u64("18446744073709551615", 0, UINT64_MAX, &number), 0);
    assert_true(number == UINT64_MAX);
}

static void arena_names_are_checked(void **state)
{
    char name[64];

    assert_true(arena_name_is_valid("a"));
    assert_true(arena_name_is_valid("Routes-v4_backup.2"));
    assert_false(arena_name_is_valid(""));
    assert_false(arena_name_is_valid("a b"));
    assert_false(arena_name_is_valid("a/b"));
    assert_false(arena_name_is_valid("a\nb"));
    assert_false(arena_name_is_valid("\303\244"));
    memset(name, 'x', sizeof(name));
    name[ARENA_NAME_MAX] = '\0';
    assert_true(arena_name_is_valid(name));
    name[ARENA_NAME_MAX] = 'x';
    name[ARENA_NAME_MAX + 1] = '\0';
    assert_false(arena_name_is_valid(name));
}

static void assignments_are_split(void **state)
{
    char *name = NULL, *value = NULL;

    assert_int_equal(parse_assignment("drain-interval", &name, &value), -EINVAL);
    assert_int_equal(parse_assignment("=1s", &name, &value), -EINVAL);
    assert_null(name);
    assert_null(value);
    assert_int_equal(parse_assignment("drain-interval=1min 30s=", &name, &value), 0);
    assert_string_equal(name, "drain-interval");
    assert_string_equal(value, "1min 30s=");
    free(name);
    assert_int_equal(parse_assignment("a=", &name, &value), 0);
    assert_string_equal(value, "");
    free(name);
}

static void names_with_sizes_are_split(void **state)
{
    static const struct {
        const char *text;
        int error;
    } wrong[] = {
        {"routes", -EINVAL},
        {":64M", -EINVAL},
        {"routes:", -EINVAL},
        {"routes:x", -EINVAL},
        {"a b:64M", -EINVAL},
        {"r:16E", -ERANGE},
        {"a:b:64M", -EINVAL},
        {"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx:1M", -EINVAL}, /* 49 */
        {"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
         "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx:1M",
         -EINVAL},
    };
    char name[ARENA_NAME_BYTES] = "before";
    uint64_t bytes = UNTOUCHED;

    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
        assert_int_equal(parse_name_size(wrong[i].text, name, &bytes), wrong[i].error);
    assert_string_equal(name, "before");
    assert_int_equal(bytes, UNTOUCHED);
    assert_int_equal(parse_name_size("routes:64M", name, &bytes), 0);
    assert_string_equal(name, "routes");
    assert_int_equal(bytes, 64 << 20);
}

/* Units as others write them are told in ours; what is wrong otherwise gets the general advice. */
static void sizes_of_others_are_understood(void **state)
{
    static const char *const cases[][2] = {{"64m", "64M"},      {"64MiB", "64M"},  {"64MB", "64M"},
                                           {"1.5 gib", "1.5G"}, {"4kb", "4K"},     {"64x", NULL},
                                           {"64MM", NULL},      {"1.2.3M", NULL},  {"m", NULL},
                                           {"64 mib x", NULL},  {"64\nm\n", NULL}, {"", NULL}};
    struct error_line line;
    char words[64];

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        uint64_t bytes;

        assert_int_equal(parse_bytes(cases[i][0], &bytes), -EINVAL);
        parse_error_describe(PARSE_SIZE, -EINVAL, cases[i][0], &line);
        (void)snprintf(words, sizeof(words), "is not a size; write it as %s", cases[i][1] ?: "");
        if (cases[i][1])
            assert_non_null(strstr(line.text, words));
        else
            assert_non_null(strstr(line.text, "write it like 4096, 64M or 1.5G"));
    }
}

static void errors_are_one_line_with_advice(void **state)
{
    struct error_line line;

    parse_error_describe(PARSE_TIME, -EINVAL, "5x", &line);
    assert_string_equal(line.text, "'5x' is not a time; write it like 250ms, 1min 30s or 1h");
    parse_error_describe(PARSE_SIZE, -ERANGE, "99E", &line);
    assert_string_equal(line.text, "'99E' is out of range");
    for (int kind = 0; kind < PARSE_KIND_MAX; kind++) {
        parse_error_describe((enum parse_kind)kind, -EINVAL, "a\nb\033[31m", &line);
        assert_non_null(strstr(line.text, "'a?b?[31m' is not "));
        assert_true(kind == PARSE_BOOLEAN || strstr(line.text, "; ")); /* "yes or no" is advice enough */
        assert_null(strchr(line.text, '\n'));
    }
    assert_int_equal(error_line_set(&line, -EIO, "%d", 7), -EIO);
    assert_string_equal(line.text, "7");
    assert_int_equal(error_line_set(NULL, -EIO, "%d", 7), -EIO);
}

static void times_are_written(void **state)
{
    static const struct {
        uint64_t usec;
        const char *text;
    } cases[] = {
        {0, "0"},
        {1, "1us"},
        {50, "50us"},
        {1000, "1ms"},
        {1001, "1ms 1us"},
        {250000, "250ms"},
        {90000000, "1min 30s"},
        {3600000000, "1h"},
        {UINT64_C(172800000000), "48h"},
        {USEC_INFINITY, "infinity"},
        {UINT64_MAX - 1, "5124095576h 1min 49s 551ms 614us"},
    };
    char text[FORMAT_BYTES];

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        uint64_t back = 0;

        assert_string_equal(format_usec(cases[i].usec, text), cases[i].text);
        assert_int_equal(parse_usec_infinity(text, &back), 0);
        assert_true(back == cases[i].usec);
    }
}

static void sizes_are_written(void **state)
{
    static const struct {
        uint64_t bytes;
        const char *exact, *human;
    } cases[] = {
        {0, "0", "0B"},
        {512, "512", "512B"},
        {1024, "1K", "1K"},
        {1536, "1536", "1.5K"},
        {65537, "65537", "64K"},
        {UINT64_C(64) << 20, "64M", "64M"},
        {UINT64_C(3) << 29, "1536M", "1.5G"},
        {UINT64_C(2) << 40, "2T", "2T"},
        {(UINT64_C(1) << 30) - 1, "1073741823", "1023.9M"},
        {UINT64_MAX, "18446744073709551615", "15.9E"},
    };
    char text[FORMAT_BYTES];

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        uint64_t back = 1;

        assert_string_equal(format_bytes_human(cases[i].bytes, text), cases[i].human);
        assert_string_equal(format_bytes(cases[i].bytes, text), cases[i].exact);
        assert_int_equal(parse_bytes(text, &back), 0);
        assert_true(back == cases[i].bytes);
    }
}

static void quotes_are_safe_and_short(void **state)
{
    char text[200];

    assert_string_equal(text_quote("plain ~ text").text, "plain ~ text");
    assert_string_equal(text_quote("a\tb\x7f\xff").text, "a?b??");
    memset(text, 'x', sizeof(text));
    text[QUOTED_TEXT_BYTES - 1] = '\0';
    assert_int_equal(strlen(text_quote(text).text), QUOTED_TEXT_BYTES - 1);
    assert_null(strstr(text_quote(text).text, "..."));
    text[QUOTED_TEXT_BYTES - 1] = 'x';
    text[QUOTED_TEXT_BYTES] = '\0';
    assert_int_equal(strlen(text_quote(text).text), QUOTED_TEXT_BYTES - 1);
    assert_non_null(strstr(text_quote(text).text, "x..."));
}

static const char *verb_get(size_t i)
{
    static const char *const verbs[] = {"status", "list-arenas", "list-clients", "show", NULL};

    return verbs[i];
}

static void the_nearest_name_is_found(void **state)
{
    char text[200];

    assert_string_equal(text_nearest("statsu", verb_get), "status");
    assert_string_equal(text_nearest("list-clinets", verb_get), "list-clients");
    assert_string_equal(text_nearest("list-arena", verb_get), "list-arenas");
    assert_string_equal(text_nearest("sho", verb_get), "show");
    assert_null(text_nearest("frobnicate", verb_get));
    assert_null(text_nearest("", verb_get));
    memset(text, 'x', sizeof(text));
    text[sizeof(text) - 1] = '\0';
    assert_null(text_nearest(text, verb_get));
}

static void text_is_stripped_and_compared(void **state)
{
    char padded[] = " \t a b\n", blank[] = "  ", empty[] = "";

    assert_string_equal(text_strip(padded), "a b");
    assert_string_equal(text_strip(blank), "");
    assert_string_equal(text_strip(empty), "");
    assert_true(text_equal(NULL, NULL));
    assert_false(text_equal(NULL, ""));
    assert_false(text_equal("a", "b"));
    assert_true(text_equal("a", "a"));
}

static void macros_do_arithmetic(void **state)
{
    uint64_t big = (UINT64_C(5) << 32) + 1;
    int array[7], calls = 0;
    struct error_line line;

    assert_int_equal(ARRAY_SIZE(array), 7);
    assert_int_equal(MIN(MIN(3, 2), MAX(9, 4)), 2);
    assert_int_equal(MAX(calls++, -1), 0);
    assert_int_equal(calls, 1);
    assert_int_equal(DIV_ROUND_UP(9, 4), 3);
    assert_int_equal(DIV_ROUND_UP(8, 4), 2);
    assert_true(ALIGN_UP(big, 4096) == (UINT64_C(5) << 32) + 4096);
    assert_true(ALIGN_DOWN(big, 4096) == UINT64_C(5) << 32);
    assert_true(IS_ALIGNED(64, 16) && !IS_ALIGNED(65, 16));
    assert_true(IS_POWER_OF_TWO(64) && !IS_POWER_OF_TWO(65) && !IS_POWER_OF_TWO(0));
    assert_ptr_equal(container_of(&line.text[0], struct error_line, text), &line);
}

static void scopes_close_and_free(void **state)
{
    int kept, closed;

    {
        _cleanup_close_ int given = open("/dev/null", O_RDONLY | O_CLOEXEC);
        _cleanup_close_ int stolen = open("/dev/null", O_RDONLY | O_CLOEXEC);
        _cleanup_close_ _unused_ int none = -EBADF;
        _cleanup_free_ char *text = strdup("x");
        _cleanup_free_ char *moved = steal_pointer(text);
        _cleanup_fclose_ FILE *file = fopen("/dev/null", "re");

        assert_non_null(file);
        assert_null(text);
        assert_string_equal(moved, "x");
        closed = given;
        kept = steal_fd(&stolen);
        assert_int_equal(stolen, -EBADF);
        errno = ENOTTY;
    }
    assert_int_equal(errno, ENOTTY);
    assert_int_equal(fcntl(closed, F_GETFD), -1);
    assert_int_not_equal(fcntl(kept, F_GETFD), -1);
    assert_int_equal(fd_close(kept), -EBADF);
    assert_int_equal(fcntl(kept, F_GETFD), -1);
    assert_int_equal(fd_close(-1), -EBADF);
    errno = ENOTTY;
    assert_int_equal(fd_close(kept), -EBADF); /* a close that fails */
    assert_int_equal(errno, ENOTTY);
}

static void ordering_wrappers_do_what_they_say(void **state)
{
    uint64_t word = 1, expected = 1;
    void *pointer = NULL;

    assert_int_equal(load_relaxed(&word), 1);
    assert_true(compare_exchange_acq_rel(&word, &expected, 5));
    assert_false(compare_exchange_relaxed(&word, &expected, 6));
    assert_int_equal(expected, 5);
    assert_int_equal(fetch_add_relaxed(&word, 2), 5);
    assert_int_equal(fetch_sub_relaxed(&word, 1), 7);
    assert_int_equal(fetch_sub_acq_rel(&word, 1), 6);
    assert_int_equal(fetch_or_relaxed(&word, 8), 5);
    assert_int_equal(fetch_and_relaxed(&word, 12), 13);
    assert_int_equal(exchange_acq_rel(&word, 3), 12);
    /* One thread: nothing to pair with, only the values matter here. */
    store_release(&pointer, &word);
    assert_ptr_equal(load_acquire(&pointer), &word);
    store_relaxed(&word, 9);
    full_fence();
    acquire_fence();
    release_fence();
    compiler_fence();
    pause_cpu();
    assert_int_equal(word, 9);
}

static const char *const runtime_variables[] = {"RECLAIMD_RUNTIME_DIRECTORY", "XDG_RUNTIME_DIR"};

static int runtime_variables_clear(void **state)
{
    for (size_t i = 0; i < ARRAY_SIZE(runtime_variables); i++)
        (void)unsetenv(runtime_variables[i]);
    return 0;
}

static void the_runtime_directory_is_the_first_that_applies(void **state)
{
    struct runtime_paths paths;

    assert_int_equal(setenv("XDG_RUNTIME_DIR", "/run/user/7", 1), 0);
    assert_int_equal(setenv("RECLAIMD_RUNTIME_DIRECTORY", "/tmp/r/", 1), 0);
    assert_int_equal(runtime_paths_find("here//", &paths), 0);
    assert_string_equal(paths.directory, "here");
    assert_string_equal(paths.control, "here/control");
    assert_string_equal(paths.client, "here/client");
    assert_int_equal(runtime_paths_find(NULL, &paths), 0);
    assert_string_equal(paths.control, "/tmp/r/control");
    assert_int_equal(setenv("RECLAIMD_RUNTIME_DIRECTORY", "", 1), 0);
    assert_int_equal(runtime_paths_find(NULL, &paths), 0);
    assert_string_equal(paths.directory, geteuid() == 0 ? "/run/reclaimd" : "/run/user/7/reclaimd");
    assert_int_equal(runtime_paths_find("/", &paths), 0);
    assert_string_equal(paths.control, "/control");
}

/* The rules for an ordinary user, tried in a child when the tests run as root. */
static int as_user_find(const char *xdg)
{
    struct runtime_paths paths;
    pid_t child;
    int status;

    (void)unsetenv("RECLAIMD_RUNTIME_DIRECTORY");
    if (xdg)
        (void)setenv("XDG_RUNTIME_DIR", xdg, 1);
    else
        (void)unsetenv("XDG_RUNTIME_DIR");
    child = fork();
    if (child == 0) {
        /* Effective and real: secure_getenv() itself looks at neither after the start of the program. */
        if (geteuid() == 0 && setresuid(65534, 65534, 65534) < 0)
            _exit(255);
        _exit(-runtime_paths_find(NULL, &paths));
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return -WEXITSTATUS(status);
}

static void a_user_without_a_runtime_directory_is_told(void **state)
{
    struct error_line line;

    assert_int_equal(as_user_find("/run/user/7"), 0);
    assert_int_equal(as_user_find(NULL), -ENXIO);
    assert_int_equal(as_user_find("relative"), -ENXIO);
    runtime_error_describe(-ENXIO, &line);
    assert_non_null(strstr(line.text, "--runtime-directory"));
}

static void a_runtime_directory_must_leave_room_for_sockets(void **state)
{
    struct runtime_paths paths = {.directory = "before"};
    char directory[RUNTIME_PATH_BYTES + 1];
    struct error_line line;

    memset(directory, 'd', sizeof(directory));
    directory[RUNTIME_PATH_BYTES - sizeof("/control") + 1] = '\0';
    assert_int_equal(runtime_paths_find(directory, &paths), -ENAMETOOLONG);
    directory[RUNTIME_PATH_BYTES] = '\0';
    assert_int_equal(runtime_paths_find(directory, &paths), -ENAMETOOLONG);
    assert_int_equal(runtime_paths_find("", &paths), -EINVAL);
    assert_string_equal(paths.directory, "before");
    directory[RUNTIME_PATH_BYTES - sizeof("/control")] = '\0';
    assert_int_equal(runtime_paths_find(directory, &paths), 0);
    assert_int_equal(strlen(paths.control), RUNTIME_PATH_BYTES - 1);
    runtime_error_describe(-ENAMETOOLONG, &line);
    assert_non_null(strstr(line.text, "99 bytes"));
    runtime_error_describe(-EACCES, &line);
    assert_non_null(strstr(line.text, strerror(EACCES)));
}

/* Passes point "other" once and "here" three times; the exit status is how far it came. */
static void points_pass(const char *variable)
{
    if (variable)
        (void)setenv("RECLAIM_TEST_POINT", variable, 1);
    else
        (void)unsetenv("RECLAIM_TEST_POINT");
    testpoint_reload();
    RECLAIM_TEST_POINT("other");
    for (int i = 0; i < 3; i++)
        RECLAIM_TEST_POINT("here");
    _exit(42);
}

static int points_child_status(const char *variable)
{
    pid_t child = fork();
    int status;

    if (child == 0)
        points_pass(variable);
    assert_int_equal(waitpid(child, &status, WUNTRACED), child);
    if (WIFSTOPPED(status)) {
        int after;

        assert_int_equal(kill(child, SIGCONT), 0);
        assert_int_equal(waitpid(child, &after, 0), child);
        assert_int_equal(WEXITSTATUS(after), 42);
    }
    return status;
}

static void test_points_kill_and_stop(void **state)
{
    static const char *const harmless[] = {NULL,          "",
                                           "here",        "here:",
                                           "here:kil",    "here:kill@0",
                                           "here:kill@",  "here:kill@x",
                                           "here:kill@4", ":kill",
                                           "her:kill",    "here:kill@-1",
                                           "here:kill@+1"};
    static const char *const deadly[] = {"here:kill", "here:kill@1", "here:kill@3", "other:kill"};

    for (size_t i = 0; i < ARRAY_SIZE(harmless); i++) {
        int status = points_child_status(harmless[i]);

        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 42);
    }
    for (size_t i = 0; i < ARRAY_SIZE(deadly); i++) {
        int status = points_child_status(deadly[i]);

        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    }
    assert_true(WIFSTOPPED(points_child_status("here:stop")));
    assert_true(WIFSTOPPED(points_child_status("here:stop@3")));
}

static void *points_hold_main(void *userdata)
{
    int *n_passed = userdata;

    for (int i = 0; i < 3; i++) {
        RECLAIM_TEST_POINT("here");
        (void)__atomic_add_fetch(n_passed, 1, __ATOMIC_SEQ_CST);
    }
    return NULL;
}

/* The other thread is held at its second passage, and this one goes on; the exit status is what went wrong. */
static int points_hold(const char *path)
{
    pthread_t thread;
    int n_passed = 0;

    (void)setenv("RECLAIM_TEST_POINT", "here:hold@2", 1);
    (void)setenv("RECLAIM_TEST_HOLD", path, 1);
    testpoint_reload();
    if (pthread_create(&thread, NULL, points_hold_main, &n_passed) != 0)
        return 1;
    for (int i = 0; i < 30000 && access(path, F_OK) < 0; i++)
        (void)usleep(1000);
    RECLAIM_TEST_POINT("here"); /* the third; only one is asked for */
    (void)usleep(20000);
    if (__atomic_load_n(&n_passed, __ATOMIC_SEQ_CST) != 1)
        return 2;
    if (unlink(path) < 0)
        return 3;
    (void)pthread_join(thread, NULL);
    return n_passed == 3 ? 42 : 4;
}

static void test_points_hold_one_thread(void **state)
{
    char directory[] = "/tmp/test-basic-XXXXXX", path[64];
    int status;
    pid_t child;

    assert_non_null(mkdtemp(directory));
    (void)snprintf(path, sizeof(path), "%s/held", directory);
    child = fork();
    if (child == 0)
        _exit(points_hold(path));
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 42);
    assert_int_equal(rmdir(directory), 0);
    assert_true(WIFEXITED(points_child_status("here:hold"))); /* without the file's name: nothing */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(times_are_read),
        cmocka_unit_test(sizes_are_read),
        cmocka_unit_test(percentages_are_read),
        cmocka_unit_test(booleans_are_read),
        cmocka_unit_test(numbers_keep_to_their_range),
        cmocka_unit_test(arena_names_are_checked),
        cmocka_unit_test(assignments_are_split),
        cmocka_unit_test(names_with_sizes_are_split),
        cmocka_unit_test(sizes_of_others_are_understood),
        cmocka_unit_test(errors_are_one_line_with_advice),
        cmocka_unit_test(times_are_written),
        cmocka_unit_test(sizes_are_written),
        cmocka_unit_test(quotes_are_safe_and_short),
        cmocka_unit_test(the_nearest_name_is_found),
        cmocka_unit_test(text_is_stripped_and_compared),
        cmocka_unit_test(macros_do_arithmetic),
        cmocka_unit_test(scopes_close_and_free),
        cmocka_unit_test(ordering_wrappers_do_what_they_say),
        cmocka_unit_test_setup(the_runtime_directory_is_the_first_that_applies, runtime_variables_clear),
        cmocka_unit_test_teardown(a_user_without_a_runtime_directory_is_told, runtime_variables_clear),
        cmocka_unit_test_setup(a_runtime_directory_must_leave_room_for_sockets, runtime_variables_clear),
        cmocka_unit_test(test_points_kill_and_stop),
        cmocka_unit_test(test_points_hold_one_thread),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
