/* SPDX-License-Identifier: MIT */
/*
 * The Varlink server: what is not Varlink costs its sender his connection and nobody else anything; calls are
 * answered in order, whenever their handlers get to it. Framing and the check of the text: test-varlink-text.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <sys/un.h>

#include "basic/macro.h"
#include "varlink-peer.h"

/* An interface to play with. */

struct toy {
    struct event_base *base;
    struct varlink_server *server;
    struct varlink_call *held;
    unsigned n_pinged, n_gone;
    uid_t uid_seen;
};

struct echo_parameters {
    const char *text;
    uint64_t times;
    bool loud;
    struct json_object *list;
};

static const struct varlink_field echo_fields[] = {
    {"text", VARLINK_STRING, varlink_set_string, offsetof(struct echo_parameters, text), true},
    {"times", VARLINK_INTEGER, varlink_set_unsigned, offsetof(struct echo_parameters, times), false},
    {"loud", VARLINK_BOOLEAN, varlink_set_boolean, offsetof(struct echo_parameters, loud), false},
    {"list", VARLINK_ARRAY, varlink_set_json, offsetof(struct echo_parameters, list), false},
    {},
};

static struct json_object *text_object(const char *text)
{
    struct json_object *o = json_object_new_object();

    (void)json_object_object_add(o, "text", json_object_new_string(text));
    return o;
}

static void toy_echo(struct varlink_call *call, const void *parameters, void *userdata)
{
    const struct echo_parameters *p = parameters;
    struct toy *toy = userdata;

    toy->uid_seen = varlink_call_peer(call)->uid;
    (void)varlink_call_reply(call, text_object(p->text));
}

static void toy_ping(struct varlink_call *call, const void *parameters, void *userdata)
{
    ((struct toy *)userdata)->n_pinged++;
    (void)varlink_call_reply(call, NULL);
}

static void toy_on_gone(struct varlink_call *call, void *data)
{
    ((struct toy *)data)->n_gone++;
}

static void toy_hold(struct varlink_call *call, const void *parameters, void *userdata)
{
    struct toy *toy = userdata;

    assert_null(toy->held);
    toy->held = varlink_call_ref(call);
    varlink_call_set_gone(call, toy_on_gone, toy);
}

static void toy_forget(struct varlink_call *call, const void *parameters, void *userdata)
{
}

/* Five replies, or as many as fit into a megabyte each. */
static void toy_count(struct varlink_call *call, const void *parameters, void *userdata)
{
    char text[2] = "1";

    for (; text[0] < '5'; text[0]++)
        (void)varlink_call_notify(call, text_object(text));
    (void)varlink_call_reply(call, text_object(text));
}

/* Many and long replies, for a peer that does not read. */
static void toy_flood(struct varlink_call *call, const void *parameters, void *userdata)
{
    _cleanup_free_ char *text = long_text(100 * 1000);
    int r = 0;

    for (int i = 0; i < 100 && r == 0; i++)
        r = varlink_call_notify(call, text_object(text));
    (void)varlink_call_reply(call, NULL);
}

static void toy_too_long(struct varlink_call *call, const void *parameters, void *userdata)
{
    _cleanup_free_ char *text = long_text(VARLINK_MESSAGE_MAX_BYTES);

    assert_int_equal(varlink_call_reply(call, text_object(text)), -EMSGSIZE);
    (void)varlink_call_error(call, "org.example.toy.TooLong", NULL);
}

static const struct varlink_method toy_methods[] = {
    {"Echo", echo_fields, sizeof(struct echo_parameters), false, toy_echo},
    {"Ping", NULL, 0, false, toy_ping},
    {"Hold", NULL, 0, false, toy_hold},
    {"Forget", NULL, 0, false, toy_forget},
    {"Count", NULL, 0, true, toy_count},
    {"Flood", NULL, 0, true, toy_flood},
    {"TooLong", NULL, 0, false, toy_too_long},
    {"Promised", NULL, 0, false, NULL},
    {},
};

