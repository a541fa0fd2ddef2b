/* SPDX-License-Identifier: MIT */
/* Varlink below the server: messages survive any split of the bytes, and what is no message is refused by the letter. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <sys/un.h>

#include "basic/macro.h"
#include "varlink-internal.h"
#include "varlink-peer.h"

/* Framing */

static void frame_survives_any_split(void **state)
{
    static const char bytes[] = "one\0two two\0\0three"; /* and its own NUL */
    static const char *const expected[] = {"one", "two two", "", "three"};

    for (size_t split = 0; split <= sizeof(bytes); split++) {
        struct varlink_frame f = {};
        const char *text;
        size_t length, n = 0;

        for (size_t i = 0; i < 2; i++) {
            (void)varlink_frame_append(&f, i ? bytes + split : bytes, i ? sizeof(bytes) - split : split);
            while (varlink_frame_take(&f, &text, &length) == 1) {
                assert_string_equal(text, expected[n]);
                assert_int_equal(length, strlen(expected[n]));
                n++;
            }
        }
        assert_int_equal(n, ARRAY_SIZE(expected));
        assert_int_equal(varlink_frame_pending(&f), 0);
        varlink_frame_deinit(&f);
    }
}

static void frame_takes_bytes_one_by_one(void **state)
{
    struct varlink_frame f = {};
    const char *text = NULL;
    size_t length;

    for (int i = 0; i < 3000; i++) {
        assert_int_equal(varlink_frame_append(&f, "y", 1), 0);
        assert_int_equal(varlink_frame_take(&f, &text, &length), 0);
    }
    assert_int_equal(varlink_frame_append(&f, "", 1), 0);
    assert_int_equal(varlink_frame_take(&f, &text, &length), 1);
    assert_int_equal(length, 3000);
    assert_int_equal(strspn(text, "y"), 3000);
    varlink_frame_trim(&f);
    assert_int_equal(f.allocated, 0);
}

static void frame_refuses_what_is_longer_than_the_limit(void **state)
{
    struct varlink_frame f = {.max_bytes = 8};
    const char *text = NULL;
    size_t length = 0;

    assert_int_equal(varlink_frame_append(&f, "12345678", 8), 0);
    assert_int_equal(varlink_frame_take(&f, &text, &length), 0);
    assert_int_equal(varlink_frame_append(&f, "", 1), 0);
    assert_int_equal(varlink_frame_take(&f, &text, &length), 1);
    assert_string_equal(text, "12345678");
    text = NULL;
    assert_int_equal(varlink_frame_append(&f, "123456789", 9), 0);
    assert_int_equal(varlink_frame_take(&f, &text, &length), -EMSGSIZE);
    assert_int_equal(varlink_frame_append(&f, "", 1), 0); /* the end comes too late */
    assert_int_equal(varlink_frame_take(&f, &text, &length), -EMSGSIZE);
    assert_null(text);
    varlink_frame_deinit(&f);
}

