/* SPDX-License-Identifier: MIT */
/* Processes and threads that end in every way: cases 05, 07, 08, 13, 17 and 18. */
#include "case-raw.h"

#include <fcntl.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum {
    KILLS = 150,
    LANES_OF_KILLED = 3,
};

static const struct timespec limit = {.tv_sec = HANG_SECONDS};
static const struct timespec moment = {.tv_nsec = 50000000};

static void start(struct daemon *d, const char *setting)
{
    daemon_start(d, "--arena", "a:32M", "--set", "drain-interval=5ms", "--set", "purge-delay=100ms", "--set", setting, NULL);
}

/* A reader that shares nothing with the test but a pipe: it says when it is in its section, then stays. */
struct reader {
    const struct daemon *d;
    int pipe[2];
    int (*then)(struct reclaim *r, struct reclaim_lane *l); /* NULL: sleeps */
};

static int reader_main(void *userdata)
{
    struct reader *reader = userdata;
    struct reclaim *r = NULL;
    struct reclaim_lane *l;

    CHECK(try_open(reader->d, "a", 0, 0, 0, NULL, &r) == 0);
    CHECK(reclaim_lane_get(r, &l) == 0);
    CHECK(reclaim_read_lock(l) == 0);
    CHECK(write(reader->pipe[1], "", 1) == 1);
    if (reader->then)
        return reader->then(r, l);
    for (;;)
        (void)pause();
}

/* Returns once the section has begun. */
static pid_t reader_start(struct reader *reader)
{
    char byte;
    pid_t pid;

    assert_int_equal(pipe2(reader->pipe, O_CLOEXEC), 0);
    pid = child_start(reader_main, reader);
    assert_int_equal(read(reader->pipe[0], &byte, 1), 1);
    (void)close(reader->pipe[0]);
    (void)close(reader->pipe[1]);
    return pid;
}

/* ---- 05 and 13 ---------------------------------------------------------------------------------------------------------- */

/* In sections, allocating, deferring, coming and going: killed anywhere. */
static int work(void *userdata)
{
    const struct daemon *d = userdata;

    for (;;) {
        struct reclaim *r = NULL;
        struct reclaim_lane *l;
        int error = try_open(d, "a", 0, 0, 0, NULL, &r);

        CHECK(error == 0);
        for (int i = 0; i < 200; i++) {
            CHECK(reclaim_lane_get(r, &l) == 0);
            CHECK(reclaim_read_lock(l) == 0);
            for (int j = 0; j < 100; j++)
                CHECK(reclaim_defer_free(l, reclaim_alloc(l, j % 50 ? 32 : 5000)) == 0);
            reclaim_read_unlock(l);
            if (i % 20 == 0)
                CHECK(reclaim_synchronize(l, RECLAIM_EXPEDITED, &limit) == 0);
            if (i % 50 == 0)
                reclaim_lane_put(l);
        }
        reclaim_close(r);
    }
}

static void case_05_slots_never_run_out(void **state)
{
    struct daemon *d = *state;
    struct reclaim *r;

    start(d, "clients-max=2");
    for (int i = 0; i < KILLS; i++) {
        struct reader reader = {.d = d};

        child_kill(reader_start(&reader)); /* the next attach works at once, in the middle of the clearing up */
    }
    r = must_open(d, "a");
    assert_int_equal(reclaim_synchronize(must_lane(r), 0, &limit), 0);
    assert_true(wait_until(n_clients(d) == 1));
    reclaim_close(r);
    assert_true(wait_until(arena_figure(d, "a", "lanes") == 0));
    daemon_stop(d);
}

static void case_13_killed_at_any_instruction(void **state)
{
    struct daemon *d = *state;
    struct reclaim_lane *l;
    struct reclaim *r;

    start(d, "lanes-max=16");
    r = must_open(d, "a");
    l = must_lane(r);
    for (int i = 0; i < KILLS; i++) {
        pid_t pid = child_start(work, d);
        const struct timespec nap = {.tv_nsec = 300000 + i * 7919 % 5000 * 1000};

        (void)nanosleep(&nap, NULL);
        child_kill(pid);
        for (int j = 0; j < 100; j++)
            assert_int_equal(reclaim_defer_free(l, must_alloc(l, 32)), 0);
        assert_int_equal(reclaim_synchronize(l, 0, &limit), 0);
        if (i % 25 == 0)
            daemon_audit(d);
    }
    assert_true(wait_until(n_clients(d) == 1));
    assert_int_equal(reclaim_barrier(l, &limit), 0);
    assert_int_equal(arena_figure(d, "a", "refusedRecords"), 0);
    reclaim_close(r);
    daemon_stop(d);
}

