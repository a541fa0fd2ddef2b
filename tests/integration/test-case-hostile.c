/* SPDX-License-Identifier: MIT */
/*
 * Case 12 and its kind: clients that send, write and do what no library does. The daemon refuses, counts and goes on:
 * after each of them an honest client of the same daemon works, and nothing that the hostile one passed stays open.
 */
#include "case-raw.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "basic/cleanup.h"

/* An honest client of another arena notices nothing. */
static void honest_works(const struct daemon *d)
{
    const struct timespec limit = seconds(HANG_SECONDS);
    struct reclaim *r = must_open(d, "honest");
    struct reclaim_lane *l = must_lane(r);

    for (int i = 0; i < 1000; i++)
        assert_int_equal(reclaim_defer_free(l, must_alloc(l, 64)), 0);
    assert_int_equal(reclaim_synchronize(l, 0, &limit), 0);
    assert_int_equal(reclaim_barrier(l, &limit), 0);
    reclaim_close(r);
}

static void start(struct daemon *d)
{
    daemon_start(d, "--arena", "hostile:16M", "--arena", "honest:16M", "--set", "drain-interval=5ms", "--set",
                 "purge-delay=off", NULL);
}

static void end(struct daemon *d)
{
    assert_true(daemon_lives(d));
    honest_works(d);
    assert_true(wait_until(n_clients(d) == 0));
    daemon_stop(d);
}

static int64_t client_count(const struct daemon *d, const char *name)
{
    json_object *clients = ctl_json(d, "list-clients", "hostile", NULL), *value;
    int64_t n;

    assert_true(json_object_object_get_ex(client_find(clients, getpid()), name, &value));
    n = json_object_get_int64(value);
    json_object_put(clients);
    return n;
}

static bool client_state_is(const struct daemon *d, const char *state)
{
    json_object *clients = ctl_json(d, "list-clients", "hostile", NULL), *value;
    bool is;

    assert_true(json_object_object_get_ex(client_find(clients, getpid()), "state", &value));
    is = strcmp(json_object_get_string(value), state) == 0;
    json_object_put(clients);
    return is;
}

/* ---- On the socket ---------------------------------------------------------------------------------------------------- */

static void case_12_unexpected_descriptors(void **state)
{
    struct daemon *d = *state;
    struct abi_request request = raw_request(ABI_OP_STATS, NULL);
    unsigned n_before;
    int fds[250];

    start(d);
    for (unsigned i = 0; i < 250; i++)
        fds[i] = STDERR_FILENO;
    n_before = daemon_n_fds(d);
    for (unsigned i = 0; i < 40; i++) {
        static const unsigned counts[] = {1, 4, 63, 64, 65, 250};
        int fd = raw_connect(d->client, SOCK_SEQPACKET);

        request.op = i % 2 ? ABI_OP_OPEN : ABI_OP_STATS;
        (void)strcpy(request.name, "hostile");
        assert_true(raw_send(fd, &request, sizeof(request), fds, counts[i % 6]));
        assert_true(raw_is_closed(fd));
        (void)close(fd);
    }
    assert_true(wait_until(daemon_n_fds(d) <= n_before + 4)); /* hundreds were sent; a few the daemon opens late */
    end(d);
}

/* Also on a connection that is attached, and on one that leaves them in the socket. */
static void case_12_descriptors_when_attached(void **state)
{
    struct daemon *d = *state;
    struct abi_request request = raw_request(ABI_OP_STATS, NULL);
    int fds[4] = {0, 1, 2, 2}, fd;
    unsigned n_before;
    struct raw raw;

    start(d);
    n_before = daemon_n_fds(d);
    assert_int_equal(raw_open(&raw, d, "hostile", 0), 0);
    raw_lane(&raw);
    assert_true(raw_send(raw.socket, &request, sizeof(request), fds, 4));
    assert_true(raw_is_closed(raw.socket));
    raw_close(&raw);
    fd = raw_connect(d->client, SOCK_SEQPACKET);
    (void)raw_send(fd, &request, 1, fds, 4);
    (void)raw_send(fd, &request, 1, fds, 4);
    (void)close(fd);
    assert_true(wait_until(daemon_n_fds(d) <= n_before));
    end(d);
}