static const struct varlink_interface toy_interface = {
    .name = "org.example.toy",
    .description = "interface org.example.toy\n",
    .methods = toy_methods,
};

static void toy_init(struct toy *toy, struct varlink_limits limits)
{
    struct varlink_service service = {"V", "P", "1", "U", limits};

    *toy = (struct toy){.base = event_base_new()};
    assert_int_equal(varlink_server_new(toy->base, &service, &toy->server), 0);
    assert_int_equal(varlink_server_add_interface(toy->server, &toy_interface, toy), 0);
}

static void toy_deinit(struct toy *toy)
{
    toy->server = varlink_server_free(toy->server);
    toy->held = varlink_call_unref(toy->held);
    event_base_free(toy->base);
}

#define ECHO(text) "{\"method\":\"org.example.toy.Echo\",\"parameters\":{\"text\":\"" text "\"}}"
#define ECHOED(text) "{\"parameters\":{\"text\":\"" text "\"}}"
#define CALL(name) "{\"method\":\"org.example.toy." name "\"}"
#define CALL_MORE(name) "{\"method\":\"org.example.toy." name "\",\"more\":true}"
#define INVALID(field)                                                                                       \
    "{\"error\":\"org.varlink.service.InvalidParameter\",\"parameters\":{\"parameter\":\"" field "\"}}"
#define EMPTY "{\"parameters\":{}}"

/* Decoding */

struct decode_case {
    const char *json;
    const char *field; /* NULL: it is right */
};

static const struct decode_case decode_cases[] = {
    {"{\"text\":\"t\"}", NULL},
    {"{\"text\":\"t\",\"times\":null,\"loud\":null}", NULL},
    {"{\"text\":\"t\",\"times\":9223372036854775806}", NULL},
    {"{}", "text"},
    {"{\"text\":null}", "text"},
    {"{\"text\":1}", "text"},
    {"{\"text\":\"a\\u0000b\"}", "text"},
    {"{\"text\":\"t\",\"times\":-1}", "times"},
    {"{\"text\":\"t\",\"times\":1.0}", "times"},
    {"{\"text\":\"t\",\"times\":\"1\"}", "times"},
    {"{\"text\":\"t\",\"times\":9223372036854775807}", "times"},
    {"{\"text\":\"t\",\"times\":99999999999999999999}", "times"},
    {"{\"text\":\"t\",\"loud\":0}", "loud"},
    {"{\"text\":\"t\",\"list\":{}}", "list"},
    {"{\"text\":\"t\",\"unheard\":1}", "unheard"},
    {"{\"text\":\"t\",\"unheard\":null}", "unheard"},
};

static void decoding_names_the_field(void **state)
{
    for (size_t i = 0; i < ARRAY_SIZE(decode_cases); i++) {
        const struct decode_case *c = &decode_cases[i];
        struct json_object *o = json_tokener_parse(c->json);
        struct echo_parameters p = {};
        const char *field = NULL;
        int r = varlink_decode(o, echo_fields, &p, &field);

        if (r != (c->field ? -EINVAL : 0) || (c->field && strcmp(c->field, field) != 0))
            fail_msg("%s: %d, field %s", c->json, r, field ?: "none");
        (void)json_object_put(o);
    }
}

/* The server */

static int setup(void **state)
{
    static struct toy toy;

    toy_init(&toy, (struct varlink_limits){});
    *state = &toy;
    return 0;
}

static int teardown(void **state)
{
    toy_deinit(*state);
    return 0;
}

struct exchange {
    const char *call, *reply;
};