/* What killed programs held privately is lost, at most; what they deferred or had in magazines comes back. */
static void case_13_magazines_come_back(void **state)
{
    struct daemon *d = *state;

    start(d, "lanes-max=16");
    for (int i = 0; i < 20; i++) {
        pid_t pid = child_start(work, d);

        sleep_ms(10);
        child_kill(pid);
    }
    assert_true(wait_until(n_clients(d) == 0));
    ctl_do(d, "barrier", "a", NULL);
    /* one object a kill was between alloc and defer; a few more bytes for the roots */
    assert_true(arena_figure(d, "a", "inUseObjects") <= 20);
    daemon_stop(d);
}

/* ---- 07 ------------------------------------------------------------------------------------------------------------------ */

static void ends_with(struct daemon *d, struct reader *reader, void (*end)(pid_t pid))
{
    struct reclaim_lane *l;
    struct reclaim *r;
    pid_t pid;

    start(d, "stall-timeout=1h");
    r = must_open(d, "a");
    l = must_lane(r);
    reader->d = d;
    pid = reader_start(reader);
    if (end) {
        assert_int_equal(reclaim_synchronize(l, 0, &moment), -ETIMEDOUT); /* it really holds it up */
        end(pid);
    }
    assert_int_equal(reclaim_synchronize(l, 0, &limit), 0);
    if (waitpid(pid, NULL, WNOHANG) == 0)
        child_kill(pid);
    assert_true(wait_until(n_clients(d) == 1));
    reclaim_close(r);
    daemon_stop(d);
}

static void end_kill(pid_t pid)
{
    child_kill(pid);
}

static void case_07_reader_killed_in_section(void **state)
{
    ends_with(*state, &(struct reader){0}, end_kill);
}

static void end_segv(pid_t pid)
{
    assert_int_equal(kill(pid, SIGSEGV), 0);
    (void)child_wait(pid);
}

static void case_07_reader_crashes_in_section(void **state)
{
    ends_with(*state, &(struct reader){0}, end_segv);
}

/* Dead, not reaped: nobody waits for it while we do. */
static void end_zombie(pid_t pid)
{
    assert_int_equal(kill(pid, SIGKILL), 0);
}

static void case_07_zombie(void **state)
{
    ends_with(*state, &(struct reader){0}, end_zombie);
}

static int then_exec(struct reclaim *r, struct reclaim_lane *l)
{
    sleep_ms(150);
    (void)execl("/bin/sleep", "sleep", "100", NULL);
    return 1;
}

static void end_not(pid_t pid)
{
    (void)pid;
}

/* The mapping is gone, the process is not. */
static void case_07_exec_with_live_lanes(void **state)
{
    ends_with(*state, &(struct reader){.then = then_exec}, end_not);
}

static void *exec_thread(void *userdata)
{
    struct reclaim_lane *l;

    CHECK(reclaim_lane_get(userdata, &l) == 0);
    CHECK(reclaim_read_lock(l) == 0);
    (void)then_exec(userdata, l);
    return NULL;
}

/* A thread that is not the first one changes its number by exec. */
static int then_exec_in_thread(struct reclaim *r, struct reclaim_lane *l)
{
    pthread_t thread;

    CHECK(pthread_create(&thread, NULL, exec_thread, r) == 0);
    (void)pthread_join(thread, NULL);
    return 1;
}

static void case_07_exec_by_another_thread(void **state)
{
    ends_with(*state, &(struct reader){.then = then_exec_in_thread}, end_not);
}

static int then_exit(struct reclaim *r, struct reclaim_lane *l)
{
    sleep_ms(100);
    exit(0);
}

static void case_07_exit_in_section(void **state)
{
    ends_with(*state, &(struct reader){.then = then_exit}, end_not);
}

