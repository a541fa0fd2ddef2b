/* SPDX-License-Identifier: MIT */
/*
 * One connection of the Varlink server: its bytes, their budget and its state.
 *
 * Only the three event callbacks below close a connection, each as the last thing it does. Everything else
 * that finds a reason to marks it DOOMED and lets the turn event come.
 *
 * Fairness: a turn reads at most 64 KiB and begins at most 16 calls; if there is more, a timer of zero brings the
 * next turn after all others have had theirs. Back-pressure: calls are not begun while 64 KiB of answers are
 * unsent, and bytes are not read while 64 KiB of calls wait, so a peer who only sends fills the socket, not our
 * memory. What remains (one long message, one stream of replies) is charged to the peer's uid, and whoever
 * overdraws it, or takes nothing for half a minute, is cut off.
 */
#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "basic/cleanup.h"
#include "basic/macro.h"
#include "clock.h"
#include "varlink-internal.h"

static const struct timeval at_once = {};

static void connection_tell_over_budget(const struct varlink_connection *c)
{
    uint32_t held;

    if (log_rate_pass(&c->server->budget_rate, now_usec(), 10000000, 3, &held))
        log_warning("control: the connections of uid %u hold more than %zu bytes that nobody reads; the "
                    "largest, of pid "
                    "%d, is closed (%u more held back)",
                    (unsigned)c->peer.uid, c->server->service.limits.bytes_per_uid_max, (int)c->peer.pid,
                    held);
}

/* Of that user's connections the one whose buffers are the largest. */
static struct varlink_connection *user_heaviest(const struct varlink_server *s,
                                                const struct varlink_user *user)
{
    struct varlink_connection *c, *heaviest = NULL;

    LIST_FOREACH(c, &s->connections, connections)
    if (c->user == user && c->state != VARLINK_DOOMED &&
        (!heaviest || c->charged_bytes > heaviest->charged_bytes))
        heaviest = c;
    return heaviest;
}

/*
 * Books what the buffers hold now. Who goes over his budget loses the connection that holds most of it, which is not
 * the one that is being read from. What it held no longer counts: it is freed at the end of the turn.
 */
static void connection_charge(struct varlink_connection *c)
{
    struct varlink_user *user = c->user;
    size_t bytes = c->input.allocated + c->output.allocated;

    if (c->state == VARLINK_DOOMED)
        return;
    user->bytes += bytes;
    user->bytes -= c->charged_bytes;
    c->charged_bytes = bytes;
    while (user->bytes > c->server->service.limits.bytes_per_uid_max) {
        struct varlink_connection *heaviest = user_heaviest(c->server, user);

        if (!heaviest)
            return;
        user->bytes -= heaviest->charged_bytes;
        heaviest->charged_bytes = 0;
        varlink_connection_doom(heaviest);
        connection_tell_over_budget(heaviest);
    }
}

/* May be called at any depth; the turn event does the rest when the stack is empty. */
void varlink_connection_doom(struct varlink_connection *c)
{
    c->state = VARLINK_DOOMED;
    (void)event_add(c->turn, &at_once);
}

/* Nothing is sent here: the event loop sends what has gathered by the end of the turn in one go. */
int varlink_connection_queue(struct varlink_connection *c, const char *text, size_t length)
{
    if (c->state == VARLINK_DOOMED)
        return -ENOTCONN;
    if (varlink_frame_append(&c->output, text, length) < 0 || varlink_frame_append(&c->output, "", 1) < 0)
        varlink_connection_doom(c);
    connection_charge(c);
    (void)event_add(c->turn, &at_once);
    return c->state == VARLINK_DOOMED ? -ENOTCONN : 0;
}

/*
 * A turn is due even if there is no further call: end of input may have been waiting for this answer.
 */
void varlink_connection_answered(struct varlink_connection *c)
{
    c->call = NULL;
    if (c->state == VARLINK_CALLING)
        c->state = VARLINK_READING;
    (void)event_add(c->turn, &at_once);
}