static const struct exchange exchanges[] = {
    {ECHO("hello"), ECHOED("hello")},
    {CALL("Ping"), EMPTY},
    {"{\"method\":\"org.example.toy.Ping\",\"parameters\":null}", EMPTY},
    {"{\"method\":\"org.varlink.service.GetInfo\"}",
     "{\"parameters\":{\"vendor\":\"V\",\"product\":\"P\",\"version\":\"1\",\"url\":\"U\",\"interfaces\":["
     "\"org.varlink.service\",\"org.example.toy\"]}}"},
    {"{\"method\":\"org.varlink.service.GetInterfaceDescription\",\"parameters\":{\"interface\":\"org."
     "example.toy\"}}",
     "{\"parameters\":{\"description\":\"interface org.example.toy\\n\"}}"},
    {"{\"method\":\"org.varlink.service.GetInterfaceDescription\",\"parameters\":{\"interface\":\"org.no\"}}",
     "{\"error\":\"org.varlink.service.InterfaceNotFound\",\"parameters\":{\"interface\":\"org.no\"}}"},
    {"{\"method\":\"org.no.Ping\"}",
     "{\"error\":\"org.varlink.service.InterfaceNotFound\",\"parameters\":{\"interface\":\"org.no\"}}"},
    {CALL("Dance"), "{\"error\":\"org.varlink.service.MethodNotFound\",\"parameters\":{\"method\":\"org."
                    "example.toy.Dance\"}}"},
    {CALL("Promised"), "{\"error\":\"org.varlink.service.MethodNotImplemented\",\"parameters\":{\"method\":"
                       "\"org.example.toy.Promised\"}}"},
    {CALL("Count"), "{\"error\":\"org.varlink.service.ExpectedMore\",\"parameters\":{}}"},
    {CALL("TooLong"), "{\"error\":\"org.example.toy.TooLong\",\"parameters\":{}}"},
    {"{\"method\":\"nodots\"}", INVALID("method")},
    {"{\"method\":\"org.example.toy.\"}", INVALID("method")},
    {"{\"method\":7}", INVALID("method")},
    {"{}", INVALID("method")},
    {"{\"method\":\"org.example.toy.Ping\",\"parameters\":[]}", INVALID("parameters")},
    {"{\"method\":\"org.example.toy.Ping\",\"upgrade\":true}", INVALID("upgrade")},
    {"{\"method\":\"org.example.toy.Ping\",\"volume\":11}", INVALID("volume")},
    {"{\"method\":\"org.example.toy.Ping\",\"parameters\":{\"x\":1}}", INVALID("x")},
    {"{\"method\":\"org.example.toy.Echo\"}", INVALID("text")},
    {"{\"method\":\"org.example.toy.Echo\",\"parameters\":{\"text\":\"a\",\"text\":\"b\"}}", INVALID("text")},
    {"{\"method\":\"org.example.toy.Ping\",\"method\":\"org.example.toy.Echo\"}", INVALID("method")},
};

static void each_call_gets_its_answer(void **state)
{
    struct toy *toy = *state;
    struct peer p;

    peer_open(&p, toy->base, toy->server, NULL);
    for (size_t i = 0; i < ARRAY_SIZE(exchanges); i++) {
        peer_send(&p, exchanges[i].call);
        peer_expect(&p, exchanges[i].reply);
    }
    assert_int_equal(toy->uid_seen, getuid());
    peer_close(&p);
}

static void pipelined_calls_are_answered_in_order(void **state)
{
    struct toy *toy = *state;
    struct peer p;

    peer_open(&p, toy->base, toy->server, NULL);
    for (size_t i = 0; i < ARRAY_SIZE(exchanges); i++)
        peer_send(&p, exchanges[i].call);
    for (size_t i = 0; i < ARRAY_SIZE(exchanges); i++)
        peer_expect(&p, exchanges[i].reply);
    peer_close(&p);
}

static void bytes_may_come_one_by_one(void **state)
{
    struct toy *toy = *state;
    struct peer p;

    peer_open(&p, toy->base, toy->server, NULL);
    for (size_t i = 0; i < sizeof(ECHO("slow")); i++) {
        peer_expect_silence(&p);
        peer_write(&p, &ECHO("slow")[i], 1);
    }
    peer_expect(&p, ECHOED("slow"));
    peer_close(&p);
}

