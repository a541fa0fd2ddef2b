/* SPDX-License-Identifier: MIT */
/* A client without the library; see case-raw.h. */
#include "case-raw.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>

#include "basic/cleanup.h"

enum {
    FDS_MAX = 250, /* the kernel takes three more */
};

int raw_connect(const char *path, int type)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);

    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

struct abi_request raw_request(uint32_t op, const char *name)
{
    struct abi_request request = {
        .magic = ABI_MAGIC_MESSAGE, .major = ABI_MAJOR, .minor = ABI_MINOR, .fingerprint = ABI_FINGERPRINT, .op = op};

    if (name)
        (void)snprintf(request.name, sizeof(request.name), "%s", name);
    return request;
}

/* With the credentials of this process, as the library's first message: one that comes before the daemon has accepted
   the connection has none by itself. */
bool raw_send(int socket, const void *data, size_t bytes, const int *fds, unsigned n)
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(struct ucred)) + CMSG_SPACE(FDS_MAX * sizeof(int))];
    } control = {0};
    struct ucred self = {.pid = getpid(), .uid = geteuid(), .gid = getegid()};
    struct iovec iov = {.iov_base = (void *)(uintptr_t)data, .iov_len = bytes};
    struct msghdr message = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = CMSG_SPACE(sizeof(self))};
    struct cmsghdr *rights = (struct cmsghdr *)(control.bytes + CMSG_SPACE(sizeof(self)));

    control.align = (struct cmsghdr){
        .cmsg_len = CMSG_LEN(sizeof(self)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_CREDENTIALS};
    memcpy(CMSG_DATA(&control.align), &self, sizeof(self));
    if (n > 0) {
        *rights = (struct cmsghdr){
            .cmsg_len = CMSG_LEN(n * sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(rights), fds, n * sizeof(int));
        message.msg_controllen += CMSG_SPACE(n * sizeof(int));
    }
    return sendmsg(socket, &message, MSG_NOSIGNAL) >= 0;
}

static void wait_readable(int socket)
{
    struct pollfd p = {.fd = socket, .events = POLLIN};

    if (poll(&p, 1, HANG_SECONDS * 1000 / 3) != 1)
        fail_msg("the daemon neither answers nor hangs up");
}

bool raw_receive(int socket, struct abi_reply *ret, int fds[ABI_OPEN_FDS])
{
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(ABI_OPEN_FDS * sizeof(int))];
    } control = {0};
    struct iovec iov = {.iov_base = ret, .iov_len = sizeof(*ret)};
    struct msghdr message = {
        .msg_iov = &iov, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof(control.bytes)};
    struct cmsghdr *h;
    ssize_t n;

    wait_readable(socket);
    n = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
    if (n <= 0)
        return false;
    assert_int_equal(n, sizeof(*ret));
    assert_int_equal(ret->magic, ABI_MAGIC_MESSAGE);
    h = CMSG_FIRSTHDR(&message);
    for (unsigned i = 0; h && i < ABI_OPEN_FDS; i++) {
        int fd;

        memcpy(&fd, CMSG_DATA(h) + i * sizeof(int), sizeof(fd));
        if (fds)
            fds[i] = fd;
        else
            (void)close(fd);
    }
    return true;
}

bool raw_is_closed(int socket)
{
    char byte;

    wait_readable(socket);
    return recv(socket, &byte, 1, 0) <= 0;
}

bool raw_ask(int socket, const struct abi_request *request, struct abi_reply *ret)
{
    return raw_send(socket, request, sizeof(*request), NULL, 0) && raw_receive(socket, ret, NULL);
}

static void *raw_map(int fd, uint64_t bytes, int protection)
{
    void *p = mmap(NULL, bytes, protection, MAP_SHARED, fd, 0);

    assert_true(p != MAP_FAILED);
    return p;
}

int raw_open(struct raw *raw, const struct daemon *d, const char *arena, uint32_t flags)
{
    struct abi_request request = raw_request(ABI_OP_OPEN, arena);

    *raw = (struct raw){.socket = raw_connect(d->client, SOCK_SEQPACKET)};
    request.flags = flags;
    assert_true(raw_send(raw->socket, &request, sizeof(request), NULL, 0));
    assert_true(raw_receive(raw->socket, &raw->reply, raw->fds));
    if (raw->reply.error < 0) {
        (void)close(raw->socket);
        return raw->reply.error;
    }
    raw->domain = raw_map(raw->fds[0], ABI_PAGE_BYTES, PROT_READ);
    raw->channel = raw_map(raw->fds[1], raw->reply.channel_bytes, PROT_READ | PROT_WRITE);
    return 0;
}

void raw_lane(struct raw *raw)
{
    struct abi_request request = raw_request(ABI_OP_LANE_GET, NULL);
    struct abi_reply reply;

    assert_true(raw_ask(raw->socket, &request, &reply));
    assert_int_equal(reply.error, 0);
    raw->number = reply.lane;
    raw->lane = (struct abi_lane *)((char *)raw->channel + raw->channel->lane_offset + reply.lane * raw->channel->lane_stride);
    raw->lane->owner[0] = (uint32_t)syscall(SYS_gettid);
    __atomic_store_n(&raw->lane->phase, reply.generation, __ATOMIC_RELEASE);
}

void raw_ring(const struct raw *raw)
{
    const uint64_t one = 1;

    if (raw->lane)
        __atomic_store_n(&raw->lane->rings, raw->lane->rings + 1, __ATOMIC_RELAXED);
    (void)write(raw->fds[3], &one, sizeof(one));
}

void raw_close(struct raw *raw)
{
    if (raw->lane)
        raw->lane->owner[0] = 0;
    (void)munmap((void *)(uintptr_t)raw->domain, ABI_PAGE_BYTES);
    (void)munmap(raw->channel, raw->reply.channel_bytes);
    for (unsigned i = 0; i < ABI_OPEN_FDS; i++)
        (void)close(raw->fds[i]);
    (void)close(raw->socket);
}
