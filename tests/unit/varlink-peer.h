/* SPDX-License-Identifier: MIT */
/*
 * The other end of a Varlink connection, for tests: a socketpair into a server whose event loop runs in the
 * same thread. A test writes bytes and reads messages; reading turns the loop until something has come.
 * Nothing here measures time: whoever waits for ever is ended by the alarm.
 */
#pragma once

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "basic/cleanup.h"
#include "basic/varlink-frame.h"
#include "varlink.h"

enum {
    HANG_SECONDS = 60,
};

struct peer {
    struct event_base *base;
    int fd;
    struct varlink_frame input;
};

static inline void peer_open(struct peer *p, struct event_base *base, struct varlink_server *server,
                             const struct varlink_peer *as)
{
    int fds[2];

    alarm(HANG_SECONDS);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
    *p = (struct peer){.base = base, .fd = fds[0]};
    assert_int_equal(varlink_server_accept(server, fds[1], as), 0);
}

static inline void peer_close(struct peer *p)
{
    p->fd = fd_close(p->fd);
    varlink_frame_deinit(&p->input);
}

/* Runs what is due, and what that makes due. */
static inline void peer_turn(struct peer *p)
{
    for (int i = 0; i < 8; i++)
        (void)event_base_loop(p->base, EVLOOP_NONBLOCK);
}

static inline void peer_write(struct peer *p, const void *bytes, size_t n)
{
    const char *at = bytes;
    ssize_t written;

    while (n > 0) {
        written = send(p->fd, at, n, MSG_NOSIGNAL);
        if (written < 0 && errno == EAGAIN) {
            peer_turn(p);
            continue;
        }
        if (written < 0)
            return; /* he has hung up, which reading will show */
        at += written;
        n -= (size_t)written;
    }
}

/* A message with its NUL. */
static inline void peer_send(struct peer *p, const char *text)
{
    peer_write(p, text, strlen(text) + 1);
}

/* The next message, or NULL when the server has hung up. Valid until the next one. */
static inline const char *peer_receive(struct peer *p)
{
    char buffer[4096];
    const char *text;
    size_t length;
    ssize_t n;

    while (varlink_frame_take(&p->input, &text, &length) == 0) {
        n = recv(p->fd, buffer, sizeof(buffer), 0);
        if (n == 0 || (n < 0 && errno != EAGAIN))
            return NULL;
        if (n < 0)
            (void)event_base_loop(p->base, EVLOOP_ONCE);
        else
            assert_int_equal(varlink_frame_append(&p->input, buffer, (size_t)n), 0);
    }
    return text;
}

/* Nothing has come and nothing is on its way; the connection is open. */
static inline void peer_expect_silence(struct peer *p)
{
    char byte;

    peer_turn(p);
    assert_int_equal(varlink_frame_pending(&p->input), 0);
    assert_int_equal(recv(p->fd, &byte, 1, MSG_PEEK), -1);
    assert_int_equal(errno, EAGAIN);
}

static inline void peer_expect(struct peer *p, const char *expected)
{
    const char *got = peer_receive(p);

    if (!got)
        fail_msg("hung up; expected %s", expected);
    assert_string_equal(got, expected);
}

static inline void peer_expect_closed(struct peer *p)
{
    const char *got = peer_receive(p);

    if (got)
        fail_msg("expected him to hang up, but got %s", got);
}

/* The reply as JSON, for the caller to put. */
static inline struct json_object *peer_receive_json(struct peer *p)
{
    const char *got = peer_receive(p);
    struct json_object *o;

    if (!got)
        fail_msg("hung up; expected a reply");
    o = json_tokener_parse(got);
    assert_non_null(o);
    return o;
}

static inline char *long_text(size_t n)
{
    char *text = malloc(n + 1);

    assert_non_null(text);
    memset(text, 'x', n);
    text[n] = '\0';
    return text;
}