static void later_answer_holds_back_the_next(void **state)
{
    struct toy *toy = *state;
    struct peer p, other;

    peer_open(&p, toy->base, toy->server, NULL);
    peer_open(&other, toy->base, toy->server, NULL);
    peer_send(&p, CALL("Hold"));
    peer_send(&p, ECHO("after"));
    peer_expect_silence(&p);
    peer_send(&other, ECHO("meanwhile"));
    peer_expect(&other, ECHOED("meanwhile"));
    assert_int_equal(varlink_call_reply(toy->held, text_object("held")), 0);
    toy->held = varlink_call_unref(toy->held);
    peer_expect(&p, ECHOED("held"));
    peer_expect(&p, ECHOED("after"));
    assert_int_equal(toy->n_gone, 0);
    peer_close(&p);
    peer_close(&other);
}

static void call_survives_its_connection(void **state)
{
    struct toy *toy = *state;
    struct peer p;

    peer_open(&p, toy->base, toy->server, NULL);
    peer_send(&p, CALL("Hold"));
    peer_turn(&p);
    peer_close(&p);
    peer_turn(&p);
    assert_int_equal(toy->n_gone, 1);
    assert_int_equal(varlink_server_n_connections(toy->server), 0);
    assert_int_equal(varlink_call_peer(toy->held)->uid, getuid());
    assert_int_equal(varlink_call_reply(toy->held, text_object("late")), -ENOTCONN);
}

static void call_survives_the_server(void **state)
{
    struct toy *toy = *state;
    struct peer p;

    peer_open(&p, toy->base, toy->server, NULL);
    peer_send(&p, CALL("Hold"));
    peer_turn(&p);
    toy->server = varlink_server_free(toy->server);
    assert_int_equal(toy->n_gone, 1);
    assert_int_equal(varlink_call_reply(toy->held, NULL), -ENOTCONN);
    peer_expect_closed(&p);
    peer_close(&p);
}

static void forgotten_call_ends_its_connection(void **state)
{
    struct toy *toy = *state;
    struct peer p;

    peer_open(&p, toy->base, toy->server, NULL);
    peer_send(&p, CALL("Forget"));
    peer_expect_closed(&p);
    peer_close(&p);
}

static void oneway_is_done_in_silence(void **state)
{
    struct toy *toy = *state;
    struct peer p;

    peer_open(&p, toy->base, toy->server, NULL);
    peer_send(&p, "{\"method\":\"org.example.toy.Ping\",\"oneway\":true}");
    peer_send(&p, "{\"method\":\"org.example.toy.Dance\",\"oneway\":true}");
    peer_send(&p, "{\"unheard\":1,\"method\":\"org.example.toy.Ping\",\"oneway\":true}");
    peer_send(&p, ECHO("loud"));
    peer_expect(&p, ECHOED("loud"));
    assert_int_equal(toy->n_pinged, 1);
    peer_close(&p);
}

static void oneway_is_done_after_a_hangup(void **state)
{
    struct toy *toy = *state;
    struct peer p;

    peer_open(&p, toy->base, toy->server, NULL);
    for (int i = 0; i < 40; i++)
        peer_send(&p, "{\"method\":\"org.example.toy.Ping\",\"oneway\":true}");
    peer_close(&p);
    peer_turn(&p);
    assert_int_equal(toy->n_pinged, 40);
    assert_int_equal(varlink_server_n_connections(toy->server), 0);
}

static void stream_ends_with_its_last_reply(void **state)
{
    struct toy *toy = *state;
    struct peer p;

    peer_open(&p, toy->base, toy->server, NULL);
    peer_send(&p, CALL_MORE("Count"));
    peer_send(&p, ECHO("next"));
    peer_expect(&p, "{\"parameters\":{\"text\":\"1\"},\"continues\":true}");
    peer_expect(&p, "{\"parameters\":{\"text\":\"2\"},\"continues\":true}");
    peer_expect(&p, "{\"parameters\":{\"text\":\"3\"},\"continues\":true}");
    peer_expect(&p, "{\"parameters\":{\"text\":\"4\"},\"continues\":true}");
    peer_expect(&p, ECHOED("5"));
    peer_expect(&p, ECHOED("next"));
    peer_close(&p);
}

