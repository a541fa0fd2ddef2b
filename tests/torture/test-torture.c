/* SPDX-License-Identifier: MIT */
/* Tests of the torture test itself: what it takes for granted, and that its checks find what they are for. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "basic/parse.h"
#include "object.h"
#include "options.h"
#include "tune.h"

/* ---- Objects ---- */

enum {
    ROOM = 64 * 1024,
};

struct fixture {
    struct entry entries[4];
    struct board board;
    struct torture_random random;
    _Alignas(16) unsigned char memory[ROOM];
};

static struct fixture *fixture_new(void)
{
    struct fixture *f = calloc(1, sizeof(*f));

    assert_non_null(f);
    f->board = (struct board){.n_entries = 4, .entries = f->entries};
    f->random = random_make(1, 1);
    return f;
}

/* An object of entry 2, in its fourth life: without a head. */
static uint64_t fixture_make(struct fixture *f, uint32_t bytes)
{
    uint64_t id = (uint64_t)4 << ENTRY_BITS | 2;

    f->entries[2] = (struct entry){.id = id, .bytes = bytes};
    object_fill(f->memory, id, bytes);
    return id;
}

static void object_is_whole_when_filled(void **state)
{
    struct fixture *f = fixture_new();

    (void)state;
    for (uint32_t bytes = OBJECT_BYTES_MIN; bytes < 4096; bytes += 7) {
        uint64_t id = fixture_make(f, bytes);

        assert_int_equal(object_id(f->memory), id);
        assert_ptr_equal(object_entry(&f->board, id), &f->entries[2]);
        assert_null(object_verify(&f->board, f->memory, id, &f->random));
    }
    free(f);
}

static void object_shows_each_changed_word(void **state)
{
    struct fixture *f = fixture_new();
    uint64_t id = fixture_make(f, 512);

    (void)state;
    for (unsigned i = 0; i < 512; i += 8) {
        f->memory[i] ^= 1;
        assert_non_null(object_verify(&f->board, f->memory, id, &f->random));
        f->memory[i] ^= 1;
    }
    assert_null(object_verify(&f->board, f->memory, id, &f->random));
    free(f);
}

/* What the library writes there is nobody's business, and nothing else is left out. */
static void object_with_a_head_leaves_it_out(void **state)
{
    const uint64_t id = (uint64_t)5 << ENTRY_BITS | 2;
    struct fixture *f = fixture_new();

    (void)state;
    f->entries[2] = (struct entry){.id = id, .bytes = 64};
    object_fill(f->memory, id, 64);
    assert_ptr_equal(object_head(f->memory, id, 64), f->memory + 16);
    assert_null(object_head(f->memory, id, 40));
    for (unsigned i = 0; i < 64; i += 8) {
        f->memory[i] ^= 1;
        if (i == 16 || i == 24)
            assert_null(object_verify(&f->board, f->memory, id, &f->random));
        else
            assert_non_null(object_verify(&f->board, f->memory, id, &f->random));
        f->memory[i] ^= 1;
    }
    free(f);
}

/* Of a long one not all words are looked at, but what is spoiled or filled anew is seen at once. */
static void object_shows_another_in_its_place(void **state)
{
    struct fixture *f = fixture_new();
    uint64_t id = fixture_make(f, 40000);

    (void)state;
    object_spoil(f->memory, 40000);
    assert_string_equal(object_verify(&f->board, f->memory, id, &f->random), "its number changed");
    (void)fixture_make(f, 40000);
    f->entries[2].id += 1 << ENTRY_BITS;
    assert_string_equal(object_verify(&f->board, f->memory, id, &f->random), "its entry is another object's");
    id = fixture_make(f, 40000);
    memset(f->memory + 16, 0, 39976); /* but the last word, which is always looked at */
    assert_string_equal(object_verify(&f->board, f->memory, id, &f->random), "its contents changed");
    free(f);
}

