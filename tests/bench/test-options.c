/* SPDX-License-Identifier: MIT */
/* The command line: defaults of each test, both spellings of a value, and one clear line for everything that
 * is wrong. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "basic/macro.h"
#include "options.h"

enum {
    ARGUMENTS_MAX = 16,
};

static char message[512];

/* Parses "test --option value .." as a shell would, but for quotes. */
static int parse(const char *line, struct bench_options *ret)
{
    static char copy[512];
    char *argv[ARGUMENTS_MAX] = {(char *)"reclaim-scale"}, *rest = copy, *word;
    int argc = 1;

    message[0] = '\0';
    strcpy(copy, line);
    while ((word = strsep(&rest, " ")))
        if (*word)
            argv[argc++] = word;
    return options_parse(argc, argv, ret, message, sizeof(message));
}

static void test_defaults_of_kfree(void **state)
{
    struct bench_options o;

    assert_int_equal(parse("kfree", &o), 0);
    assert_int_equal(o.test, TEST_KFREE);
    assert_int_equal(o.n_threads, 1);
    assert_int_equal(o.n_processes, 1);
    assert_int_equal(o.n_loops, 10);
    assert_int_equal(o.n_alloc, 8000);
    assert_int_equal(o.mult, 1);
    assert_int_equal(o.window, 0);
    assert_int_equal(o.n_runs, 1);
    assert_false(o.interleaved);
}

static void test_defaults_of_the_others(void **state)
{
    struct bench_options o;

    assert_int_equal(parse("idle", &o), 0);
    assert_int_equal(o.n_processes, 8);
    assert_int_equal(o.duration_usec, 10000000);
    assert_int_equal(parse("sync --waiters 3", &o), 0);
    assert_int_equal(o.n_calls, 2000);
    assert_int_equal(o.n_threads, 3);
    assert_int_equal(parse("purge", &o), 0);
    assert_int_equal(o.n_purge_allocs, 100000);
    assert_int_equal(o.n_threads, 4);
    assert_int_equal(parse("attach", &o), 0);
    assert_int_equal(o.n_loops, 1000);
    assert_int_equal(parse("poll", &o), 0);
    assert_int_equal(o.n_threads, 1);
    assert_int_equal(o.n_pairs, 10000000);
    assert_int_equal(parse("drain --flood", &o), 0);
    assert_true(o.flood);
}

static void test_comparing_means_nine_runs(void **state)
{
    struct bench_options o;

    assert_int_equal(parse("kfree --compare reclaim,malloc", &o), 0);
    assert_int_equal(o.n_runs, 9);
    assert_int_equal(parse("drain --compare-set drain-interval=20ms,1s", &o), 0);
    assert_int_equal(o.n_runs, 9);
    assert_int_equal(parse("kfree --compare reclaim,malloc --runs 3", &o), 0);
    assert_int_equal(o.n_runs, 3);
}

static void test_both_spellings(void **state)
{
    struct bench_options o;

    assert_int_equal(parse("kfree --kfree-loops=7 --kfree-mult 4 --interleaved --backend=malloc", &o), 0);
    assert_int_equal(o.n_loops, 7);
    assert_int_equal(o.mult, 4);
    assert_true(o.interleaved);
    assert_string_equal(o.backend, "malloc");
    assert_int_equal(parse("idle --duration 1min --arena-size 64M", &o), 0);
    assert_int_equal(o.duration_usec, 60000000);
    assert_int_equal(o.arena_bytes, 64 << 20);
}

static void test_settings_keep_their_order(void **state)
{
    struct bench_options o;

    assert_int_equal(parse("kfree --set a=1 --set=b=2=3", &o), 0);
    assert_int_equal(o.n_settings, 2);
    assert_string_equal(o.settings[0], "a=1");
    assert_string_equal(o.settings[1], "b=2=3");
}