static void half_closed_peer_gets_his_answers(void **state)
{
    struct toy *toy = *state;
    struct peer p;

    peer_open(&p, toy->base, toy->server, NULL);
    peer_send(&p, CALL("Hold"));
    peer_send(&p, ECHO("last"));
    (void)shutdown(p.fd, SHUT_WR);
    peer_expect_silence(&p);
    (void)varlink_call_reply(toy->held, NULL);
    peer_expect(&p, EMPTY);
    peer_expect(&p, ECHOED("last"));
    peer_expect_closed(&p);
    peer_close(&p);
}

struct text_case {
    const char *text;
    int expected;
};

static const struct text_case broken[] = {
    {"", 0},
    {"hello", 0},
    {"[]", 0},
    {"7", 0},
    {"{\"method\":", 0},
    {"{\"method\":\"org.example.toy.Ping\"} x", 0},
    {"{\"method\":\"\xff\xfe\"}", 0}, /* no UTF-8 */
    {"{\"method\":\"org.example.toy.Count\",\"more\":true,\"oneway\":true}", 0},
    {"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[", 0},
};

static void broken_message_costs_one_connection(void **state)
{
    struct toy *toy = *state;
    struct peer good, bad;

    peer_open(&good, toy->base, toy->server, NULL);
    for (size_t i = 0; i < ARRAY_SIZE(broken); i++) {
        peer_open(&bad, toy->base, toy->server, NULL);
        peer_send(&bad, broken[i].text);
        peer_expect_closed(&bad);
        peer_close(&bad);
        peer_send(&good, ECHO("fine"));
        peer_expect(&good, ECHOED("fine"));
    }
    assert_int_equal(varlink_server_n_connections(toy->server), 1);
    peer_close(&good);
}

static void overlong_message_is_refused_in_words(void **state)
{
    _cleanup_free_ char *text = long_text(VARLINK_MESSAGE_MAX_BYTES + 1);
    struct toy *toy = *state;
    struct peer p;

    peer_open(&p, toy->base, toy->server, NULL);
    peer_send(&p, ECHO("first"));
    peer_write(&p, text, VARLINK_MESSAGE_MAX_BYTES + 1);
    peer_expect(&p, ECHOED("first"));
    peer_expect(&p, INVALID("message"));
    peer_expect_closed(&p);
    peer_close(&p);
}

static void longest_message_is_taken(void **state)
{
    _cleanup_free_ char *text = long_text(VARLINK_MESSAGE_MAX_BYTES);
    static const char head[] = CALL("Ping");
    struct toy *toy = *state;
    struct peer p;

    memset(text, ' ', VARLINK_MESSAGE_MAX_BYTES);
    memcpy(text, head, strlen(head));
    peer_open(&p, toy->base, toy->server, NULL);
    peer_send(&p, text);
    peer_expect(&p, EMPTY);
    peer_close(&p);
}

static void slow_reader_is_cut_off(void **state)
{
    struct toy toy;
    struct peer slow, good;

    toy_init(&toy, (struct varlink_limits){.bytes_per_uid_max = 3 * 1000 * 1000});
    peer_open(&slow, toy.base, toy.server, NULL);
    peer_open(&good, toy.base, toy.server, NULL);
    peer_send(&slow, CALL_MORE("Flood"));
    peer_turn(&slow);
    assert_int_equal(varlink_server_n_connections(toy.server), 1);
    peer_send(&good, ECHO("fine"));
    peer_expect(&good, ECHOED("fine"));
    while (peer_receive(&slow))
        ;
    peer_close(&slow);
    peer_close(&good);
    toy_deinit(&toy);
}

