/* SPDX-License-Identifier: MIT */
/*
 * The library without a daemon: waits for grace periods. Cookies, time-outs, signals, and a daemon that
 * goes away or dies meanwhile. Links with the shared library.
 */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "lib-fixture.h"

static const struct timespec none = {0}, little = {.tv_nsec = 1000}, minute = {.tv_sec = 60};

/* ---- tickets and cookies ---- */

static void test_tickets(void **state)
{
    struct fixture *x = *state;

    fake_serve(x->f);
    assert_int_equal(reclaim_synchronize(x->l, 0, NULL), 0);
    assert_int_equal(fake_get(x->f, last_ticket), 1ull << 32 | ABI_TICKET_SYNCHRONIZE);
    assert_int_equal(reclaim_synchronize(x->l, RECLAIM_EXPEDITED, &minute), 0);
    assert_int_equal(fake_get(x->f, last_ticket), 2ull << 32 | ABI_TICKET_SYNCHRONIZE_EXPEDITED);
    assert_int_equal(reclaim_barrier(x->l, &minute), 0);
    assert_int_equal(fake_get(x->f, last_ticket), 3ull << 32 | ABI_TICKET_BARRIER);
    fake_set(x->f, ticket_error, -ESHUTDOWN);
    assert_int_equal(reclaim_barrier(x->l, NULL), -ESHUTDOWN);
    assert_int_equal(x->shared->ticket_waiting, 0);
}

/* The next owner of a lane goes on counting: the end of its predecessor's last ticket is not its own. */
static void test_tickets_of_the_former_owner(void **state)
{
    struct fixture *x = *state;

    assert_int_equal(reclaim_synchronize(x->l, 0, &none), -ETIMEDOUT);
    assert_int_equal(reclaim_synchronize(x->l, 0, &none), -ETIMEDOUT);
    reclaim_lane_put(x->l);
    assert_int_equal(reclaim_lane_get(x->r, &x->l), 0);
    assert_ptr_equal(fake_lane(x->f, 0), x->shared);
    assert_int_equal(x->shared->phase, 2);
    assert_int_equal(x->shared->ticket,
                     2ull << 32 | ABI_TICKET_SYNCHRONIZE); /* still there to be looked at */
    store_release(&x->shared->ticket_done, 1u);
    assert_int_equal(reclaim_barrier(x->l, &little), -ETIMEDOUT);
    assert_int_equal(x->shared->ticket, 3ull << 32 | ABI_TICKET_BARRIER);
    store_release(&x->shared->ticket_done, 2u);
    assert_int_equal(reclaim_barrier(x->l, &little), -ETIMEDOUT);
    fake_serve(x->f);
    assert_int_equal(reclaim_barrier(x->l, NULL), 0);
    assert_int_equal(fake_get(x->f, last_ticket), 5ull << 32 | ABI_TICKET_BARRIER);
}

static void test_ticket_timeouts(void **state)
{
    struct fixture *x = *state;
    const struct timespec ages = {.tv_sec = INT64_MAX, .tv_nsec = 999999999};

    assert_int_equal(reclaim_synchronize(x->l, 0, &none), -ETIMEDOUT);
    (void)fake_bells(x->f);
    assert_int_equal(reclaim_synchronize(x->l, 0, &little), -ETIMEDOUT);
    assert_int_equal(fake_bells(x->f), 1);      /* each bell is a system call here and a wake-up there */
    store_release(&x->shared->ticket_done, 1u); /* the first one, late: not what is waited for next */
    assert_int_equal(reclaim_barrier(x->l, &little), -ETIMEDOUT);
    assert_int_equal(x->shared->ticket >> 32, 3);
    fake_serve(x->f);
    assert_int_equal(reclaim_barrier(x->l, &ages), 0);
    assert_int_equal(fake_get(x->f, last_ticket), 4ull << 32 | ABI_TICKET_BARRIER);
}

