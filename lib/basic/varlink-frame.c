/* SPDX-License-Identifier: MIT */
/*
 * Varlink framing by NUL bytes, and the blocking client.
 *
 * A frame is one buffer from which whole messages are taken at the front while bytes come in at the back. They
 * are handed out in place: no copy a message, and the NUL that ends it on the wire ends it as a C string, so
 * that a message cannot hold one.
 */
#include "basic/varlink-frame.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "basic/cleanup.h"
#include "basic/macro.h"

/* A reply of ours may hold a long list; whoever receives believes the daemon more than the daemon its
 * clients. */
static const size_t client_max_bytes = 64 * 1024 * 1024;

/* Zero-initialised frames have the wire's own limit. */
static size_t frame_max_bytes(const struct varlink_frame *f)
{
    return f->max_bytes ? f->max_bytes : VARLINK_MESSAGE_MAX_BYTES;
}

/* The limit stays, so that the frame can be used on. */
void varlink_frame_deinit(struct varlink_frame *f)
{
    size_t max_bytes = f->max_bytes;

    free(f->data);
    *f = (struct varlink_frame){.max_bytes = max_bytes};
}

/* Moves what is left to the front: done only when room is needed, so each byte moves seldom. */
static void frame_compact(struct varlink_frame *f)
{
    if (f->begin == 0)
        return;
    memmove(f->data, f->data + f->begin, f->end - f->begin);
    f->scanned -= f->begin;
    f->end -= f->begin;
    f->begin = 0;
}

/*
 * Makes room by moving first and by growing then. Growth doubles as long as the buffer is small, so that
 * appending costs the same for each byte.
 */
int varlink_frame_reserve(struct varlink_frame *f, size_t n, char **ret_room)
{
    size_t want, size = MAX(f->allocated, (size_t)VARLINK_FRAME_INITIAL_BYTES);
    char *data;

    if (__builtin_add_overflow(f->end - f->begin, n, &want) || want > SIZE_MAX / 2)
        return -ENOMEM;
    if (f->allocated - f->end < n || !f->data)
        frame_compact(f);
    if (f->allocated - f->end < n || !f->data) {
        while (size < want)
            size += MIN(size, (size_t)VARLINK_MESSAGE_MAX_BYTES); /* doubling a long queue would waste half */
        data = realloc(f->data, size);
        if (!data)
            return -ENOMEM;
        f->data = data;
        f->allocated = size;
    }
    *ret_room = f->data + f->end;
    return 0;
}

/* More than was reserved would be a bug that has already overwritten something. */
void varlink_frame_commit(struct varlink_frame *f, size_t n)
{
    assert(n <= f->allocated - f->end);
    f->end += n;
}

/* For bytes that stand elsewhere already. */
int varlink_frame_append(struct varlink_frame *f, const void *bytes, size_t n)
{
    char *room;
    int r = varlink_frame_reserve(f, n, &room);

    if (r < 0)
        return r;
    if (n > 0)
        memcpy(room, bytes, n);
    varlink_frame_commit(f, n);
    return 0;
}

/*
 * Looks at each byte once, however often it is called in between: a peer who sends a megabyte byte by
 * byte must not cost a megabyte of reading for each of them.
 */
int varlink_frame_take(struct varlink_frame *f, const char **ret_message, size_t *ret_length)
{
    char *nul = NULL;

    if (f->scanned < f->end)
        nul = memchr(f->data + f->scanned, '\0', f->end - f->scanned);
    if (!nul) {
        f->scanned = f->end;
        return f->end - f->begin > frame_max_bytes(f) ? -EMSGSIZE : 0;
    }
    if ((size_t)(nul - f->data) - f->begin > frame_max_bytes(f))
        return -EMSGSIZE;
    *ret_message = f->data + f->begin;
    *ret_length = (size_t)(nul - f->data) - f->begin;
    f->begin = f->scanned = (size_t)(nul - f->data) + 1;
    return 1;
}

