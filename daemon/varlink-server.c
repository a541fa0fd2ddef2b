/* SPDX-License-Identifier: MIT */
/*
 * The Varlink server: listeners, interfaces, who is connected, and what each user may hold.
 *
 * Sockets are open to everybody (0666), so the limits here are what stands between any local user and the
 * daemon's memory and descriptors. They are a uid's, not a process's: forking must not help. A connection that
 * exceeds them is closed without a word, as a word would need the connection.
 *
 * Listening sockets come from outside, made by the manager or handed over by the service manager; a stale or
 * a second one is not this file's business.
 */
#include "varlink.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "basic/cleanup.h"
#include "basic/macro.h"
#include "varlink-internal.h"

#ifndef SO_PEERGROUPS
#define SO_PEERGROUPS 59
#endif

enum {
    CONNECTIONS_MAX = 512,
    CONNECTIONS_PER_UID_MAX = 64,
    BYTES_PER_UID_MAX =
        16 * 1024 * 1024, /* the clients of 10,000 processes, listed, and room to read slowly */
    WRITE_TIMEOUT_SEC = 30,
    ACCEPTS_A_TURN_MAX = 16,
    GROUPS_MAX = 65536, /* NGROUPS_MAX of Linux */
};

/* How long no connection is taken after descriptors ran out: long enough not to spin. */
static const struct timeval accept_pause = {.tv_usec = 500 * 1000};

/* Tests choose small ones; the daemon takes these. */
static struct varlink_limits limits_with_defaults(const struct varlink_limits *given)
{
    struct varlink_limits l = *given;

    l.connections_max = l.connections_max ?: CONNECTIONS_MAX;
    l.connections_per_uid_max = l.connections_per_uid_max ?: CONNECTIONS_PER_UID_MAX;
    l.bytes_per_uid_max = l.bytes_per_uid_max ?: BYTES_PER_UID_MAX;
    l.write_timeout_usec = l.write_timeout_usec ?: WRITE_TIMEOUT_SEC * UINT64_C(1000000);
    return l;
}

/* org.varlink.service is an interface like any other, and the first. */
int varlink_server_new(struct event_base *base, const struct varlink_service *service,
                       struct varlink_server **ret)
{
    struct varlink_server *s = calloc(1, sizeof(*s));
    int r;

    if (!s)
        return -ENOMEM;
    s->base = base;
    s->service = *service;
    s->service.limits = limits_with_defaults(&service->limits);
    r = varlink_server_add_interface(s, &varlink_service_interface, s);
    assert(r == 0);
    *ret = s;
    return 0;
}

/* The fd is not its own: on failure it goes back to whoever gave it. */
static void listener_free(struct varlink_listener *l)
{
    if (l->readable)
        event_free(l->readable);
    if (l->resume)
        event_free(l->resume);
    free(l);
}

/* Users go with their last connection, so none is left in the end. */
struct varlink_server *varlink_server_free(struct varlink_server *s)
{
    struct varlink_listener *l;

    if (!s)
        return NULL;
    while ((l = LIST_FIRST(&s->listeners))) {
        LIST_REMOVE(l, listeners);
        (void)fd_close(l->fd);
        listener_free(l);
    }
    while (LIST_FIRST(&s->connections))
        (void)varlink_connection_free(LIST_FIRST(&s->connections));
    assert(LIST_EMPTY(&s->users));
    free(s);
    return NULL;
}

/* Before the first connection or later, as it comes. */
int varlink_server_add_interface(struct varlink_server *s, const struct varlink_interface *interface,
                                 void *userdata)
{
    if (varlink_server_find_interface(s, interface->name, strlen(interface->name)))
        return -EEXIST;
    if (s->n_interfaces == VARLINK_INTERFACES_MAX)
        return -E2BIG;
    s->interfaces[s->n_interfaces++] = (struct varlink_registration){interface, userdata};
    return 0;
}

/* The name is part of a longer text, hence the length. */
const struct varlink_registration *varlink_server_find_interface(const struct varlink_server *s,
                                                                 const char *name, size_t length)
{
    const char *known;

    for (size_t i = 0; i < s->n_interfaces; i++) {
        known = s->interfaces[i].interface->name;
        if (strlen(known) == length && memcmp(known, name, length) == 0)
            return &s->interfaces[i];
    }
    return NULL;
}

/* Those of all users. */
size_t varlink_server_n_connections(const struct varlink_server *s)
{
    return s->n_connections;
}

/* Takes one connection. 0: there is none; a connection that is refused is simply closed. */
static int listener_take(struct varlink_listener *l)
{
    int fd = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    if (fd < 0)
        return errno == EAGAIN ? 0 : -errno;
    if (varlink_server_accept(l->server, fd, NULL) < 0)
        (void)fd_close(fd);
    return 1;
}

/*
 * A few at a time, so that a flood of connections does not starve those that are there. What went wrong
 * with one connection is no reason to stop; to have no descriptor left is, for a while, or the loop would
 * spin.
 */
