/* SPDX-License-Identifier: MIT */
/*
 * org.reclaimd.Control over a fake daemon: who may do what, what each method tells and is told, that errors
 * say what is wrong, and that long work survives whoever asked for it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "control-fake.h"
#include "control-internal.h"
#include "trace.h"
#include "varlink-peer.h"

#define I "org.reclaimd.Control."

static gid_t admin_groups[] = {7, FAKE_ADMIN_GID}, routes_groups[] = {FAKE_ROUTES_GID};

static const struct varlink_peer root = {.pid = 1, .uid = 0, .gid = 0};
static const struct varlink_peer admin = {.pid = 2, .uid = 1500, .gid = 1500, admin_groups, 2};
static const struct varlink_peer owner = {.pid = 3, .uid = FAKE_OWNER_UID, .gid = FAKE_OWNER_UID};
static const struct varlink_peer member = {.pid = 4, .uid = 1600, .gid = 1600, routes_groups, 1};
static const struct varlink_peer other = {.pid = 5, .uid = FAKE_OTHER_UID, .gid = FAKE_OTHER_UID};
static const struct varlink_peer stranger = {.pid = 6, .uid = 1700, .gid = 1700};

struct fixture {
    struct event_base *base;
    struct control *control;
    struct fake fake;
};

static int setup(void **state)
{
    static struct fixture f;

    fake_init(&f.fake);
    f.base = event_base_new();
    assert_int_equal(control_new(f.base, &fake_ops, &f.fake, &f.control), 0);
    *state = &f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    f->control = control_free(f->control);
    fake_finish(&f->fake);
    event_base_free(f->base);
    return 0;
}

/* One call by somebody over a connection of its own; the reply is the caller's to put. */
static struct json_object *ask(struct fixture *f, const struct varlink_peer *as, const char *call)
{
    struct peer p;
    struct json_object *o;

    peer_open(&p, f->base, f->control->server, as);
    peer_send(&p, call);
    o = peer_receive_json(&p);
    peer_close(&p);
    (void)event_base_loop(f->base, EVLOOP_NONBLOCK);
    return o;
}

/* A member by its path, "parameters/arenas/0/name"; NULL if it is not there. */
static struct json_object *at(struct json_object *o, const char *path)
{
    struct json_object *found;
    char pointer[128];

    (void)snprintf(pointer, sizeof(pointer), "/%s", path);
    return json_pointer_get(o, pointer, &found) == 0 ? found : NULL;
}

static const char *text_at(struct json_object *o, const char *path)
{
    return json_object_get_string(at(o, path)) ?: "(absent)";
}

static uint64_t number_at(struct json_object *o, const char *path)
{
    struct json_object *found = at(o, path);

    if (!found || !json_object_is_type(found, json_type_int))
        fail_msg("%s is no integer in %s", path, json_object_to_json_string(o));
    return json_object_get_uint64(found);
}

static size_t length_at(struct json_object *o, const char *path)
{
    return json_object_array_length(at(o, path));
}

static void expect_reply(struct fixture *f, const struct varlink_peer *as, const char *call,
                         const char *expected)
{
    struct json_object *o = ask(f, as, call);

    assert_string_equal(
        json_object_to_json_string_ext(o, JSON_C_TO_STRING_NOSLASHESCAPE | JSON_C_TO_STRING_PLAIN), expected);
    (void)json_object_put(o);
}

static void expect_error(struct fixture *f, const struct varlink_peer *as, const char *call,
                         const char *error, const char *words)
{
    struct json_object *o = ask(f, as, call);

    if (strcmp(text_at(o, "error"), error) != 0 || !strstr(text_at(o, "parameters/text"), words))
        fail_msg("%s: got %s, expected %s with '%s'", call, json_object_to_json_string(o), error, words);
    (void)json_object_put(o);
}

#define DENIED "org.varlink.service.PermissionDenied"
#define DONE "{\"parameters\":{}}"

/* Rights, as a table */

struct right_case {
    const struct varlink_peer *peer;
    gid_t arena_group;
    mode_t mode;
    bool sees, tunes;
};

static const struct right_case right_cases[] = {
    {&root, 1, 0, true, true},
    {&admin, 1, 0, true, true},
    {&owner, 1, 0, true, true},
    {&member, FAKE_ROUTES_GID, 0640, true, false},
    {&member, FAKE_ROUTES_GID, 0600, false, false},
    {&member, FAKE_ROUTES_GID, 0604, false, false}, /* the group decides, not the others */
    {&member, 1, 0640, false, false},
    {&member, 1, 0604, true, false},
    {&stranger, 1700, 0640, true, false}, /* his primary group */
    {&stranger, 1, 0660, false, false},
    {&stranger, 1, 0666, true, false},
};

static void rights_follow_owner_group_and_mode(void **state)
{
    for (size_t i = 0; i < ARRAY_SIZE(right_cases); i++) {
        const struct right_case *c = &right_cases[i];
        struct control_arena_info info = {.owner = FAKE_OWNER_UID, .group = c->arena_group, .mode = c->mode};
        bool all = control_peer_is_admin(c->peer, 990, FAKE_ADMIN_GID);

        if (control_peer_may(c->peer, all, CONTROL_SEE, &info) != c->sees ||
            control_peer_may(c->peer, all, CONTROL_TUNE, &info) != c->tunes)
            fail_msg("case %zu", i);
    }
}

static void all_rights_are_for_root_daemon_and_group(void **state)
{
    struct varlink_peer daemon_user = {.uid = 990, .gid = 990}, nogroup = {.uid = 1700, .gid = (gid_t)-1};

    assert_true(control_peer_is_admin(&root, 990, (gid_t)-1));
    assert_true(control_peer_is_admin(&daemon_user, 990, (gid_t)-1));
    assert_true(control_peer_is_admin(&admin, 990, FAKE_ADMIN_GID));
    assert_false(control_peer_is_admin(&admin, 990, (gid_t)-1));
    assert_false(control_peer_is_admin(&stranger, 990, FAKE_ADMIN_GID));
    assert_false(control_peer_is_admin(&nogroup, 990, (gid_t)-1));
}