/* In a section of any arena, waiting could never end. */
static void test_tickets_in_section(void **state)
{
    struct fixture *x = *state, *y;
    void *other;

    setup_flags(&other, RECLAIM_RELOCATED, false);
    y = other;
    assert_int_equal(reclaim_read_lock(y->l), 0);
    assert_int_equal(reclaim_synchronize(x->l, 0, NULL), -EDEADLK);
    assert_int_equal(reclaim_barrier(x->l, NULL), -EDEADLK);
    assert_int_equal(reclaim_gp_wait(x->l, 8, NULL), -EDEADLK);
    reclaim_read_unlock(y->l);
    fake_serve(x->f);
    assert_int_equal(reclaim_synchronize(x->l, 0, NULL), 0);
    (void)teardown(&other);
}

static void test_cookies(void **state)
{
    struct fixture *x = *state;
    uint64_t cookie = 0, again;

    x->f->domain->started = 10;
    x->f->domain->completed = 9;
    assert_int_equal(reclaim_gp_start(x->l, &cookie), 0);
    assert_int_equal(cookie, 10 + ABI_CLIENT_COOKIE_AHEAD);
    assert_int_equal(x->shared->cookie_wanted, cookie);
    assert_int_equal(x->shared->ticket, 0); /* nobody waits */
    assert_int_equal(fake_bells(x->f), 1);
    assert_int_equal(reclaim_gp_start(x->l, &again), 0); /* asked already */
    assert_int_equal(again, cookie);
    assert_int_equal(fake_bells(x->f), 0);
    assert_int_equal(reclaim_gp_poll(x->r, cookie), 0);
    assert_int_equal(reclaim_gp_poll(x->r, 9), 1);
    assert_int_equal(reclaim_gp_poll(x->r, cookie + 1), -EINVAL);
    assert_int_equal(reclaim_gp_wait(x->l, UINT64_MAX, NULL), -EINVAL);
    store_release(&x->f->domain->completed, cookie);
    assert_int_equal(reclaim_gp_poll(x->r, cookie), 1);
    assert_int_equal(reclaim_read_lock(x->l), 0);
    assert_int_equal(reclaim_gp_wait(x->l, cookie, NULL), 0); /* is over: no wait, so also in a section */
    reclaim_read_unlock(x->l);
    store_release(&x->f->domain->completed, (uint64_t)9);
    fake_serve(x->f);
    assert_int_equal(reclaim_gp_wait(x->l, cookie, NULL), 0);
    assert_int_equal(fake_get(x->f, last_ticket) & 0xff, ABI_TICKET_GP_WAIT);
}

/* Two cookies asked for, one of them waited for: the other one's grace period comes as well. */
static void check_two_cookies(struct fixture *x, bool newer_first)
{
    uint64_t cookies[2];

    x->f->domain->started = 10;
    x->f->domain->completed = 9;
    assert_int_equal(reclaim_gp_start(x->l, &cookies[0]), 0);
    store_release(&x->f->domain->started, (uint64_t)11);
    assert_int_equal(reclaim_gp_start(x->l, &cookies[1]), 0);
    assert_int_equal(cookies[1], cookies[0] + 1);
    assert_int_equal(fake_bells(x->f), 2);
    assert_int_equal(x->shared->cookie_wanted, cookies[1]);
    fake_serve(x->f); /* completes no grace period yet: only says that the waiting is over */
    assert_int_equal(reclaim_gp_wait(x->l, cookies[newer_first], NULL), 0);
    assert_int_equal(x->shared->ticket_cookie, cookies[newer_first]);
    assert_int_equal(reclaim_gp_poll(x->r, cookies[!newer_first]), 0);
    fake_set(x->f, completes, true);
    while (reclaim_gp_poll(x->r, cookies[!newer_first]) == 0)
        sched_yield();
    assert_int_equal(reclaim_gp_poll(x->r, cookies[0]), 1);
    assert_int_equal(reclaim_gp_poll(x->r, cookies[1]), 1);
    assert_int_equal(x->shared->cookie_wanted, cookies[1]);
}