/* A queue's bytes leave at the front as the socket takes them. */
void varlink_frame_drop(struct varlink_frame *f, size_t n)
{
    assert(n <= f->end - f->begin);
    f->begin += n;
    f->scanned = MAX(f->scanned, f->begin);
}

/* An idle connection should hold nothing. */
void varlink_frame_trim(struct varlink_frame *f)
{
    if (f->begin == f->end)
        varlink_frame_deinit(f);
}

struct varlink_client {
    int fd;
    struct varlink_frame input;
};

/*
 * Whatever happens, the fd is not the caller's any more: he need not think about which failure it was.
 */
int varlink_client_new(int fd, struct varlink_client **ret)
{
    struct varlink_client *c = calloc(1, sizeof(*c));

    if (!c) {
        (void)fd_close(fd);
        return -ENOMEM;
    }
    *c = (struct varlink_client){.fd = fd, .input.max_bytes = client_max_bytes};
    *ret = c;
    return 0;
}

/* Paths are checked before, as a cut one could lead to another socket. */
int varlink_client_connect(const char *path, struct varlink_client **ret)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    _cleanup_close_ int fd = -EBADF;
    size_t length = strlen(path);

    if (length == 0)
        return -ENOENT;
    if (length >= sizeof(address.sun_path))
        return -ENAMETOOLONG;
    memcpy(address.sun_path, path, length);
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    if (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
        return -errno;
    return varlink_client_new(steal_fd(&fd), ret);
}

/* Takes NULL. */
struct varlink_client *varlink_client_free(struct varlink_client *c)
{
    if (!c)
        return NULL;
    c->fd = fd_close(c->fd);
    varlink_frame_deinit(&c->input);
    free(c);
    return NULL;
}

/* For the cleanup attribute. */
void varlink_client_freep(struct varlink_client **c)
{
    *c = varlink_client_free(*c);
}

/* Not to be closed or read. */
int varlink_client_fd(const struct varlink_client *c)
{
    return c->fd;
}

/* A peer that has gone is an error here, never a signal. */
int varlink_client_send(struct varlink_client *c, const char *message)
{
    size_t n = strlen(message) + 1;
    ssize_t sent;

    while (n > 0) {
        sent = send(c->fd, message, n, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0)
            return -errno;
        message += sent;
        n -= (size_t)sent;
    }
    return 0;
}

/* A signal that was handled starts the time anew: who needs it exact handles no signals. */
static int client_wait(struct varlink_client *c, uint64_t timeout_usec)
{
    struct pollfd p = {.fd = c->fd, .events = POLLIN};
    uint64_t msec = timeout_usec / 1000 + 1;
    int r;

    do
        r = poll(&p, 1, timeout_usec == UINT64_MAX ? -1 : (int)MIN(msec, (uint64_t)INT32_MAX));
    while (r < 0 && errno == EINTR);
    if (r < 0)
        return -errno;
    return r == 0 ? -ETIMEDOUT : 0;
}

/* One read of what is there. */
static int client_fill(struct varlink_client *c, uint64_t timeout_usec)
{
    char *room;
    ssize_t n;
    int r;

    r = varlink_frame_reserve(&c->input, VARLINK_FRAME_READ_BYTES, &room);
    if (r < 0)
        return r;
    r = client_wait(c, timeout_usec);
    if (r < 0)
        return r;
    n = recv(c->fd, room, VARLINK_FRAME_READ_BYTES, 0);
    if (n < 0)
        return errno == EINTR || errno == EAGAIN ? 0 : -errno;
    if (n == 0)
        return -ECONNRESET;
    varlink_frame_commit(&c->input, (size_t)n);
    return 0;
}

/*
 * What came with an earlier message is looked at first: the socket may stay silent for ever after it.
 */
int varlink_client_receive(struct varlink_client *c, uint64_t timeout_usec, const char **ret_message)
{
    size_t length;
    int r;

    while ((r = varlink_frame_take(&c->input, ret_message, &length)) == 0) {
        r = client_fill(c, timeout_usec);
        if (r < 0)
            return r;
    }
    return r < 0 ? r : 0;
}