static void patient_reader_gets_all_of_it(void **state)
{
    struct toy *toy = *state;
    struct peer p;
    unsigned n = 0;

    peer_open(&p, toy->base, toy->server, NULL);
    peer_send(&p, CALL_MORE("Flood"));
    for (; n < 100; n++)
        assert_non_null(peer_receive(&p));
    peer_expect(&p, EMPTY);
    peer_close(&p);
}

/* Who sends calls and never reads makes the daemon hold a few answers, not all of them. */
static void calls_wait_while_answers_are_unread(void **state)
{
    struct toy *toy = *state;
    struct peer p;
    size_t n = 0;

    peer_open(&p, toy->base, toy->server, NULL);
    for (ssize_t sent = 1; sent > 0 && n < 1000 * 1000; n++) {
        peer_turn(&p);
        sent = send(p.fd, ECHO("more"), sizeof(ECHO("more")), MSG_NOSIGNAL);
        assert_true(sent < 0 || sent == sizeof(ECHO("more"))); /* small ones go whole or not at all */
    }
    assert_true(n < 1000 * 1000);
    for (n--; n > 0; n--)
        peer_expect(&p, ECHOED("more"));
    peer_expect_silence(&p);
    peer_close(&p);
}

static void queued_input_counts_too(void **state)
{
    struct toy toy;
    struct peer p[4];

    toy_init(&toy, (struct varlink_limits){.bytes_per_uid_max = 1000 * 1000});
    for (size_t i = 0; i < ARRAY_SIZE(p); i++) {
        _cleanup_free_ char *text = long_text(300 * 1000);

        peer_open(&p[i], toy.base, toy.server, NULL);
        peer_write(&p[i], text, 300 * 1000);
        peer_turn(&p[i]);
    }
    assert_in_range(varlink_server_n_connections(toy.server), 1, 3);
    for (size_t i = 0; i < ARRAY_SIZE(p); i++)
        peer_close(&p[i]);
    toy_deinit(&toy);
}

/* Who does not read pays, not who does: here for an answer that would have fitted alone. */
static void the_heaviest_connection_pays(void **state)
{
    _cleanup_free_ char *text = long_text(700 * 1000);
    struct peer lazy, busy;
    struct toy toy;

    toy_init(&toy, (struct varlink_limits){.bytes_per_uid_max = 1000 * 1000});
    peer_open(&lazy, toy.base, toy.server, NULL);
    peer_open(&busy, toy.base, toy.server, NULL);
    peer_write(&lazy, text, 700 * 1000); /* a message without an end */
    peer_turn(&lazy);
    peer_write(&busy, text, 400 * 1000);
    peer_turn(&busy);
    assert_int_equal(varlink_server_n_connections(toy.server), 1);
    peer_expect_closed(&lazy);
    peer_close(&lazy);
    peer_close(&busy);
    toy_deinit(&toy);
}

static void connections_a_uid_are_bounded(void **state)
{
    struct varlink_peer somebody = {.pid = 1, .uid = 4711, .gid = 4711};
    struct varlink_peer another = {.pid = 2, .uid = 4712, .gid = 4711}, third = {.pid = 3, .uid = 4713};
    struct peer p[3], root;
    struct toy toy;
    int fds[2];

    toy_init(&toy, (struct varlink_limits){.connections_per_uid_max = 2, .connections_max = 3});
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    peer_open(&p[0], toy.base, toy.server, &somebody);
    peer_open(&p[1], toy.base, toy.server, &somebody);
    assert_int_equal(varlink_server_accept(toy.server, fds[1], &somebody), -EMFILE);
    peer_open(&p[2], toy.base, toy.server, &another);
    assert_int_equal(varlink_server_accept(toy.server, fds[1], &third), -ENFILE);
    peer_open(&root, toy.base, toy.server, NULL); /* our own user gets in all the same */
    peer_close(&p[0]);
    peer_turn(&p[1]);
    peer_close(&root);
    peer_turn(&p[1]);
    assert_int_equal(varlink_server_accept(toy.server, fds[1], &somebody), 0);
    (void)close(fds[0]);
    peer_close(&p[1]);
    peer_close(&p[2]);
    toy_deinit(&toy);
}