/* Looking */

static void status_sums_what_the_caller_may_see(void **state)
{
    struct fixture *f = *state;
    struct json_object *o = ask(f, &root, "{\"method\":\"" I "GetStatus\"}");

    assert_string_equal(text_at(o, "parameters/status/version"), "1.2.3");
    assert_int_equal(number_at(o, "parameters/status/arenas"), 2);
    assert_int_equal(number_at(o, "parameters/status/figures/clients"), 3);
    assert_int_equal(number_at(o, "parameters/status/figures/sizeBytes"), 65 << 20);
    assert_int_equal(number_at(o, "parameters/status/figures/gracePeriodLastUSec"), 90);
    assert_int_equal(number_at(o, "parameters/status/figures/gracePeriodMaxUSec"), 900);
    assert_int_equal(number_at(o, "parameters/status/figures/drains/interval"), 5);
    assert_int_equal(number_at(o, "parameters/status/figures/oldestPendingUSec"), 2500); /* not a sum */
    assert_int_equal(number_at(o, "parameters/status/figures/directWakes"), 111);
    assert_int_equal(number_at(o, "parameters/status/figures/workerWakes"), 212);
    assert_int_equal(number_at(o, "parameters/status/figures/fifoWakes"), 313);
    assert_int_equal(number_at(o, "parameters/status/figures/maxDirectWakes"), 5); /* not a sum */
    assert_int_equal(number_at(o, "parameters/status/memoryPressures"), 3);
    assert_int_equal(number_at(o, "parameters/status/memoryPressuresPassed"), 4);
    assert_int_equal(number_at(o, "parameters/status/callbacksWaiting"), 7);
    assert_int_equal(number_at(o, "parameters/status/callbacks"), 70);
    assert_int_equal(number_at(o, "parameters/status/membarriers"), 21);
    assert_int_equal(number_at(o, "parameters/status/membarriers"), 21);
    assert_string_equal(text_at(o, "parameters/status/configFile"), "/etc/reclaimd/reclaimd.conf");
    (void)json_object_put(o);

    o = ask(f, &owner, "{\"method\":\"" I "GetStatus\"}");
    assert_int_equal(number_at(o, "parameters/status/figures/clients"), 2);
    (void)json_object_put(o);
}

static void arenas_are_listed_for_those_who_may_see_them(void **state)
{
    static const struct {
        const struct varlink_peer *as;
        const char *names[2];
    } cases[] = {{&root, {"routes", "tables"}}, {&admin, {"routes", "tables"}}, {&owner, {"routes", NULL}},
                 {&member, {"routes", NULL}},   {&other, {"tables", NULL}},     {&stranger, {NULL, NULL}}};
    struct fixture *f = *state;

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct json_object *o = ask(f, cases[i].as, "{\"method\":\"" I "ListArenas\"}");

        assert_int_equal(length_at(o, "parameters/arenas"), !!cases[i].names[0] + !!cases[i].names[1]);
        if (cases[i].names[0])
            assert_string_equal(text_at(o, "parameters/arenas/0/name"), cases[i].names[0]);
        if (cases[i].names[1])
            assert_string_equal(text_at(o, "parameters/arenas/1/name"), cases[i].names[1]);
        (void)json_object_put(o);
    }
}

/* Of the arenas that they see alone. */
static void status_tells_who_stalls(void **state)
{
    static const struct {
        const struct varlink_peer *as;
        const char *arenas[2];
    } cases[] = {{&root, {"routes", "tables"}},
                 {&owner, {"routes", NULL}},
                 {&other, {"tables", NULL}},
                 {&stranger, {NULL, NULL}}};

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct json_object *o = ask(*state, cases[i].as, "{\"method\":\"" I "GetStatus\"}");

        assert_int_equal(length_at(o, "parameters/status/stalls"),
                         !!cases[i].arenas[0] + !!cases[i].arenas[1]);
        assert_int_equal(number_at(o, "parameters/status/figures/stalledReaders"),
                         cases[i].arenas[0] && strcmp(cases[i].arenas[0], "routes") == 0);
        if (cases[i].arenas[0])
            assert_string_equal(text_at(o, "parameters/status/stalls/0/arena"), cases[i].arenas[0]);
        if (cases[i].arenas[1]) {
            assert_string_equal(text_at(o, "parameters/status/stalls/0/command"), "bad?[31m");
            assert_string_equal(text_at(o, "parameters/status/stalls/1/arena"), cases[i].arenas[1]);
            assert_int_equal(number_at(o, "parameters/status/stalls/1/tid"), 81);
            assert_int_equal(number_at(o, "parameters/status/stalls/1/gracePeriod"), 5);
            assert_int_equal(number_at(o, "parameters/status/stalls/1/objects"), 3);
            assert_int_equal(number_at(o, "parameters/status/stalls/1/bytes"), 48);
        }
        (void)json_object_put(o);
    }
}

static void clients_that_stall_are_marked(void **state)
{
    struct json_object *o = ask(*state, &root, "{\"method\":\"" I "ListClients\"}");

    assert_int_equal(number_at(o, "parameters/clients/0/stalledReaders"), 0);
    assert_null(at(o, "parameters/clients/0/stall"));
    assert_int_equal(number_at(o, "parameters/clients/2/stalledReaders"), 2);
    assert_int_equal(number_at(o, "parameters/clients/2/stall/tid"), 81);
    assert_int_equal(number_at(o, "parameters/clients/2/stall/durationUSec"), 90 * USEC_PER_SEC);
    (void)json_object_put(o);
}

