/* SPDX-License-Identifier: MIT */
/*
 * The parameters keep their contract (names, defaults, ranges, scopes), every value reads back as it is
 * written, a wrong one is refused with the range, and of all who set one the right one wins.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "basic/macro.h"
#include "parameter-store.h"
#include "parameters.h"

static const struct parameter *find(const char *name)
{
    const struct parameter *parameter = NULL;

    assert_int_equal(parameter_find(name, &parameter, NULL), 0);
    return parameter;
}

/* The structs that a parameter may be stored in, so that a test need not care which. */
static struct {
    struct daemon_parameters of_daemon;
    struct arena_parameters of_arena;
} structs;

static void *target(const struct parameter *parameter)
{
    return parameter->scope == PARAMETER_SCOPE_DAEMON ? (void *)&structs.of_daemon : &structs.of_arena;
}

static int structs_init(void **state)
{
    daemon_parameters_init(&structs.of_daemon);
    arena_parameters_init(&structs.of_arena);
    return 0;
}

static void the_contract_is_kept(void **state)
{
    static const struct {
        const char *name, *default_text, *range;
        enum parameter_scope scope;
    } contract[] = {
        {"drain-interval", "1s", "1ms..1h", PARAMETER_SCOPE_ARENA},
        {"flood-objects", "512", "1..2147483648", PARAMETER_SCOPE_ARENA},
        {"flood-bytes", "16M", "4K..1T", PARAMETER_SCOPE_ARENA},
        {"flood-interval", "1ms", "0..1s", PARAMETER_SCOPE_ARENA},
        {"gp-wait", "poll", "poll, callback", PARAMETER_SCOPE_ARENA},
        {"batches", "2", "1..64", PARAMETER_SCOPE_ARENA},
        {"batching", "yes", "no, yes", PARAMETER_SCOPE_ARENA},
        {"callback-limit", "10", "1..10000", PARAMETER_SCOPE_DAEMON},
        {"wake-from-gp", "no", "no, yes, auto", PARAMETER_SCOPE_ARENA},
        {"wake-direct", "5", "0..1000", PARAMETER_SCOPE_ARENA},
        {"wake-flood", "64", "0..1000", PARAMETER_SCOPE_ARENA},
        {"gp-first-check", "50us", "0..1s", PARAMETER_SCOPE_ARENA},
        {"gp-next-check", "1ms", "0..1s", PARAMETER_SCOPE_ARENA},
        {"expedited", "no", "no, yes", PARAMETER_SCOPE_ARENA},
        {"stall-timeout", "21s", "100ms..1h or off", PARAMETER_SCOPE_ARENA},
        {"stall-action", "report", "report, kill", PARAMETER_SCOPE_ARENA},
        {"purge-threshold", "auto", "0..2T or auto", PARAMETER_SCOPE_ARENA},
        {"purge-delay", "10s", "0..1h or off", PARAMETER_SCOPE_ARENA},
        {"purge-while-purging", "no", "no, yes", PARAMETER_SCOPE_ARENA},
        {"memory-pressure", "auto", "auto, off", PARAMETER_SCOPE_DAEMON},
        {"memory-reserve", "5%", "0%..50%", PARAMETER_SCOPE_DAEMON},
        {"client-pending-max", "25%", "1%..100% or 4K..2T", PARAMETER_SCOPE_ARENA},
        {"zero-on-free", "no", "no, yes", PARAMETER_SCOPE_ARENA},
        {"arenas-per-user-max", "16", "0..65536", PARAMETER_SCOPE_DAEMON},
        {"arena-size-max", "64G", "1M..2T", PARAMETER_SCOPE_DAEMON},
        {"user-bytes-max", "50%", "1%..100% or 1M..64T", PARAMETER_SCOPE_DAEMON},
        {"clients-max", "1024", "1..65536", PARAMETER_SCOPE_DAEMON},
        {"clients-per-user-max", "512", "1..65536", PARAMETER_SCOPE_DAEMON},
        {"lanes-max", "256", "1..4096", PARAMETER_SCOPE_DAEMON},
        {"admin-group", "reclaimd", "a group's name or off", PARAMETER_SCOPE_DAEMON},
    };
    char range[PARAMETER_RANGE_BYTES];

    assert_int_equal(ARRAY_SIZE(contract), N_PARAMETERS);
    for (size_t i = 0; i < ARRAY_SIZE(contract); i++) {
        const struct parameter *parameter = parameter_get(i);

        assert_string_equal(parameter->name, contract[i].name);
        assert_string_equal(parameter->default_text, contract[i].default_text);
        assert_string_equal(parameter_range_format(parameter, range), contract[i].range);
        assert_int_equal(parameter->scope, contract[i].scope);
    }
    assert_null(parameter_get(N_PARAMETERS));
}