static void object_elsewhere_is_not_the_same(void **state)
{
    struct fixture *f = fixture_new();
    uint64_t id = fixture_make(f, 64);

    (void)state;
    memcpy(f->memory + 64, f->memory, 64);
    assert_string_equal(object_verify(&f->board, f->memory + 64, id, &f->random), "its check sum is wrong");
    free(f);
}

static void entry_of_no_board_is_none(void **state)
{
    struct fixture *f = fixture_new();

    (void)state;
    assert_null(object_entry(&f->board, 4));
    assert_null(object_entry(&f->board, UINT64_MAX));
    free(f);
}

static void lengths_are_of_all_kinds(void **state)
{
    struct torture_random random = random_make(7, 7);
    unsigned n_extents = 0, n_smallest = 0;

    (void)state;
    for (unsigned i = 0; i < 10000; i++) {
        uint32_t bytes = object_random_bytes(&random, 20);

        assert_in_range(bytes, OBJECT_BYTES_MIN, OBJECT_BYTES_MAX);
        assert_true(object_real_bytes(bytes) >= bytes);
        n_extents += bytes > OBJECT_SMALL_MAX;
        n_smallest += bytes == OBJECT_BYTES_MIN;
        assert_true(object_random_bytes(&random, 0) <= OBJECT_SMALL_MAX);
    }
    assert_true(n_extents > 0);
    assert_true(n_smallest > 0);
}

/* ---- Options ---- */