static void arena_tells_its_figures(void **state)
{
    struct json_object *o =
        ask(*state, &owner, "{\"method\":\"" I "ListArenas\",\"parameters\":{\"arena\":\"routes\"}}");

    assert_int_equal(length_at(o, "parameters/arenas"), 1);
    assert_int_equal(number_at(o, "parameters/arenas/0/owner"), FAKE_OWNER_UID);
    assert_int_equal(number_at(o, "parameters/arenas/0/mode"), 0640);
    assert_int_equal(number_at(o, "parameters/arenas/0/baseAddress"), 0x550000000000);
    assert_int_equal(number_at(o, "parameters/arenas/0/figures/pendingObjects"), 10);
    assert_int_equal(number_at(o, "parameters/arenas/0/figures/gracePeriodsCompleted"), 7);
    assert_string_equal(text_at(o, "parameters/arenas/0/figures/objectsPerPage"), "2.5");
    assert_int_equal(number_at(o, "parameters/arenas/0/oldestReader/tid"), 78);
    assert_int_equal(length_at(o, "parameters/arenas/0/figures/pageHistogram"), CONTROL_PAGE_HISTOGRAM);
    assert_int_equal(number_at(o, "parameters/arenas/0/figures/pageHistogram/2"), 1);
    (void)json_object_put(o);
    o = ask(*state, &root, "{\"method\":\"" I "ListArenas\",\"parameters\":{\"arena\":\"tables\"}}");
    assert_null(at(o, "parameters/arenas/0/oldestReader"));
    assert_true(json_object_get_boolean(at(o, "parameters/arenas/0/transient")));
    (void)json_object_put(o);
}

static void hidden_arena_looks_like_none(void **state)
{
    expect_error(*state, &stranger, "{\"method\":\"" I "ListArenas\",\"parameters\":{\"arena\":\"routes\"}}",
                 I "NoSuchArena", "no arena 'routes'");
    expect_error(*state, &stranger, "{\"method\":\"" I "ListArenas\",\"parameters\":{\"arena\":\"nothere\"}}",
                 I "NoSuchArena", "no arena 'nothere'");
    expect_error(*state, &other, "{\"method\":\"" I "Drain\",\"parameters\":{\"arena\":\"routes\"}}",
                 I "NoSuchArena", "no arena 'routes'");
}

static void clients_are_those_of_visible_arenas_and_ones_own(void **state)
{
    struct fixture *f = *state;
    struct json_object *o = ask(f, &owner, "{\"method\":\"" I "ListClients\"}");

    assert_int_equal(length_at(o, "parameters/clients"), 2);
    assert_string_equal(text_at(o, "parameters/clients/1/command"),
                        "bad?[31m"); /* nothing for the terminal to obey */
    (void)json_object_put(o);
    o = ask(f, &other, "{\"method\":\"" I "ListClients\"}");
    assert_int_equal(length_at(o, "parameters/clients"),
                     2); /* his own two, one in an arena that he does not see */
    assert_int_equal(number_at(o, "parameters/clients/0/id"), 2);
    (void)json_object_put(o);
    o = ask(f, &root, "{\"method\":\"" I "ListClients\",\"parameters\":{\"arena\":\"tables\"}}");
    assert_int_equal(length_at(o, "parameters/clients"), 1);
    (void)json_object_put(o);
    o = ask(f, &stranger, "{\"method\":\"" I "ListClients\"}");
    assert_int_equal(length_at(o, "parameters/clients"), 0);
    (void)json_object_put(o);
}

static void long_list_comes_in_chunks(void **state)
{
    struct fixture *f = *state;
    struct json_object *o;
    size_t n = 0, n_replies = 0;
    struct peer p;
    bool more = true;

    f->fake.n_extra_clients = 997;
    peer_open(&p, f->base, f->control->server, &root);
    peer_send(&p, "{\"method\":\"" I "ListClients\",\"more\":true}");
    for (; more; n_replies++) {
        o = peer_receive_json(&p);
        n += length_at(o, "parameters/clients");
        more = at(o, "continues");
        (void)json_object_put(o);
    }
    assert_int_equal(n, 1000);
    assert_true(n_replies > 1);
    peer_close(&p);

    o = ask(f, &root, "{\"method\":\"" I "ListClients\"}");
    assert_int_equal(length_at(o, "parameters/clients"), 1000);
    (void)json_object_put(o);
    f->fake.n_extra_clients = 20000;
    expect_error(f, &root, "{\"method\":\"" I "ListClients\"}", I "LimitReached", "call with more");
}

/* Parameters */

static void parameters_are_listed_in_order_or_as_asked(void **state)
{
    struct json_object *o = ask(*state, &stranger, "{\"method\":\"" I "ListParameters\"}");

    assert_int_equal(length_at(o, "parameters/parameters"), 3);
    assert_string_equal(
        json_object_to_json_string_ext(at(o, "parameters/parameters/0"), JSON_C_TO_STRING_PLAIN),
        "{\"name\":\"drain-interval\",\"type\":\"time\",\"unit\":\"\",\"range\":\"1ms..1h\",\"default\":"
        "\"1s\","
        "\"value\":\"1s\",\"origin\":\"built-in\",\"description\":\"Time from defer to "
        "drain.\",\"scope\":\"arena\"}");
    (void)json_object_put(o);
    o = ask(*state, &stranger,
            "{\"method\":\"" I
            "ListParameters\",\"parameters\":{\"names\":[\"callback-limit\",\"drain-interval\"]}}");
    assert_int_equal(length_at(o, "parameters/parameters"), 2);
    assert_string_equal(text_at(o, "parameters/parameters/0/name"), "callback-limit");
    assert_string_equal(text_at(o, "parameters/parameters/0/scope"), "daemon");
    (void)json_object_put(o);
}

static void unknown_parameter_suggests_the_nearest(void **state)
{
    expect_error(*state, &root,
                 "{\"method\":\"" I "ListParameters\",\"parameters\":{\"names\":[\"drain-intervall\"]}}",
                 I "NoSuchParameter", "did you mean drain-interval");
    expect_error(*state, &root,
                 "{\"method\":\"" I "ListParameters\",\"parameters\":{\"names\":[\"qqqqqqq\"]}}",
                 I "NoSuchParameter", "list-parameters shows all");
    expect_reply(
        *state, &root, "{\"method\":\"" I "ListParameters\",\"parameters\":{\"names\":[7]}}",
        "{\"error\":\"org.varlink.service.InvalidParameter\",\"parameters\":{\"parameter\":\"names\"}}");
}

