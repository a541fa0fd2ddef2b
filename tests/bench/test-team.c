/* SPDX-License-Identifier: MIT */
/* The team: everybody runs, its steps come in order, and whatever goes wrong in a worker ends it with words.
 */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "basic/macro.h"
#include "basic/ordering.h"
#include "team.h"
#include "words.h"

/* Shared by all processes of the team. */
struct job {
    unsigned n_process_init, n_thread_init, n_run, n_flush, n_barrier, n_thread_deinit, n_process_deinit;
    unsigned n_before_attach, n_before_start, n_after_end;
    unsigned n_run_at_barrier, n_init_at_start, n_through_at_end; /* what had happened by then */
    pid_t first_process;
    int fail_in_run, die_in_init;
};

static struct job *job;

static void count(unsigned *n)
{
    (void)fetch_add_relaxed(n, 1);
}

static int process_init(void *userdata, void **ret)
{
    count(&job->n_process_init);
    *ret = job;
    return 0;
}

static int thread_init(struct team_thread *t)
{
    assert_ptr_equal(t->process_data, job);
    if (job->die_in_init && t->index == 1)
        (void)raise(SIGKILL);
    count(&job->n_thread_init);
    t->data = t;
    return 0;
}

static int thread_run(struct team_thread *t)
{
    if (job->fail_in_run && t->index == 1)
        return words_set(-EXDEV, "thread %u has had enough", t->index);
    count(&job->n_run);
    t->n_done = 10 + t->index;
    t->retries = 1;
    return t->data == t ? 0 : -EINVAL;
}

static int thread_flush(struct team_thread *t)
{
    count(&job->n_flush);
    return 0;
}

static int process_barrier(struct team_thread *t)
{
    job->n_run_at_barrier = load_relaxed(&job->n_run);
    count(&job->n_barrier);
    return 0;
}

static void thread_deinit(struct team_thread *t)
{
    count(&job->n_thread_deinit);
}

static void process_deinit(void *process_data)
{
    count(&job->n_process_deinit);
}

static int before_attach(void *userdata, const pid_t *pids, unsigned n_pids)
{
    job->n_before_attach += n_pids;
    job->first_process = pids[0];
    return load_relaxed(&job->n_process_init) == 0 ? 0 : -EBUSY;
}

static int before_start(void *userdata)
{
    job->n_before_start++;
    job->n_init_at_start = load_relaxed(&job->n_thread_init);
    return load_relaxed(&job->n_run) == 0 ? 0 : -EBUSY;
}

static int after_end(void *userdata)
{
    job->n_after_end++;
    job->n_through_at_end = load_relaxed(&job->n_flush);
    return load_relaxed(&job->n_thread_deinit) == 0 ? 0 : -EBUSY;
}

static struct team_ops ops = {process_init,    thread_init, thread_run,    thread_flush,
                              process_barrier, false,       thread_deinit, process_deinit};
static const struct team_hooks hooks = {before_attach, before_start, after_end, NULL};

static int setup(void **state)
{
    job = team_share(sizeof(*job));
    ops.barrier_covers_all = false;
    return job && words_init() == 0 ? 0 : -1;
}

/* 5 threads over 2 processes, each step as often as it should and when it should. */
static void test_everybody_runs(void **state)
{
    struct team_result result;

    assert_int_equal(team_run(&ops, job, 2, 5, &hooks, &result), 0);
    assert_int_equal(job->n_before_attach, 2);
    assert_int_equal(job->n_process_init, 2);
    assert_int_equal(job->n_init_at_start, 5);
    assert_int_equal(job->n_run, 5);
    assert_int_equal(job->n_through_at_end, 5);
    assert_int_equal(job->n_barrier, 2);
    assert_int_equal(job->n_before_start, 1);
    assert_int_equal(job->n_after_end, 1);
    assert_int_equal(job->n_thread_deinit, 5);
    assert_int_equal(job->n_process_deinit, 2);
    assert_int_equal(result.n_done, 10 + 11 + 12 + 13 + 14);
    assert_int_equal(result.retries, 5);
    assert_true(result.freed_ns >= result.total_ns);
    assert_true(result.total_ns >= result.mean_run_ns);
}

/* A barrier that covers all is called once at least, and the last time after everybody has run. */
static void test_shared_barrier_comes_last(void **state)
{
    struct team_result result;

    ops.barrier_covers_all = true;
    assert_int_equal(team_run(&ops, job, 3, 3, &hooks, &result), 0);
    assert_true(job->n_barrier >= 1 && job->n_barrier <= 3);
    assert_int_equal(job->n_run_at_barrier, 3);
}

static void test_failure_in_a_worker(void **state)
{
    struct team_result result = {.n_done = 77};

    job->fail_in_run = 1;
    assert_true(team_run(&ops, job, 2, 4, &hooks, &result) < 0);
    assert_string_equal(words_get(), "thread 1 has had enough");
    assert_int_equal(result.n_done, 77);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no process is left */
}

static void test_death_of_a_worker(void **state)
{
    struct team_result result;

    job->die_in_init = 1;
    assert_true(team_run(&ops, job, 2, 2, &hooks, &result) < 0);
    assert_non_null(strstr(words_get(), "signal 9"));
    assert_int_equal(kill(job->first_process, 0), -1);
}

static int refuse(void *userdata)
{
    return words_set(-EACCES, "the hook refuses");
}

static void test_failure_in_a_hook(void **state)
{
    const struct team_hooks refusing = {before_attach, refuse, after_end, NULL};
    struct team_result result;

    assert_int_equal(team_run(&ops, job, 1, 2, &refusing, &result), -EACCES);
    assert_string_equal(words_get(), "the hook refuses");
    assert_int_equal(job->n_run, 0);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
}

static void test_first_words_stay(void **state)
{
    assert_null(words_get());
    assert_int_equal(words_set(-EPERM, "first %d", 1), -EPERM);
    assert_int_equal(words_set(-EIO, "second"), -EIO);
    assert_string_equal(words_get(), "first 1");
    assert_int_equal(words_init(), 0);
    assert_null(words_get());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_everybody_runs, setup),
        cmocka_unit_test_setup(test_shared_barrier_comes_last, setup),
        cmocka_unit_test_setup(test_failure_in_a_worker, setup),
        cmocka_unit_test_setup(test_death_of_a_worker, setup),
        cmocka_unit_test_setup(test_failure_in_a_hook, setup),
        cmocka_unit_test_setup(test_first_words_stay, setup),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
