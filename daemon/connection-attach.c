/* SPDX-License-Identifier: MIT */
/* Who connects, and whether he gets in. See connection.h. */
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "basic/cleanup.h"
#include "basic/macro.h"
#include "basic/ordering.h"
#include "basic/parse.h"
#include "connection-internal.h"
#include "log.h"
#include "manager.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD                                                                                         \
    77 /* Linux 6.5; the same on all architectures but parisc and sparc, which have no 64-bit Debian */
#endif

int reply_words(struct abi_reply *reply, int error, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    (void)vsnprintf(reply->message, sizeof(reply->message), format, args);
    va_end(args);
    reply->error = error;
    return error;
}

/* The process that connected, not a number: numbers are used again and differ between namespaces. */
static int peer_pidfd(int fd, pid_t pid)
{
    int pidfd = -EBADF;
    socklen_t length = sizeof(pidfd);

    if (getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &length) == 0)
        return pidfd;
    if (errno != ENOPROTOOPT && errno != EINVAL)
        return -errno;
    /* another pid namespace, and a kernel that cannot name it otherwise */
    if (pid <= 0)
        return -ESRCH;
    pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    return pidfd < 0 ? -errno : pidfd;
}

int peer_identify(struct connection *c)
{
    struct ucred cred;
    socklen_t length = sizeof(cred), groups_length = sizeof(c->groups);

    if (getsockopt(c->fd, SOL_SOCKET, SO_PEERCRED, &cred, &length) < 0)
        return -errno;
    c->identity.pid = cred.pid;
    c->identity.uid = cred.uid;
    c->identity.gid = cred.gid;
    if (getsockopt(c->fd, SOL_SOCKET, SO_PEERGROUPS, c->groups, &groups_length) == 0)
        c->n_groups = groups_length / sizeof(gid_t);
    c->identity.pidfd = peer_pidfd(c->fd, cred.pid);
    return c->identity.pidfd < 0 ? c->identity.pidfd : 0;
}

static bool peer_has_group(const struct connection *c, gid_t group)
{
    if (c->identity.gid == group)
        return true;
    for (unsigned i = 0; i < c->n_groups; i++)
        if (c->groups[i] == group)
            return true;
    return false;
}

/* As for a file: the first of owner, group and others that applies decides. */
static bool peer_may(const struct connection *c, const struct arena *a, unsigned need)
{
    unsigned bits;

    if (c->identity.uid == 0)
        return true;
    if (c->identity.uid == a->owner)
        bits = a->mode >> 6;
    else if (peer_has_group(c, a->group))
        bits = a->mode >> 3;
    else
        bits = a->mode;
    return (bits & need) == need;
}

static int check_versions(struct connection *c)
{
    const struct abi_request *q = &c->request;

    if (q->major != ABI_MAJOR)
        return reply_words(
            &c->reply, -EPROTO,
            "the library speaks version %u.%u, this daemon %u.%u: use those of one major version", q->major,
            q->minor, ABI_MAJOR, ABI_MINOR);
    if (q->fingerprint != ABI_FINGERPRINT)
        return reply_words(&c->reply, -EPROTO,
                           "library and daemon were built with different layouts of version %u", ABI_MAJOR);
    return 0;
}

static int check_request(struct connection *c)
{
    struct abi_request *q = &c->request;
    struct pollfd death = {.fd = c->identity.pidfd, .events = POLLIN};

    q->name[sizeof(q->name) - 1] = '\0';
    if (q->flags & ~ABI_OPEN_FLAGS)
        return reply_words(&c->reply, -EINVAL, "unknown flags 0x%x", q->flags & ~ABI_OPEN_FLAGS);
    if (!arena_name_is_valid(q->name))
        return reply_words(&c->reply, -EINVAL, "bad arena name: 1..%d of A-Z a-z 0-9 . _ - are right",
                           ABI_NAME_MAX);
    if (poll(&death, 1, 0) != 0) /* after the message that carried its credentials */
        return reply_words(&c->reply, -ESRCH, "the process that connected has ended");
    return 0;
}

static int arena_make(struct connection *c, struct arena **ret)
{
    const struct abi_request *q = &c->request;
    struct error_line why = {""};
    struct arena_request request = {
        .name = q->name,
        .bytes = q->arena_bytes,
        .owner = c->identity.uid,
        .group = c->identity.gid,
        .mode = q->mode ? q->mode & 0777 : 0600,
        .transient = q->flags & ABI_OPEN_TRANSIENT,
    };
    int r = manager_arena_create(c->owner->manager, &request, c->identity.uid, ret, &why);

    return r < 0 ? reply_words(&c->reply, r, "%s", why.text) : 0;
}