#define SET(values) "{\"method\":\"" I "SetParameters\",\"parameters\":{\"values\":{" values "}}}"
#define SET_IN(arena, values)                                                                                \
    "{\"method\":\"" I "SetParameters\",\"parameters\":{\"arena\":\"" arena "\",\"values\":{" values "}}}"

static void set_says_what_changed(void **state)
{
    struct fixture *f = *state;

    expect_reply(
        f, &root, SET("\"drain-interval\":\"250ms\",\"wake-from-gp\":\"yes\""),
        "{\"parameters\":{\"changes\":[{\"name\":\"drain-interval\",\"old\":\"1s\",\"new\":\"250ms\","
        "\"oldOrigin\":\"built-in\"},{\"name\":\"wake-from-gp\",\"old\":\"no\",\"new\":\"yes\","
        "\"oldOrigin\":\"built-in\"}]}}");
    assert_string_equal(f->fake.values[0], "250ms");
    expect_reply(
        f, &owner, SET_IN("routes", "\"drain-interval\":\"9ms\""),
        "{\"parameters\":{\"changes\":[{\"name\":\"drain-interval\",\"old\":\"250ms\",\"new\":\"9ms\","
        "\"arena\":\"routes\",\"oldOrigin\":\"runtime\"}]}}");
}

static void dry_run_changes_nothing(void **state)
{
    struct fixture *f = *state;

    expect_reply(f, &root,
                 "{\"method\":\"" I "SetParameters\",\"parameters\":{\"dryRun\":true,\"values\":{"
                 "\"wake-from-gp\":\"yes\"}}}",
                 "{\"parameters\":{\"changes\":[{\"name\":\"wake-from-gp\",\"old\":\"no\",\"new\":\"yes\","
                 "\"oldOrigin\":\"built-in\"}]}}");
    assert_string_equal(f->fake.values[1], "no");
    assert_int_equal(f->fake.n_sets, 0);
}

static void set_is_all_or_nothing_and_says_why(void **state)
{
    struct fixture *f = *state;

    expect_error(f, &root, SET("\"wake-from-gp\":\"yes\",\"drain-interval\":\"5us\""), I "InvalidValue",
                 "drain-interval: '5us' is below 1ms; range 1ms..1h");
    expect_error(f, &root, SET("\"wake-from-gp\":\"yes\",\"nonsense\":\"1\""), I "NoSuchParameter",
                 "'nonsense'");
    expect_reply(
        f, &root, SET("\"wake-from-gp\":1"),
        "{\"error\":\"org.varlink.service.InvalidParameter\",\"parameters\":{\"parameter\":\"values\"}}");
    expect_reply(
        f, &root, SET(""),
        "{\"error\":\"org.varlink.service.InvalidParameter\",\"parameters\":{\"parameter\":\"values\"}}");
    expect_reply(f, &root, SET("\"wake-from-gp\":\"no\",\"wake-from-gp\":\"yes\""),
                 "{\"error\":\"org.varlink.service.InvalidParameter\",\"parameters\":{\"parameter\":\"wake-"
                 "from-gp\"}}");
    assert_string_equal(f->fake.values[1], "no");
}

static void reset_goes_back(void **state)
{
    struct fixture *f = *state;

    (void)snprintf(f->fake.values[0], sizeof(f->fake.values[0]), "7s");
    (void)snprintf(f->fake.values[1], sizeof(f->fake.values[1]), "yes");
    expect_reply(f, &root,
                 "{\"method\":\"" I "ResetParameters\",\"parameters\":{\"names\":[\"drain-interval\"]}}",
                 "{\"parameters\":{\"changes\":[{\"name\":\"drain-interval\",\"old\":\"7s\",\"new\":\"1s\","
                 "\"oldOrigin\":\"runtime\"}]}}");
    assert_string_equal(f->fake.values[1], "yes");
    (void)json_object_put(ask(f, &root, "{\"method\":\"" I "ResetParameters\"}"));
    assert_string_equal(f->fake.values[1], "no");
}

static void only_those_who_may_set(void **state)
{
    struct fixture *f = *state;

    expect_error(f, &owner, SET("\"wake-from-gp\":\"yes\""), DENIED, "admin group");
    expect_error(f, &member, SET_IN("routes", "\"wake-from-gp\":\"yes\""), DENIED,
                 "belongs to somebody else");
    expect_error(f, &stranger, SET_IN("routes", "\"wake-from-gp\":\"yes\""), I "NoSuchArena", "'routes'");
    expect_error(f, &owner, "{\"method\":\"" I "ResetParameters\"}", DENIED, "admin group");
    expect_error(f, &owner, "{\"method\":\"" I "Reload\"}", DENIED, "reload");
    assert_int_equal(f->fake.n_sets, 0);
    assert_int_equal(f->fake.n_reloads, 0);
}

static void reload_tells_changed_and_kept(void **state)
{
    expect_reply(*state, &admin, "{\"method\":\"" I "Reload\"}",
                 "{\"parameters\":{\"changes\":[{\"name\":\"drain-interval\",\"old\":\"1s\",\"new\":\"2s\"},"
                 "{\"name\":\"size\",\"old\":\"\",\"new\":\"64M\",\"arena\":\"n2\"}],"
                 "\"kept\":[{\"name\":\"wake-from-gp\",\"old\":\"yes\",\"new\":\"no\"},"
                 "{\"name\":\"size\",\"old\":\"256M\",\"new\":\"512M\",\"arena\":\"routes\"}]}}");
    expect_error(*state, &admin, "{\"method\":\"" I "Reload\"}", I "InvalidValue", "reclaimd.conf:3");
}

/* Arenas and clients */

#define CREATE(more)                                                                                         \
    "{\"method\":\"" I "CreateArena\",\"parameters\":{\"name\":\"new\",\"sizeBytes\":65536" more "}}"

