/* SPDX-License-Identifier: MIT */
/*
 * Waits that end early, and what comes after them: time-outs in an arena whose grace periods stand still,
 * signals, a daemon that dies; and many cookies at once.
 */
#include "daemon-fixture.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "basic/macro.h"
#include "basic/ordering.h"
#include "handle.h"

enum {
    GIVEN_UP = 10, /* more than a lane has in flight */
    RUSHERS = 4,
    RUSHES = 400,
    RUSH_NS = 200000, /* about what a wait takes, so both ends come first */
    COLLECTORS = 8,
    COOKIES = 150, /* of each */
    HELD_MAX = 256,
};

static const struct timespec limit = {.tv_sec = HANG_SECONDS}, moment = {.tv_nsec = 20 * 1000000};

static uint64_t started(const struct reclaim *r)
{
    return load_acquire(&r->domain->started);
}

/* ---- After a time-out ---- */

/* What was given up waits for a reader's section to end; a barrier with nothing to free does not. */
static void test_barrier_after_given_up(void **state)
{
    struct daemon *d = *state;
    struct actor reader = {0};
    struct reclaim_lane *l;
    struct reclaim *r;

    l = must_lane_beside_reader(d, &reader, &r);
    assert_int_equal(reclaim_synchronize(l, 0, &moment), -ETIMEDOUT);
    assert_int_equal(reclaim_barrier(l, &limit), 0);
    assert_int_equal(reclaim_synchronize(l, 0, &moment), -ETIMEDOUT);
    assert_int_equal(reclaim_barrier(l, &limit), 0);
    assert_null(actor_do(&reader, act_read_unlock, NULL));
    assert_int_equal(reclaim_synchronize(l, 0, &limit), 0);
    actor_stop(&reader);
    reclaim_close(r);
    daemon_stop(d);
}

static void *act_give_up_and_wait(struct actor *a, void *userdata)
{
    int r = reclaim_synchronize(a->lane, 0, &moment);

    return (void *)(intptr_t)(r == -ETIMEDOUT ? reclaim_gp_wait(a->lane, *(uint64_t *)userdata, &limit) : r);
}

/* The cookie's grace period is the one under way, held by the first reader; what was given up needs the next
   one, which the second reader holds. */
static void test_cookie_after_given_up(void **state)
{
    struct actor first = {0}, second = {0}, waiter = {0};
    struct daemon *d = *state;
    uint64_t cookie;
    struct reclaim *r;

    daemon_start(d, "--arena", "a:16M", NULL);
    r = must_open(d, "a");
    actor_start(&first, r);
    actor_start(&second, r);
    actor_start(&waiter, r);
    assert_null(actor_do(&first, act_read_lock, NULL));
    assert_int_equal(reclaim_gp_start(must_lane(r), &cookie), 0);
    assert_true(wait_until(started(r) == cookie));
    assert_null(actor_do(&second, act_read_lock, NULL));
    actor_begin(&waiter, act_give_up_and_wait, &cookie);
    assert_true(wait_until(load_acquire(&lane_shared(waiter.lane)->ticket) >> 32 == 2));
    assert_null(actor_do(&first, act_read_unlock, NULL));
    assert_null(actor_end(&waiter));
    assert_null(actor_do(&second, act_read_unlock, NULL));
    actor_stop(&first);
    actor_stop(&second);
    actor_stop(&waiter);
    reclaim_close(r);
    daemon_stop(d);
}

/* More than are served at once: the last one's turn comes. */
static void test_many_given_up(void **state)
{
    const struct timespec none = {0};
    struct daemon *d = *state;
    struct actor reader = {0};
    struct reclaim_lane *l;
    struct reclaim *r;

    daemon_start(d, "--arena", "a:16M", NULL);
    r = must_open(d, "a");
    l = must_lane(r);
    actor_start(&reader, r);
    for (int i = 0; i < 3; i++) {
        assert_null(actor_do(&reader, act_read_lock, NULL));
        for (int j = 0; j < GIVEN_UP; j++)
            assert_int_equal(reclaim_synchronize(l, 0, j % 2 ? &none : &moment), -ETIMEDOUT);
        assert_null(actor_do(&reader, act_read_unlock, NULL));
        assert_int_equal(reclaim_synchronize(l, 0, &limit), 0);
    }
    actor_stop(&reader);
    reclaim_close(r);
    daemon_stop(d);
}

