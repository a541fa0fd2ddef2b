/* SPDX-License-Identifier: MIT */
/*
 * Questions to the daemon: fixed structs on a SOCK_SEQPACKET connection, one question at a time a handle.
 * Bounded: an answer that does not come in time closes the conversation for good, because a late one could
 * not be told from the answer to a later question. Lanes that are there go on working without it.
 */
#include "handle.h"

#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* Linux 6.5; not in older headers */
#endif

#define FDS_MAX 16 /* more than anybody sends; what comes too many is closed */

int complain(struct complaint complaint, int error, const char *format, ...)
{
    va_list arguments;

    if (complaint.text && complaint.size > 0) {
        va_start(arguments, format);
        (void)vsnprintf(complaint.text, complaint.size, format, arguments);
        va_end(arguments);
    }
    return error;
}

bool name_is_valid(const char *name)
{
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    size_t n = name ? strnlen(name, ABI_NAME_MAX + 1) : 0;

    return n >= 1 && n <= ABI_NAME_MAX && strspn(name, allowed) == n;
}

/* A path that does not fit was refused by runtime_paths_find(); this is for whoever comes by without. */
int talk_connect(struct reclaim *r, const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct timeval patience = {.tv_sec = TALK_TIMEOUT_NS / 1000000000ull};
    int error;

    if (strlen(path) >= sizeof(address.sun_path))
        return -ENAMETOOLONG;
    strcpy(address.sun_path, path);
    process_lock(); /* a fork() sees it noted, or not there */
    r->socket = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    error = r->socket < 0 ? -errno : 0;
    process_unlock();
    if (error < 0)
        return error;
    /* Bounds connect() too, which waits while the daemon has more callers than it has taken. */
    (void)setsockopt(r->socket, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    return connect(r->socket, (struct sockaddr *)&address, sizeof(address)) < 0 ? -errno : 0;
}

static int peer_pidfd(int socket)
{
    socklen_t bytes = sizeof(int);
    struct ucred peer;
    int fd;

    if (getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &fd, &bytes) == 0)
        return fd;
    bytes = sizeof(peer);
    if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) < 0 || peer.pid <= 0)
        return -1;
    return (int)syscall(SYS_pidfd_open, peer.pid, 0);
}

/*
 * The peer is who called listen() last: the daemon. Before it is asked anything: it answers only if it is
 * alive then, so the number was not another's by now.
 */
int talk_watch(struct reclaim *r)
{
    int error;

    process_lock(); /* a fork() sees it noted, or not there */
    r->peer = peer_pidfd(r->socket);
    process_unlock();
    error = r->peer < 0 ? -ENOTSUP : talk_check(r);
    return error == -EOWNERDEAD ? -ENOTSUP : error; /* dead, and somebody else has its socket */
}

/* The process is looked at first: it closes what it has before it counts as dead. */
int talk_check(const struct reclaim *r)
{
    struct pollfd fds[2] = {{.fd = r->peer, .events = POLLIN}, {.fd = r->socket}};

    if (poll(fds, ARRAY_SIZE(fds), 0) <= 0)
        return 0;
    if (fds[1].revents & (POLLHUP | POLLERR | POLLNVAL))
        return -ESHUTDOWN;
    return -EOWNERDEAD;
}

struct abi_request talk_request(enum abi_op op)
{
    return (struct abi_request){.magic = ABI_MAGIC_MESSAGE,
                                .major = ABI_MAJOR,
                                .minor = ABI_MINOR,
                                .fingerprint = ABI_FINGERPRINT,
                                .op = op};
}

/* The first request proves who we are: the daemon compares it with who connected. */
static int request_send(int fd, const struct abi_request *request, bool with_credentials)
{
    union {
        char bytes[CMSG_SPACE(sizeof(struct ucred))];
        struct cmsghdr align;
    } control = {0};
    struct ucred self = {.pid = getpid(), .uid = geteuid(), .gid = getegid()};
    struct iovec data = {.iov_base = (void *)request, .iov_len = sizeof(*request)};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1};

    if (with_credentials) {
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof(control.bytes);
        *CMSG_FIRSTHDR(&message) = (struct cmsghdr){
            .cmsg_len = CMSG_LEN(sizeof(self)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_CREDENTIALS};
        memcpy(CMSG_DATA(CMSG_FIRSTHDR(&message)), &self, sizeof(self));
    }
    while (sendmsg(fd, &message, MSG_NOSIGNAL) < 0)
        if (errno != EINTR)
            return errno == EAGAIN ? -ETIMEDOUT : -errno;
    return 0;
}

/* Until something can be read, the end of the connection included; -EOWNERDEAD: the daemon is dead. */
static int answer_wait(const struct reclaim *r, uint64_t deadline_ns)
{
    struct pollfd fds[2] = {{.fd = r->peer, .events = POLLIN}, {.fd = r->socket, .events = POLLIN}};

    for (;;) {
        uint64_t now = clock_ns();
        int n = now < deadline_ns ? poll(fds, ARRAY_SIZE(fds), (int)((deadline_ns - now) / 1000000) + 1) : 0;

        if (n > 0)
            return fds[1].revents ? 0 : -EOWNERDEAD;
        if (n == 0)
            return -ETIMEDOUT;
        if (errno != EINTR)
            return -errno;
    }
}

