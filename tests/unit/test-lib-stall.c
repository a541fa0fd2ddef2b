/* SPDX-License-Identifier: MIT */
/* The callback for stalls of one's own readers, with a daemon that is the test itself. */
#include "lib-fixture.h"

#include <dirent.h>
#include <limits.h>
#include <semaphore.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "basic/cleanup.h"

enum {
    CALLS_MAX = 16,
    HANG_SECONDS = 30,
};

/* What the callback was told, and what it is to do then. */
struct heard {
    sem_t called;
    unsigned n;
    struct reclaim_stall calls[CALLS_MAX];
    int (*act)(const struct reclaim_stall *stall);
    int results[CALLS_MAX]; /* of act() */
};

static void hear(const struct reclaim_stall *stall, void *userdata)
{
    struct heard *h = userdata;

    assert_true(h->n < CALLS_MAX);
    h->calls[h->n] = *stall;
    if (h->act)
        h->results[h->n] = h->act(stall);
    h->n++;
    (void)sem_post(&h->called);
}

static struct heard *heard_init(struct heard *h)
{
    *h = (struct heard){.n = 0};
    assert_int_equal(sem_init(&h->called, 0, 0), 0);
    return h;
}

/* The next call. */
static const struct reclaim_stall *heard_next(struct heard *h, unsigned i)
{
    struct timespec until;

    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += HANG_SECONDS;
    assert_int_equal(sem_timedwait(&h->called, &until), 0);
    return &h->calls[i];
}

/* As the daemon does it. */
static void report_begin(struct fake *f, unsigned lane, uint64_t gp, uint64_t usec, bool ended)
{
    struct abi_stall *s = &fake_lane(f, lane)->stall;

    store_release(&s->sequence, s->sequence + 1);
    s->gp = gp;
    s->usec = usec;
    s->objects = gp * 10;
    s->bytes = gp * 100;
    s->waiters = gp * 1000;
    s->tid = (uint32_t)gettid();
    s->ended = ended;
}

static void report_publish(struct fake *f, unsigned lane)
{
    struct abi_stall *s = &fake_lane(f, lane)->stall;

    store_release(&s->sequence, s->sequence + 1);
}