static int give_up_and_die(void *userdata)
{
    struct daemon *d = userdata;
    struct reclaim_lane *l;
    struct reclaim *r;

    CHECK(try_open(d, "a", 0, 0, 0, NULL, &r) == 0 && reclaim_lane_get(r, &l) == 0);
    for (int i = 0; i < GIVEN_UP; i++)
        CHECK(reclaim_synchronize(l, 0, &moment) == -ETIMEDOUT);
    (void)kill(getpid(), SIGKILL);
    return 1;
}

/* The daemon ends while all that it can serve at once is in flight and one more waits: it leaves nothing behind, as
 * its exit status tells in a build with a leak checker. */
static void test_end_with_given_up(void **state)
{
    struct daemon *d = *state;
    struct actor reader = {0};
    struct reclaim_lane *l;
    struct reclaim *r;

    l = must_lane_beside_reader(d, &reader, &r);
    for (int i = 0; i < 6; i++)
        assert_int_equal(reclaim_synchronize(l, 0, &moment), -ETIMEDOUT);
    daemon_terminate(d);
    assert_null(actor_do(&reader, act_read_unlock, NULL));
    actor_stop(&reader);
    reclaim_close(r);
    daemon_remove(d);
}

/* Its lane is free again once all of them are over. */
static void test_killed_after_giving_up(void **state)
{
    struct daemon *d = *state;
    struct actor reader = {0};
    struct reclaim *r;
    int status;

    daemon_start(d, "--arena", "a:16M", NULL);
    r = must_open(d, "a");
    actor_start_reading(&reader, r);
    status = child_wait(child_start(give_up_and_die, d));
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    assert_null(actor_do(&reader, act_read_unlock, NULL));
    assert_true(wait_until(arena_figure(d, "a", "lanes") == 1));
    assert_true(wait_until(n_clients(d) == 1));
    actor_stop(&reader);
    reclaim_close(r);
    daemon_stop(d);
}

/* ---- Time-outs and ends at once ---- */

static int rush(struct actor *a, unsigned i)
{
    const struct timespec hurry = {.tv_nsec = RUSH_NS / 8 * (i % 16)};
    uint64_t cookie;

    switch (i % 3) {
    case 0:
        return reclaim_synchronize(a->lane, i % 2 ? RECLAIM_EXPEDITED : 0, &hurry);
    case 1:
        return reclaim_barrier(a->lane, &hurry);
    default:
        return reclaim_gp_start(a->lane, &cookie) < 0 ? -EIO : reclaim_gp_wait(a->lane, cookie, &hurry);
    }
}

/* Whatever ends when, each long wait hears of its own end, and only once its grace period is over. */
static void *act_rush(struct actor *a, void *userdata)
{
    for (unsigned i = 0; i < RUSHES; i++) {
        uint64_t before;
        int r = rush(a, i);

        if (r < 0 && r != -ETIMEDOUT)
            return (void *)(intptr_t)r;
        before = started(a->r);
        r = reclaim_synchronize(a->lane, 0, &limit);
        if (r == 0 && load_acquire(&a->r->domain->completed) <= before)
            r = -EILSEQ;
        if (r < 0)
            return (void *)(intptr_t)r;
    }
    return NULL;
}