static void blocking_client_speaks_and_hears(void **state)
{
    struct varlink_client *c = NULL;
    char buffer[16];
    const char *text = NULL;
    int fds[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    assert_int_equal(varlink_client_new(fds[0], &c), 0);
    assert_int_equal(varlink_client_send(c, "ask"), 0);
    assert_int_equal(recv(fds[1], buffer, sizeof(buffer), 0), 4);
    assert_memory_equal(buffer, "ask", 4);
    assert_int_equal(varlink_client_receive(c, 1000, &text), -ETIMEDOUT);
    assert_int_equal(send(fds[1], "a\0b\0c", 5, 0), 5);
    assert_int_equal(varlink_client_receive(c, UINT64_MAX, &text), 0);
    assert_string_equal(text, "a");
    assert_int_equal(varlink_client_receive(c, UINT64_MAX, &text), 0);
    assert_string_equal(text, "b");
    (void)close(fds[1]);
    assert_int_equal(varlink_client_receive(c, UINT64_MAX, &text), -ECONNRESET); /* "c" is no message */
    assert_int_equal(varlink_client_send(c, "ask"), -EPIPE);
    c = varlink_client_free(c);
}

static void blocking_client_refuses_long_paths(void **state)
{
    _cleanup_free_ char *path = long_text(200);
    struct varlink_client *c = NULL;

    assert_int_equal(varlink_client_connect(path, &c), -ENAMETOOLONG);
    assert_int_equal(varlink_client_connect("/nowhere/at/all", &c), -ENOENT);
    assert_null(c);
}

/* The check of the text */

struct text_case {
    const char *text;
    int expected;
};

static const struct text_case text_cases[] = {
    {"{}", 0},
    {" { \"a\" : [ 1 , -0.5e+3 , true , false , null , \"\\u00e9\\n\" ] }\n", 0},
    {"[]", 0},
    {"0", 0},
    {"", -EBADMSG},
    {"{", -EBADMSG},
    {"}", -EBADMSG},
    {"{}}", -EBADMSG},
    {"{} {}", -EBADMSG},
    {"{\"a\"}", -EBADMSG},
    {"{\"a\":}", -EBADMSG},
    {"{\"a\":1,}", -EBADMSG},
    {"{a:1}", -EBADMSG},
    {"{'a':1}", -EBADMSG},
    {"[1,]", -EBADMSG},
    {"[01]", -EBADMSG},
    {"[1.]", -EBADMSG},
    {"[-]", -EBADMSG},
    {"[1e]", -EBADMSG},
    {"[+1]", -EBADMSG},
    {"[NaN]", -EBADMSG},
    {"[Infinity]", -EBADMSG},
    {"[nul]", -EBADMSG},
    {"[\"\\x\"]", -EBADMSG},
    {"[\"\\u12g4\"]", -EBADMSG},
    {"[\"\\", -EBADMSG},
    {"[\"\\u1", -EBADMSG},
    {"[\"a\nb\"]", -EBADMSG},
    {"[\"open]", -EBADMSG},
    {"// no\n{}", -EBADMSG},
    {"{\"a\":1,\"b\":{\"a\":2}}", 0}, /* not the same object */
    {"{\"a\":1,\"a\":1}", -EINVAL},
    {"{\"b\":[{\"a\":1,\"a\":null}]}", -EINVAL},
    {"{\"\\u0061\":1}", -EINVAL},
};

static void text_is_checked_by_the_letter(void **state)
{
    char key[VARLINK_KEY_BYTES];

    for (size_t i = 0; i < ARRAY_SIZE(text_cases); i++) {
        const struct text_case *c = &text_cases[i];
        int r = varlink_json_check(c->text, strlen(c->text), key);

        if (r != c->expected)
            fail_msg("%s: %d instead of %d", c->text, r, c->expected);
    }
}

static void text_check_names_the_key(void **state)
{
    static const char text[] = "{\"x\":{\"name\tno\":1}}", twice[] = "{\"name\":1,\"x\":2,\"name\":3}";
    char key[VARLINK_KEY_BYTES] = "";

    assert_int_equal(varlink_json_check(twice, strlen(twice), key), -EINVAL);
    assert_string_equal(key, "name");
    assert_int_equal(varlink_json_check(text, strlen(text), key), -EBADMSG);
}

/* Every beginning of a good text is a bad one, and none of them makes the check read further than it may. */
static void text_check_stays_inside(void **state)
{
    static const char text[] = "{\"a\":[1.5e3,\"\\u00e9\",true,null,{\"b\":-1}]}";
    char key[VARLINK_KEY_BYTES];

    for (size_t n = 0; n < strlen(text); n++) {
        char *copy = malloc(n ?: 1); /* exactly, for the sanitizers to see */

        memcpy(copy, text, n);
        assert_int_equal(varlink_json_check(copy, n, key), -EBADMSG);
        free(copy);
    }
    assert_int_equal(varlink_json_check(text, strlen(text), key), 0);
}

static void depth_and_number_are_bounded(void **state)
{
    _cleanup_free_ char *brackets = malloc(VARLINK_MESSAGE_MAX_BYTES), *many = NULL;
    char key[VARLINK_KEY_BYTES];
    size_t n = 2 * VARLINK_VALUES_MAX + 3;

    memset(brackets, '[', VARLINK_MESSAGE_MAX_BYTES);
    assert_int_equal(varlink_json_check(brackets, VARLINK_MESSAGE_MAX_BYTES, key), -EBADMSG);
    memset(brackets + VARLINK_DEPTH_MAX, ']', VARLINK_DEPTH_MAX);
    assert_int_equal(varlink_json_check(brackets, 2 * VARLINK_DEPTH_MAX, key), 0);

    memset(brackets, '[', VARLINK_DEPTH_MAX + 1);
    memset(brackets + VARLINK_DEPTH_MAX + 1, ']', VARLINK_DEPTH_MAX + 1);
    assert_int_equal(varlink_json_check(brackets, 2 * (VARLINK_DEPTH_MAX + 1), key), -EBADMSG);

    many = malloc(n);
    for (size_t i = 0; i < n; i++)
        many[i] = i % 2 ? '1' : ',';
    many[0] = '[';
    many[n - 1] = ']';
    assert_int_equal(varlink_json_check(many, n, key), -EBADMSG);
    many[n - 5] = ']';
    assert_int_equal(varlink_json_check(many, n - 4, key), 0);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(frame_survives_any_split),
        cmocka_unit_test(frame_takes_bytes_one_by_one),
        cmocka_unit_test(frame_refuses_what_is_longer_than_the_limit),
        cmocka_unit_test(blocking_client_speaks_and_hears),
        cmocka_unit_test(blocking_client_refuses_long_paths),
        cmocka_unit_test(text_is_checked_by_the_letter),
        cmocka_unit_test(text_check_names_the_key),
        cmocka_unit_test(text_check_stays_inside),
        cmocka_unit_test(depth_and_number_are_bounded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