static void report_ring(struct fake *f)
{
    store_release(&f->channel->stalls, f->channel->stalls + 1);
    (void)syscall(SYS_futex, &f->channel->stalls, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

static void report(struct fake *f, unsigned lane, uint64_t gp, uint64_t usec, bool ended)
{
    report_begin(f, lane, gp, usec, ended);
    report_publish(f, lane);
    report_ring(f);
}

static void expect_stall(const struct reclaim_stall *s, uint64_t gp, uint64_t usec, int ended)
{
    assert_int_equal(s->grace_period, gp);
    assert_int_equal(s->usec, usec);
    assert_int_equal(s->ended, ended);
}

static unsigned n_threads(void)
{
    _cleanup_closedir_ DIR *tasks = opendir("/proc/self/task");
    unsigned n = 0;

    assert_non_null(tasks);
    for (struct dirent *e = readdir(tasks); e; e = readdir(tasks))
        n += e->d_name[0] != '.';
    return n;
}

static void a_stall_is_told_and_its_end(void **state)
{
    struct fixture *x = *state;
    const struct reclaim_stall *s;
    struct heard h;

    assert_int_equal(reclaim_set_stall_callback(x->r, hear, heard_init(&h)), 0);
    report(x->f, 0, 8, 100, false);
    s = heard_next(&h, 0);
    expect_stall(s, 8, 100, 0);
    assert_int_equal(s->size, sizeof(*s));
    assert_ptr_equal(s->r, x->r);
    assert_ptr_equal(s->lane, x->l);
    assert_int_equal(s->tid, gettid());
    assert_int_equal(s->objects, 80);
    assert_int_equal(s->bytes, 800);
    assert_int_equal(s->waiters, 8000);
    report(x->f, 0, 8, 300, false);
    expect_stall(heard_next(&h, 1), 8, 300, 0);
    report(x->f, 0, 8, 350, true);
    expect_stall(heard_next(&h, 2), 8, 350, 1);
    report(x->f, 3, 9, 100, false); /* a lane that nobody has any more */
    s = heard_next(&h, 3);
    expect_stall(s, 9, 100, 0);
    assert_null(s->lane);
    assert_int_equal(reclaim_set_stall_callback(x->r, NULL, NULL), 0);
    assert_int_equal(h.n, 4);
}

/* T3: who was slow hears that the former one is over before he hears of the next. */
static void an_end_that_was_overwritten_is_told(void **state)
{
    struct fixture *x = *state;
    struct heard h;

    assert_int_equal(reclaim_set_stall_callback(x->r, hear, heard_init(&h)), 0);
    report(x->f, 0, 8, 100, false);
    expect_stall(heard_next(&h, 0), 8, 100, 0);
    report(x->f, 0, 11, 200, false);
    expect_stall(heard_next(&h, 1), 8, 100, 1);
    expect_stall(heard_next(&h, 2), 11, 200, 0);
    report(x->f, 0, 12, 300, true); /* its beginning went by, too */
    expect_stall(heard_next(&h, 3), 11, 200, 1);
    expect_stall(heard_next(&h, 4), 12, 300, 1);
    assert_int_equal(reclaim_set_stall_callback(x->r, NULL, NULL), 0);
}

/* T1: what is half written is not told; another lane's report in between makes it look. */
static void half_a_report_is_none(void **state)
{
    struct fixture *x = *state;
    struct heard h;

    assert_int_equal(reclaim_set_stall_callback(x->r, hear, heard_init(&h)), 0);
    report_begin(x->f, 0, 8, 100, false);
    report(x->f, 1, 9, 200, false);
    expect_stall(heard_next(&h, 0), 9, 200, 0);
    report_publish(x->f, 0);
    report_ring(x->f);
    expect_stall(heard_next(&h, 1), 8, 100, 0);
    assert_int_equal(reclaim_set_stall_callback(x->r, NULL, NULL), 0);
}

static void what_was_before_is_told_if_it_lasts(void **state)
{
    struct fixture *x = *state;
    struct heard h;

    report(x->f, 0, 8, 100, true);
    report(x->f, 1, 9, 200, false);
    assert_int_equal(reclaim_set_stall_callback(x->r, hear, heard_init(&h)), 0);
    expect_stall(heard_next(&h, 0), 9, 200, 0);
    report(x->f, 1, 9, 250, true);
    expect_stall(heard_next(&h, 1), 9, 250, 1);
    assert_int_equal(reclaim_set_stall_callback(x->r, NULL, NULL), 0);
    assert_int_equal(h.n, 2);
}

/* T4 */
static void the_thread_is_there_while_it_is_needed(void **state)
{
    struct fixture *x = *state;
    unsigned n = n_threads();
    struct heard first, second;

    assert_int_equal(reclaim_set_stall_callback(x->r, NULL, NULL), 0); /* nothing was registered */
    assert_int_equal(n_threads(), n);
    assert_int_equal(reclaim_set_stall_callback(x->r, hear, heard_init(&first)), 0);
    assert_int_equal(n_threads(), n + 1);
    assert_int_equal(reclaim_set_stall_callback(x->r, hear, heard_init(&second)), 0); /* instead of it */
    assert_int_equal(n_threads(), n + 1);
    report(x->f, 0, 8, 100, false);
    expect_stall(heard_next(&second, 0), 8, 100, 0);
    assert_int_equal(first.n, 0);
    reclaim_close(x->r);
    assert_int_equal(n_threads(), n);
    report(x->f, 0, 8, 300, false);
    assert_int_equal(second.n, 1);
    assert_int_equal(fake_open_flags(x->f, 0, &x->r), 0); /* for the teardown */
}

/* ---- What the callback may do ---- */

static int act_misbehave(const struct reclaim_stall *stall)
{
    reclaim_close(stall->r);
    return reclaim_set_stall_callback(stall->r, NULL, NULL);
}

static int act_read(const struct reclaim_stall *stall)
{
    struct reclaim_lane *l;
    sigset_t blocked;
    int r = reclaim_lane_get(stall->r, &l);

    if (r < 0 || l == stall->lane || pthread_sigmask(SIG_BLOCK, NULL, &blocked) != 0 ||
        sigismember(&blocked, SIGTERM) != 1)
        return -EINVAL;
    r = reclaim_read_lock(l);
    reclaim_read_unlock(l);
    return r;
}

static void the_callback_may_read_and_not_close(void **state)
{
    struct fixture *x = *state;
    struct heard h;

    heard_init(&h)->act = act_misbehave;
    assert_int_equal(reclaim_set_stall_callback(x->r, hear, &h), 0);
    report(x->f, 0, 8, 100, false);
    (void)heard_next(&h, 0);
    assert_int_equal(h.results[0], -EDEADLK);
    assert_int_equal(reclaim_read_lock(x->l), 0); /* nothing was closed */
    reclaim_read_unlock(x->l);

    heard_init(&h)->act = act_read;
    assert_int_equal(reclaim_set_stall_callback(x->r, hear, &h), 0);
    report(x->f, 0, 8, 300, false);
    (void)heard_next(&h, 0);
    assert_int_equal(h.results[0], 0);
    assert_int_equal(reclaim_set_stall_callback(x->r, NULL, NULL), 0);
    for (int i = 0; i < HANG_SECONDS * 1000 && fake_get(x->f, n_puts) == 0; i++)
        (void)usleep(1000);
    assert_int_equal(fake_get(x->f, n_puts), 1); /* its thread gave its lane back */
}

static void exit_thread(const struct reclaim_stall *stall, void *userdata)
{
    (void)sem_post(userdata);
    pthread_exit(NULL);
}

static void its_thread_may_exit(void **state)
{
    struct fixture *x = *state;
    struct heard h;

    assert_int_equal(reclaim_set_stall_callback(x->r, exit_thread, &heard_init(&h)->called), 0);
    report(x->f, 0, 8, 100, false);
    (void)heard_next(&h, 0);
    assert_int_equal(reclaim_set_stall_callback(x->r, NULL, NULL), 0);
}

/* ---- Forks: T5 ---- */

static void expect_child(pid_t pid)
{
    int status;

    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void a_child_has_no_callback(void **state)
{
    struct fixture *x = *state;
    struct heard h;
    pid_t pid;

    assert_int_equal(reclaim_set_stall_callback(x->r, hear, heard_init(&h)), 0);
    pid = fork();
    if (pid == 0) {
        (void)alarm(HANG_SECONDS);
        reclaim_close(x->r);
        _exit(n_threads() == 1 && reclaim_set_stall_callback(x->r, hear, &h) == -ESTALE ? 0 : 1);
    }
    expect_child(pid);
    report(x->f, 0, 8, 100, false); /* and the parent has it still */
    expect_stall(heard_next(&h, 0), 8, 100, 0);
    assert_int_equal(reclaim_set_stall_callback(x->r, NULL, NULL), 0);
}

/* In the child the thread of the callback is the only one: it returns, and the process ends. */
static int act_fork(const struct reclaim_stall *stall)
{
    pid_t pid = fork();

    if (pid == 0)
        (void)alarm(HANG_SECONDS);
    return pid;
}

static void the_callback_may_fork(void **state)
{
    struct fixture *x = *state;
    struct heard h;

    heard_init(&h)->act = act_fork;
    report(x->f, 0, 8, 100, false);
    report(x->f, 1, 9, 100, false);
    assert_int_equal(reclaim_set_stall_callback(x->r, hear, &h), 0);
    (void)heard_next(&h, 0);
    (void)heard_next(&h, 1);
    assert_int_equal(reclaim_set_stall_callback(x->r, NULL, NULL), 0);
    expect_child(h.results[0]);
    expect_child(h.results[1]);
}

static void nonsense_is_refused(void **state)
{
    assert_int_equal(reclaim_set_stall_callback(NULL, hear, NULL), -EINVAL);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_stall_is_told_and_its_end),
        TEST(an_end_that_was_overwritten_is_told),
        TEST(half_a_report_is_none),
        TEST(what_was_before_is_told_if_it_lasts),
        cmocka_unit_test_setup_teardown(what_was_before_is_told_if_it_lasts, setup_read_only, teardown),
        cmocka_unit_test_setup_teardown(a_stall_is_told_and_its_end, setup_fenced, teardown),
        TEST(the_thread_is_there_while_it_is_needed),
        TEST(the_callback_may_read_and_not_close),
        TEST(its_thread_may_exit),
        TEST(a_child_has_no_callback),
        TEST(the_callback_may_fork),
        TEST(nonsense_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
