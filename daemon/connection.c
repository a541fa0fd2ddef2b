/* SPDX-License-Identifier: MIT */
/* Connections: accept, read a request, answer it. See connection.h. */
#include "connection.h"

#include <errno.h>
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "basic/cleanup.h"
#include "basic/macro.h"
#include "basic/ordering.h"
#include "basic/parse.h"
#include "clock.h"
#include "connection-internal.h"
#include "log.h"
#include "manager.h"

#define SPARE_CONNECTIONS 128u /* beyond clients-max: those who ask and are told no .. */
#define SPARE_OF_USER 32u      /* .. of which one user, root and our own excepted, may have so many */
#define FDS_CAUGHT 64 /* descriptors that a peer sends although nobody asked: taken in order to be closed */

static const struct timeval accept_again = {.tv_usec = 500000};
static const struct timeval open_timeout = {.tv_sec = 5}; /* who connects says what he wants at once */

/* ---- Life ---- */

void connection_uncount(struct connection *c)
{
    if (c->counted)
        c->owner->n_clients--;
    c->counted = false;
}

static void connection_free(struct connection *c)
{
    if (c->event)
        event_free(c->event);
    if (c->death_event)
        event_free(c->death_event);
    if (c->hangup_timer)
        event_free(c->hangup_timer);
    (void)fd_close(c->fd);
    (void)fd_close(c->identity.pidfd);
    if (c->client)
        client_unref(c->client);
    free(c);
}

void connection_unlink_and_free(struct connection *c)
{
    struct connections *cs = c->owner;

    connection_uncount(c);
    *(c->prev ? &c->prev->next : &cs->first) = c->next;
    *(c->next ? &c->next->prev : &cs->last) = c->prev;
    cs->n--;
    connection_free(c);
}

static void connection_link(struct connections *cs, struct connection *c)
{
    c->owner = cs;
    c->prev = cs->last;
    *(cs->last ? &cs->last->next : &cs->first) = c;
    cs->last = c;
    cs->n++;
}

uint32_t connections_of_user(const struct connections *cs, uid_t uid, bool counted)
{
    uint32_t n = 0;

    for (const struct connection *c = cs->first; c; c = c->next)
        n += c->identity.uid == uid && (counted ? c->counted : !c->client);
    return n;
}

/* ---- Answers ---- */