static void listener_on_readable(evutil_socket_t fd, short what, void *data)
{
    struct varlink_listener *l = data;
    int r = 1;

    for (int i = 0; i < ACCEPTS_A_TURN_MAX && (r > 0 || r == -ECONNABORTED || r == -EINTR); i++)
        r = listener_take(l);
    if (r != -EMFILE && r != -ENFILE && r != -ENOMEM && r != -ENOBUFS)
        return;
    (void)event_del(l->readable);
    (void)event_add(l->resume, &accept_pause);
}

/* Whether there are descriptors again is found out by trying. */
static void listener_on_resume(evutil_socket_t fd, short what, void *data)
{
    struct varlink_listener *l = data;

    (void)event_add(l->readable, NULL);
}

/* Both flags are set here too: an inherited socket comes as it was made. */
int varlink_server_listen(struct varlink_server *s, int fd)
{
    struct varlink_listener *l;

    if (evutil_make_socket_nonblocking(fd) < 0 || evutil_make_socket_closeonexec(fd) < 0)
        return -errno;
    l = calloc(1, sizeof(*l));
    if (!l)
        return -ENOMEM;
    l->server = s;
    l->fd = fd;
    l->readable = event_new(s->base, fd, EV_READ | EV_PERSIST, listener_on_readable, l);
    l->resume = evtimer_new(s->base, listener_on_resume, l);
    if (!l->readable || !l->resume || event_add(l->readable, NULL) < 0) {
        listener_free(l);
        return -ENOMEM;
    }
    LIST_INSERT_HEAD(&s->listeners, l, listeners);
    return 0;
}

/* Tests say who the peer is; nobody else may. */
int varlink_server_accept(struct varlink_server *s, int fd, const struct varlink_peer *peer)
{
    struct varlink_peer asked = {};
    int r;

    if (evutil_make_socket_nonblocking(fd) < 0 || evutil_make_socket_closeonexec(fd) < 0)
        return -errno;
    if (peer)
        return varlink_connection_new(s, fd, peer);
    r = varlink_peer_init(&asked, fd);
    if (r < 0)
        return r;
    r = varlink_connection_new(s, fd, &asked);
    varlink_peer_deinit(&asked);
    return r;
}

/* Those who could end the daemon anyway. */
static bool uid_is_privileged(uid_t uid)
{
    return uid == 0 || uid == geteuid();
}

/* As many entries as users have connections now: few. */
static struct varlink_user *user_find(struct varlink_server *s, uid_t uid)
{
    struct varlink_user *u;

    LIST_FOREACH(u, &s->users, users)
    if (u->uid == uid)
        return u;
    return NULL;
}

/* The total does not bind the administrator: he must get in when somebody else has taken all there is. */
int varlink_user_join(struct varlink_server *s, uid_t uid, struct varlink_user **ret)
{
    struct varlink_user *u = user_find(s, uid);

    if (u && u->n_connections >= s->service.limits.connections_per_uid_max)
        return -EMFILE;
    if (s->n_connections >= s->service.limits.connections_max && !uid_is_privileged(uid))
        return -ENFILE;
    if (!u) {
        u = calloc(1, sizeof(*u));
        if (!u)
            return -ENOMEM;
        u->uid = uid;
        LIST_INSERT_HEAD(&s->users, u, users);
    }
    u->n_connections++;
    s->n_connections++;
    *ret = u;
    return 0;
}

/* His last connection takes the entry with it; a budget has no memory. */
void varlink_user_leave(struct varlink_server *s, struct varlink_user *user)
{
    s->n_connections--;
    if (--user->n_connections > 0)
        return;
    assert(user->bytes == 0);
    LIST_REMOVE(user, users);
    free(user);
}

/* Old kernels do not tell the groups: then he has only the one that SO_PEERCRED names. */
static int peer_read_groups(struct varlink_peer *peer, int fd)
{
    socklen_t n = 0;
    gid_t *groups;

    if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, NULL, &n) >= 0 || errno != ERANGE || n == 0)
        return 0;
    if (n > GROUPS_MAX * sizeof(gid_t))
        return -EOVERFLOW;
    groups = malloc(n);
    if (!groups)
        return -ENOMEM;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &n) < 0) {
        free(groups);
        return -errno;
    }
    peer->groups = groups;
    peer->n_groups = n / sizeof(gid_t);
    return 0;
}

/* Noted by the kernel when he connected; the process may be another one by now, or gone. */
int varlink_peer_init(struct varlink_peer *peer, int fd)
{
    struct ucred cred;
    socklen_t n = sizeof(cred);

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &n) < 0)
        return -errno;
    *peer = (struct varlink_peer){.pid = cred.pid, .uid = cred.uid, .gid = cred.gid};
    return peer_read_groups(peer, fd);
}

/* The groups are copied, the rest is plain. */
int varlink_peer_copy(struct varlink_peer *peer, const struct varlink_peer *from)
{
    gid_t *groups = NULL;

    if (from->n_groups > 0) {
        groups = calloc(from->n_groups, sizeof(*groups));
        if (!groups)
            return -ENOMEM;
        memcpy(groups, from->groups, from->n_groups * sizeof(*groups));
    }
    *peer = *from;
    peer->groups = groups;
    return 0;
}

/* Copes with one that was never filled in. */
void varlink_peer_deinit(struct varlink_peer *peer)
{
    free(peer->groups);
    *peer = (struct varlink_peer){};
}
