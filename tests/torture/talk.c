/* SPDX-License-Identifier: MIT */
/* A peer that sends anything to the daemon's sockets. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "abi.h"
#include "basic/cleanup.h"
#include "basic/runtime.h"
#include "bench/clock.h"
#include "bench/words.h"
#include "hostile.h"
#include "random.h"

enum {
    HELD = 16, /* connections that are left open for a while */
    ROUNDS = 300,
    PACKETS_MAX = 8,
    STREAM_BYTES = 32 * 1024,
    CALLS_HARMLESS = 5, /* the daemon's own user may do the others */
};

static int connect_to(const char *path, int type)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct timeval patience = {.tv_usec = 20000};
    int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);

    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    if (fd < 0)
        return -errno;
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    if (connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0)
        return fd;
    return fd_close(fd);
}

static void fill(void *bytes, size_t n, struct torture_random *random)
{
    for (size_t i = 0; i < n; i++)
        ((unsigned char *)bytes)[i] = (unsigned char)random_next(random);
}

/* A request and what may follow it. */
union packet {
    struct abi_request request;
    char bytes[400];
};

/* A request that gets past the first checks, with some of its fields wrong. */
static struct abi_request bad_request(struct torture_random *random)
{
    struct abi_request request;
    static const char *const names[] = {"hostile-9", "hostile-0", "..", "", "a/b"};

    fill(&request, sizeof(request), random);
    if (random_one_in(random, 10))
        return request;
    request.magic = ABI_MAGIC_MESSAGE;
    request.major = ABI_MAJOR;
    request.minor = ABI_MINOR;
    request.fingerprint = ABI_FINGERPRINT;
    request.reserved = 0;
    request.op = random_below(random, ABI_OP_MAX + 1);
    request.flags = random_below(random, 64);
    request.mode = random_below(random, 01000);
    if (random_one_in(random, 2))
        request.lane = random_below(random, 300);
    if (random_one_in(random, 2))
        request.arena_bytes = (uint64_t)random_below(random, 64) << 20;
    if (!random_one_in(random, 4)) {
        memset(request.name, 0, sizeof(request.name));
        (void)strcpy(request.name, names[random_below(random, ARRAY_SIZE(names))]);
    }
    return request;
}

/* With some of our descriptors, now and then. */
static void send_packet(int fd, const void *bytes, size_t n, struct torture_random *random)
{
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof(int) * 8)];
    } control = {0};
    struct iovec iov = {(void *)(uintptr_t)bytes, n};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
    unsigned n_fds = random_one_in(random, 5) ? random_between(random, 1, 8) : 0;
    int fds[8];

    for (unsigned i = 0; i < n_fds; i++)
        fds[i] = random_one_in(random, 2) ? fd : STDERR_FILENO;
    if (n_fds > 0) {
        message.msg_control = control.room;
        message.msg_controllen = CMSG_SPACE(sizeof(int) * n_fds);
        control.header = (struct cmsghdr){
            .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int) * n_fds)};
        memcpy(CMSG_DATA(&control.header), fds, sizeof(int) * n_fds);
    }
    (void)sendmsg(fd, &message, MSG_NOSIGNAL);
}

static void talk_client(int fd, struct torture_random *random)
{
    for (unsigned n = random_between(random, 1, PACKETS_MAX); n > 0; n--) {
        size_t length = random_one_in(random, 5) ? random_below(random, 200) : sizeof(struct abi_request);
        union packet packet;
        char reply[500];

        fill(&packet, sizeof(packet), random);
        if (random_one_in(random, 3))
            length = random_below(random, sizeof(packet));
        else
            packet.request = bad_request(random);
        send_packet(fd, &packet, length, random);
        if (random_one_in(random, 2))
            (void)recv(fd, reply, random_below(random, sizeof(reply)), 0);
    }
}