static void case_12_messages_of_wrong_size(void **state)
{
    struct daemon *d = *state;
    struct abi_request request = raw_request(ABI_OP_OPEN, "hostile");
    char large[sizeof(request) + 4000] = {0};

    start(d);
    memcpy(large, &request, sizeof(request));
    for (size_t bytes = 1; bytes <= sizeof(large); bytes = bytes * 2 + 1) {
        int fd = raw_connect(d->client, SOCK_SEQPACKET);

        assert_true(raw_send(fd, large, bytes, NULL, 0));
        assert_true(raw_is_closed(fd));
        (void)close(fd);
    }
    end(d);
}

static void case_12_messages_of_wrong_content(void **state)
{
    struct daemon *d = *state;
    struct abi_request request;
    struct abi_reply reply;

    start(d);
    for (unsigned op = 0; op < 40; op++) {
        int fd = raw_connect(d->client, SOCK_SEQPACKET);

        request = raw_request(op, "hostile");
        if (op == ABI_OP_OPEN)
            request.magic ^= 1;
        assert_true(raw_send(fd, &request, sizeof(request), NULL, 0)); /* nothing but OPEN comes first */
        assert_true(raw_is_closed(fd));
        (void)close(fd);
    }
    for (unsigned flag = 5; flag < 32; flag++) {
        int fd = raw_connect(d->client, SOCK_SEQPACKET);

        request = raw_request(ABI_OP_OPEN, "hostile");
        request.flags = 1u << flag;
        assert_true(raw_ask(fd, &request, &reply));
        assert_int_equal(reply.error, -EINVAL);
        assert_non_null(strstr(reply.message, "flags"));
        (void)close(fd);
    }
    end(d);
}

static void case_12_names_that_do_not_end(void **state)
{
    struct daemon *d = *state;
    struct abi_request request = raw_request(ABI_OP_OPEN, NULL);
    struct abi_reply reply;
    struct raw raw;
    int fd;

    start(d);
    fd = raw_connect(d->client, SOCK_SEQPACKET);
    memset(request.name, 'a', sizeof(request.name));
    assert_true(raw_ask(fd, &request, &reply));
    assert_true(reply.error < 0);
    (void)close(fd);
    assert_int_equal(raw_open(&raw, d, "hostile", 0), 0);
    request = raw_request(ABI_OP_ROOT, NULL);
    memset(request.name, 'a', sizeof(request.name));
    assert_true(raw_ask(raw.socket, &request, &reply));
    assert_int_equal(reply.error, -EINVAL);
    (void)strcpy(request.name, "../etc");
    assert_true(raw_ask(raw.socket, &request, &reply));
    assert_int_equal(reply.error, -EINVAL);
    raw_close(&raw);
    end(d);
}

static void case_12_second_open(void **state)
{
    struct daemon *d = *state;
    struct abi_request request = raw_request(ABI_OP_OPEN, "honest");
    struct abi_reply reply;
    struct raw raw;

    start(d);
    assert_int_equal(raw_open(&raw, d, "hostile", 0), 0);
    assert_true(raw_ask(raw.socket, &request, &reply));
    assert_int_equal(reply.error, -EISCONN);
    assert_non_null(strstr(reply.message, "attached already"));
    request = raw_request(ABI_OP_STATS, NULL); /* the connection is as good as before */
    assert_true(raw_ask(raw.socket, &request, &reply));
    assert_int_equal(reply.error, 0);
    raw_close(&raw);
    end(d);
}

