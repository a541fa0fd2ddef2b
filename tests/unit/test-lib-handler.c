/* SPDX-License-Identifier: MIT */
/*
 * Signal handlers that read while their thread gives its lane back, or that come just before it goes to
 * sleep. A child stops itself at each step; it gets the signal before it goes on. Links with a copy of the
 * library that has test points.
 */
#include <signal.h>
#include <sys/wait.h>

#include "basic/testpoint.h"

#include "fake-daemon.h"

/* What the handler found, as the child's exit status. */
enum found {
    FOUND_NOTHING, /* the handler never ran */
    FOUND_SECTION,
    FOUND_STALE,
    FOUND_OTHER,
    FOUND_WAIT_ENDED, /* -EINTR */
    FOUND_WAIT_WENT_ON,
};

#ifdef __SANITIZE_THREAD__
#define skip_where_signals_are_held_back() skip() /* ThreadSanitizer delivers them when it sees fit */
#else
#define skip_where_signals_are_held_back() ((void)0)
#endif

static struct reclaim_lane *handler_lane;
static volatile sig_atomic_t found;

static void read_in_handler(int signal)
{
    int r = reclaim_read_lock(handler_lane);

    (void)signal;
    found = r == 0 ? FOUND_SECTION : r == -ESTALE ? FOUND_STALE : FOUND_OTHER;
    if (r == 0)
        reclaim_read_unlock(handler_lane);
}

/* In the child of a fork: a lane of its own, given back. */
static void child_gives_back(struct fake *f)
{
    struct reclaim *r = fake_open(f, &handler_lane);
    uint64_t cookie;

    (void)reclaim_read_lock(handler_lane); /* also of who forgot to unlock */
    (void)signal(SIGUSR1, read_in_handler);
    testpoint_reload();
    (void)reclaim_gp_start(handler_lane, &cookie);
    reclaim_lane_put(handler_lane);
    reclaim_close(r);
    _exit(found);
}

static void interrupt_in_handler(int signal)
{
    (void)signal;
    (void)reclaim_lane_interrupt(handler_lane);
}

/* In the child of a fork: nobody serves what it waits for. */
static void child_waits(struct fake *f)
{
    const struct timespec limit = {.tv_sec = 10};
    struct reclaim *r = fake_open(f, &handler_lane);
    int error;

    (void)signal(SIGUSR1, interrupt_in_handler);
    testpoint_reload();
    error = reclaim_synchronize(handler_lane, RECLAIM_INTERRUPTIBLE, &limit);
    reclaim_close(r);
    _exit(error == -EINTR ? FOUND_WAIT_ENDED : error == -ETIMEDOUT ? FOUND_WAIT_WENT_ON : FOUND_OTHER);
}

static enum found found_at(struct fake *f, const char *point, void (*child_main)(struct fake *f))
{
    pid_t child;
    int status;

    assert_int_equal(setenv("RECLAIM_TEST_POINT", point, 1), 0);
    child = fork();
    if (child == 0)
        child_main(f);
    assert_int_equal(waitpid(child, &status, WUNTRACED), child);
    assert_int_equal(unsetenv("RECLAIM_TEST_POINT"), 0);
    assert_true(WIFSTOPPED(status));
    assert_int_equal(kill(child, SIGUSR1), 0);
    assert_int_equal(kill(child, SIGCONT), 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(fake_slot(f, 0)->word, 0); /* whatever it found, it left nothing behind */
    return (enum found)WEXITSTATUS(status);
}

/* As soon as the daemon could give the slot to another thread, and before, it is no longer this one's. */
static void test_put(void **state)
{
    struct fake *f;

    (void)state;
    skip_where_signals_are_held_back();
    f = fake_start();
    assert_int_equal(found_at(f, "put-retired:stop", child_gives_back), FOUND_STALE);
    assert_int_equal(found_at(f, "put-slot:stop", child_gives_back), FOUND_STALE);
    assert_int_equal(found_at(f, "put-owner:stop", child_gives_back), FOUND_STALE);
    fake_free(f);
}

/* The same handler before anything is given back: it reads. */
static void test_before_put(void **state)
{
    struct fake *f;

    (void)state;
    skip_where_signals_are_held_back();
    f = fake_start();
    assert_int_equal(found_at(f, "cookie-wanted:stop", child_gives_back), FOUND_SECTION);
    fake_free(f);
}

/* After the last look and before the sleep: the signal is not slept through. */
static void test_before_sleep(void **state)
{
    struct fake *f;

    (void)state;
    skip_where_signals_are_held_back();
    f = fake_start();
    assert_int_equal(found_at(f, "wait-sleep:stop", child_waits), FOUND_WAIT_ENDED);
    assert_int_equal(found_at(f, "ticket:stop", child_waits), FOUND_WAIT_ENDED);
    assert_int_equal(found_at(f, "wait-sleep:stop@2", child_waits),
                     FOUND_WAIT_ENDED); /* of its second turn */
    fake_free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_put),
        cmocka_unit_test(test_before_put),
        cmocka_unit_test(test_before_sleep),
    };

    return cmocka_run_group_tests_name("lib-handler", tests, NULL, NULL);
}