static void every_row_is_whole(void **state)
{
    char text[PARAMETER_TEXT_BYTES];

    for (size_t i = 0; parameter_get(i); i++) {
        const struct parameter *parameter = parameter_get(i);
        struct parameter_value value;
        size_t n = strlen(parameter->doc);

        assert_int_equal(parameter_index(parameter), i);
        assert_ptr_equal(find(parameter->name), parameter);
        assert_non_null(parameter_type_to_string(parameter->type));
        assert_non_null(parameter->unit);
        assert_non_null(parameter->source);
        assert_true(n > 20 && parameter->doc[n - 1] == '.');
        assert_int_equal(parameter_value_parse(parameter, parameter->default_text, &value, NULL), 0);
        assert_string_equal(parameter_value_format(parameter, &value, text), parameter->default_text);
        assert_string_equal(parameter_format(parameter, target(parameter), text), parameter->default_text);
    }
    assert_null(parameter_type_to_string(PARAMETER_TYPE_INVALID));
}

static void values_read_back_as_written(void **state)
{
    static const struct {
        const char *name, *text, *written;
    } cases[] = {
        {"drain-interval", "1ms", "1ms"},
        {"drain-interval", "3600s", "1h"},
        {"drain-interval", "90", "1min 30s"},
        {"drain-interval", "1.5s", "1s 500ms"},
        {"flood-interval", "0", "0"},
        {"flood-objects", "2147483648", "2147483648"},
        {"flood-bytes", "4096", "4K"},
        {"flood-bytes", "1536M", "1536M"},
        {"gp-wait", "callback", "callback"},
        {"batching", "off", "no"},
        {"batching", "TRUE", "yes"},
        {"wake-from-gp", "auto", "auto"},
        {"stall-timeout", "off", "off"},
        {"purge-threshold", "auto", "auto"},
        {"purge-threshold", "0", "0"},
        {"purge-delay", "off", "off"},
        {"memory-pressure", "off", "off"},
        {"memory-reserve", "0%", "0%"},
        {"client-pending-max", "100%", "100%"},
        {"client-pending-max", "64M", "64M"},
        {"user-bytes-max", "64T", "64T"},
        {"admin-group", "wheel", "wheel"},
        {"admin-group", "off", "off"},
    };
    char text[PARAMETER_TEXT_BYTES];

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const struct parameter *parameter = find(cases[i].name);

        assert_int_equal(parameter_set(parameter, cases[i].text, target(parameter), NULL), 0);
        assert_string_equal(parameter_format(parameter, target(parameter), text), cases[i].written);
        assert_int_equal(parameter_set(parameter, text, target(parameter), NULL), 0);
        assert_string_equal(parameter_format(parameter, target(parameter), text), cases[i].written);
    }
}