/* Numbers out of range, generations of others, lanes that were never given. */
static void case_12_lane_put_of_others(void **state)
{
    struct daemon *d = *state;
    struct abi_request put = raw_request(ABI_OP_LANE_PUT, NULL), stats = raw_request(ABI_OP_STATS, NULL);
    const uint32_t lanes[] = {0, 1, 2, 255, 256, 0x7fffffff, UINT32_MAX};
    struct abi_reply reply;
    struct raw raw;

    start(d);
    assert_int_equal(raw_open(&raw, d, "hostile", 0), 0);
    raw_lane(&raw);
    for (size_t i = 0; i < sizeof(lanes) / sizeof(lanes[0]); i++) {
        put.lane = lanes[i];
        put.generation = raw.lane->generation + 1;
        assert_true(raw_send(raw.socket, &put, sizeof(put), NULL, 0));
    }
    assert_true(raw_ask(raw.socket, &stats, &reply)); /* they had no answer, this one has */
    assert_int_equal(reply.op, ABI_OP_STATS);
    assert_int_equal(client_count(d, "lanes"), 1);
    raw_close(&raw);
    end(d);
}

/* Who connected is who attaches: a connection that was passed on is none of ours. */
static int open_on(void *userdata)
{
    struct abi_request request = raw_request(ABI_OP_OPEN, "hostile");

    return raw_send(*(int *)userdata, &request, sizeof(request), NULL, 0) ? 0 : 1;
}

static void case_12_connection_passed_on(void **state)
{
    struct daemon *d = *state;
    int fd;

    start(d);
    fd = raw_connect(d->client, SOCK_SEQPACKET);
    child_must_succeed(child_start(open_on, &fd));
    assert_true(raw_is_closed(fd));
    (void)close(fd);
    end(d);
}

static void case_12_many_silent_connections(void **state)
{
    struct daemon *d = *state;
    int fds[200];

    daemon_start(d, "--arena", "hostile:16M", "--arena", "honest:16M", "--set", "clients-max=500", NULL);
    for (int i = 0; i < 200; i++)
        fds[i] = raw_connect(d->client, SOCK_SEQPACKET);
    honest_works(d);
    for (int i = 0; i < 200; i++)
        (void)close(fds[i]);
    end(d);
}

/* Asks, and is gone when the daemon comes to answer: what is refused, what is granted, what a worker serves. */
static void case_12_gone_before_the_answer(void **state)
{
    static const char *const names[] = {"nowhere", "hostile", ""};
    struct daemon *d = *state;

    start(d);
    for (int i = 0; i < 3; i++) {
        struct abi_request request = raw_request(ABI_OP_OPEN, names[i]), next = raw_request(ABI_OP_LANE_GET, NULL);
        int fd;

        assert_int_equal(kill(d->pid, SIGSTOP), 0);
        fd = raw_connect(d->client, SOCK_SEQPACKET);
        assert_true(raw_send(fd, &request, sizeof(request), NULL, 0));
        assert_true(raw_send(fd, &next, sizeof(next), NULL, 0));
        (void)close(fd);
        assert_int_equal(kill(d->pid, SIGCONT), 0);
        honest_works(d);
    }
    end(d);
}

/* ---- Its segments ------------------------------------------------------------------------------------------------------- */

static void case_12_segments_are_sealed(void **state)
{
    struct daemon *d = *state;
    struct raw raw;

    start(d);
    assert_int_equal(raw_open(&raw, d, "hostile", 0), 0);
    for (unsigned i = 0; i < 3; i++) {
        int seals = fcntl(raw.fds[i], F_GET_SEALS);

        assert_int_equal(seals & (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
        assert_true(ftruncate(raw.fds[i], 0) < 0);
        assert_true(ftruncate(raw.fds[i], 1ll << 40) < 0);
        assert_true(fcntl(raw.fds[i], F_ADD_SEALS, F_SEAL_WRITE) < 0);
    }
    assert_true(mmap(NULL, ABI_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, raw.fds[0], 0) == MAP_FAILED);
    raw_close(&raw);
    end(d);
}

static void punch(int fd, uint64_t bytes)
{
    assert_int_equal(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)bytes), 0);
}

