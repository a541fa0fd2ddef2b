/* SPDX-License-Identifier: MIT */
/*
 * A daemon for tests of the library alone, in the test's own process. One thread answers on the socket; the words in
 * shared memory are the test's to play with, through mappings of its own, or those of a second thread (fake_serve())
 * that answers what lanes ask for.
 */
#pragma once

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include <reclaim/reclaim.h>

#include "abi.h"
#include "basic/macro.h"
#include "basic/ordering.h"

enum {
    FAKE_LANES = 4,
    FAKE_ARENA_BYTES = 4 << 20,
    FAKE_PUTS_MAX = 64,
};

#define FAKE_BASE (ABI_WINDOW_START + (1ull << 30))
#define FAKE_SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

struct fake {
    char directory[64];
    char path[96];
    int listen_fd;
    int segments[3]; /* domain, channel, arena */
    int eventfd;
    struct abi_domain *domain;
    struct abi_channel *channel;
    char *arena;
    pthread_t thread;

    /* What it is to do wrong, or say: fake_set(). */
    int reply_error;
    const char *reply_message;
    uint64_t reply_offset;
    uint64_t reply_skew;  /* between the base that it says and the domain's */
    int seals;            /* of the segments, -1: FAKE_SEALS */
    unsigned n_extra_fds; /* beside the four */
    bool hang_up;         /* closes at the first request */
    bool truncated;       /* half an answer */
    bool mute;            /* takes requests and says nothing */

    /* What it saw. */
    pthread_mutex_t lock;
    struct abi_request last;
    struct ucred last_credentials;
    uint32_t puts[FAKE_PUTS_MAX];
    unsigned n_puts;
    int connection; /* the last one */

    /* fake_serve() */
    pthread_t server;
    bool serving;
    int answer_error; /* instead of memory */
    uint32_t answer_words;
    uint32_t answer_extents; /* to each question; 0 is one */
    bool collects;
    bool completes; /* grace periods that are asked for by cookie */
    int ticket_error;
    uint32_t next_block;
    unsigned n_asks;
    uint64_t last_ask;
    uint64_t last_ticket;
};

static inline struct abi_lane *fake_lane(struct fake *f, unsigned number)
{
    return (struct abi_lane *)((char *)f->channel + f->channel->lane_offset +
                               number * f->channel->lane_stride);
}

static inline struct abi_slot *fake_slot(struct fake *f, unsigned number)
{
    return (struct abi_slot *)((char *)f->channel + f->channel->slot_offset) + number;
}

/* What it is to do wrong from now on. */
#define fake_set(f, field, value)                                                                            \
    do {                                                                                                     \
        pthread_mutex_lock(&(f)->lock);                                                                      \
        (f)->field = (value);                                                                                \
        pthread_mutex_unlock(&(f)->lock);                                                                    \
    } while (0)

/* What it saw. */
#define fake_get(f, field)                                                                                   \
    __extension__({                                                                                          \
        pthread_mutex_lock(&(f)->lock);                                                                      \
        __typeof__((f)->field) value_ = (f)->field;                                                          \
        pthread_mutex_unlock(&(f)->lock);                                                                    \
        value_;                                                                                              \
    })

/* How often the eventfd was written since the last call. */
static inline uint64_t fake_bells(struct fake *f)
{
    uint64_t n = 0;

    return read(f->eventfd, &n, sizeof(n)) == sizeof(n) ? n : 0;
}

static inline int fake_memfd(const char *name, size_t bytes)
{
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);

    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
    return fd;
}

static inline void *fake_map(int fd, size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    assert_ptr_not_equal(memory, MAP_FAILED);
    return memory;
}