/* As a shell would split it. */
static int parse(const char *line, struct torture_options *ret, char message[static 300])
{
    static char words[300], name[] = "reclaim-torture";
    char *argv[16] = {name}, *rest = NULL;
    int argc = 0;

    (void)snprintf(words, sizeof(words), "%s", line);
    for (char *word = strtok_r(words, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
        argv[++argc] = word;
    return options_parse(argc + 1, argv, ret, message, 300);
}

static void options_are_taken(void **state)
{
    struct torture_options o;
    char message[300];

    (void)state;
    assert_int_equal(parse("--duration 60 --seed=17 --kill-clients --no-signals", &o, message), 0);
    assert_int_equal(o.duration_usec, 60000000);
    assert_int_equal(o.seed, 17);
    assert_true(o.kill_clients);
    assert_false(o.signals);
    assert_false(o.hostile);
    assert_int_equal(parse("--seed 18446744073709551615 --arena-size 16M", &o, message), 0);
    assert_true(o.seed == UINT64_MAX);
    assert_int_equal(o.arena_bytes, 16 << 20);
    assert_true(o.signals);
}

static void seeds_differ_unless_said(void **state)
{
    struct torture_options a, b;
    char message[300];

    (void)state;
    assert_int_equal(parse("--readers 1", &a, message), 0);
    assert_int_equal(parse("--readers 1", &b, message), 0);
    assert_true(a.seed != b.seed);
}

static void options_are_refused_in_words(void **state)
{
    static const struct {
        const char *line, *message;
    } rows[] = {
        {"--writer", "unknown option --writer; did you mean --writers?"},
        {"--writers", "--writers needs a value: --writers N"},
        {"--writers 33", "--writers 33: use 0 to 32"},
        {"--duration 0", "--duration 0: use 1s to 168h"},
        {"--hostile=yes", "--hostile takes no value"},
        {"now", "unknown argument now; --help lists what there is"},
        {"--kill-points --hostile",
         "--kill-points runs by itself, without --kill-clients, --hostile, --tune and --broken"},
        {"--broken --readers 0", "--broken needs readers and writers"},
        {"--readers 0 --writers 0",
         "--readers 0 and --writers 0: nothing would run; use at least one of either"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        struct torture_options o;
        char message[300] = "";

        assert_int_equal(parse(rows[i].line, &o, message), -EINVAL);
        assert_string_equal(message, rows[i].message);
    }
}

/* ---- Parameters ---- */

/* Each of the values that a range names comes up, and nothing that it does not allow. */
static void values_are_of_the_range(void **state)
{
    static const struct {
        struct tunable t;
        const char *must[5]; /* bounds and words: they come up in 2,000 draws */
        bool only;           /* there are no others */
    } rows[] = {
        {{.type = "boolean", .range = "no, yes"}, {"no", "yes"}, true},
        {{.type = "choice", .range = "poll, callback"}, {"poll", "callback"}, true},
        {{.type = "choice", .range = "no, yes, auto"}, {"no", "yes", "auto"}, true},
        {{.type = "time", .range = "1ms..1h"}, {"1ms", "1h"}, false},
        {{.type = "time", .range = "100ms..1h or off"}, {"100ms", "1h", "off"}, false},
        {{.type = "size", .range = "0..2T or auto"}, {"0", "2T", "auto"}, false},
        {{.type = "count", .range = "1..2147483648"}, {"1", "2147483648"}, false},
        {{.type = "count", .range = "1..3"}, {"1", "2", "3"}, true},
        {{.type = "percentage", .range = "0%..50%"}, {"0%", "50%"}, false},
        {{.type = "share", .range = "1%..100% or 4K..2T"}, {"1%", "100%", "4K", "2T"}, false},
        {{.type = "group", .range = "a group's name or off", .standard = "reclaimd"},
         {"reclaimd", "off"},
         true},
        {{.type = "novelty", .range = "whatever", .standard = "x"}, {"x"}, true},
    };
    struct torture_random random = random_make(3, 3);

    (void)state;
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        char value[TUNE_TEXT_BYTES];
        unsigned seen = 0, all = 0;

        for (unsigned n = 0; n < 2000; n++) {
            unsigned is = 0;

            tunable_draw(&rows[i].t, &random, value);
            for (unsigned m = 0; m < ARRAY_SIZE(rows[i].must) && rows[i].must[m]; m++) {
                all |= 1u << m;
                is |= (unsigned)(strcmp(value, rows[i].must[m]) == 0) << m;
            }
            seen |= is;
            assert_true(is != 0 || !rows[i].only);
        }
        assert_int_equal(seen, all);
    }
}

/* Any number of the range, as it is written, neither below nor above: the daemon would refuse it. */
static void numbers_are_between_the_bounds(void **state)
{
    static const struct tunable times = {.type = "time", .range = "50us..1s"},
                                sizes = {.type = "size", .range = "4K..1T"};
    struct torture_random random = random_make(4, 4);
    unsigned n_small = 0;

    (void)state;
    for (unsigned n = 0; n < 2000; n++) {
        char value[TUNE_TEXT_BYTES];
        uint64_t number;

        tunable_draw(&times, &random, value);
        assert_int_equal(parse_usec(value, &number), 0);
        assert_in_range(number, 50, USEC_PER_SEC);
        n_small += number < USEC_PER_MSEC;
        tunable_draw(&sizes, &random, value);
        assert_int_equal(parse_bytes(value, &number), 0);
        assert_in_range(number, 4096, UINT64_C(1) << 40);
    }
    assert_in_range(n_small, 500, 1500); /* all orders of magnitude alike */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(object_is_whole_when_filled),
        cmocka_unit_test(object_shows_each_changed_word),
        cmocka_unit_test(object_with_a_head_leaves_it_out),
        cmocka_unit_test(object_shows_another_in_its_place),
        cmocka_unit_test(object_elsewhere_is_not_the_same),
        cmocka_unit_test(entry_of_no_board_is_none),
        cmocka_unit_test(lengths_are_of_all_kinds),
        cmocka_unit_test(options_are_taken),
        cmocka_unit_test(seeds_differ_unless_said),
        cmocka_unit_test(options_are_refused_in_words),
        cmocka_unit_test(values_are_of_the_range),
        cmocka_unit_test(numbers_are_between_the_bounds),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