/* ---- 18 ------------------------------------------------------------------------------------------------------------------ */

static void *thread_returns(struct actor *a, void *userdata)
{
    return (void *)(intptr_t)reclaim_read_lock(a->lane);
}

static void *thread_exits_raw(struct actor *a, void *userdata)
{
    (void)reclaim_read_lock(a->lane);
    (void)sem_post(&a->done);
    (void)syscall(SYS_exit, 0);
    return NULL;
}

static void *thread_waits(struct actor *a, void *userdata)
{
    (void)reclaim_read_lock(a->lane);
    (void)sem_post(&a->done);
    for (;;)
        (void)pause();
    return NULL;
}

/* The process lives on; its other lanes and its handle are as before. */
static void case_18_threads_end_in_section(void **state)
{
    struct daemon *d = *state;
    struct actor actor = {0};
    struct reclaim_lane *l;
    struct reclaim *r;

    start(d, "lanes-max=3");
    r = must_open(d, "a");
    l = must_lane(r);
    for (int i = 0; i < 10; i++) {
        actor_start(&actor, r); /* returns */
        assert_null(actor_do(&actor, thread_returns, NULL));
        assert_int_equal(reclaim_synchronize(l, 0, &moment), -ETIMEDOUT);
        actor_stop(&actor);
        assert_int_equal(reclaim_synchronize(l, 0, &limit), 0);

        actor_start(&actor, r); /* is cancelled */
        actor_begin(&actor, thread_waits, NULL);
        (void)actor_end(&actor);
        assert_int_equal(reclaim_synchronize(l, 0, &moment), -ETIMEDOUT);
        assert_int_equal(pthread_cancel(actor.thread), 0);
        assert_int_equal(pthread_join(actor.thread, NULL), 0);
        assert_int_equal(reclaim_synchronize(l, 0, &limit), 0);

        actor_start(&actor, r); /* leaves by the system call, past all clearing up */
        actor_begin(&actor, thread_exits_raw, NULL);
        (void)actor_end(&actor);
        assert_int_equal(pthread_join(actor.thread, NULL), 0);
        assert_int_equal(reclaim_synchronize(l, 0, &limit), 0);
    }
    assert_int_equal(n_clients(d), 1);
    assert_true(wait_until(arena_figure(d, "a", "lanes") == 1));
    reclaim_close(r);
    daemon_stop(d);
}

/* ---- 17 ------------------------------------------------------------------------------------------------------------------ */

struct parent {
    const struct daemon *d;
    struct reclaim *r;
    struct reclaim_lane *l;
    void *object, **root;
    int depth;
};

/* Everything of the parent's says so, and does nothing. */
static void check_stale(struct parent *p)
{
    struct reclaim_stats stats = {.size = sizeof(stats)};
    struct reclaim_lane *l;
    uint64_t cookie;
    void **root;

    CHECK(reclaim_read_lock(p->l) == -ESTALE);
    reclaim_read_unlock(p->l);
    errno = 0;
    CHECK(!reclaim_alloc(p->l, 64) && errno == ESTALE);
    CHECK(!reclaim_alloc(p->l, 100000) && errno == ESTALE);
    CHECK(reclaim_defer_free(p->l, p->object) == -ESTALE);
    CHECK(reclaim_free(p->l, p->object) == -ESTALE);
    CHECK(reclaim_synchronize(p->l, 0, NULL) == -ESTALE);
    CHECK(reclaim_barrier(p->l, NULL) == -ESTALE);
    CHECK(reclaim_gp_start(p->l, &cookie) == -ESTALE);
    CHECK(reclaim_gp_poll(p->r, 1) == -ESTALE);
    CHECK(reclaim_gp_wait(p->l, 1, NULL) == -ESTALE);
    CHECK(reclaim_lane_get(p->r, &l) == -ESTALE);
    CHECK(reclaim_root(p->r, "word", &root) == -ESTALE);
    CHECK(reclaim_stats(p->r, &stats) == -ESTALE);
    CHECK(strstr(reclaim_strerror(-ESTALE), "parent"));
}