static int arena_find_or_make(struct connection *c, struct arena **ret, bool *ret_made)
{
    const struct abi_request *q = &c->request;
    struct arena *a = manager_arena_find(c->owner->manager, q->name);
    unsigned need = q->flags & ABI_OPEN_READ_ONLY ? 4 : 6;

    if (!a && !(q->flags & ABI_OPEN_CREATE))
        return reply_words(&c->reply, -ENOENT,
                           "no arena %s; make it with RECLAIM_CREATE or reclaimctl create-arena", q->name);
    *ret_made = !a;
    if (!a)
        return arena_make(c, ret);
    if ((q->flags & ABI_OPEN_CREATE) && (q->flags & ABI_OPEN_EXCL))
        return reply_words(&c->reply, -EEXIST, "arena %s is there already", q->name);
    if (!peer_may(c, a, need))
        return reply_words(&c->reply, -EACCES, "arena %s is of uid %u, mode %04o: uid %u may not %s it",
                           a->name, (unsigned)a->owner, (unsigned)a->mode, (unsigned)c->identity.uid,
                           need == 4 ? "read" : "use");
    *ret = a;
    return 0;
}

/* One user must not be able to keep all others out. */
static bool user_is_full(const struct connection *c)
{
    uid_t uid = c->identity.uid;

    return uid != 0 && uid != geteuid() &&
           connections_of_user(c->owner, uid, true) >=
               manager_parameters(c->owner->manager)->clients_per_user_max;
}

static int check_clients_max(struct connection *c)
{
    uint64_t max = manager_parameters(c->owner->manager)->clients_max;

    if (c->owner->n_clients >= max)
        connections_sweep_dead(c->owner);
    if (user_is_full(c))
        return reply_words(&c->reply, -EMFILE,
                           "uid %u has as many clients as clients-per-user-max = %llu allows",
                           (unsigned)c->identity.uid,
                           (unsigned long long)manager_parameters(c->owner->manager)->clients_per_user_max);
    if (c->owner->n_clients >= max)
        return reply_words(&c->reply, -EMFILE,
                           "%u clients are attached, as many as clients-max = %llu allows; "
                           "reclaimctl list-clients shows who they are",
                           c->owner->n_clients, (unsigned long long)max);
    return 0;
}

static int client_join(struct connection *c, struct arena *a, struct client **ret)
{
    struct manager *m = c->owner->manager;
    struct client *client;
    int r;

    c->identity.id = ++c->owner->next_id;
    r = client_new(a, &c->identity, (uint32_t)manager_parameters(m)->lanes_max,
                   c->request.flags & ABI_OPEN_READ_ONLY, &client);
    if (r < 0)
        return reply_words(&c->reply, r, "cannot make a channel: %s", strerror(-r));
    r = arena_add_client(a, client); /* on the list before the attach is answered */
    if (r == 0) {
        r = grace_watch(manager_grace(m), client);
        if (r < 0) {
            arena_remove_client(a, client);
            client_unref(client); /* the account's */
        }
    }
    if (r < 0) {
        client_unref(client);
        return reply_words(&c->reply, r, "cannot watch the client: %s", strerror(-r));
    }
    *ret = client;
    return 0;
}

int connection_open(struct connection *c, int ret_fds[ABI_OPEN_FDS])
{
    struct arena *a = NULL;
    bool made = false;
    int r = check_versions(c);

    if (r == 0)
        r = check_request(c);
    if (r == 0)
        r = check_clients_max(c);
    if (r == 0)
        r = arena_find_or_make(c, &a, &made);
    if (r == 0) {
        r = client_join(c, a, &c->client);
        if (r < 0 && made)
            manager_arena_remove(a->manager, a);
    }
    if (r < 0)
        return r;
    c->reply.base = a->domain->base;
    c->reply.arena_bytes = a->bytes;
    c->reply.channel_bytes = c->client->channel_bytes;
    ret_fds[0] = a->domain_ro_fd;
    ret_fds[1] = c->client->channel_fd;
    ret_fds[2] = c->client->observer ? a->arena_ro_fd : a->arena_fd;
    ret_fds[3] = c->client->event_fd;
    connection_attached(c);
    return 0;
}