static void create_fills_in_the_caller(void **state)
{
    struct fixture *f = *state;

    expect_reply(f, &owner, CREATE(""), DONE);
    assert_string_equal(f->fake.created_name, "new");
    assert_int_equal(f->fake.created.size_bytes, 65536);
    assert_int_equal(f->fake.created.owner, FAKE_OWNER_UID);
    assert_int_equal(f->fake.created.group, FAKE_OWNER_UID);
    assert_int_equal(f->fake.created.mode, 0600);
    assert_int_equal(f->fake.created.asked_by, FAKE_OWNER_UID);
    assert_false(f->fake.created.transient);
    expect_reply(f, &member, CREATE(",\"group\":600,\"mode\":432,\"transient\":true"), DONE);
    assert_int_equal(f->fake.created.group, FAKE_ROUTES_GID);
    assert_int_equal(f->fake.created.mode, 0660);
    assert_true(f->fake.created.transient);
    expect_reply(f, &admin, CREATE(",\"owner\":0"), DONE);
    assert_int_equal(f->fake.created.owner, 0);
}

static void create_is_refused_in_words(void **state)
{
    struct fixture *f = *state;

    expect_error(f, &owner, CREATE(",\"owner\":0"), DENIED, "for others");
    expect_error(f, &owner, CREATE(",\"group\":600"), DENIED, "not in group 600");
    expect_error(f, &root,
                 "{\"method\":\"" I "CreateArena\",\"parameters\":{\"name\":\"a/b\",\"sizeBytes\":1}}",
                 I "InvalidValue", "a/b");
    expect_error(f, &root,
                 "{\"method\":\"" I "CreateArena\",\"parameters\":{\"name\":\"routes\",\"sizeBytes\":1}}",
                 I "ArenaExists", "already");
    expect_error(f, &root,
                 "{\"method\":\"" I
                 "CreateArena\",\"parameters\":{\"name\":\"x\",\"sizeBytes\":68719476737}}",
                 I "LimitReached", "arena-size-max");
    expect_reply(
        f, &root, CREATE(",\"mode\":512"),
        "{\"error\":\"org.varlink.service.InvalidParameter\",\"parameters\":{\"parameter\":\"mode\"}}");
    expect_reply(
        f, &root, CREATE(",\"owner\":4294967295"),
        "{\"error\":\"org.varlink.service.InvalidParameter\",\"parameters\":{\"parameter\":\"owner\"}}");
    assert_string_equal(f->fake.created_name, "");
}

#define REMOVE(force)                                                                                        \
    "{\"method\":\"" I "RemoveArena\",\"parameters\":{\"arena\":\"routes\",\"force\":" force "}}"

static void remove_is_for_the_owner(void **state)
{
    struct fixture *f = *state;

    expect_error(f, &member, REMOVE("true"), DENIED, "somebody else");
    expect_error(f, &owner, REMOVE("false"), I "ArenaBusy", "--force");
    assert_string_equal(f->fake.removed, "");
    expect_reply(f, &owner, REMOVE("true"), DONE);
    assert_string_equal(f->fake.removed, "routes");
}

#define EVICT(id) "{\"method\":\"" I "EvictClient\",\"parameters\":{\"client\":" id ",\"kill\":true}}"

static void evict_is_for_the_arenas_owner(void **state)
{
    struct fixture *f = *state;

    expect_error(f, &stranger, EVICT("1"), I "NoSuchClient", "no client 1");
    expect_error(f, &member, EVICT("1"), DENIED, "somebody else");
    expect_error(f, &root, EVICT("99"), I "NoSuchClient", "no client 99");
    expect_error(f, &root, EVICT("0"), I "NoSuchClient", "no client 0");
    assert_int_equal(f->fake.evicted, 0);
    expect_reply(f, &owner, EVICT("2"), DONE);
    assert_int_equal(f->fake.evicted, 2);
    assert_true(f->fake.killed);
}

/* Long work */

#define DRAIN "{\"method\":\"" I "Drain\"}"
#define RESULT(arena, usec, objects, bytes)                                                                  \
    "{\"usec\":" usec ",\"objects\":" objects ",\"bytes\":" bytes ",\"arena\":\"" arena                      \
    "\",\"complaints\":[]}"

static void work_answers_when_its_last_part_ends(void **state)
{
    struct fixture *f = *state;
    struct peer p;

    f->fake.operations_wait = true;
    peer_open(&p, f->base, f->control->server, &root);
    peer_send(&p, DRAIN);
    peer_expect_silence(&p);
    assert_int_equal(f->fake.n_tasks, 2);
    f->fake.n_tasks--;
    fake_finish_task(&f->fake, &f->fake.tasks[1]);
    peer_expect_silence(&p);
    fake_finish(&f->fake);
    peer_expect(&p, "{\"parameters\":{\"results\":[" RESULT("routes", "2500", "10", "320") "," RESULT(
                        "tables", "100", "0", "0") "]}}");
    peer_close(&p);
}

static void work_may_end_before_it_returns(void **state)
{
    expect_reply(*state, &owner, "{\"method\":\"" I "Barrier\"}",
                 "{\"parameters\":{\"results\":[" RESULT("routes", "2500", "10", "320") "]}}");
    expect_reply(*state, &stranger, DRAIN, "{\"parameters\":{\"results\":[]}}");
}

static void work_outlives_its_caller(void **state)
{
    struct fixture *f = *state;
    struct peer p;

    f->fake.operations_wait = true;
    peer_open(&p, f->base, f->control->server, &root);
    peer_send(&p, DRAIN);
    peer_turn(&p);
    peer_close(&p);
    peer_turn(&p);
    assert_int_equal(varlink_server_n_connections(f->control->server), 0);
    fake_finish(&f->fake);
}

static void work_outlives_the_control(void **state)
{
    struct fixture *f = *state;
    struct peer p;

    f->fake.operations_wait = true;
    peer_open(&p, f->base, f->control->server, &root);
    peer_send(&p, DRAIN);
    peer_turn(&p);
    f->control = control_free(f->control);
    fake_finish(&f->fake);
    peer_expect_closed(&p);
    peer_close(&p);
}