/* It loses its own objects and words; the daemon reads zeroes and goes on. */
static int punch_everything(void *userdata)
{
    const struct daemon *d = userdata;
    struct raw raw;

    CHECK(raw_open(&raw, d, "hostile", 0) == 0);
    for (int i = 0; i < 50; i++) {
        raw_lane(&raw);
        raw.lane->ask = abi_ask((uint16_t)(i + 1), 0, 3, 0);
        raw_ring(&raw);
        punch(raw.fds[1], raw.reply.channel_bytes);
        raw_ring(&raw);
        punch(raw.fds[2], raw.reply.arena_bytes);
        raw_ring(&raw);
    }
    return 0;
}

static void case_12_holes_in_channel_and_arena(void **state)
{
    struct daemon *d = *state;

    start(d);
    ctl_do(d, "set", "--arena", "hostile", "zero-on-free=yes", NULL);
    child_must_succeed(child_start(punch_everything, d));
    assert_true(daemon_lives(d));
    assert_true(wait_until(n_clients(d) == 0));
    ctl_do(d, "barrier", "hostile", NULL);
    ctl_do(d, "remove-arena", "hostile", NULL); /* its books and its file no longer agree, by its own hand */
    end(d);
}

/* ---- Its words ------------------------------------------------------------------------------------------------------------ */

static void case_12_ring_head_far_away(void **state)
{
    static const uint32_t heads[] = {ABI_RING_RECORDS + 2, 1u << 20, 1u << 31, UINT32_MAX};
    struct daemon *d = *state;
    struct raw raw;

    start(d);
    for (unsigned i = 0; i < 4; i++) {
        assert_int_equal(raw_open(&raw, d, "hostile", 0), 0);
        raw_lane(&raw);
        __atomic_store_n(&raw.lane->head, heads[i], __ATOMIC_RELEASE);
        raw_ring(&raw);
        assert_true(wait_until(client_state_is(d, "quarantined")));
        honest_works(d);
        raw_close(&raw);
        assert_true(wait_until(n_clients(d) == 0));
    }
    assert_true(daemon_log_has(d, "quarantin") || daemon_log_has(d, "make no sense"));
    end(d);
}

/* Each of the records is looked at, refused and counted; the object that is really there is freed once. */
static void case_12_records_of_others(void **state)
{
    struct daemon *d = *state;
    struct reclaim *mine, *theirs;
    struct reclaim_lane *l, *owner;
    char *good, *other;
    int64_t n;

    start(d);
    theirs = must_open(d, "honest");
    owner = must_lane(theirs);
    other = must_alloc(owner, 64);
    mine = must_open(d, "hostile");
    l = must_lane(mine);
    good = must_alloc(l, 64);
    assert_int_equal(reclaim_defer_free(l, other), -EINVAL); /* the library itself says no to another arena's */
    assert_int_equal(reclaim_defer_free(l, &n), -EINVAL);
    assert_int_equal(reclaim_defer_free(l, good + 1), -EINVAL);
    assert_int_equal(reclaim_defer_free(l, good + 16), 0); /* inside of it */
    assert_int_equal(reclaim_defer_free(l, (char *)reclaim_base(mine) + reclaim_size(mine) - 512), 0); /* never allocated */
    assert_int_equal(reclaim_defer_free(l, good), 0);
    assert_int_equal(reclaim_defer_free(l, good), 0); /* twice */
    assert_int_equal(reclaim_barrier(l, NULL), 0);
    assert_int_equal(arena_figure(d, "hostile", "frees"), 1);
    n = arena_figure(d, "hostile", "refusedRecords");
    assert_int_equal(n, 3);
    assert_int_equal(client_count(d, "refusedRecords"), 3);
    assert_true(daemon_log_has(d, "not its to free, or free already; refused"));
    assert_false(daemon_log_has(d, "deferred 1 objects"));
    assert_int_equal(arena_figure(d, "honest", "refusedRecords"), 0);
    assert_int_equal(reclaim_defer_free(owner, other), 0);
    assert_int_equal(reclaim_barrier(owner, NULL), 0);
    assert_int_equal(arena_figure(d, "honest", "frees"), 1);
    reclaim_close(mine);
    reclaim_close(theirs);
    end(d);
}