static void listener_takes_connections(void **state)
{
    char directory[] = "/tmp/test-varlink.XXXXXX";
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct toy *toy = *state;
    struct varlink_client *c;
    const char *reply;
    int fd;

    assert_non_null(mkdtemp(directory));
    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s/socket", directory);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(listen(fd, 8), 0);
    assert_int_equal(varlink_server_listen(toy->server, fd), 0);
    assert_int_equal(varlink_client_connect(address.sun_path, &c), 0);
    assert_int_equal(varlink_client_send(c, ECHO("via path")), 0);
    for (int i = 0; i < 4; i++)
        (void)event_base_loop(toy->base, EVLOOP_NONBLOCK);
    assert_int_equal(varlink_client_receive(c, UINT64_MAX, &reply), 0);
    assert_string_equal(reply, ECHOED("via path"));
    c = varlink_client_free(c);
    (void)unlink(address.sun_path);
    (void)rmdir(directory);
}

static void second_interface_of_a_name_is_refused(void **state)
{
    struct toy *toy = *state;

    assert_int_equal(varlink_server_add_interface(toy->server, &toy_interface, toy), -EEXIST);
}

/* Good messages with a few bytes changed: whatever comes of it, the neighbour does not notice. */
static void damaged_messages_hurt_nobody(void **state)
{
    struct toy *toy = *state;
    struct peer good, bad;
    unsigned seed = 1;

    peer_open(&good, toy->base, toy->server, NULL);
    for (int i = 0; i < 3000; i++) {
        const char *call = exchanges[(size_t)rand_r(&seed) % ARRAY_SIZE(exchanges)].call;
        _cleanup_free_ char *text = strdup(call);
        size_t n = strlen(text) + 1;

        for (int k = rand_r(&seed) % 4; k >= 0; k--)
            text[(size_t)rand_r(&seed) % n] = (char)rand_r(&seed);
        peer_open(&bad, toy->base, toy->server, NULL);
        peer_write(&bad, text, n);
        peer_turn(&bad);
        peer_close(&bad);
        toy->held = varlink_call_unref(toy->held);
        peer_send(&good, CALL("Ping"));
        peer_expect(&good, EMPTY);
    }
    peer_turn(&good);
    assert_int_equal(varlink_server_n_connections(toy->server), 1);
    peer_close(&good);
}

#define SERVER_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(decoding_names_the_field),
        SERVER_TEST(each_call_gets_its_answer),
        SERVER_TEST(pipelined_calls_are_answered_in_order),
        SERVER_TEST(bytes_may_come_one_by_one),
        SERVER_TEST(later_answer_holds_back_the_next),
        SERVER_TEST(call_survives_its_connection),
        SERVER_TEST(call_survives_the_server),
        SERVER_TEST(forgotten_call_ends_its_connection),
        SERVER_TEST(oneway_is_done_in_silence),
        SERVER_TEST(oneway_is_done_after_a_hangup),
        SERVER_TEST(stream_ends_with_its_last_reply),
        SERVER_TEST(half_closed_peer_gets_his_answers),
        SERVER_TEST(broken_message_costs_one_connection),
        SERVER_TEST(overlong_message_is_refused_in_words),
        SERVER_TEST(longest_message_is_taken),
        cmocka_unit_test(slow_reader_is_cut_off),
        SERVER_TEST(patient_reader_gets_all_of_it),
        SERVER_TEST(calls_wait_while_answers_are_unread),
        cmocka_unit_test(queued_input_counts_too),
        cmocka_unit_test(the_heaviest_connection_pays),
        cmocka_unit_test(connections_a_uid_are_bounded),
        SERVER_TEST(listener_takes_connections),
        SERVER_TEST(second_interface_of_a_name_is_refused),
        SERVER_TEST(damaged_messages_hurt_nobody),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