/* As many processes as lanes-max asks for, and a burst of waiters calls once, unless somebody says otherwise. */
static void test_waiters_are_spread(void **state)
{
    struct bench_options o;

    assert_int_equal(parse("sync --waiters 512", &o), 0);
    assert_int_equal(o.n_processes, 4);
    assert_int_equal(o.n_calls, 1);
    assert_int_equal(parse("sync --waiters 129 --calls 7", &o), 0);
    assert_int_equal(o.n_processes, 2);
    assert_int_equal(o.n_calls, 7);
    assert_int_equal(parse("sync --waiters 63 --nprocs 9", &o), 0);
    assert_int_equal(o.n_processes, 9);
    assert_int_equal(o.n_calls, 2000);
}

/* Each test's own word for the same neighbour. */
static void test_neighbours(void **state)
{
    struct bench_options o;

    assert_int_equal(parse("sync --callbacks 100 --updates 5", &o), 0);
    assert_int_equal(o.n_callbacks, 100);
    assert_int_equal(o.n_updates, 5);
    assert_false(o.stalled_neighbour);
    assert_int_equal(parse("kfree --fifo-load 100000", &o), 0);
    assert_int_equal(o.n_callbacks, 100000);
    assert_int_equal(o.n_updates, 0);
    assert_int_equal(parse("sync --stalled-neighbour", &o), 0);
    assert_true(o.stalled_neighbour);
}

static void test_help_wins(void **state)
{
    struct bench_options o;

    assert_int_equal(parse("--help", &o), 0);
    assert_true(o.help);
    assert_int_equal(parse("nonsense --bogus --help", &o), 0);
    assert_true(o.help);
}

/* Every wrong line, and a word that its message must hold so that its writer knows what to mend. */
static void test_what_is_wrong_is_said(void **state)
{
    static const struct {
        const char *line, *word;
    } table[] = {
        {"", "TEST"},
        {"kfre", "kfree"},
        {"kfree --bogus", "--bogus"},
        {"sync --waiter 3", "did you mean --waiters?"},
        {"kfree --kfree-lops=3", "did you mean --kfree-loops?"},
        {"kfree -x", "-x"},
        {"kfree extra", "extra"},
        {"kfree --kfree-loops", "missing"},
        {"kfree --kfree-loops x", "whole number"},
        {"kfree --kfree-loops -1", "whole number"},
        {"kfree --kfree-loops 0", "from 1"},
        {"kfree --kfree-loops 1.5", "1.5"},
        {"kfree --kfree-loops 99999999999999999999", "to 1000000000"},
        {"kfree --interleaved=yes", "no value"},
        {"kfree --clients 3", "test kfree"},
        {"kfree --backend=", "empty"},
        {"kfree --set novalue", "NAME=VALUE"},
        {"kfree --set =x", "NAME=VALUE"},
        {"kfree --compare-set x", "NAME=A,B"},
        {"kfree --interleaved --random 10", "one shape"},
        {"kfree --kfree-nprocs 4 --kfree-nthreads 2", "4 processes"},
        {"kfree --backend malloc --compare malloc", "one of them"},
        {"kfree --runtime-directory /x --set a=b", "reclaimctl"},
        {"kfree --callbacks 5", "test kfree"},
        {"sync --fifo-load 5", "test sync"},
        {"sync --stalled-neighbour --callbacks 5", "no --callbacks"},
        {"sync --stalled-neighbour --calls 1", "two --calls"},
        {"kfree --flood", "test kfree"},
        {"poll --pairs 5", "test poll"},
        {"idle --duration 5parsecs", "a time"},
        {"idle --arena-size 5", "a size"},
        {"purge --purge-burst 1000000", "arena-size"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
        struct bench_options o = {.n_runs = 12345};

        assert_int_equal(parse(table[i].line, &o), -EINVAL);
        assert_int_equal(o.n_runs, 12345);
        if (!strstr(message, table[i].word))
            fail_msg("'%s' says '%s', without '%s'", table[i].line, message, table[i].word);
        assert_null(strchr(message, '\n'));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults_of_kfree),
        cmocka_unit_test(test_defaults_of_the_others),
        cmocka_unit_test(test_comparing_means_nine_runs),
        cmocka_unit_test(test_both_spellings),
        cmocka_unit_test(test_settings_keep_their_order),
        cmocka_unit_test(test_waiters_are_spread),
        cmocka_unit_test(test_neighbours),
        cmocka_unit_test(test_help_wins),
        cmocka_unit_test(test_what_is_wrong_is_said),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