static void test_two_cookies(void **state)
{
    check_two_cookies(*state, false);
}

static void test_two_cookies_newer_first(void **state)
{
    check_two_cookies(*state, true);
}

/* Without a daemon nothing moves: polling cannot tell, waiting can. */
static void test_cookies_outlive_the_daemon(void **state)
{
    struct fixture *x = *state;
    uint64_t cookie;

    assert_int_equal(reclaim_gp_start(x->l, &cookie), 0);
    fake_stop(x->f);
    assert_int_equal(reclaim_gp_poll(x->r, cookie), 0);
    assert_int_equal(reclaim_gp_wait(x->l, cookie, NULL), -ESHUTDOWN);
    assert_int_equal(reclaim_gp_poll(x->r, cookie), 0);
}

/* ---- What no wait takes ---- */

enum { EXPIRED = 9, COMING = 11 }; /* of check_wait(): cookies */

enum wait_kind {
    WAIT_SYNCHRONIZE,
    WAIT_BARRIER,
    WAIT_COOKIE,
    WAIT_EXPIRED,
    WAIT_MAX,
};

static int wait_of_kind(struct fixture *x, enum wait_kind kind, unsigned flags,
                        const struct timespec *timeout)
{
    if (kind == WAIT_SYNCHRONIZE)
        return reclaim_synchronize(x->l, flags, timeout);
    if (kind == WAIT_BARRIER)
        return reclaim_barrier_flags(x->l, flags, timeout);
    return reclaim_gp_wait_flags(x->l, kind == WAIT_EXPIRED ? EXPIRED : COMING, flags, timeout);
}

static void numbers_set(struct fixture *x)
{
    x->f->domain->started = COMING - 1;
    x->f->domain->completed = EXPIRED;
}

static void test_bad_times(void **state)
{
    static const struct timespec bad[] = {{.tv_nsec = 1000000000}, {.tv_nsec = -1},
                                          {.tv_nsec = INT64_MAX},  {.tv_sec = -1},
                                          {.tv_sec = INT64_MIN},   {-1, -1}};
    struct fixture *x = *state;

    numbers_set(x);
    for (unsigned kind = 0; kind < WAIT_MAX; kind++)
        for (unsigned i = 0; i < ARRAY_SIZE(bad); i++)
            assert_int_equal(wait_of_kind(x, kind, 0, &bad[i]), -EINVAL);
    assert_int_equal(x->shared->ticket, 0);
    assert_int_equal(reclaim_gp_wait(x->l, EXPIRED, &bad[0]), -EINVAL);
    assert_int_equal(reclaim_barrier(x->l, &bad[0]), -EINVAL);
}

static void test_bad_flags(void **state)
{
    struct fixture *x = *state;

    numbers_set(x);
    for (unsigned kind = 0; kind < WAIT_MAX; kind++) {
        assert_int_equal(wait_of_kind(x, kind, 4, &none), -EINVAL);
        assert_int_equal(wait_of_kind(x, kind, RECLAIM_INTERRUPTIBLE | 1u << 31, &none), -EINVAL);
        if (kind != WAIT_SYNCHRONIZE)
            assert_int_equal(wait_of_kind(x, kind, RECLAIM_EXPEDITED, &none), -EINVAL);
    }
    assert_int_equal(x->shared->ticket, 0);
}