static inline void fake_segments_make(struct fake *f)
{
    size_t lane_offset =
        ALIGN_UP(sizeof(struct abi_channel) + 64 + FAKE_LANES * sizeof(struct abi_slot), 4096ul);
    size_t bytes = lane_offset + FAKE_LANES * sizeof(struct abi_lane);

    f->segments[0] = fake_memfd("domain", 4096);
    f->segments[1] = fake_memfd("channel", bytes);
    f->segments[2] = fake_memfd("arena", FAKE_ARENA_BYTES);
    f->domain = fake_map(f->segments[0], 4096);
    f->channel = fake_map(f->segments[1], bytes);
    f->arena = fake_map(f->segments[2], FAKE_ARENA_BYTES);
    *f->domain = (struct abi_domain){.magic = ABI_MAGIC_DOMAIN,
                                     .major = ABI_MAJOR,
                                     .fingerprint = ABI_FINGERPRINT,
                                     .base = FAKE_BASE,
                                     .arena_bytes = FAKE_ARENA_BYTES,
                                     .page_bytes = 4096,
                                     .started = 7,
                                     .completed = 7,
                                     .flood_objects = 1u << 30,
                                     .ring_records = ABI_RING_RECORDS,
                                     .extent_block = UINT32_MAX};
    *f->channel = (struct abi_channel){.magic = ABI_MAGIC_CHANNEL,
                                       .major = ABI_MAJOR,
                                       .fingerprint = ABI_FINGERPRINT,
                                       .bytes = bytes,
                                       .slot_offset = ALIGN_UP(sizeof(struct abi_channel), 64ul),
                                       .lane_offset = lane_offset,
                                       .lane_stride = sizeof(struct abi_lane),
                                       .n_lanes = FAKE_LANES};
    f->eventfd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
}

static inline struct fake *fake_new(void)
{
    struct fake *f = calloc(1, sizeof(*f));
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    assert_non_null(f);
    strcpy(f->directory, "/tmp/reclaim-fake-XXXXXX");
    assert_non_null(mkdtemp(f->directory));
    snprintf(f->path, sizeof(f->path), "%s/client", f->directory);
    strcpy(address.sun_path, f->path);
    f->listen_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(f->listen_fd, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(listen(f->listen_fd, 8), 0);
    pthread_mutex_init(&f->lock, NULL);
    f->seals = f->connection = -1;
    f->next_block = ABI_FIRST_BLOCK;
    f->answer_words = 4;
    f->reply_offset = ABI_CHUNK_BYTES;
    fake_segments_make(f);
    return f;
}

static inline void fake_reply_send(struct fake *f, int fd, const struct abi_reply *reply)
{
    union {
        char bytes[CMSG_SPACE(32 * sizeof(int))];
        struct cmsghdr align;
    } control = {0};
    unsigned n = reply->op == ABI_OP_OPEN && reply->error == 0 ? ABI_OPEN_FDS + f->n_extra_fds : 0;
    struct iovec data = {.iov_base = (void *)reply, .iov_len = f->truncated ? 100 : sizeof(*reply)};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1};
    int fds[32] = {f->segments[0], f->segments[1], f->segments[2], f->eventfd};

    for (unsigned i = ABI_OPEN_FDS; i < n; i++)
        fds[i] = f->eventfd;
    if (n > 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = CMSG_SPACE(n * sizeof(int));
        *CMSG_FIRSTHDR(&message) = (struct cmsghdr){
            .cmsg_len = CMSG_LEN(n * sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(CMSG_FIRSTHDR(&message)), fds, n * sizeof(int));
    }
    (void)sendmsg(fd, &message, MSG_NOSIGNAL);
}

/* The lowest lane that nobody holds: its owner word is zero or says that the thread died. */
static inline int fake_lane_give(struct fake *f, struct abi_reply *reply)
{
    for (unsigned i = 0; i < FAKE_LANES; i++) {
        struct abi_lane *lane = fake_lane(f, i);

        if ((load_acquire(&lane->owner[0]) & FUTEX_TID_MASK) && !(lane->owner[0] & FUTEX_OWNER_DIED))
            continue;
        memset(lane->magazine_head, 0, sizeof(lane->magazine_head));
        memset(lane->take, 0, sizeof(lane->take));
        lane->tail = lane->over_limit = lane->evicted = 0;
        lane->head = lane->bell = lane->phase = lane->waiting = lane->ticket_waiting = 0;
        lane->answer = lane->ask = lane->chain_head = lane->cookie_wanted = 0;
        lane->chain_count = 0; /* the ticket and its answer stay */
        lane->want = 1;
        lane->generation++;
        reply->lane = i;
        reply->generation = lane->generation;
        return 0;
    }
    return -EMFILE;
}

/* Under the lock. False: no answer. */
static inline bool fake_answer(struct fake *f, const struct abi_request *request, struct abi_reply *reply)
{
    *reply = (struct abi_reply){.magic = ABI_MAGIC_MESSAGE, .op = request->op, .error = f->reply_error};
    if (f->reply_message)
        snprintf(reply->message, sizeof(reply->message), "%s", f->reply_message);
    if (request->op == ABI_OP_LANE_PUT) {
        f->puts[f->n_puts++ % FAKE_PUTS_MAX] = request->lane;
        return false;
    }
    if (request->op == ABI_OP_OPEN) {
        reply->base = f->domain->base + f->reply_skew;
        reply->arena_bytes = f->domain->arena_bytes;
        reply->channel_bytes = f->channel->bytes;
        for (unsigned i = 0; i < 3; i++)
            (void)fcntl(f->segments[i], F_ADD_SEALS, f->seals == -1 ? FAKE_SEALS : f->seals);
    } else if (request->op == ABI_OP_LANE_GET && reply->error == 0) {
        reply->error = fake_lane_give(f, reply);
    } else if (request->op == ABI_OP_ROOT) {
        reply->offset = f->reply_offset;
    } else if (request->op == ABI_OP_STATS) {
        reply->stats = (struct abi_stats){1, 2, 3, 4, 5, 6, 7, {0}};
    }
    return !f->mute;
}

static inline bool fake_request_take(struct fake *f, int fd)
{
    union {
        char bytes[CMSG_SPACE(sizeof(struct ucred))];
        struct cmsghdr align;
    } control;
    struct abi_request request;
    struct abi_reply reply;
    struct iovec data = {.iov_base = &request, .iov_len = sizeof(request)};
    struct msghdr message = {.msg_iov = &data,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof(control.bytes)};
    ssize_t n = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
    struct cmsghdr *c = n > 0 ? CMSG_FIRSTHDR(&message) : NULL;
    bool answer;

    if (n != sizeof(request))
        return false;
    pthread_mutex_lock(&f->lock);
    answer = !f->hang_up;
    f->last = request;
    if (request.op == ABI_OP_OPEN && c && c->cmsg_type == SCM_CREDENTIALS)
        memcpy(&f->last_credentials, CMSG_DATA(c), sizeof(f->last_credentials));
    if (answer && fake_answer(f, &request, &reply))
        fake_reply_send(f, fd, &reply);
    pthread_mutex_unlock(&f->lock);
    return answer;
}

/* Serves all connections; ends when the listening socket is shut down. */
static inline void *fake_run(void *arg)
{
    struct fake *f = arg;
    struct pollfd fds[16] = {{.fd = f->listen_fd, .events = POLLIN}};
    unsigned n = 1;
    const int on = 1;

    while (poll(fds, n, -1) >= 0 && !(fds[0].revents & POLLHUP)) {
        for (unsigned i = 1; i < n; i++)
            if (fds[i].revents && !fake_request_take(f, fds[i].fd)) {
                close(fds[i].fd);
                fds[i--] = fds[--n];
            }
        if ((fds[0].revents & POLLIN) && n < ARRAY_SIZE(fds)) {
            fds[n] = (struct pollfd){.fd = accept4(f->listen_fd, NULL, NULL, SOCK_CLOEXEC), .events = POLLIN};
            (void)setsockopt(fds[n].fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on));
            store_relaxed(&f->connection, fds[n].fd);
            n++;
        }
    }
    while (n > 1)
        close(fds[--n].fd);
    return NULL;
}