static void check_rush(struct daemon *d, const char *wake)
{
    struct actor actors[RUSHERS] = {0};
    struct reclaim *r;

    daemon_start(d, "--arena", "a:16M", "--set", wake, NULL);
    r = must_open(d, "a");
    for (int i = 0; i < RUSHERS; i++)
        actor_start(&actors[i], r);
    for (int i = 0; i < RUSHERS; i++)
        actor_begin(&actors[i], act_rush, NULL);
    for (int i = 0; i < RUSHERS; i++) {
        assert_null(actor_end(&actors[i]));
        actor_stop(&actors[i]);
    }
    reclaim_close(r);
    daemon_stop(d);
}

static void test_rush(void **state)
{
    check_rush(*state, "wake-from-gp=no");
    check_rush(*state, "wake-from-gp=yes");
    check_rush(*state, "wake-direct=1");
}

/* ---- Many cookies ---- */

struct collector {
    struct actor actor;
    uint64_t cookies[COOKIES];
};

static void *act_collect(struct actor *a, void *userdata)
{
    struct collector *c = userdata;

    for (unsigned i = 0; i < COOKIES; i++) {
        int r = reclaim_gp_start(a->lane, &c->cookies[i]);

        if (r == 0 && i % 16 == 0) /* some are waited for, so that grace periods come and go meanwhile */
            r = reclaim_gp_wait(a->lane, c->cookies[i], &limit);
        if (r < 0)
            return (void *)(intptr_t)r;
        if (i > 0 && c->cookies[i] < c->cookies[i - 1])
            return (void *)(intptr_t)-EILSEQ;
    }
    return NULL;
}