/* Takes the descriptors that came along: the first n_wanted into ret_fds, if there are exactly so many; else
   none. */
static int answer_fds(struct msghdr *message, unsigned n_wanted, int *ret_fds)
{
    int fds[FDS_MAX];
    unsigned n = 0, n_came;

    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c))
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
            size_t bytes = c->cmsg_len - CMSG_LEN(0);

            for (size_t i = 0; i < bytes / sizeof(int) && n < FDS_MAX; i++)
                memcpy(&fds[n++], CMSG_DATA(c) + i * sizeof(int), sizeof(int));
        }
    if (n == n_wanted && !(message->msg_flags & MSG_CTRUNC)) {
        if (n > 0)
            memcpy(ret_fds, fds, n * sizeof(int));
        return 0;
    }
    n_came = n;
    while (n > 0)
        (void)close(fds[--n]);
    /* the kernel had no number left for one of them */
    return (message->msg_flags & MSG_CTRUNC) && n_came < n_wanted ? -EMFILE : -EPROTO;
}

/* One answer to op. A failed one brings no descriptors. */
static int answer_receive(const struct reclaim *handle, enum abi_op op, struct abi_reply *ret_reply,
                          unsigned n_fds, int *ret_fds)
{
    union {
        char bytes[CMSG_SPACE(FDS_MAX * sizeof(int))];
        struct cmsghdr align;
    } control;
    struct abi_reply reply = {0};
    struct iovec data = {.iov_base = &reply, .iov_len = sizeof(reply)};
    struct msghdr message = {.msg_iov = &data,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof(control.bytes)};
    uint64_t deadline_ns = clock_ns() + TALK_TIMEOUT_NS;
    ssize_t n;
    int r;

    do {
        r = answer_wait(handle, deadline_ns);
        if (r < 0)
            return r;
        n = recvmsg(handle->socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    } while (n < 0 && (errno == EINTR || errno == EAGAIN));
    if (n <= 0)
        return n == 0 ? -ECONNRESET : -errno;
    r = answer_fds(&message, reply.error == 0 ? n_fds : 0, ret_fds);
    if (r < 0)
        return r;
    if (n != sizeof(reply) || reply.magic != ABI_MAGIC_MESSAGE || reply.op != op || reply.error > 0) {
        for (unsigned i = 0; i < n_fds && reply.error == 0; i++)
            (void)close(ret_fds[i]);
        return -EPROTO;
    }
    reply.message[sizeof(reply.message) - 1] = '\0';
    *ret_reply = reply;
    return 0;
}

/* Asks, and waits until there is an answer. */
int talk_attach(struct reclaim *r, const struct abi_request *request)
{
    int error = request_send(r->socket, request, true);

    if (error < 0)
        return error == -EPIPE ? -ECONNRESET : error;
    return answer_wait(r, clock_ns() + TALK_TIMEOUT_NS);
}

/* The one answer that brings descriptors; each is the caller's on success, and closed on failure. */
int talk_attached(struct reclaim *r, struct abi_reply *ret_reply, int ret_fds[static ABI_OPEN_FDS])
{
    return answer_receive(r, ABI_OP_OPEN, ret_reply, ABI_OPEN_FDS, ret_fds);
}

/* Under talk. Of a daemon that is dead nothing is asked, so that its successor can be. */
static int talk_ask_locked(struct reclaim *r, const struct abi_request *request, struct abi_reply *ret_reply)
{
    int error = talk_check(r);

    if (error < 0)
        return error;
    if (r->talk_lost)
        return -ESHUTDOWN;
    error = request_send(r->socket, request, false);
    if (error == 0)
        error = answer_receive(r, (enum abi_op)request->op, ret_reply, 0, NULL);
    if (error == 0)
        return ret_reply->error;
    r->talk_lost = true;
    return error == -EOWNERDEAD ? error : -ESHUTDOWN;
}

/* Without cancellation points: a thread that went in the middle would leave the answer for the next one. */
int talk_ask(struct reclaim *r, const struct abi_request *request, struct abi_reply *ret_reply)
{
    int state = thread_cancel_disable(), error;

    (void)pthread_mutex_lock(&r->talk);
    error = talk_ask_locked(r, request, ret_reply);
    (void)pthread_mutex_unlock(&r->talk);
    thread_cancel_restore(state);
    return error;
}

/* Never waits: what a full socket swallows, the owner word of the lane says as well. */
void talk_tell(struct reclaim *r, const struct abi_request *request)
{
    (void)send(r->socket, request, sizeof(*request), MSG_NOSIGNAL | MSG_DONTWAIT);
}