static void connection_answer(struct connection *c, const int *fds, size_t n_fds)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int) * ABI_OPEN_FDS)];
    } control = {0};
    struct iovec iov = {.iov_base = &c->reply, .iov_len = sizeof(c->reply)};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};

    c->reply.magic = ABI_MAGIC_MESSAGE;
    c->reply.op = c->request.op;
    if (n_fds > 0) {
        control.header.cmsg_level = SOL_SOCKET;
        control.header.cmsg_type = SCM_RIGHTS;
        control.header.cmsg_len = CMSG_LEN(sizeof(int) * n_fds);
        memcpy(CMSG_DATA(&control.header), fds, sizeof(int) * n_fds);
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(sizeof(int) * n_fds);
    }
    /* one request, one answer: who does not read is cut off */
    if (sendmsg(c->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
        c->broken = true;
}

/* The worker has answered. */
static void request_done(struct main_post *post)
{
    struct connection *c = container_of(post, struct connection, post);

    c->busy = false;
    if (c->closed) {
        if (!c->client || c->gone)
            connection_unlink_and_free(c);
        return;
    }
    connection_answer(c, NULL, 0);
    if (c->broken)
        connection_hung_up(c);
    else
        (void)event_add(c->event, NULL);
}

static void request_finish(struct arena *a, struct connection *c)
{
    mainqueue_post(manager_mainqueue(a->manager), &c->post, request_done);
}

/* ---- Requests that the worker serves ---- */

/* Again and again until a lane is free: a few grace periods at most, as dead ones are buried. */
static void lane_get_job(struct job *job, struct arena *a)
{
    struct connection *c = container_of(job, struct connection, job);
    /* on_free: it is leaving, and nobody would take a new lane back */
    bool gone = c->client->on_free || load_relaxed(&c->client->dead) || load_relaxed(&c->client->evicted);
    int r = gone ? -ESHUTDOWN : arena_give_lane(a, c->client, &c->reply.lane, &c->reply.generation);

    if (r == -EAGAIN) {
        c->next_waiting = a->waiting_for_lane;
        a->waiting_for_lane = c;
        return;
    }
    if (r == -EMFILE)
        (void)reply_words(&c->reply, r, "all %u lanes are in use, as many as lanes-max allows",
                          c->client->n_lanes);
    else if (r < 0)
        (void)reply_words(&c->reply, r, "no lane: %s", strerror(-r));
    request_finish(a, c);
}

void connections_retry_lanes(struct arena *a)
{
    struct connection *list = a->waiting_for_lane, *next;

    a->waiting_for_lane = NULL;
    for (struct connection *c = list; c; c = next) {
        next = c->next_waiting;
        lane_get_job(&c->job, a);
    }
}

/* No answer, but the next request comes after it. */
static void lane_put_done(struct main_post *post)
{
    struct connection *c = container_of(post, struct connection, post);

    c->busy = false;
    if (!c->closed)
        (void)event_add(c->event, NULL);
    else if (c->gone)
        connection_unlink_and_free(c);
}

static void lane_put_job(struct job *job, struct arena *a)
{
    struct connection *c = container_of(job, struct connection, job);
    struct client_lane *cl =
        c->request.lane < c->client->n_lanes ? client_lane_at(c->client, c->request.lane) : NULL;

    if (cl && cl->life == LANE_LIVE && cl->lane.shared->generation == c->request.generation)
        arena_doom_lane(a, cl);
    mainqueue_post(manager_mainqueue(a->manager), &c->post, lane_put_done);
}

static void root_job(struct job *job, struct arena *a)
{
    struct connection *c = container_of(job, struct connection, job);
    int r = arena_root(a, c->request.name, !c->client->observer, &c->reply.offset);

    if (r == -ENOENT)
        (void)reply_words(&c->reply, r, "no root of that name, and an observer makes none");
    else if (r == -ENOSPC)
        (void)reply_words(&c->reply, r, "all %u roots of the arena are in use", STATE_ROOTS_MAX);
    else if (r < 0)
        (void)reply_words(&c->reply, r, "no root: %s", strerror(-r));
    request_finish(a, c);
}

/* ---- Requests ---- */

static void serve_open(struct connection *c)
{
    int fds[ABI_OPEN_FDS];

    if (c->client) {
        (void)reply_words(&c->reply, -EISCONN, "this connection is attached already");
        connection_answer(c, NULL, 0);
    } else if (connection_open(c, fds) < 0) {
        connection_answer(c, NULL, 0);
        c->broken = true;
    } else {
        (void)event_remove_timer(c->event); /* an attached client may be quiet for as long as it likes */
        connection_answer(c, fds, ABI_OPEN_FDS);
    }
}

static void serve_stats(struct connection *c)
{
    struct arena_figures f;

    arena_published(c->client->arena, &f);
    c->reply.stats = (struct abi_stats){
        .in_use_bytes = f.heap.out_bytes,
        .pending_objects = f.pending_objects,
        .pending_bytes = f.pending_bytes,
        .lazy_bytes = f.heap.lazy_bytes,
        .backed_bytes = f.heap.backed_bytes,
        .freed_objects = f.n_frees,
        .refused_records = load_relaxed(&c->client->account.refused),
    };
    connection_answer(c, NULL, 0);
}

static void serve_in_worker(struct connection *c, void (*run)(struct job *job, struct arena *a))
{
    c->busy = true;
    (void)event_del(c->event); /* the next request waits in the socket */
    arena_post(c->client->arena, &c->job, run);
}

static void serve_root(struct connection *c)
{
    c->request.name[sizeof(c->request.name) - 1] = '\0';
    if (arena_name_is_valid(c->request.name)) {
        serve_in_worker(c, root_job);
        return;
    }
    (void)reply_words(&c->reply, -EINVAL, "bad root name: 1..%d of A-Z a-z 0-9 . _ - are right",
                      ABI_NAME_MAX);
    connection_answer(c, NULL, 0);
}

/* False: this is none of our clients. */
static bool connection_serve(struct connection *c)
{
    c->reply = (struct abi_reply){0};
    if (c->request.op == ABI_OP_OPEN) {
        serve_open(c);
        return true;
    }
    if (!c->client)
        return false;
    switch (c->request.op) {
    case ABI_OP_LANE_GET:
        if (load_relaxed(&c->client->evicted)) {
            (void)reply_words(&c->reply, -ESHUTDOWN, "this client was evicted");
            connection_answer(c, NULL, 0);
        } else {
            serve_in_worker(c, lane_get_job);
        }
        return true;
    case ABI_OP_LANE_PUT:
        serve_in_worker(c, lane_put_job);
        return true;
    case ABI_OP_ROOT:
        serve_root(c);
        return true;
    case ABI_OP_STATS:
        serve_stats(c);
        return true;
    default:
        return false;
    }
}

/* ---- Receiving ---- */

/* Closes every descriptor that came along. True: only credentials came, and they are those of who connected.
 */
static bool ancillary_is_good(const struct connection *c, struct msghdr *message)
{
    bool good = false;

    for (struct cmsghdr *h = CMSG_FIRSTHDR(message); h; h = CMSG_NXTHDR(message, h)) {
        if (h->cmsg_level == SOL_SOCKET && h->cmsg_type == SCM_CREDENTIALS) {
            struct ucred cred;

            memcpy(&cred, CMSG_DATA(h), sizeof(cred));
            good = cred.pid == c->identity.pid && cred.uid == c->identity.uid;
        } else if (h->cmsg_level == SOL_SOCKET && h->cmsg_type == SCM_RIGHTS) {
            for (size_t i = 0; CMSG_LEN((i + 1) * sizeof(int)) <= h->cmsg_len; i++) {
                int fd;

                memcpy(&fd, CMSG_DATA(h) + i * sizeof(int), sizeof(fd));
                (void)fd_close(fd);
            }
            return false; /* there is at most one such header */
        }
    }
    return good && !(message->msg_flags & (MSG_TRUNC | MSG_CTRUNC));
}

/* 1: a request is there; 0: not now; negative: the peer is gone or speaks something else. */
static int connection_receive(struct connection *c)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(struct ucred)) + CMSG_SPACE(sizeof(int) * FDS_CAUGHT)];
    } control;
    struct iovec iov = {.iov_base = &c->request, .iov_len = sizeof(c->request)};
    struct msghdr message = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof(control.bytes)};
    ssize_t n = recvmsg(c->fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    bool good;

    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -errno;
    good = ancillary_is_good(c, &message);
    if (n == 0)
        return -ECONNRESET;
    if (n != sizeof(c->request) || !good || c->request.magic != ABI_MAGIC_MESSAGE)
        return -EPROTO;
    return 1;
}