static void one_failure_leaves_the_others(void **state)
{
    struct fixture *f = *state;
    struct json_object *o = ask(f, &root, "{\"method\":\"" I "Purge\"}");

    assert_null(at(o, "parameters/results/0/failure"));
    assert_string_equal(text_at(o, "parameters/results/1/failure"), "cannot punch a hole");
    (void)json_object_put(o);
    o = ask(f, &root, "{\"method\":\"" I "Synchronize\"}");
    assert_string_equal(text_at(o, "parameters/results/1/failure"), "arena 'tables' is stalled");
    (void)json_object_put(o);
    expect_error(f, &root, "{\"method\":\"" I "Purge\",\"parameters\":{\"arena\":\"tables\"}}", I "Failed",
                 "cannot punch a hole");
    expect_error(f, &root, "{\"method\":\"" I "Synchronize\",\"parameters\":{\"arena\":\"tables\"}}",
                 I "Failed", "is stalled");
}

static void audit_lists_what_is_wrong(void **state)
{
    struct fixture *f = *state;
    struct json_object *o;

    f->fake.complaint = "span 3: 5 objects are lost";
    o = ask(f, &owner, "{\"method\":\"" I "Audit\",\"parameters\":{\"arena\":\"routes\"}}");
    assert_int_equal(length_at(o, "parameters/results/0/complaints"), 1);
    assert_string_equal(text_at(o, "parameters/results/0/complaints/0"), "span 3: 5 objects are lost");
    (void)json_object_put(o);
}

static void work_is_for_those_who_may_tune(void **state)
{
    static const char *const methods[] = {"Drain", "Purge", "Synchronize", "Barrier", "Audit"};
    struct fixture *f = *state;
    char call[128];

    f->fake.operations_wait = true;
    for (size_t i = 0; i < ARRAY_SIZE(methods); i++) {
        (void)snprintf(call, sizeof(call), "{\"method\":\"" I "%s\",\"parameters\":{\"arena\":\"routes\"}}",
                       methods[i]);
        expect_error(f, &member, call, DENIED, "somebody else");
    }
    expect_reply(f, &member, DRAIN, "{\"parameters\":{\"results\":[]}}"); /* he sees one, but may tune none */
    assert_int_equal(f->fake.n_tasks, 0);
}

/* Monitor */

static void monitor_goes_on_until_hangup(void **state)
{
    struct fixture *f = *state;
    uint64_t last = 0, n;
    struct json_object *o;
    struct peer p;

    peer_open(&p, f->base, f->control->server, &owner);
    peer_send(&p, "{\"method\":\"" I "Monitor\",\"parameters\":{\"intervalUSec\":10000},\"more\":true}");
    for (int i = 0; i < 3; i++) {
        o = peer_receive_json(&p);
        assert_true(json_object_get_boolean(at(o, "continues")));
        assert_true(number_at(o, "parameters/timeUSec") > UINT64_C(1700000000000000));
        assert_int_equal(number_at(o, "parameters/figures/clients"), 2);
        n = number_at(o, "parameters/figures/synchronizes");
        assert_true(n > last); /* a new look each time */
        last = n;
        (void)json_object_put(o);
    }
    peer_close(&p);
    peer_turn(&p);
    assert_int_equal(varlink_server_n_connections(f->control->server), 0);
    assert_int_equal(event_base_get_num_events(f->base, EVENT_BASE_COUNT_ADDED), 0); /* nor a timer */
}

static void monitor_refuses_what_makes_no_sense(void **state)
{
    struct fixture *f = *state;

    expect_reply(f, &root, "{\"method\":\"" I "Monitor\"}",
                 "{\"error\":\"org.varlink.service.ExpectedMore\",\"parameters\":{}}");
    expect_error(f, &root, "{\"method\":\"" I "Monitor\",\"parameters\":{\"intervalUSec\":1},\"more\":true}",
                 I "InvalidValue", "10ms..1h");
    expect_error(f, &stranger,
                 "{\"method\":\"" I "Monitor\",\"parameters\":{\"arena\":\"routes\"},\"more\":true}",
                 I "NoSuchArena", "routes");
}

static void monitor_ends_with_the_control(void **state)
{
    struct fixture *f = *state;
    struct peer p;

    peer_open(&p, f->base, f->control->server, &root);
    peer_send(&p, "{\"method\":\"" I "Monitor\",\"more\":true}");
    (void)json_object_put(peer_receive_json(&p));
    f->control = control_free(f->control);
    peer_expect_closed(&p);
    peer_close(&p);
}

/* Trace */

static const struct trace_origin in_routes = {"routes", 0640, FAKE_OWNER_UID, FAKE_ROUTES_GID};
static const struct trace_origin in_tables = {"tables", 0600, FAKE_OTHER_UID, FAKE_OTHER_UID};

static void happen(enum trace_event event, const struct trace_origin *where, uint64_t a, uint64_t b)
{
    if (trace_wants(event))
        trace_push(event, where, (const uint64_t[TRACE_VALUES]){a, b, 30, 40});
}

/* Calls, and takes the first reply: from then on all is told. */
static void trace_open(struct peer *p, struct fixture *f, const struct varlink_peer *as,
                       const char *parameters)
{
    char call[256];
    struct json_object *o;

    (void)snprintf(call, sizeof(call), "{\"method\":\"" I "Trace\",\"parameters\":{%s},\"more\":true}",
                   parameters);
    peer_open(p, f->base, f->control->server, as);
    peer_send(p, call);
    o = peer_receive_json(p);
    assert_string_equal(json_object_to_json_string_ext(o, JSON_C_TO_STRING_PLAIN),
                        "{\"parameters\":{\"events\":[],\"dropped\":0},\"continues\":true}");
    (void)json_object_put(o);
}