static int compare_cookies(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

/* From the largest down: once one is over, all below it are. Returns how many are over. */
static unsigned poll_in_order(struct reclaim *r, const uint64_t *sorted, unsigned n)
{
    unsigned n_over = 0;

    for (unsigned i = n; i-- > 0;) {
        int over = reclaim_gp_poll(r, sorted[i]);

        assert_in_range(over, 0, 1);
        assert_true(over || n_over == 0);
        n_over += (unsigned)over;
    }
    return n_over;
}

static void test_many_cookies(void **state)
{
    static struct collector collectors[COLLECTORS];
    static uint64_t sorted[COLLECTORS * COOKIES];
    struct daemon *d = *state;
    struct actor reader = {0};
    struct reclaim *r;
    unsigned distinct = 1;
    uint64_t last;

    daemon_start(d, "--arena", "a:16M", NULL);
    r = must_open(d, "a");
    actor_start(&reader, r);
    for (unsigned i = 0; i < COLLECTORS; i++)
        actor_start(&collectors[i].actor, r);
    for (unsigned i = 0; i < COLLECTORS; i++)
        actor_begin(&collectors[i].actor, act_collect, &collectors[i]);
    for (unsigned i = 0; i < COLLECTORS; i++) {
        assert_null(actor_end(&collectors[i].actor));
        memcpy(sorted + i * COOKIES, collectors[i].cookies, sizeof(collectors[i].cookies));
    }
    qsort(sorted, ARRAY_SIZE(sorted), sizeof(sorted[0]), compare_cookies);
    for (unsigned i = 1; i < ARRAY_SIZE(sorted); i++)
        distinct += sorted[i] != sorted[i - 1];
    assert_true(distinct > 4);
    assert_true(wait_until(poll_in_order(r, sorted, ARRAY_SIZE(sorted)) == ARRAY_SIZE(sorted)));

    /* a new one is above all of them, and not over before a reader that is there now */
    assert_null(actor_do(&reader, act_read_lock, NULL));
    assert_int_equal(reclaim_gp_start(must_lane(r), &last), 0);
    assert_true(last > sorted[ARRAY_SIZE(sorted) - 1]);
    assert_int_equal(reclaim_gp_wait(must_lane(r), last, &moment), -ETIMEDOUT);
    assert_int_equal(reclaim_gp_poll(r, last), 0);
    assert_null(actor_do(&reader, act_read_unlock, NULL));
    assert_int_equal(reclaim_gp_wait(must_lane(r), last, &limit), 0);
    assert_int_equal(reclaim_gp_poll(r, last), 1);
    for (unsigned i = 0; i < COLLECTORS; i++)
        actor_stop(&collectors[i].actor);
    actor_stop(&reader);
    reclaim_close(r);
    daemon_stop(d);
}

/* ---- Signals ---- */

static void ignore_signal(int signal)
{
    (void)signal;
}

static void *act_wait_interruptibly(struct actor *a, void *userdata)
{
    const unsigned flags = RECLAIM_INTERRUPTIBLE;
    uint64_t cookie;
    int r;

    if (*(int *)userdata == 0)
        r = reclaim_synchronize(a->lane, flags, &limit);
    else if (*(int *)userdata == 1)
        r = reclaim_defer_free(a->lane, reclaim_alloc(a->lane, 64)) < 0
                ? -EIO
                : reclaim_barrier_flags(a->lane, flags, &limit);
    else
        r = reclaim_gp_start(a->lane, &cookie) < 0 ? -EIO
                                                   : reclaim_gp_wait_flags(a->lane, cookie, flags, &limit);
    return (void *)(intptr_t)r;
}

/* Until the waiter has heard one; it may be anywhere when the first ones come. */
static int interrupt(struct actor *a)
{
    while (sem_trywait(&a->done) < 0) {
        (void)pthread_kill(a->thread, SIGUSR1);
        sleep_ms(2);
    }
    return (int)(intptr_t)a->result;
}

static void test_signals(void **state)
{
    const struct sigaction action = {.sa_handler = ignore_signal, .sa_flags = SA_RESTART};
    struct actor reader = {0}, waiter = {0};
    struct daemon *d = *state;
    struct reclaim *r;

    assert_int_equal(sigaction(SIGUSR1, &action, NULL), 0);
    daemon_start(d, "--arena", "a:16M", NULL);
    r = must_open(d, "a");
    actor_start(&reader, r);
    actor_start(&waiter, r);
    assert_null(actor_do(&reader, act_read_lock, NULL));
    for (int kind = 0; kind < 3; kind++) {
        actor_begin(&waiter, act_wait_interruptibly, &kind);
        assert_int_equal(interrupt(&waiter), -EINTR);
    }
    assert_null(actor_do(&reader, act_read_unlock, NULL));
    for (int kind = 0; kind < 3; kind++)
        assert_null(actor_do(&waiter, act_wait_interruptibly, &kind));
    actor_stop(&reader);
    actor_stop(&waiter);
    reclaim_close(r);
    daemon_stop(d);
}

/* ---- A daemon that dies ---- */

/* Duplicates of all that the daemon has open, as a service manager may hold them for its successor. */
struct held {
    int fds[HELD_MAX];
    unsigned n;
};

/* False: this system does not let us. */
static bool held_take(struct held *h, const struct daemon *d)
{
    int pidfd = (int)syscall(SYS_pidfd_open, d->pid, 0);

    h->n = 0;
    for (int fd = 0; fd < HELD_MAX && pidfd >= 0; fd++) {
        int copy = (int)syscall(SYS_pidfd_getfd, pidfd, fd, 0);

        if (copy >= 0)
            h->fds[h->n++] = copy;
    }
    if (pidfd >= 0)
        (void)close(pidfd);
    return h->n > 0;
}

static void held_close(struct held *h)
{
    while (h->n > 0)
        (void)close(h->fds[--h->n]);
}

static struct reclaim *open_flags(const struct daemon *d, unsigned flags)
{
    struct reclaim *r;

    assert_int_equal(try_open(d, "a", flags, 0, 0, NULL, &r), 0);
    return r;
}

static void check_waits(struct reclaim *r, const struct timespec *timeout, int expected)
{
    struct reclaim_lane *l = must_lane(r);
    uint64_t cookie;

    assert_int_equal(reclaim_gp_start(l, &cookie), 0);
    assert_int_equal(reclaim_gp_wait(l, cookie, timeout), expected);
    assert_int_equal(reclaim_gp_poll(r, cookie), 0);
    assert_int_equal(reclaim_synchronize(l, RECLAIM_EXPEDITED, timeout), expected);
    assert_int_equal(reclaim_barrier(l, timeout), expected);
}

static void test_daemon_dies(void **state)
{
    const struct timespec turns = {.tv_nsec = 250 * 1000000};
    struct reclaim *waits, *reports;
    struct daemon *d = *state;
    struct held held;

    daemon_start(d, "--arena", "a:16M", NULL);
    waits = open_flags(d, 0);
    reports = open_flags(d, RECLAIM_REPORT_EXIT | RECLAIM_RELOCATED);
    assert_int_equal(reclaim_synchronize(must_lane(waits), 0, &limit), 0);
    assert_int_equal(reclaim_synchronize(must_lane(reports), 0, &limit), 0);
    if (!held_take(&held, d)) {
        (void)printf("skipped: nobody may take a child's descriptors here\n");
        skip();
    }
    daemon_kill(d);
    check_waits(waits, &turns, -ETIMEDOUT);
    check_waits(reports, NULL, -EOWNERDEAD);
    held_close(&held); /* nobody will take over */
    check_waits(waits, NULL, -ESHUTDOWN);
    check_waits(reports, NULL, -ESHUTDOWN);
    reclaim_close(waits);
    reclaim_close(reports);
    daemon_remove(d);
}

/* A socket that another process has made, and left to the daemon as a service manager does. */
static int socket_of_another(const char *path, int type)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, type, 0), status;
    pid_t pid;

    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%.90s", path);
    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0);
    pid = fork();
    if (pid == 0)
        _exit(listen(fd, 8) == 0 ? 0 : 1);
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    return fd;
}