static void connection_refuse(struct connection *c)
{
    uint32_t held;

    if (log_rate_pass(&c->owner->refused_rate, now_usec(), 10000000, 3, &held))
        log_warning(
            "pid %d (uid %u) sent something that is no request; connection closed (%u more held back)",
            (int)c->identity.pid, (unsigned)c->identity.uid, held);
    connection_hung_up(c);
}

static void connection_event(evutil_socket_t fd, short what, void *userdata)
{
    struct connection *c = userdata;
    int r;

    (void)fd;
    if (what & EV_TIMEOUT) {
        connection_hung_up(c);
        return;
    }
    r = connection_receive(c);
    if (r == -EPROTO)
        connection_refuse(c);
    else if (r < 0)
        connection_hung_up(c);
    else if (r > 0 && !connection_serve(c))
        connection_refuse(c);
    else if (r > 0 && c->broken)
        connection_hung_up(c);
}

static int connection_new(struct connections *cs, int fd)
{
    struct connection *c = calloc(1, sizeof(*c));
    int r, on = 1;

    if (!c)
        return -ENOMEM;
    c->fd = fd;
    c->identity.pidfd = -EBADF;
    r = peer_identify(c);
    if (r == 0 && c->identity.uid != 0 && c->identity.uid != geteuid() &&
        connections_of_user(cs, c->identity.uid, false) >= SPARE_OF_USER)
        r = -EMFILE; /* that many of his have yet to say what they want */
    if (r == 0 && setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) < 0)
        r = -errno;
    if (r == 0) {
        c->event = event_new(manager_event_base(cs->manager), fd, EV_READ | EV_PERSIST, connection_event, c);
        r = c->event && event_add(c->event, &open_timeout) == 0 ? 0 : -ENOMEM;
    }
    if (r < 0) {
        c->fd = -EBADF; /* the caller's */
        connection_free(c);
        return r;
    }
    connection_link(cs, c);
    return 0;
}