static void trace_tells_what_happens(void **state)
{
    struct json_object *o;
    struct peer p;

    trace_open(&p, *state, &root, "");
    happen(TRACE_GP_START, &in_routes, 12, 0);
    happen(TRACE_DRAIN, &in_tables, CONTROL_DRAIN_FLOOD_BYTES, 20);
    o = peer_receive_json(&p);
    assert_true(number_at(o, "parameters/events/0/monotonicUSec") > 0);
    assert_string_equal(text_at(o, "parameters/events/0/event"), "gp_start");
    assert_string_equal(text_at(o, "parameters/events/0/arena"), "routes");
    assert_int_equal(number_at(o, "parameters/events/0/number"), 12);
    assert_null(at(o, "parameters/events/0/cause"));
    assert_string_equal(text_at(o, "parameters/events/1/cause"), "floodBytes");
    assert_int_equal(number_at(o, "parameters/events/1/objects"), 20);
    assert_int_equal(number_at(o, "parameters/events/1/pages"), 40);
    assert_int_equal(length_at(o, "parameters/events"), 2);
    assert_int_equal(number_at(o, "parameters/dropped"), 0);
    (void)json_object_put(o);
    peer_close(&p);
}

static void trace_tells_stalls_whole(void **state)
{
    struct trace_origin origin = in_routes;
    struct json_object *o;
    struct peer p;

    (void)strcpy(origin.command, "evil\x1b[2J");
    trace_open(&p, *state, &owner, "\"events\":[\"stall\",\"stall_ended\",\"stall_kill\"]");
    trace_push(TRACE_STALL, &origin, (const uint64_t[TRACE_VALUES]){1, 2, 3, 4, 5, 6, 7, 8});
    trace_push(TRACE_STALL_KILL, &origin, (const uint64_t[TRACE_VALUES]){1, 2, EPERM});
    o = peer_receive_json(&p);
    assert_int_equal(number_at(o, "parameters/events/0/client"), 1);
    assert_int_equal(number_at(o, "parameters/events/0/pid"), 2);
    assert_int_equal(number_at(o, "parameters/events/0/tid"), 3);
    assert_int_equal(number_at(o, "parameters/events/0/number"), 4);
    assert_int_equal(number_at(o, "parameters/events/0/durationUSec"), 5);
    assert_int_equal(number_at(o, "parameters/events/0/objects"), 6);
    assert_int_equal(number_at(o, "parameters/events/0/bytes"), 7);
    assert_int_equal(number_at(o, "parameters/events/0/waiters"), 8);
    assert_string_equal(text_at(o, "parameters/events/0/command"), "evil?[2J");
    assert_int_equal(number_at(o, "parameters/events/1/errno"), EPERM);
    (void)json_object_put(o);
    peer_close(&p);
}

static void trace_tells_what_was_asked_and_may_be_seen(void **state)
{
    struct peer all, owners, one, members;
    struct json_object *o;

    trace_open(&all, *state, &root, "\"events\":[]");
    trace_open(&owners, *state, &owner, "\"events\":[\"gp_start\",\"gp_end\"]");
    trace_open(&one, *state, &root, "\"arena\":\"tables\"");
    trace_open(&members, *state, &member, "");
    happen(TRACE_ATTACH, &in_routes, 1, 77);
    happen(TRACE_GP_START, &in_tables, 5, 0);
    happen(TRACE_GP_END, &in_routes, 6, 100);
    o = peer_receive_json(&all);
    assert_int_equal(length_at(o, "parameters/events"), 3);
    (void)json_object_put(o);
    o = peer_receive_json(&owners);
    assert_int_equal(length_at(o, "parameters/events"), 1);
    assert_int_equal(number_at(o, "parameters/events/0/durationUSec"), 100);
    (void)json_object_put(o);
    o = peer_receive_json(&one);
    assert_int_equal(length_at(o, "parameters/events"), 1);
    assert_int_equal(number_at(o, "parameters/events/0/number"), 5);
    (void)json_object_put(o);
    o = peer_receive_json(&members);
    assert_int_equal(length_at(o, "parameters/events"), 2);
    assert_string_equal(text_at(o, "parameters/events/1/event"), "gp_end");
    (void)json_object_put(o);
    peer_close(&all);
    peer_close(&owners);
    peer_close(&one);
    peer_close(&members);
}

static void nothing_is_recorded_for_nobody(void **state)
{
    struct fixture *f = *state;
    struct peer p, q;

    assert_int_equal(trace_wanted, 0);
    trace_open(&p, f, &root, "\"events\":[\"purge\"]");
    trace_open(&q, f, &root, "\"events\":[\"stall\"]");
    assert_int_equal(trace_wanted, 1u << TRACE_PURGE | 1u << TRACE_STALL);
    peer_close(&p);
    peer_turn(&q);
    assert_int_equal(trace_wanted, 1u << TRACE_STALL);
    peer_close(&q);
    peer_turn(&q);
    assert_int_equal(trace_wanted, 0);
    assert_int_equal(event_base_get_num_events(f->base, EVENT_BASE_COUNT_ADDED), 0); /* nor a timer */
}

static void trace_ends_with_the_control(void **state)
{
    struct fixture *f = *state;
    struct peer p;

    trace_open(&p, f, &root, "");
    f->control = control_free(f->control);
    peer_expect_closed(&p);
    peer_close(&p);
    assert_int_equal(trace_wanted, 0);
}

static void trace_refuses_what_makes_no_sense(void **state)
{
    expect_reply(*state, &root, "{\"method\":\"" I "Trace\"}",
                 "{\"error\":\"org.varlink.service.ExpectedMore\",\"parameters\":{}}");
    expect_error(*state, &root,
                 "{\"method\":\"" I
                 "Trace\",\"parameters\":{\"events\":[\"purge\",\"gp_stop\"]},\"more\":true}",
                 I "InvalidValue", "no event 'gp_stop'; there are bulk_free, gp_start, ");
    expect_reply(
        *state, &root, "{\"method\":\"" I "Trace\",\"parameters\":{\"events\":[7]},\"more\":true}",
        "{\"error\":\"org.varlink.service.InvalidParameter\",\"parameters\":{\"parameter\":\"events\"}}");
    expect_error(*state, &stranger,
                 "{\"method\":\"" I "Trace\",\"parameters\":{\"arena\":\"routes\"},\"more\":true}",
                 I "NoSuchArena", "routes");
    assert_int_equal(trace_wanted, 0);
}