/* Every word of the ring is rubbish. */
static void case_12_rubbish_in_the_ring(void **state)
{
    struct daemon *d = *state;
    uint64_t random = 88172645463325252ull;
    struct raw raw;

    start(d);
    assert_int_equal(raw_open(&raw, d, "hostile", 0), 0);
    raw_lane(&raw);
    for (uint32_t round = 0; round < 20; round++) {
        for (uint32_t i = 0; i < ABI_RING_RECORDS; i++) {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            raw.lane->ring[i] = i % 4 ? random : random % 40000 << 32 | (random >> 32); /* inside the arena, too */
        }
        __atomic_store_n(&raw.lane->head, (round + 1) * (ABI_RING_RECORDS - 2), __ATOMIC_RELEASE);
        raw_ring(&raw);
        assert_true(wait_until(__atomic_load_n(&raw.lane->tail, __ATOMIC_ACQUIRE) + 1 >= raw.lane->head));
    }
    assert_true(arena_figure(d, "hostile", "refusedRecords") > 0);
    assert_int_equal(arena_figure(d, "hostile", "frees"), 0);
    raw_close(&raw);
    end(d);
}

/* Rubbish in all that a client writes, while the daemon is told to look. */
static int scribble(void *userdata)
{
    const struct daemon *d = userdata;
    uint32_t random = 2463534242u;
    struct raw raw;

    CHECK(raw_open(&raw, d, "hostile", 0) == 0);
    raw_lane(&raw);
    for (int i = 0; i < 3000; i++) {
        uint32_t *words = (uint32_t *)raw.lane;

        random ^= random << 13;
        random ^= random >> 17;
        random ^= random << 5;
        words[random % (offsetof(struct abi_lane, ring) / 4)] = random;
        if (i % 16 == 0)
            raw_ring(&raw);
        if (i % 500 == 0)
            ((uint64_t *)((char *)raw.channel + ABI_PAGE_BYTES))[random % 512] = random; /* slots */
    }
    return 0;
}

static void case_12_rubbish_everywhere(void **state)
{
    struct daemon *d = *state;

    start(d);
    for (int i = 0; i < 10; i++)
        child_must_succeed(child_start(scribble, d));
    ctl_do(d, "barrier", "hostile", NULL);
    end(d);
}

static void case_12_tickets_of_unknown_kinds(void **state)
{
    static const uint32_t kinds[] = {0, ABI_TICKET_KIND_MAX, 77, UINT32_MAX};
    struct daemon *d = *state;
    struct raw raw;

    start(d);
    assert_int_equal(raw_open(&raw, d, "hostile", 0), 0);
    raw_lane(&raw);
    for (uint32_t i = 0; i < 4; i++) {
        __atomic_store_n(&raw.lane->ticket, (uint64_t)(i + 1) << 32 | kinds[i], __ATOMIC_RELEASE);
        raw_ring(&raw);
        assert_true(wait_until(__atomic_load_n(&raw.lane->ticket_done, __ATOMIC_ACQUIRE) == i + 1));
        assert_int_equal(raw.lane->ticket_error, -EINVAL);
    }
    /* a cookie from far in the future begins one grace period and no more */
    raw.lane->ticket_cookie = UINT64_MAX;
    __atomic_store_n(&raw.lane->ticket, 5ull << 32 | ABI_TICKET_GP_WAIT, __ATOMIC_RELEASE);
    raw_ring(&raw);
    assert_true(wait_until(__atomic_load_n(&raw.lane->ticket_done, __ATOMIC_ACQUIRE) == 5));
    raw_close(&raw);
    end(d);
}

/* ---- Floods ----------------------------------------------------------------------------------------------------------------- */

static void case_12_flood_of_asks(void **state)
{
    struct daemon *d = *state;
    uint64_t end_ms;
    struct raw raw;
    uint16_t n = 0;

    start(d);
    assert_int_equal(raw_open(&raw, d, "hostile", 0), 0);
    raw_lane(&raw);
    end_ms = clock_ms() + 500;
    while (clock_ms() < end_ms)
        for (int i = 0; i < 100; i++) {
            n++;
            __atomic_store_n(&raw.lane->ask, abi_ask(n, n & 1, n % 40, n % 3 ? 0 : UINT32_MAX >> n % 32), __ATOMIC_RELEASE);
            raw_ring(&raw);
        }
    honest_works(d);
    raw_close(&raw);
    end(d);
}