static void wrong_values_are_refused_in_words(void **state)
{
    static const struct {
        const char *name, *text;
        int error;
        const char *words;
    } cases[] = {
        {"drain-interval", "5us", -ERANGE, "drain-interval: '5us' is below 1ms; range 1ms..1h"},
        {"drain-interval", "2h", -ERANGE, "drain-interval: '2h' is above 1h; range 1ms..1h"},
        {"drain-interval", "", -EINVAL,
         "drain-interval: '' is not a time; write it like 250ms, 1min 30s or 1h"},
        {"drain-interval", "off", -EINVAL,
         "drain-interval: 'off' is not a time; write it like 250ms, 1min 30s or 1h"},
        {"drain-interval", "infinity", -EINVAL,
         "drain-interval: 'infinity' is not a time; write it like 250ms, 1min 30s or 1h"},
        {"stall-timeout", "never", -EINVAL,
         "stall-timeout: 'never' is not a time; write it like 250ms, 1min 30s or 1h, or off"},
        {"stall-timeout", "auto", -EINVAL,
         "stall-timeout: 'auto' is not a time; write it like 250ms, 1min 30s or 1h, or off"},
        {"flood-objects", "0", -ERANGE, "flood-objects: '0' is below 1; range 1..2147483648"},
        {"flood-objects", "2147483649", -ERANGE,
         "flood-objects: '2147483649' is above 2147483648; range 1..2147483648"},
        {"flood-objects", "1K", -EINVAL, "flood-objects: '1K' is not a number; write it in digits, like 512"},
        {"flood-objects", "-1", -EINVAL, "flood-objects: '-1' is not a number; write it in digits, like 512"},
        {"flood-objects", "18446744073709551617", -ERANGE,
         "flood-objects: '18446744073709551617' is above 2147483648; range 1..2147483648"},
        {"purge-threshold", "3T", -ERANGE, "purge-threshold: '3T' is above 2T; range 0..2T or auto"},
        {"purge-threshold", "99999E", -ERANGE, "purge-threshold: '99999E' is above 2T; range 0..2T or auto"},
        {"purge-threshold", "18446744073709551614", -ERANGE,
         "purge-threshold: '18446744073709551614' is above 2T; range 0..2T or auto"},
        {"gp-wait", "Poll", -EINVAL, "gp-wait: 'Poll' is not one of poll, callback"},
        {"batching", "maybe", -EINVAL, "batching: 'maybe' is not yes or no"},
        {"memory-reserve", "5", -EINVAL, "memory-reserve: '5' is not a percentage; write it like 25%"},
        {"memory-reserve", "51%", -ERANGE, "memory-reserve: '51%' is above 50%; range 0%..50%"},
        {"client-pending-max", "0%", -ERANGE,
         "client-pending-max: '0%' is below 1%; range 1%..100% or 4K..2T"},
        {"client-pending-max", "200%", -ERANGE,
         "client-pending-max: '200%' is above 100%; range 1%..100% or 4K..2T"},
        {"client-pending-max", "25", -ERANGE,
         "client-pending-max: '25' is below 4K; range 1%..100% or 4K..2T"},
        {"client-pending-max", "x%", -EINVAL,
         "client-pending-max: 'x%' is not a percentage; write it like 25%"},
        {"admin-group", "", -EINVAL,
         "admin-group: '' is not a group's name; use at most 32 letters, digits, '.', '_' and '-', or off"},
        {"admin-group", "-wheel", -EINVAL,
         "admin-group: '-wheel' is not a group's name; use at most 32 letters, digits, '.', '_' and '-', or "
         "off"},
        {"admin-group", "abcdefghijklmnopqrstuvwxyz1234567", -EINVAL,
         "admin-group: 'abcdefghijklmnopqrstuvwxyz1234567' is not a group's name; use at most 32 letters, "
         "digits, '.', '_' and '-', or off"},
        {"batches", "1\033[2J\n", -EINVAL, "batches: '1?[2J?' is not a number; write it in digits, like 512"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const struct parameter *parameter = find(cases[i].name);
        char before[PARAMETER_TEXT_BYTES], after[PARAMETER_TEXT_BYTES];
        struct error_line line;

        (void)parameter_format(parameter, target(parameter), before);
        assert_int_equal(parameter_set(parameter, cases[i].text, target(parameter), &line), cases[i].error);
        assert_string_equal(line.text, cases[i].words);
        assert_string_equal(parameter_format(parameter, target(parameter), after), before);
    }
}

static void fields_hold_what_was_said(void **state)
{
    struct arena_parameters *a = &structs.of_arena;
    struct daemon_parameters *d = &structs.of_daemon;

    assert_int_equal(a->drain_interval_usec, 1000000);
    assert_int_equal(a->flood_objects, 512);
    assert_int_equal(a->flood_bytes, 16 << 20);
    assert_int_equal(a->gp_wait, GP_WAIT_POLL);
    assert_true(a->batching);
    assert_false(a->expedited);
    assert_true(a->purge_threshold_bytes == PARAMETER_AUTO);
    assert_true(a->client_pending_max.is_percent && a->client_pending_max.value == 25);
    assert_int_equal(d->memory_pressure, MEMORY_PRESSURE_AUTO);
    assert_int_equal(d->memory_reserve_percent, 5);
    assert_string_equal(d->admin_group, "reclaimd");

    assert_int_equal(parameter_set(find("gp-wait"), "callback", a, NULL), 0);
    assert_int_equal(parameter_set(find("wake-from-gp"), "auto", a, NULL), 0);
    assert_int_equal(parameter_set(find("stall-action"), "kill", a, NULL), 0);
    assert_int_equal(parameter_set(find("stall-timeout"), "off", a, NULL), 0);
    assert_int_equal(parameter_set(find("client-pending-max"), "1M", a, NULL), 0);
    assert_int_equal(parameter_set(find("memory-pressure"), "off", d, NULL), 0);
    assert_int_equal(parameter_set(find("admin-group"), "off", d, NULL), 0);
    assert_int_equal(a->gp_wait, GP_WAIT_CALLBACK);
    assert_int_equal(a->wake_from_gp, WAKE_FROM_GP_AUTO);
    assert_int_equal(a->stall_action, STALL_ACTION_KILL);
    assert_true(a->stall_timeout_usec == PARAMETER_OFF);
    assert_true(!a->client_pending_max.is_percent && a->client_pending_max.value == 1 << 20);
    assert_int_equal(d->memory_pressure, MEMORY_PRESSURE_OFF);
    assert_string_equal(d->admin_group, "");
}

static void shares_come_to_bytes(void **state)
{
    const struct parameter_share quarter = {25, true}, all = {100, true}, bytes = {4096, false};

    assert_int_equal(parameter_share_bytes(quarter, 1000), 250);
    assert_int_equal(parameter_share_bytes(quarter, 3), 0);
    assert_true(parameter_share_bytes(all, UINT64_MAX) == UINT64_MAX);
    assert_int_equal(parameter_share_bytes(bytes, 7), 4096);
}

static void unknown_names_get_a_suggestion(void **state)
{
    const struct parameter *parameter = NULL;
    struct error_line line;

    assert_int_equal(parameter_find("drain-intervall", &parameter, &line), -ENOKEY);
    assert_string_equal(line.text, "unknown parameter 'drain-intervall'; did you mean drain-interval?");
    assert_int_equal(parameter_find("metrics-listen", &parameter, &line), -ENOKEY);
    assert_non_null(strstr(line.text, "list-parameters"));
    assert_int_equal(parameter_find("", &parameter, &line), -ENOKEY);
    assert_null(parameter);
}

/* A store whose file layer is empty; freed by the test's teardown. */
static struct parameter_store *store;

static int store_init(void **state)
{
    return parameter_store_new(&store);
}

static int store_deinit(void **state)
{
    store = parameter_store_free(store);
    return 0;
}

static void set(enum parameter_source source, const char *arena, const char *name, const char *value)
{
    const struct parameter_assignment assignment = {name, value};
    struct parameter_changes changes;

    assert_int_equal(parameter_store_set(store, source, arena, &assignment, 1, false, &changes, NULL), 0);
    assert_int_equal(changes.n, 1);
    parameter_changes_deinit(&changes);
}

static void reset(const char *arena, const char *name)
{
    struct parameter_changes changes;

    assert_int_equal(parameter_store_reset(store, arena, &name, name ? 1 : 0, false, &changes, NULL), 0);
    parameter_changes_deinit(&changes);
}

static void assert_value(const char *arena, const char *name, const char *value, const char *origin)
{
    char text[PARAMETER_TEXT_BYTES], origin_text[PARAMETER_ORIGIN_BYTES];
    struct parameter_origin from;

    assert_string_equal(parameter_store_format(store, arena, find(name), &from, text), value);
    assert_string_equal(parameter_origin_format(&from, origin_text), origin);
}

static void replace_file(struct parameter_layer *layer, struct parameter_changes *ret_changes)
{
    assert_int_equal(parameter_store_replace_file(store, layer, ret_changes), 0);
}

/* A file layer with drain-interval for all and for arena a. */
static struct parameter_layer *layer_of(const char *for_all, const char *for_a)
{
    struct parameter_layer *layer = NULL;

    assert_int_equal(parameter_layer_new(&layer), 0);
    if (for_all)
        assert_int_equal(parameter_layer_set(layer, NULL, "drain-interval", for_all, "f.conf", 3, NULL), 0);
    if (for_a)
        assert_int_equal(parameter_layer_set(layer, "a", "drain-interval", for_a, "f.conf", 7, NULL), 0);
    return layer;
}

static void the_last_layer_wins(void **state)
{
    struct parameter_changes changes;

    assert_value("a", "drain-interval", "1s", "built-in");
    replace_file(layer_of("2s", "3s"), &changes);
    parameter_changes_deinit(&changes);
    assert_value(NULL, "drain-interval", "2s", "f.conf:3");
    assert_value("a", "drain-interval", "3s", "f.conf:7");
    assert_value("b", "drain-interval", "2s", "f.conf:3");
    set(PARAMETER_COMMAND_LINE, NULL, "drain-interval", "4s");
    assert_value("a", "drain-interval", "4s", "--set");
    set(PARAMETER_RUNTIME, NULL, "drain-interval", "5s");
    assert_value("a", "drain-interval", "5s", "runtime");
    set(PARAMETER_RUNTIME, "a", "drain-interval", "6s");
    assert_value("a", "drain-interval", "6s", "runtime (arena)");
    assert_value("b", "drain-interval", "5s", "runtime");
    assert_value(NULL, "drain-interval", "5s", "runtime");

    reset("a", "drain-interval");
    assert_value("a", "drain-interval", "5s", "runtime");
    reset(NULL, "drain-interval");
    assert_value("a", "drain-interval", "4s", "--set");
    reset(NULL, "drain-interval");
    assert_value("a", "drain-interval", "4s", "--set");
}

static void effective_structs_follow_the_layers(void **state)
{
    struct arena_parameters of_a, of_all;
    struct daemon_parameters of_daemon;

    set(PARAMETER_RUNTIME, NULL, "flood-bytes", "1M");
    set(PARAMETER_RUNTIME, "a", "flood-bytes", "2M");
    set(PARAMETER_RUNTIME, "a", "zero-on-free", "yes");
    set(PARAMETER_COMMAND_LINE, NULL, "admin-group", "wheel");
    parameters_effective_arena(store, "a", &of_a);
    parameters_effective_arena(store, NULL, &of_all);
    parameters_effective_daemon(store, &of_daemon);
    assert_int_equal(of_a.flood_bytes, 2 << 20);
    assert_int_equal(of_all.flood_bytes, 1 << 20);
    assert_true(of_a.zero_on_free);
    assert_false(of_all.zero_on_free);
    assert_int_equal(of_a.flood_objects, 512);
    assert_string_equal(of_daemon.admin_group, "wheel");
    assert_int_equal(of_daemon.clients_max, 1024);
    assert_int_equal(of_daemon.clients_per_user_max, 512);
}

static void several_change_together(void **state)
{
    static const struct parameter_assignment assignments[] = {
        {"drain-interval", "250ms"}, {"purge-threshold", "0"}, {"batches", "2"}};
    struct parameter_changes changes;

    assert_int_equal(
        parameter_store_set(store, PARAMETER_RUNTIME, NULL, assignments, 3, false, &changes, NULL), 0);
    assert_int_equal(changes.n, 3);
    assert_string_equal(changes.items[0].parameter->name, "drain-interval");
    assert_string_equal(changes.items[0].before, "1s");
    assert_string_equal(changes.items[0].after, "250ms");
    assert_string_equal(changes.items[1].before, "auto");
    assert_string_equal(changes.items[1].after, "0");
    assert_string_equal(changes.items[2].before, "2");
    assert_string_equal(changes.items[2].after, "2");
    assert_string_equal(changes.items[0].arena, "");
    parameter_changes_deinit(&changes);
    assert_value(NULL, "batches", "2", "runtime");
    assert_value(NULL, "purge-threshold", "0", "runtime");
}

static void one_wrong_changes_nothing(void **state)
{
    static const struct {
        const char *arena;
        struct parameter_assignment second;
        int error;
        const char *words;
    } cases[] = {
        {NULL, {"batches", "65"}, -ERANGE, "batches: '65' is above 64; range 1..64"},
        {NULL, {"batchs", "2"}, -ENOKEY, "unknown parameter 'batchs'; did you mean batches?"},
        {NULL, {"drain-interval", "3s"}, -EINVAL, "drain-interval is named twice; name it once"},
        {"a",
         {"clients-max", "5"},
         -EINVAL,
         "clients-max belongs to the whole daemon; name it without an arena"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const struct parameter_assignment assignments[] = {{"drain-interval", "2s"}, cases[i].second};
        struct parameter_changes changes = {.n = 99};
        struct error_line why;

        assert_int_equal(parameter_store_set(store, PARAMETER_RUNTIME, cases[i].arena, assignments, 2, false,
                                             &changes, &why),
                         cases[i].error);
        assert_string_equal(why.text, cases[i].words);
        assert_int_equal(changes.n, 99);
        assert_value("a", "drain-interval", "1s", "built-in");
    }
}

static void a_dry_run_tells_and_changes_nothing(void **state)
{
    static const struct parameter_assignment assignment = {"drain-interval", "2s"};
    static const char *const name = "drain-interval";
    struct parameter_changes changes;

    assert_int_equal(parameter_store_set(store, PARAMETER_RUNTIME, "a", &assignment, 1, true, &changes, NULL),
                     0);
    assert_string_equal(changes.items[0].after, "2s");
    assert_string_equal(changes.items[0].arena, "a");
    parameter_changes_deinit(&changes);
    assert_value("a", "drain-interval", "1s", "built-in");

    set(PARAMETER_RUNTIME, NULL, "drain-interval", "3s");
    assert_int_equal(parameter_store_reset(store, NULL, &name, 1, true, &changes, NULL), 0);
    assert_string_equal(changes.items[0].before, "3s");
    assert_string_equal(changes.items[0].after, "1s");
    parameter_changes_deinit(&changes);
    assert_value(NULL, "drain-interval", "3s", "runtime");
}

static void a_reset_is_checked_and_may_mean_all(void **state)
{
    static const char *const wrong[] = {"batches", "no-such"};
    static const char *const of_daemon = "clients-max";
    struct parameter_changes changes;
    struct error_line why;

    set(PARAMETER_RUNTIME, "a", "batches", "3");
    set(PARAMETER_RUNTIME, "a", "flood-objects", "7");
    set(PARAMETER_RUNTIME, NULL, "batches", "4");
    assert_int_equal(parameter_store_reset(store, "a", wrong, 2, false, &changes, &why), -ENOKEY);
    assert_int_equal(parameter_store_reset(store, "a", &of_daemon, 1, false, &changes, &why), -EINVAL);
    assert_value("a", "batches", "3", "runtime (arena)");
    assert_int_equal(parameter_store_reset(store, "a", NULL, 0, false, &changes, &why), 0);
    assert_int_equal(changes.n, 2);
    assert_string_equal(changes.items[0].parameter->name, "flood-objects");
    assert_string_equal(changes.items[1].before, "3");
    assert_string_equal(changes.items[1].after, "4");
    parameter_changes_deinit(&changes);
    assert_value("a", "batches", "4", "runtime");
    /* An arena of which nothing was ever said. */
    assert_int_equal(parameter_store_reset(store, "b", NULL, 0, false, &changes, &why), 0);
    assert_int_equal(changes.n, 0);
    parameter_changes_deinit(&changes);
}

static void a_reload_tells_what_changed_and_what_is_kept(void **state)
{
    struct parameter_changes changes;

    set(PARAMETER_RUNTIME, "b", "flood-objects", "9");
    set(PARAMETER_RUNTIME, NULL, "batches", "8");
    replace_file(layer_of("2s", "3s"), &changes);
    assert_int_equal(changes.n, 4);
    assert_string_equal(changes.items[0].parameter->name, "drain-interval");
    assert_string_equal(changes.items[0].arena, "");
    assert_string_equal(changes.items[0].before, "1s");
    assert_string_equal(changes.items[0].after, "2s");
    assert_false(changes.items[0].kept);
    assert_string_equal(changes.items[1].parameter->name, "batches");
    assert_true(changes.items[1].kept);
    assert_string_equal(changes.items[1].before, "8");
    assert_string_equal(changes.items[1].after, "2");
    assert_string_equal(changes.items[2].arena, "a");
    assert_string_equal(changes.items[2].after, "3s");
    assert_string_equal(changes.items[3].arena, "b");
    assert_true(changes.items[3].kept);
    assert_string_equal(changes.items[3].after, "512");
    parameter_changes_deinit(&changes);
    assert_value(NULL, "batches", "8", "runtime");

    /* The same again: only what is kept. Then arena a's own value goes. */
    replace_file(layer_of("2s", "3s"), &changes);
    assert_int_equal(changes.n, 2);
    assert_true(changes.items[0].kept && changes.items[1].kept);
    parameter_changes_deinit(&changes);
    /* Once, although the old file, the new one and the runtime layer all speak of a. */
    set(PARAMETER_RUNTIME, "a", "flood-bytes", "1M");
    replace_file(layer_of("2s", "4s"), &changes);
    assert_int_equal(changes.n, 4);
    assert_string_equal(changes.items[1].arena, "a");
    assert_string_equal(changes.items[1].after, "4s");
    assert_string_equal(changes.items[2].parameter->name, "flood-bytes");
    assert_true(changes.items[2].kept);
    parameter_changes_deinit(&changes);
    reset("a", NULL);
    replace_file(layer_of("2s", NULL), &changes);
    assert_int_equal(changes.n, 3);
    assert_string_equal(changes.items[1].arena, "a");
    assert_string_equal(changes.items[1].before, "4s");
    assert_string_equal(changes.items[1].after, "2s");
    parameter_changes_deinit(&changes);
}

static void an_arena_that_is_gone_is_forgotten(void **state)
{
    set(PARAMETER_RUNTIME, "a", "batches", "3");
    set(PARAMETER_RUNTIME, "b", "batches", "4");
    parameter_store_forget_arena(store, "a");
    parameter_store_forget_arena(store, "never-there");
    assert_value("a", "batches", "2", "built-in");
    assert_value("b", "batches", "4", "runtime (arena)");
}

static void layers_say_where_they_have_it_from(void **state)
{
    struct parameter_layer *layer = layer_of("2s", "3s");
    struct parameter_origin origin;
    struct error_line why;

    assert_true(parameter_layer_find(layer, NULL, find("drain-interval"), &origin));
    assert_string_equal(origin.file, "f.conf");
    assert_int_equal(origin.line, 3);
    assert_false(parameter_layer_find(layer, NULL, find("batches"), &origin));
    assert_false(parameter_layer_find(layer, "b", find("drain-interval"), &origin));
    assert_string_equal(parameter_layer_arena(layer, 0), "a");
    assert_null(parameter_layer_arena(layer, 1));
    assert_int_equal(parameter_layer_set(layer, NULL, "batches", "0", "f", 1, &why), -ERANGE);
    assert_int_equal(parameter_layer_set(layer, "a", "lanes-max", "1", "f", 1, &why), -EINVAL);
    assert_null(parameter_layer_free(layer));
    assert_null(parameter_layer_free(NULL));
    assert_null(parameter_store_free(NULL));
}

static void long_paths_keep_their_end(void **state)
{
    char path[400], text[PARAMETER_ORIGIN_BYTES];
    struct parameter_origin origin = {PARAMETER_FILE, false, path, 4294967295u};

    memset(path, 'd', sizeof(path));
    strcpy(path + 380, "/a\nb.conf");
    (void)parameter_origin_format(&origin, text);
    assert_memory_equal(text, "...dd", 5);
    assert_non_null(strstr(text, "/a?b.conf:4294967295"));
    /* Cut inside a two-byte character: it goes as a whole. */
    for (size_t i = 0; i < 380; i++)
        path[i] = i % 2 ? '\244' : '\303';
    for (size_t n = 0; n < 2; n++) {
        origin.file = path + n;
        (void)parameter_origin_format(&origin, text);
        assert_int_equal((unsigned char)text[3], 0303);
    }
}

#define STORE_TEST(f) cmocka_unit_test_setup_teardown(f, store_init, store_deinit)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_contract_is_kept),
        cmocka_unit_test_setup(every_row_is_whole, structs_init),
        cmocka_unit_test_setup(values_read_back_as_written, structs_init),
        cmocka_unit_test_setup(wrong_values_are_refused_in_words, structs_init),
        cmocka_unit_test_setup(fields_hold_what_was_said, structs_init),
        cmocka_unit_test(shares_come_to_bytes),
        cmocka_unit_test(unknown_names_get_a_suggestion),
        STORE_TEST(the_last_layer_wins),
        STORE_TEST(effective_structs_follow_the_layers),
        STORE_TEST(several_change_together),
        STORE_TEST(one_wrong_changes_nothing),
        STORE_TEST(a_dry_run_tells_and_changes_nothing),
        STORE_TEST(a_reset_is_checked_and_may_mean_all),
        STORE_TEST(a_reload_tells_what_changed_and_what_is_kept),
        STORE_TEST(an_arena_that_is_gone_is_forgotten),
        cmocka_unit_test(layers_say_where_they_have_it_from),
        cmocka_unit_test(long_paths_keep_their_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