static void hand_over_sockets(void *userdata)
{
    struct daemon *d = userdata;
    char pid[32];
    int control = fcntl(socket_of_another(d->control, SOCK_STREAM), F_DUPFD, 10);
    int client = fcntl(socket_of_another(d->client, SOCK_SEQPACKET), F_DUPFD, 10);

    (void)snprintf(pid, sizeof(pid), "%d", (int)getpid());
    CHECK(dup2(control, 3) == 3 && dup2(client, 4) == 4);
    CHECK(setenv("LISTEN_PID", pid, 1) == 0 && setenv("LISTEN_FDS", "2", 1) == 0);
    CHECK(setenv("LISTEN_FDNAMES", "control:client", 1) == 0);
}

/* It is the daemon whose end is reported, not that of who made its socket, which is long dead. */
static void test_inherited_socket(void **state)
{
    struct daemon *d = *state;
    struct reclaim *r;

    d->before_exec = hand_over_sockets;
    d->userdata = d;
    daemon_start(d, "--arena", "a:16M", NULL);
    r = open_flags(d, RECLAIM_REPORT_EXIT);
    assert_int_equal(reclaim_synchronize(must_lane(r), 0, &limit), 0);
    assert_int_equal(reclaim_synchronize(must_lane(r), 0, &limit), 0);
    reclaim_close(r);
    daemon_audit(d);
    daemon_terminate(d);
    (void)unlink(d->control); /* the service manager's to take away */
    (void)unlink(d->client);
    daemon_remove(d);
    d->before_exec = NULL;
}

int main(void)
{
    struct daemon d = {0};
    const struct CMUnitTest tests[] = {
        daemon_test(test_barrier_after_given_up),
        daemon_test(test_cookie_after_given_up),
        daemon_test(test_many_given_up),
        daemon_test(test_end_with_given_up),
        daemon_test(test_killed_after_giving_up),
        daemon_test(test_rush),
        daemon_test(test_many_cookies),
        daemon_test(test_signals),
        daemon_test(test_daemon_dies),
        daemon_test(test_inherited_socket),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