/* Zero does not wait, and asks nevertheless. */
static void test_times(void **state)
{
    static const struct timespec good[] = {{0}, {.tv_nsec = 1}, {.tv_nsec = 999999}};
    struct fixture *x = *state;

    numbers_set(x);
    for (unsigned kind = 0; kind < WAIT_MAX; kind++)
        for (unsigned i = 0; i < ARRAY_SIZE(good); i++) {
            uint64_t before = x->shared->ticket >> 32;

            assert_int_equal(wait_of_kind(x, kind, 0, &good[i]), kind == WAIT_EXPIRED ? 0 : -ETIMEDOUT);
            assert_int_equal(x->shared->ticket >> 32, before + (kind != WAIT_EXPIRED));
        }
    fake_serve(x->f);
    for (unsigned kind = 0; kind < WAIT_MAX; kind++) {
        assert_int_equal(wait_of_kind(x, kind, 0, NULL), 0);
        assert_int_equal(wait_of_kind(x, kind, 0, &(struct timespec){INT64_MAX, 0}), 0);
        assert_int_equal(wait_of_kind(x, kind, 0, &(struct timespec){UINT64_MAX / 1000000000, 999999999}), 0);
    }
}

/* ---- Without system calls ---- */

/* From here on every system call kills, but the one that ends the process. */
static void forbid_system_calls(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    const struct sock_fprog program = {.len = ARRAY_SIZE(code), .filter = code};

    (void)prctl(PR_SET_DUMPABLE, 0); /* no core of who is killed on purpose */
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0)
        _exit(99);
}

static void skip_if_watched(void)
{
    const char *preload = getenv("LD_PRELOAD");

    if (!preload || !strstr(preload, "vgpreload"))
        return;
    (void)printf("skipped: valgrind itself calls the system meanwhile\n");
    skip();
}

/* In a child, which opens the arena anew: 0, or which call was wrong. The last one waits for `cookie`. */
static int child_polls(struct fake *f, uint64_t cookie)
{
    struct reclaim_lane *l;
    struct reclaim *r;
    uint64_t asked;

    f->domain->started = COMING - 1;
    f->domain->completed = EXPIRED;
    if (fake_open_flags(f, 0, &r) != 0 || reclaim_lane_get(r, &l) != 0 || reclaim_gp_start(l, &asked) != 0)
        return 1;
    forbid_system_calls();
    for (int i = 0; i < 1000; i++) {
        if (reclaim_gp_start(l, &asked) != 0 || reclaim_gp_poll(r, asked) != 0) /* was asked for: no bell */
            return 2;
        if (reclaim_gp_poll(r, EXPIRED) != 1 || reclaim_gp_poll(r, UINT64_MAX) != -EINVAL)
            return 3;
        if (reclaim_gp_wait(l, EXPIRED, NULL) != 0 || reclaim_gp_wait(l, 1, &none) != 0)
            return 4;
        if (reclaim_gp_wait_flags(l, EXPIRED, RECLAIM_INTERRUPTIBLE, &minute) != 0)
            return 5;
        if (reclaim_read_lock(l) != 0 || reclaim_gp_wait(l, EXPIRED, NULL) != 0)
            return 6;
        reclaim_read_unlock(l);
    }
    return reclaim_gp_wait(l, cookie, &none) == 0 ? 0 : 7;
}