static int fork_child(void *userdata)
{
    struct parent *p = userdata;
    struct parent own = {.d = p->d, .depth = p->depth - 1};
    int status;

    check_stale(p);
    CHECK(try_open(p->d, "a", 0, 0, 0, NULL, &own.r) == 0);
    CHECK(reclaim_lane_get(own.r, &own.l) == 0);
    CHECK((own.object = reclaim_alloc(own.l, 64)) != NULL);
    CHECK(reclaim_read_lock(own.l) == 0);
    if (own.depth > 0) {
        pid_t pid = fork();

        if (pid == 0)
            exit(fork_child(&own)); /* with all handlers and destructors */
        CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
    }
    reclaim_read_unlock(own.l);
    CHECK(reclaim_defer_free(own.l, own.object) == 0);
    check_stale(p);
    reclaim_close(own.r);
    reclaim_close(p->r); /* the parent's: nothing of it is here */
    return 0;
}

static int fork_child_main(void *userdata)
{
    exit(fork_child(userdata));
}

static void fork_deep(struct daemon *d, int depth)
{
    struct parent p = {.d = d, .depth = depth};
    struct actor waiter = {0};
    pid_t pid;

    start(d, "stall-timeout=1h");
    p.r = must_open(d, "a");
    p.l = must_lane(p.r);
    p.object = memset(must_alloc(p.l, 64), 0x77, 64);
    actor_start(&waiter, p.r);
    assert_int_equal(reclaim_read_lock(p.l), 0); /* before the fork, and over it */
    pid = child_start(fork_child_main, &p);
    child_must_succeed(pid);
    reclaim_read_unlock(p.l);
    assert_true(wait_until(n_clients(d) == 1));

    for (int i = 0; i < 1000; i++) /* untouched */
        assert_int_equal(reclaim_defer_free(p.l, must_alloc(p.l, 64)), 0);
    assert_int_equal(((unsigned char *)p.object)[63], 0x77);
    assert_int_equal(reclaim_defer_free(p.l, p.object), 0);
    assert_int_equal(reclaim_barrier(p.l, &limit), 0);
    assert_int_equal(arena_figure(d, "a", "refusedRecords"), 0);
    actor_stop(&waiter);
    reclaim_close(p.r);
    daemon_stop(d);
}

static void case_17_fork_one_level(void **state)
{
    fork_deep(*state, 1);
}

static void case_17_fork_two_deep(void **state)
{
    fork_deep(*state, 2);
}

/* The parent dies, the child of the fork lives: it keeps nothing of the parent's alive. */
static int then_fork_and_die(struct reclaim *r, struct reclaim_lane *l)
{
    pid_t pid = fork();

    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, 0);
        sleep_ms(2000);
        _exit(0);
    }
    sleep_ms(100);
    (void)kill(getpid(), SIGKILL);
    return 1;
}

static void case_17_child_outlives_parent(void **state)
{
    ends_with(*state, &(struct reader){.then = then_fork_and_die}, NULL);
}

/* ---- 08 ------------------------------------------------------------------------------------------------------------------ */

/* First process of a pid namespace of its own: its number is 1 there, as that of every other one. */
static int container_main(void *userdata)
{
    pid_t pid;
    int status;

    CHECK(unshare(CLONE_NEWPID) == 0);
    pid = fork();
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        CHECK(getpid() == 1);
        _exit(reader_main(userdata));
    }
    (void)waitpid(pid, &status, 0);
    return 0;
}

static bool may_unshare(void)
{
    pid_t pid = fork();
    int status;

    if (pid == 0)
        _exit(unshare(CLONE_NEWPID) == 0 ? 0 : 1);
    return waitpid(pid, &status, 0) == pid && status == 0;
}

/* Known to be dead; listed until a grace period has passed, which the other reader holds up. */
static unsigned n_clients_dying(const struct daemon *d)
{
    json_object *clients = ctl_json(d, "list-clients", NULL), *state;
    unsigned n = 0;

    for (size_t i = 0; i < json_object_array_length(clients); i++)
        if (json_object_object_get_ex(json_object_array_get_idx(clients, i), "state", &state))
            n += strcmp(json_object_get_string(state), "dying") == 0;
    json_object_put(clients);
    return n;
}