/* Calls that are nearly right: one byte differs, or some. Without a NUL the next one joins it. */
static void talk_control(int fd, bool stranger, struct torture_random *random)
{
    static const char *const calls[] = {
        "{\"method\":\"org.reclaimd.Control.ListArenas\",\"parameters\":{\"arena\":\"hostile-0\"}}",
        "{\"method\":\"org.reclaimd.Control.GetStatus\"}",
        "{\"method\":\"org.reclaimd.Control.Audit\",\"parameters\":{}}",
        "{\"method\":\"org.reclaimd.Control.Monitor\",\"parameters\":{\"intervalUSec\":10000},\"more\":true}",
        "{\"method\":\"org.varlink.service.GetInfo\",\"oneway\":true}",
        /* a stranger is refused these */
        "{\"method\":\"org.reclaimd.Control.SetParameters\",\"parameters\":{\"values\":{\"drain-interval\":"
        "\"1h\"}}}",
        "{\"method\":\"org.reclaimd.Control.CreateArena\",\"parameters\":{\"name\":\"hostile-8\","
        "\"sizeBytes\":-1}}",
        "{\"method\":\"org.reclaimd.Control.RemoveArena\",\"parameters\":{\"arena\":\"hostile-0\",\"force\":"
        "true}}",
        "{\"method\":\"org.reclaimd.Control.EvictClient\",\"parameters\":{\"client\":1,\"kill\":true}}",
    };
    static char stream[STREAM_BYTES];

    for (unsigned n = random_between(random, 1, PACKETS_MAX); n > 0; n--) {
        size_t length;

        if (random_one_in(random, 4)) {
            length = random_between(random, 1, sizeof(stream));
            fill(stream, length, random);
        } else {
            length =
                (size_t)snprintf(stream, sizeof(stream), "%s",
                                 calls[random_below(random, stranger ? ARRAY_SIZE(calls) : CALLS_HARMLESS)]) +
                1;
            for (unsigned wrong = random_below(random, 3); wrong > 0; wrong--)
                stream[random_below(random, (uint32_t)length)] = (char)random_next(random);
        }
        send_packet(fd, stream, length, random);
        if (random_one_in(random, 2))
            (void)recv(fd, stream, sizeof(stream), 0);
    }
}

/* More than a message may have, and no end. */
static void talk_endless(int fd, struct torture_random *random)
{
    static char stream[STREAM_BYTES];

    memset(stream, random_one_in(random, 2) ? '[' : 'x', sizeof(stream));
    for (unsigned i = 0; i < 2u * 1024 * 1024 / STREAM_BYTES; i++)
        if (send(fd, stream, sizeof(stream), MSG_NOSIGNAL) < 0)
            return;
}

static int talk_once(const struct runtime_paths *paths, bool stranger, struct torture_random *random)
{
    bool control = random_one_in(random, 2);
    int fd = connect_to(control ? paths->control : paths->client, control ? SOCK_STREAM : SOCK_SEQPACKET);

    if (fd < 0)
        return fd;
    if (control && random_one_in(random, 30))
        talk_endless(fd, random);
    else if (control)
        talk_control(fd, stranger, random);
    else
        talk_client(fd, random);
    if (random_one_in(random, 3))
        (void)shutdown(fd, (int)random_below(random, 3));
    return fd;
}

int hostile_talk(struct world *w, unsigned number, uint64_t incarnation)
{
    struct torture_random random = random_make(w->options.seed, incarnation << 8 | 0xf0 | number);
    struct runtime_paths paths;
    int held[HELD], stranger = hostile_become();

    for (unsigned i = 0; i < HELD; i++)
        held[i] = -1;
    if (stranger < 0 || runtime_paths_find(w->directory, &paths) < 0)
        return 1;
    for (unsigned i = 0; i < ROUNDS && !world_stops(w); i++) {
        unsigned at = random_below(&random, HELD);

        held[at] = fd_close(held[at]);
        held[at] = talk_once(&paths, stranger > 0, &random);
        if (held[at] < 0)
            clock_sleep_ms(1);
    }
    return 0;
}