/* Reads until so many are told of, taken or dropped; how many were dropped. */
static uint64_t trace_read(struct peer *p, uint64_t n)
{
    uint64_t n_dropped = 0;

    while (n > 0) {
        struct json_object *o = peer_receive_json(p);
        uint64_t dropped = number_at(o, "parameters/dropped");

        assert_true(length_at(o, "parameters/events") + dropped <= n);
        n -= length_at(o, "parameters/events") + dropped;
        n_dropped += dropped;
        (void)json_object_put(o);
    }
    return n_dropped;
}

static void trace_counts_what_came_too_fast(void **state)
{
    struct peer p;

    trace_open(&p, *state, &root, "");
    for (uint64_t i = 0; i < TRACE_RING_SIZE + 10; i++)
        happen(TRACE_GP_START, &in_routes, i, 0);
    assert_int_equal(trace_read(&p, TRACE_RING_SIZE + 10), 10);
    happen(TRACE_GP_START, &in_routes, 1, 0);
    assert_int_equal(trace_read(&p, 1), 0);
    peer_close(&p);
}

/* He is not cut off, and the other one misses nothing. */
static void slow_reader_of_a_trace_loses_events_alone(void **state)
{
    enum { ROUNDS = 10, EACH = 2000 };
    struct peer slow, quick;
    uint64_t n_dropped;

    trace_open(&slow, *state, &root, "");
    trace_open(&quick, *state, &root, "");
    for (int round = 0; round < ROUNDS; round++) {
        for (uint64_t i = 0; i < EACH; i++)
            happen(TRACE_GP_START, &in_routes, i, 0);
        assert_int_equal(trace_read(&quick, EACH), 0);
    }
    n_dropped = trace_read(&slow, ROUNDS * EACH);
    assert_true(n_dropped > 0 && n_dropped < ROUNDS * EACH);
    peer_close(&slow);
    peer_close(&quick);
}

/* The description and the table of methods say the same. */
static void description_has_every_method(void **state)
{
    static const char get[] = "{\"method\":\"org.varlink.service.GetInterfaceDescription\",\"parameters\":{"
                              "\"interface\":\"org.reclaimd.Control\"}}";
    struct json_object *o = ask(*state, &stranger, get);
    const char *text = text_at(o, "parameters/description");
    char call[256], name[64];
    unsigned n = 0;

    for (const char *m = strstr(text, "\nmethod "); m; m = strstr(m + 1, "\nmethod "), n++) {
        struct json_object *reply;

        assert_int_equal(sscanf(m, "\nmethod %63[A-Za-z]", name), 1);
        (void)snprintf(call, sizeof(call), "{\"method\":\"" I "%s\",\"parameters\":{\"nonsense\":1}}", name);
        reply = ask(*state, &root, call);
        if (strstr(text_at(reply, "error"), "MethodNotFound"))
            fail_msg("%s is described but not there", name);
        (void)json_object_put(reply);
    }
    assert_int_equal(n, 17);
    for (int r = 1; r < 200; r++) {
        (void)snprintf(name, sizeof(name), "\nerror %s ", strrchr(control_error_name(-r), '.') + 1);
        assert_true(strstr(text, name) || strcmp(control_error_name(-r), DENIED) == 0);
    }
    (void)json_object_put(o);
}

#define CONTROL_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(rights_follow_owner_group_and_mode),
        cmocka_unit_test(all_rights_are_for_root_daemon_and_group),
        CONTROL_TEST(status_sums_what_the_caller_may_see),
        CONTROL_TEST(arenas_are_listed_for_those_who_may_see_them),
        CONTROL_TEST(status_tells_who_stalls),
        CONTROL_TEST(clients_that_stall_are_marked),
        CONTROL_TEST(arena_tells_its_figures),
        CONTROL_TEST(hidden_arena_looks_like_none),
        CONTROL_TEST(clients_are_those_of_visible_arenas_and_ones_own),
        CONTROL_TEST(long_list_comes_in_chunks),
        CONTROL_TEST(parameters_are_listed_in_order_or_as_asked),
        CONTROL_TEST(unknown_parameter_suggests_the_nearest),
        CONTROL_TEST(set_says_what_changed),
        CONTROL_TEST(dry_run_changes_nothing),
        CONTROL_TEST(set_is_all_or_nothing_and_says_why),
        CONTROL_TEST(reset_goes_back),
        CONTROL_TEST(only_those_who_may_set),
        CONTROL_TEST(reload_tells_changed_and_kept),
        CONTROL_TEST(create_fills_in_the_caller),
        CONTROL_TEST(create_is_refused_in_words),
        CONTROL_TEST(remove_is_for_the_owner),
        CONTROL_TEST(evict_is_for_the_arenas_owner),
        CONTROL_TEST(work_answers_when_its_last_part_ends),
        CONTROL_TEST(work_may_end_before_it_returns),
        CONTROL_TEST(work_outlives_its_caller),
        CONTROL_TEST(work_outlives_the_control),
        CONTROL_TEST(one_failure_leaves_the_others),
        CONTROL_TEST(audit_lists_what_is_wrong),
        CONTROL_TEST(work_is_for_those_who_may_tune),
        CONTROL_TEST(monitor_goes_on_until_hangup),
        CONTROL_TEST(monitor_refuses_what_makes_no_sense),
        CONTROL_TEST(monitor_ends_with_the_control),
        CONTROL_TEST(trace_tells_what_happens),
        CONTROL_TEST(trace_tells_stalls_whole),
        CONTROL_TEST(trace_tells_what_was_asked_and_may_be_seen),
        CONTROL_TEST(nothing_is_recorded_for_nobody),
        CONTROL_TEST(trace_ends_with_the_control),
        CONTROL_TEST(trace_refuses_what_makes_no_sense),
        CONTROL_TEST(trace_counts_what_came_too_fast),
        CONTROL_TEST(slow_reader_of_a_trace_loses_events_alone),
        CONTROL_TEST(description_has_every_method),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