/* The reader, by the number that it has out here; then its parent ends by itself. */
static void kill_child_of(pid_t parent)
{
    char path[64];
    int child = 0;
    FILE *f;

    (void)snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)parent, (int)parent);
    f = fopen(path, "re");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%d", &child), 1);
    (void)fclose(f);
    assert_int_equal(kill(child, SIGKILL), 0);
    child_must_succeed(parent);
}

static void case_08_two_containers_same_pid(void **state)
{
    struct daemon *d = *state;
    struct reader readers[2] = {{.d = d}, {.d = d}};
    struct reclaim_lane *l;
    struct reclaim *r;
    pid_t pids[2];
    char byte;

    if (!may_unshare()) {
        (void)printf("skipped: this user cannot make pid namespaces\n");
        skip();
    }
    start(d, "stall-timeout=1h");
    r = must_open(d, "a");
    l = must_lane(r);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pipe2(readers[i].pipe, O_CLOEXEC), 0);
        pids[i] = child_start(container_main, &readers[i]);
        assert_int_equal(read(readers[i].pipe[0], &byte, 1), 1);
    }
    assert_int_equal(n_clients(d), 3);
    assert_int_equal(reclaim_synchronize(l, 0, &moment), -ETIMEDOUT);
    kill_child_of(pids[0]); /* the other one still reads */
    assert_true(wait_until(n_clients_dying(d) == 1));
    assert_int_equal(reclaim_synchronize(l, 0, &moment), -ETIMEDOUT);
    kill_child_of(pids[1]);
    assert_int_equal(reclaim_synchronize(l, 0, &limit), 0);
    for (int i = 0; i < 4; i++)
        (void)close(readers[i / 2].pipe[i % 2]);
    reclaim_close(r);
    daemon_stop(d);
}

/* A process with a number of our choice, or -1. */
static pid_t fork_as(pid_t pid)
{
    struct clone_args args = {.exit_signal = SIGCHLD, .set_tid = (uint64_t)(uintptr_t)&pid, .set_tid_size = 1};

    return (pid_t)syscall(SYS_clone3, &args, sizeof(args));
}

/* Without the library, which goes by what the C library thinks is its number. */
static int attach_raw(const struct daemon *d)
{
    struct abi_request stats = raw_request(ABI_OP_STATS, NULL);
    struct abi_reply reply;
    struct raw raw;

    CHECK(raw_open(&raw, d, "a", 0) == 0);
    CHECK(raw_ask(raw.socket, &stats, &reply) && reply.error == 0);
    for (;;)
        (void)pause();
}

static void case_08_pid_used_again(void **state)
{
    struct daemon *d = *state;
    struct reader reader = {.d = d};
    struct reclaim *r;
    pid_t first, second;

    start(d, "stall-timeout=1h");
    first = reader_start(&reader);
    child_kill(first);
    second = fork_as(first); /* while the daemon is still busy with the first */
    if (second == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        _exit(attach_raw(d));
    }
    if (second < 0) {
        daemon_terminate(d);
        daemon_remove(d);
        (void)printf("skipped: this user cannot choose a pid (%s)\n", strerror(errno));
        skip();
    }
    assert_int_equal(second, first);
    assert_true(wait_until(n_clients(d) == 1)); /* the new one, not the old one */
    r = must_open(d, "a");
    assert_int_equal(reclaim_synchronize(must_lane(r), 0, &limit), 0);
    assert_int_equal(n_clients(d), 2);
    child_kill(second);
    reclaim_close(r);
    daemon_stop(d);
}

int main(void)
{
    struct daemon d = {0};
    const struct CMUnitTest tests[] = {
        daemon_test(case_05_slots_never_run_out),
        daemon_test(case_07_reader_killed_in_section),
        daemon_test(case_07_reader_crashes_in_section),
        daemon_test(case_07_zombie),
        daemon_test(case_07_exec_with_live_lanes),
        daemon_test(case_07_exec_by_another_thread),
        daemon_test(case_07_exit_in_section),
        daemon_test(case_08_two_containers_same_pid),
        daemon_test(case_08_pid_used_again),
        daemon_test(case_13_killed_at_any_instruction),
        daemon_test(case_13_magazines_come_back),
        daemon_test(case_17_fork_one_level),
        daemon_test(case_17_fork_two_deep),
        daemon_test(case_17_child_outlives_parent),
        daemon_test(case_18_threads_end_in_section),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