/* A message that never ends: he is told, if nothing that came before it still waits for its answer. */
static void connection_refuse_length(struct varlink_connection *c)
{
    varlink_connection_complain(c, VARLINK_ERROR_INVALID_PARAMETER, "message");
    varlink_frame_deinit(&c->input);
    connection_charge(c);
    if (c->state == VARLINK_READING)
        c->state = VARLINK_FLUSHING;
}

/*
 * One call at a time keeps the answers in order. Not while much is unsent: who sends calls and reads no
 * answers waits for himself.
 */
static bool connection_may_begin_call(const struct varlink_connection *c)
{
    return c->state == VARLINK_READING && varlink_frame_pending(&c->output) <= VARLINK_OUTPUT_AHEAD_BYTES;
}

/* Begins the next call if there is one. False: nothing more can be begun now. */
static bool connection_begin_call(struct varlink_connection *c)
{
    const char *text;
    size_t length;
    int r;

    if (!connection_may_begin_call(c))
        return false;
    r = varlink_frame_take(&c->input, &text, &length);
    if (r < 0)
        connection_refuse_length(c);
    if (r <= 0)
        return false;
    c->state = VARLINK_CALLING;
    r = varlink_call_dispatch(c, text, length);
    if (r < 0)
        varlink_connection_doom(c);
    return true;
}

/*
 * Ahead of the calls a little is read, to notice that the peer has gone; a message that is not complete
 * is read to its end, or until it is too long.
 */
static bool connection_wants_input(const struct varlink_connection *c)
{
    size_t pending = varlink_frame_pending(&c->input);

    if (c->input_ended || c->state == VARLINK_FLUSHING)
        return false;
    return pending < VARLINK_INPUT_AHEAD_BYTES ||
           (c->state == VARLINK_READING && c->input.scanned == c->input.end);
}

/* He has not only said all he wants to say but does not listen either, so no answer can reach him. */
static bool connection_hung_up(const struct varlink_connection *c)
{
    struct pollfd p = {.fd = c->fd};

    return c->input_ended && poll(&p, 1, 0) == 1 && (p.revents & (POLLHUP | POLLERR));
}

/* Each state has its own way to end. */
static bool connection_is_over(const struct varlink_connection *c)
{
    bool flushed = varlink_frame_pending(&c->output) == 0;

    switch (c->state) {
    case VARLINK_READING:
        return c->input_ended && flushed && !event_pending(c->turn, EV_TIMEOUT, NULL);
    case VARLINK_CALLING:
        return connection_hung_up(c);
    case VARLINK_FLUSHING:
        return flushed;
    case VARLINK_DOOMED:
        return true;
    }
    return true;
}

/* Sends what the socket takes. */
static void connection_send(struct varlink_connection *c)
{
    size_t n = varlink_frame_pending(&c->output);
    ssize_t sent;

    if (n == 0 || c->state == VARLINK_DOOMED)
        return;
    sent = send(c->fd, c->output.data + c->output.begin, n, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno != EAGAIN && errno != EINTR)
        varlink_connection_doom(c);
    if (sent <= 0)
        return;
    varlink_frame_drop(&c->output, (size_t)sent);
    varlink_frame_trim(&c->output);
    connection_charge(c);
}

/* Watches for what can be done next. A write that makes no progress for too long ends in its time-out. */
static void connection_watch(struct varlink_connection *c, bool progress)
{
    uint64_t usec = c->server->service.limits.write_timeout_usec;
    struct timeval patience = {.tv_sec = (time_t)(usec / 1000000), .tv_usec = (suseconds_t)(usec % 1000000)};

    if (connection_wants_input(c))
        (void)event_add(c->readable, NULL);
    else
        (void)event_del(c->readable);
    if (varlink_frame_pending(&c->output) == 0)
        (void)event_del(c->writable);
    else if (progress || !event_pending(c->writable, EV_WRITE, NULL))
        (void)event_add(c->writable, &patience);
}

/* Does what can be done now: the last thing that each callback does, as the connection may be gone after it.
 */