static inline struct fake *fake_start(void)
{
    struct fake *f = fake_new();

    assert_int_equal(pthread_create(&f->thread, NULL, fake_run, f), 0);
    return f;
}

/* The daemon ends: all connections are closed. */
static inline void fake_stop(struct fake *f)
{
    if (f->listen_fd < 0)
        return;
    (void)shutdown(f->listen_fd, SHUT_RDWR);
    (void)pthread_join(f->thread, NULL);
    close(f->listen_fd);
    f->listen_fd = -1;
}

static inline void futex_wake_all(uint32_t *word)
{
    (void)syscall(SYS_futex, word, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
}

/* Whole blocks of objects of a class, from memory that was never used; extents: as many as it answers with. */
static inline void fake_refill(struct fake *f, struct abi_lane *lane, unsigned class_index, uint32_t pages,
                               uint32_t words)
{
    uint32_t head = lane->magazine_head[class_index], bytes = abi_class_bytes(class_index);

    for (uint32_t i = 0; pages && i < MAX(f->answer_extents, 1u); i++) {
        f->next_block = ALIGN_UP(f->next_block, ABI_BLOCKS_PER_PAGE);
        lane->magazine[class_index][head++ % ABI_MAGAZINE_WORDS] = abi_word(f->next_block, 1);
        f->next_block += pages * ABI_BLOCKS_PER_PAGE;
    }
    for (uint32_t i = 0; !pages && i < words; i++) {
        uint32_t mask = 0;

        for (uint32_t at = 0; at + bytes <= MAX(ABI_BLOCK_BYTES, bytes) && at < ABI_BLOCK_BYTES; at += bytes)
            mask |= 1u << at / ABI_GRANULE_BYTES;
        lane->magazine[class_index][head++ % ABI_MAGAZINE_WORDS] = abi_word(f->next_block, mask);
        f->next_block += DIV_ROUND_UP(bytes, ABI_BLOCK_BYTES);
    }
    store_release(&lane->magazine_head[class_index], head);
}

static inline void fake_lane_serve(struct fake *f, struct abi_lane *lane)
{
    uint64_t ask = load_acquire(&lane->ask), ticket = load_acquire(&lane->ticket);

    if (ask >> 48 != load_relaxed(&lane->answer) >> 48) {
        f->n_asks++;
        f->last_ask = ask;
        if (!f->answer_error)
            fake_refill(f, lane, ask >> 32 & 0xff, (uint32_t)ask, f->answer_words);
        store_release(&lane->answer, ask >> 48 << 48 | (uint32_t)-f->answer_error);
    }
    if (f->completes && load_acquire(&lane->cookie_wanted) > f->domain->completed) {
        store_release(&f->domain->started, lane->cookie_wanted);
        store_release(&f->domain->completed, lane->cookie_wanted);
    }
    if (f->collects && lane->head - lane->tail > 1)
        store_release(&lane->tail, lane->head - 1);
    full_fence();
    if (load_relaxed(&lane->waiting)) {
        store_release(&lane->wake, lane->wake + 1);
        futex_wake_all(&lane->wake);
    }
    if (ticket >> 32 != lane->ticket_done && (ticket & 0xff)) {
        f->last_ticket = ticket;
        lane->ticket_error = f->ticket_error;
        store_release(&lane->ticket_done, (uint32_t)(ticket >> 32));
        futex_wake_all(&lane->ticket_done);
    }
}

static inline void *fake_server(void *arg)
{
    struct fake *f = arg;
    struct pollfd fd = {.fd = f->eventfd, .events = POLLIN};

    while (load_acquire(&f->serving)) {
        (void)poll(&fd, 1, 10);
        (void)fake_bells(f);
        pthread_mutex_lock(&f->lock);
        for (unsigned i = 0; i < FAKE_LANES; i++)
            fake_lane_serve(f, fake_lane(f, i));
        pthread_mutex_unlock(&f->lock);
    }
    return NULL;
}

static inline void fake_serve(struct fake *f)
{
    store_release(&f->serving, true);
    assert_int_equal(pthread_create(&f->server, NULL, fake_server, f), 0);
}

static inline void fake_serve_end(struct fake *f)
{
    if (!f->serving)
        return;
    store_release(&f->serving, false);
    (void)pthread_join(f->server, NULL);
}

static inline void fake_free(struct fake *f)
{
    fake_serve_end(f);
    fake_stop(f);
    munmap(f->domain, 4096);
    munmap(f->channel, f->channel->bytes);
    munmap(f->arena, FAKE_ARENA_BYTES);
    for (unsigned i = 0; i < 3; i++)
        close(f->segments[i]);
    close(f->eventfd);
    unlink(f->path);
    rmdir(f->directory);
    free(f);
}

static inline int fake_open_flags(struct fake *f, unsigned flags, struct reclaim **ret)
{
    static char message[256];
    struct reclaim_open_options opt = {.size = sizeof(opt),
                                       .flags = flags,
                                       .arena_bytes = FAKE_ARENA_BYTES,
                                       .runtime_directory = f->directory,
                                       .message = message,
                                       .message_size = sizeof(message)};

    return reclaim_open("test", &opt, ret);
}

/* Opened, with this thread's lane. */
static inline struct reclaim *fake_open(struct fake *f, struct reclaim_lane **ret_lane)
{
    struct reclaim *r = NULL;

    assert_int_equal(fake_open_flags(f, 0, &r), 0);
    assert_int_equal(reclaim_lane_get(r, ret_lane), 0);
    return r;
}