static void resume_event(evutil_socket_t fd, short what, void *userdata)
{
    struct connections *cs = userdata;

    (void)fd;
    (void)what;
    (void)event_add(cs->listener, NULL);
}

/* Out of descriptors or memory: whoever waits in the socket's queue waits a little longer, and so do we. */
static void accept_failed(struct connections *cs)
{
    uint32_t held;

    if (errno != EMFILE && errno != ENFILE && errno != ENOMEM && errno != ENOBUFS)
        return;
    if (log_rate_pass(&cs->accept_rate, now_usec(), 10000000, 3, &held))
        log_error("cannot accept a client: %m; if LimitNOFILE= of the service is too low for clients-max, "
                  "raise it");
    (void)event_del(cs->listener);
    (void)event_add(cs->resume, &accept_again);
}

static void accept_event(evutil_socket_t fd, short what, void *userdata)
{
    struct connections *cs = userdata;
    int peer = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK), r;
    uint32_t held;

    (void)what;
    if (peer < 0) {
        accept_failed(cs);
        return;
    }
    if (cs->n >= manager_parameters(cs->manager)->clients_max + SPARE_CONNECTIONS)
        r = -EMFILE;
    else
        r = connection_new(cs, peer);
    if (r == 0)
        return;
    if (log_rate_pass(&cs->turned_away_rate, now_usec(), 10000000, 3, &held))
        log_warning("a client was turned away before it said anything: %s (%u more held back); "
                    "clients-max and clients-per-user-max are the limits",
                    strerror(-r), held);
    (void)fd_close(peer);
}

/* ---- All of them ---- */

int connections_new(struct manager *m, struct connections **ret)
{
    struct connections *cs = calloc(1, sizeof(*cs));

    if (!cs)
        return -ENOMEM;
    cs->manager = m;
    cs->listen_fd = -EBADF;
    *ret = cs;
    return 0;
}

int connections_listen(struct connections *cs, int fd)
{
    cs->resume = evtimer_new(manager_event_base(cs->manager), resume_event, cs);
    cs->listener = event_new(manager_event_base(cs->manager), fd, EV_READ | EV_PERSIST, accept_event, cs);
    if (!cs->resume || !cs->listener || event_add(cs->listener, NULL) < 0)
        return -ENOMEM;
    cs->listen_fd = fd;
    return 0;
}

struct connections *connections_free(struct connections *cs)
{
    if (!cs)
        return NULL;
    if (cs->listener)
        event_free(cs->listener);
    if (cs->resume)
        event_free(cs->resume);
    (void)fd_close(cs->listen_fd);
    for (struct connection *c = cs->first, *next; c; c = next) {
        next = c->next;
        if (c->client && !c->gone) {
            grace_unwatch(manager_grace(cs->manager), c->client);
            arena_remove_client(c->client->arena, c->client);
            account_close(&c->client->account);
        }
        connection_free(c);
    }
    free(cs);
    return NULL;
}

uint32_t connections_n_clients(const struct connections *cs)
{
    return cs->n_clients;
}

int connections_visit(struct connections *cs, int (*visit)(void *data, struct client *c), void *data)
{
    for (struct connection *c = cs->first, *next; c; c = next) {
        int r;

        next = c->next;
        if (!c->client || c->gone)
            continue;
        r = visit(data, c->client);
        if (r != 0)
            return r;
    }
    return 0;
}

void connections_evict(struct connections *cs, struct client *c)
{
    (void)cs;
    store_relaxed(&c->evicted, 1); /* the pass that the kick brings goes by it */
    arena_kick_lanes(c->arena);
}

void connections_drop_arena(struct connections *cs, struct arena *a)
{
    for (struct connection *c = cs->first; c; c = c->next) {
        if (!c->client || c->client->arena != a || c->gone)
            continue;
        connections_evict(cs, c->client);
        (void)shutdown(c->fd, SHUT_RDWR); /* it hears of it at once; our own loop too */
    }
}