static void connection_advance(struct varlink_connection *c)
{
    size_t unsent = varlink_frame_pending(&c->output);
    unsigned n = 0;

    while (n < VARLINK_CALLS_A_TURN_MAX && connection_begin_call(c))
        n++;
    varlink_frame_trim(&c->input);
    connection_charge(c);
    unsent = MAX(unsent, varlink_frame_pending(&c->output));
    connection_send(c);
    if (connection_may_begin_call(c) && c->input.scanned < c->input.end)
        (void)event_add(c->turn,
                        &at_once); /* there was no time for it, or no room for its answer until now */
    if (connection_is_over(c))
        (void)varlink_connection_free(c);
    else
        connection_watch(c, varlink_frame_pending(&c->output) < unsent);
}

/* Reads into a buffer of the stack first, so that a connection holds no more than what came. */
static void connection_on_readable(evutil_socket_t fd, short what, void *data)
{
    struct varlink_connection *c = data;
    char buffer[VARLINK_FRAME_READ_BYTES];
    ssize_t n = recv(c->fd, buffer, sizeof(buffer), MSG_DONTWAIT);

    if (n == 0)
        c->input_ended = true;
    else if (n < 0 && errno != EAGAIN && errno != EINTR)
        varlink_connection_doom(c);
    else if (n > 0 && varlink_frame_append(&c->input, buffer, (size_t)n) < 0)
        varlink_connection_doom(c);
    connection_charge(c);
    connection_advance(c);
}

/* The time-out means that the peer took nothing for so long, although something was there for him. */
static void connection_on_writable(evutil_socket_t fd, short what, void *data)
{
    struct varlink_connection *c = data;

    if (what & EV_TIMEOUT)
        varlink_connection_doom(c);
    connection_advance(c);
}

/*
 * For whoever cannot wait for the socket: an answer was queued, a call is buffered, the connection is
 * doomed.
 */
static void connection_on_turn(evutil_socket_t fd, short what, void *data)
{
    connection_advance(data);
}

/* Half of it made is no harm: varlink_connection_free() copes. */
static int connection_watch_init(struct varlink_connection *c, int fd)
{
    struct event_base *base = c->server->base;

    c->readable = event_new(base, fd, EV_READ | EV_PERSIST, connection_on_readable, c);
    c->writable = event_new(base, fd, EV_WRITE | EV_PERSIST, connection_on_writable, c);
    c->turn = evtimer_new(base, connection_on_turn, c);
    if (!c->readable || !c->writable || !c->turn || event_add(c->readable, NULL) < 0)
        return -ENOMEM;
    return 0;
}

/* The fd becomes ours with the very last step, so that every failure leaves it to the caller. */
int varlink_connection_new(struct varlink_server *s, int fd, const struct varlink_peer *peer)
{
    struct varlink_connection *c = calloc(1, sizeof(*c));
    int r;

    if (!c)
        return -ENOMEM;
    c->server = s;
    c->fd = -EBADF;
    LIST_INSERT_HEAD(&s->connections, c, connections);
    r = varlink_peer_copy(&c->peer, peer);
    if (r >= 0)
        r = varlink_user_join(s, peer->uid, &c->user);
    if (r >= 0)
        r = connection_watch_init(c, fd);
    if (r < 0) {
        (void)varlink_connection_free(c);
        return r;
    }
    c->fd = fd;
    return 0;
}

/* libevent's own does not take NULL. */
static void event_freep_if(struct event *event)
{
    if (event)
        event_free(event);
}

/* Copes with a half-built one: no user yet, no events yet. */
struct varlink_connection *varlink_connection_free(struct varlink_connection *c)
{
    if (!c)
        return NULL;
    LIST_REMOVE(c, connections);
    event_freep_if(c->readable);
    event_freep_if(c->writable);
    event_freep_if(c->turn);
    c->fd = fd_close(c->fd);
    if (c->call)
        varlink_call_detach(c->call);
    varlink_frame_deinit(&c->input);
    varlink_frame_deinit(&c->output);
    if (c->user) {
        c->user->bytes -= c->charged_bytes;
        varlink_user_leave(c->server, c->user);
    }
    varlink_peer_deinit(&c->peer);
    free(c);
    return NULL;
}