static int status_of_polls(struct fixture *x, uint64_t cookie)
{
    pid_t child;
    int status;

    reclaim_close(x->r); /* its place is the child's */
    x->r = NULL;
    child = fork();
    if (child == 0)
        syscall(SYS_exit_group, child_polls(x->f, cookie));
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

static void test_no_system_calls(void **state)
{
    int status;

    skip_if_watched();
    status = status_of_polls(*state, EXPIRED);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* The same with a cookie that is not over: it asks, and is killed for it. So the test above sees it. */
static void test_system_calls_are_seen(void **state)
{
    int status;

    skip_if_watched();
    status = status_of_polls(*state, COMING);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGSYS);
}

/* ---- Signals ---- */

static struct reclaim_lane *volatile handler_lane; /* NULL: the handler does nothing */
static volatile sig_atomic_t n_handled;

static void handle(int signal)
{
    n_handled++;
    if (handler_lane)
        (void)reclaim_lane_interrupt(handler_lane);
}

static void handler_set(int flags, struct reclaim_lane *l)
{
    const struct sigaction action = {.sa_handler = handle, .sa_flags = flags};

    handler_lane = l;
    n_handled = 0;
    assert_int_equal(sigaction(SIGUSR1, &action, NULL), 0);
}

/* Signals again and again, so that one of them finds the thread asleep. */
struct pest {
    struct fixture *x;
    pthread_t victim, thread;
    bool end;
};

static void *pest_main(void *arg)
{
    struct pest *p = arg;

    while (!load_acquire(&p->end)) {
        if (load_acquire(&p->x->shared->ticket_waiting))
            (void)pthread_kill(p->victim, SIGUSR1);
        (void)usleep(2000);
    }
    return NULL;
}

static void pest_start(struct pest *p, struct fixture *x)
{
    *p = (struct pest){.x = x, .victim = pthread_self()};
    assert_int_equal(pthread_create(&p->thread, NULL, pest_main, p), 0);
}

static void pest_stop(struct pest *p)
{
    store_release(&p->end, true);
    assert_int_equal(pthread_join(p->thread, NULL), 0);
}

static void check_signals(struct fixture *x, int action_flags)
{
    struct pest p;

    numbers_set(x);
    handler_set(action_flags, NULL);
    pest_start(&p, x);
    for (unsigned kind = 0; kind < WAIT_EXPIRED; kind++)
        assert_int_equal(wait_of_kind(x, kind, RECLAIM_INTERRUPTIBLE, NULL), -EINTR);
    assert_int_equal(reclaim_synchronize(x->l, RECLAIM_INTERRUPTIBLE | RECLAIM_EXPEDITED, &minute), -EINTR);
    assert_true(n_handled > 0);
    pest_stop(&p);
}

static void test_signals(void **state)
{
    check_signals(*state, 0);
}

static void test_signals_that_restart(void **state)
{
    check_signals(*state, SA_RESTART);
}

/* Not asked for: it goes on, to its end or its time. After a wait that a signal ended the next is its own. */
static void test_signals_not_asked_for(void **state)
{
    const struct timespec moment = {.tv_nsec = 50000000};
    struct fixture *x = *state;
    struct pest p;

    handler_set(0, NULL);
    pest_start(&p, x);
    do
        assert_int_equal(reclaim_synchronize(x->l, 0, &moment), -ETIMEDOUT);
    while (n_handled == 0);
    assert_int_equal(reclaim_barrier_flags(x->l, RECLAIM_INTERRUPTIBLE, NULL), -EINTR);
    assert_int_equal(reclaim_barrier(x->l, &moment), -ETIMEDOUT);
    fake_serve(x->f);
    assert_int_equal(reclaim_synchronize(x->l, 0, NULL), 0);
    assert_int_equal(fake_get(x->f, last_ticket) & 0xff, ABI_TICKET_SYNCHRONIZE);
    pest_stop(&p);
}

/* A handler that came before the wait is remembered, once, until a wait can say so. */
static void test_interrupt(void **state)
{
    struct fixture *x = *state;

    handler_set(0, x->l);
    assert_int_equal(raise(SIGUSR1), 0);
    assert_int_equal(raise(SIGUSR1), 0);
    assert_int_equal(n_handled, 2);
    assert_int_equal(reclaim_barrier(x->l, &little), -ETIMEDOUT);
    assert_int_equal(reclaim_synchronize(x->l, RECLAIM_INTERRUPTIBLE, NULL), -EINTR);
    assert_int_equal(reclaim_synchronize(x->l, RECLAIM_INTERRUPTIBLE, &little), -ETIMEDOUT);
    assert_int_equal(raise(SIGUSR1), 0);
    assert_int_equal(reclaim_gp_wait_flags(x->l, 7, RECLAIM_INTERRUPTIBLE, NULL), 0); /* is over */
    assert_int_equal(reclaim_barrier_flags(x->l, RECLAIM_INTERRUPTIBLE, &none), -EINTR);
    assert_int_equal(reclaim_lane_interrupt(NULL), -EINVAL);
}

/* The handler's call and the sleep that it broke into are one signal. */
static void test_interrupt_while_asleep(void **state)
{
    struct fixture *x = *state;
    struct pest p;

    handler_set(0, x->l);
    pest_start(&p, x);
    assert_int_equal(reclaim_synchronize(x->l, RECLAIM_INTERRUPTIBLE, NULL), -EINTR);
    pest_stop(&p);
    (void)reclaim_synchronize(x->l, RECLAIM_INTERRUPTIBLE, &none); /* another signal may have come since */
    assert_int_equal(reclaim_synchronize(x->l, RECLAIM_INTERRUPTIBLE, &little), -ETIMEDOUT);
}

/* ---- A daemon that dies and leaves its connection open ---- */

/* The fake's socket as another process made it, which is the daemon for whoever connects. */
static pid_t daemon_elsewhere(struct fake *f)
{
    int ready[2];
    char byte;
    pid_t pid;

    assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
    pid = fork();
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (listen(f->listen_fd, 8) == 0)
            (void)!write(ready[1], "", 1);
        for (;;)
            (void)pause();
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    (void)close(ready[0]);
    (void)close(ready[1]);
    return pid;
}

static void daemon_dies(pid_t pid)
{
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* Opens, with a lane, an arena of a daemon that is another process: it. */
static pid_t reopen(struct fixture *x, unsigned flags)
{
    pid_t pid = daemon_elsewhere(x->f);

    reclaim_close(x->r);
    assert_int_equal(fake_open_flags(x->f, flags, &x->r), 0);
    assert_int_equal(reclaim_lane_get(x->r, &x->l), 0);
    return pid;
}

struct killer {
    uint32_t *waiting;
    pid_t pid;
};

static void *kill_when_waiting(void *arg)
{
    struct killer *k = arg;

    until_waiting(k->waiting);
    daemon_dies(k->pid);
    return NULL;
}

static void test_exit_is_reported(void **state)
{
    struct fixture *x = *state;
    struct reclaim_stats stats = {.size = sizeof(stats)};
    struct killer k = {.waiting = &x->shared->ticket_waiting, .pid = reopen(x, RECLAIM_REPORT_EXIT)};
    struct reclaim_lane *l;
    pthread_t thread;
    void **word;

    assert_int_equal(reclaim_stats(x->r, &stats), 0);
    assert_int_equal(reclaim_synchronize(x->l, 0, &little), -ETIMEDOUT);
    numbers_set(x);
    assert_int_equal(pthread_create(&thread, NULL, kill_when_waiting, &k), 0);
    assert_int_equal(reclaim_synchronize(x->l, 0, NULL), -EOWNERDEAD);
    assert_int_equal(pthread_join(thread, NULL), 0);
    for (unsigned kind = 0; kind < WAIT_EXPIRED; kind++)
        assert_int_equal(wait_of_kind(x, kind, 0, NULL), -EOWNERDEAD);
    assert_int_equal(wait_of_kind(x, WAIT_EXPIRED, 0, NULL), 0);
    assert_int_equal(reclaim_root(x->r, "x", &word), -EOWNERDEAD);
    assert_int_equal(reclaim_stats(x->r, &stats), -EOWNERDEAD);
    reclaim_lane_put(x->l);
    assert_int_equal(reclaim_lane_get(x->r, &l), -EOWNERDEAD);
    fake_stop(x->f); /* nobody will come any more */
    assert_int_equal(reclaim_root(x->r, "x", &word), -ESHUTDOWN);
}

static void alloc_says(struct fixture *x, size_t bytes, int error)
{
    errno = 0;
    assert_null(reclaim_alloc(x->l, bytes));
    assert_int_equal(errno, error);
}

/* Room, objects and extents: the same. What needs no daemon goes on. */
static void test_exit_is_reported_to_who_needs_room(void **state)
{
    struct fixture *x = *state;
    struct killer k = {.waiting = &x->shared->waiting, .pid = reopen(x, RECLAIM_REPORT_EXIT)};
    pthread_t thread;

    for (uint32_t i = 0; i < ABI_RING_RECORDS; i++)
        assert_int_equal(reclaim_defer_free(x->l, at(ABI_FIRST_BLOCK + i % 1024 * 2, 0)), 0);
    assert_int_equal(pthread_create(&thread, NULL, kill_when_waiting, &k), 0);
    assert_int_equal(reclaim_defer_free(x->l, at(200, 0)), -EOWNERDEAD);
    assert_int_equal(pthread_join(thread, NULL), 0);
    alloc_says(x, 64, EOWNERDEAD);
    alloc_says(x, 8192, EOWNERDEAD);
    assert_int_equal(reclaim_read_lock(x->l), 0);
    reclaim_read_unlock(x->l);
    fake_stop(x->f);
    assert_int_equal(reclaim_defer_free(x->l, at(200, 0)), -ESHUTDOWN);
    alloc_says(x, 64, ESHUTDOWN);
}

/* An answer that is being waited for will not come. */
static void *kill_when_asked(void *arg)
{
    struct killer *k = arg;

    (void)usleep(20000); /* the question is on its way; the test is right without */
    daemon_dies(k->pid);
    return NULL;
}

static void test_exit_is_reported_to_who_asked(void **state)
{
    struct fixture *x = *state;
    struct killer k = {.pid = reopen(x, RECLAIM_REPORT_EXIT)};
    struct reclaim_stats stats = {.size = sizeof(stats)};
    pthread_t thread;

    fake_set(x->f, mute, true);
    assert_int_equal(pthread_create(&thread, NULL, kill_when_asked, &k), 0);
    assert_int_equal(reclaim_stats(x->r, &stats), -EOWNERDEAD);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(reclaim_stats(x->r, &stats), -EOWNERDEAD);
}

static void *serve_later(void *arg)
{
    const struct timespec patience = {.tv_nsec = 250000000}; /* two turns of the wait, and a bit */
    struct fixture *x = arg;

    until_waiting(&x->shared->ticket_waiting);
    (void)nanosleep(&patience, NULL);
    fake_serve(x->f);
    return NULL;
}

/* Not asked for: it waits for the successor, as long as the caller said. */
static void test_exit_is_waited_out(void **state)
{
    const struct timespec turns = {.tv_nsec = 250000000};
    struct fixture *x = *state;
    pid_t pid = reopen(x, 0);
    pthread_t thread;

    daemon_dies(pid);
    assert_int_equal(reclaim_synchronize(x->l, 0, &turns), -ETIMEDOUT);
    assert_int_equal(pthread_create(&thread, NULL, serve_later, x), 0);
    assert_int_equal(reclaim_synchronize(x->l, 0, NULL), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_non_null(reclaim_alloc(x->l, 64));
    fake_serve_end(x->f);
    fake_stop(x->f);
    assert_int_equal(reclaim_synchronize(x->l, 0, NULL), -ESHUTDOWN);
}

/*
 * The successor serves without a word: nothing was lost for who heard of its predecessor's end. The numbers
 * go on, so a cookie of before is over in time, and is smaller than those of after.
 */
static void test_successor_after_a_report(void **state)
{
    struct fixture *x = *state;
    pid_t pid = reopen(x, RECLAIM_REPORT_EXIT);
    uint64_t cookie, later;

    assert_int_equal(reclaim_gp_start(x->l, &cookie), 0);
    daemon_dies(pid);
    assert_int_equal(reclaim_gp_wait(x->l, cookie, NULL), -EOWNERDEAD);
    fake_set(x->f, completes, true);
    fake_serve(x->f);
    while (reclaim_gp_poll(x->r, cookie) == 0)
        (void)sched_yield();
    assert_int_equal(reclaim_gp_wait(x->l, cookie, NULL), 0);
    assert_int_equal(reclaim_gp_start(x->l, &later), 0);
    assert_true(later > cookie);
    while (reclaim_gp_poll(x->r, later) == 0)
        (void)sched_yield();
    assert_int_equal(reclaim_gp_poll(x->r, cookie), 1);
}

static void test_exit_cannot_be_reported(void **state)
{
    char message[256] = "";
    struct fixture *x = *state;
    struct reclaim_open_options opt = {.size = sizeof(opt),
                                       .flags = RECLAIM_REPORT_EXIT | RECLAIM_RELOCATED,
                                       .runtime_directory = x->f->directory,
                                       .message = message,
                                       .message_size = sizeof(message)};
    struct reclaim *r = NULL;

    daemon_dies(daemon_elsewhere(x->f));
    assert_int_equal(reclaim_open("test", &opt, &r), -ENOTSUP);
    assert_non_null(strstr(message, "RECLAIM_REPORT_EXIT"));
    assert_null(r);
    opt.flags = RECLAIM_RELOCATED;
    assert_int_equal(reclaim_open("test", &opt, &r), 0);
    reclaim_close(r);
}

/* Descriptors of processes; passed on by exec, or all. */
static unsigned count_pidfds(bool inherited_only)
{
    unsigned n = 0;

    for (int fd = 0; fd < 256; fd++) {
        char path[64], target[64] = "";
        int flags = fcntl(fd, F_GETFD);

        (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        if (flags < 0 || readlink(path, target, sizeof(target) - 1) < 0 || !strstr(target, "pidfd"))
            continue;
        n += !inherited_only || !(flags & FD_CLOEXEC);
    }
    return n;
}

/* Only for who asked, closed with the handle, not passed on by exec, nor kept by the child of a fork. */
static void test_exit_descriptor(void **state)
{
    struct fixture *x = *state;
    unsigned before = count_pidfds(false), inherited = count_pidfds(true);
    struct reclaim *r;
    pid_t pid, child;
    int status;

    pid = daemon_elsewhere(x->f);
    assert_int_equal(fake_open_flags(x->f, RECLAIM_RELOCATED, &r), 0);
    assert_int_equal(count_pidfds(false), before);
    reclaim_close(r);
    assert_int_equal(fake_open_flags(x->f, RECLAIM_REPORT_EXIT | RECLAIM_RELOCATED, &r), 0);
    assert_int_equal(count_pidfds(false), before + 1);
    assert_int_equal(count_pidfds(true), inherited);
    child = fork();
    if (child == 0)
        _exit(count_pidfds(false) == before ? 0 : 1);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    reclaim_close(r);
    assert_int_equal(count_pidfds(false), before);
    daemon_dies(pid);
}

#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(tickets),
        TEST(tickets_of_the_former_owner),
        TEST(ticket_timeouts),
        TEST(tickets_in_section),
        TEST(cookies),
        TEST(two_cookies),
        TEST(two_cookies_newer_first),
        TEST(cookies_outlive_the_daemon),
        TEST(bad_times),
        TEST(bad_flags),
        TEST(times),
        TEST(no_system_calls),
        TEST(system_calls_are_seen),
        TEST(signals),
        TEST(signals_that_restart),
        TEST(signals_not_asked_for),
        TEST(interrupt),
        TEST(interrupt_while_asleep),
        TEST(exit_is_reported),
        TEST(exit_is_reported_to_who_needs_room),
        TEST(exit_is_reported_to_who_asked),
        TEST(exit_is_waited_out),
        TEST(successor_after_a_report),
        TEST(exit_cannot_be_reported),
        TEST(exit_descriptor),
    };

    return cmocka_run_group_tests_name("lib-wait", tests, NULL, NULL);
}