/* Rings as fast as it can, and blocks whoever would read or write the counter in the usual way. */
static int flood_eventfd(void *userdata)
{
    const struct daemon *d = userdata;
    const uint64_t full = UINT64_MAX - 1, one = 1;
    uint64_t count;
    struct raw raw;

    CHECK(raw_open(&raw, d, "hostile", 0) == 0);
    raw_lane(&raw);
    for (;;) {
        for (int i = 0; i < 20000; i++)
            CHECK(write(raw.fds[3], &one, sizeof(one)) == sizeof(one));
        CHECK(read(raw.fds[3], &count, sizeof(count)) == sizeof(count));
        CHECK(fcntl(raw.fds[3], F_SETFL, 0) == 0); /* for the daemon's copy as well */
        CHECK(write(raw.fds[3], &full, sizeof(full)) == sizeof(full));
        CHECK(read(raw.fds[3], &count, sizeof(count)) == sizeof(count));
    }
}

static void case_12_flood_of_bells(void **state)
{
    struct daemon *d = *state;
    pid_t pid;

    start(d);
    pid = child_start(flood_eventfd, d);
    assert_true(wait_until(n_clients(d) == 1));
    for (int i = 0; i < 10; i++)
        honest_works(d);
    child_kill(pid);
    end(d);
}

/* The counter is full for good and blocks: the daemon never writes it and never reads it. */
static void case_12_full_eventfd_that_blocks(void **state)
{
    const uint64_t full = UINT64_MAX - 1;
    struct daemon *d = *state;
    struct raw raw;

    start(d);
    assert_int_equal(raw_open(&raw, d, "hostile", 0), 0);
    raw_lane(&raw);
    assert_int_equal(fcntl(raw.fds[3], F_SETFL, 0), 0);
    assert_int_equal(write(raw.fds[3], &full, sizeof(full)), sizeof(full));
    honest_works(d);
    ctl_do(d, "barrier", NULL);
    raw_close(&raw);
    end(d);
}

/* Reads no answer: its socket fills, the daemon does not wait for it. */
static void case_12_does_not_listen(void **state)
{
    struct abi_request request = raw_request(ABI_OP_STATS, NULL);
    struct daemon *d = *state;
    struct raw raw;

    start(d);
    assert_int_equal(raw_open(&raw, d, "hostile", 0), 0);
    for (int i = 0; i < 5000; i++)
        if (send(raw.socket, &request, sizeof(request), MSG_DONTWAIT | MSG_NOSIGNAL) < 0 && errno != EAGAIN)
            break;
    honest_works(d);
    raw_close(&raw);
    end(d);
}

int main(void)
{
    struct daemon d = {0};
    const struct CMUnitTest tests[] = {
        daemon_test(case_12_unexpected_descriptors),
        daemon_test(case_12_descriptors_when_attached),
        daemon_test(case_12_messages_of_wrong_size),
        daemon_test(case_12_messages_of_wrong_content),
        daemon_test(case_12_names_that_do_not_end),
        daemon_test(case_12_second_open),
        daemon_test(case_12_lane_put_of_others),
        daemon_test(case_12_connection_passed_on),
        daemon_test(case_12_many_silent_connections),
        daemon_test(case_12_gone_before_the_answer),
        daemon_test(case_12_segments_are_sealed),
        daemon_test(case_12_holes_in_channel_and_arena),
        daemon_test(case_12_ring_head_far_away),
        daemon_test(case_12_records_of_others),
        daemon_test(case_12_rubbish_in_the_ring),
        daemon_test(case_12_rubbish_everywhere),
        daemon_test(case_12_tickets_of_unknown_kinds),
        daemon_test(case_12_flood_of_asks),
        daemon_test(case_12_flood_of_bells),
        daemon_test(case_12_full_eventfd_that_blocks),
        daemon_test(case_12_does_not_listen),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
