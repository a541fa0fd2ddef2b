/* SPDX-License-Identifier: MIT */
/* What a program that links the library gets from a real daemon: sharing, lanes, forks, grace periods, errors. */
#include <pthread.h>
#include <sys/syscall.h>

#include "daemon.h"

#define MIB (1ull << 20)

static struct daemon the_daemon;
static unsigned n_arenas; /* so that each test has its own */
static char arena[32];

static int setup(void **state)
{
    snprintf(arena, sizeof(arena), "test-%u", n_arenas++);
    return 0;
}

static int open_as(const char *name, struct reclaim_open_options opt, struct reclaim **ret)
{
    static char message[256];
    int error;

    message[0] = '\0';
    opt.size = sizeof(opt);
    opt.runtime_directory = the_daemon.directory;
    opt.message = message;
    opt.message_size = sizeof(message);
    error = reclaim_open(name, &opt, ret);
    if (error < 0) { /* always in words, on one line */
        assert_string_not_equal(message, "");
        assert_null(strchr(message, '\n'));
    }
    return error;
}

static int create(uint64_t bytes, struct reclaim **ret)
{
    return open_as(
        arena,
        (struct reclaim_open_options){.flags = RECLAIM_CREATE | RECLAIM_TRANSIENT, .arena_bytes = bytes},
        ret);
}

static struct reclaim *create_with_lane(uint64_t bytes, struct reclaim_lane **ret_lane)
{
    struct reclaim *r;

    assert_int_equal(create(bytes, &r), 0);
    assert_int_equal(reclaim_lane_get(r, ret_lane), 0);
    return r;
}

/* In a child: the same arena, opened by itself, with a lane. Ends the child when it cannot. */
static struct reclaim *child_open(struct reclaim_lane **ret_lane)
{
    struct reclaim *r;

    if (open_as(arena, (struct reclaim_open_options){0}, &r) != 0 || reclaim_lane_get(r, ret_lane) != 0)
        _exit(100);
    return r;
}

/* ---- opening ---- */

static void test_open_and_create(void **state)
{
    struct reclaim_open_options opt = {.flags = RECLAIM_CREATE, .arena_bytes = MIB + 1};
    struct reclaim *r;

    assert_int_equal(open_as(arena, (struct reclaim_open_options){0}, &r), -ENOENT);
    assert_int_equal(open_as(arena, opt, &r), 0);
    assert_int_equal(reclaim_size(r), MIB + 65536);
    assert_non_null(reclaim_base(r));
    reclaim_close(r);
    assert_int_equal(open_as(arena, (struct reclaim_open_options){0}, &r), 0); /* it stays */
    reclaim_close(r);
    opt.flags |= RECLAIM_EXCL;
    assert_int_equal(open_as(arena, opt, &r), -EEXIST);
    opt.flags &= ~RECLAIM_EXCL;
    assert_int_equal(open_as(arena, opt, &r), 0);
    reclaim_close(r);
}

static void test_transient_arena_goes_with_its_last_client(void **state)
{
    struct reclaim *r;
    int error = 0;

    assert_int_equal(create(MIB, &r), 0);
    reclaim_close(r);
    for (int i = 0; i < 1000 && error == 0; i++) { /* the daemon learns of it in its own time */
        error = open_as(arena, (struct reclaim_open_options){0}, &r);
        if (error == 0)
            reclaim_close(r);
        sleep_ms(10);
    }
    assert_int_equal(error, -ENOENT);
}

static void test_open_refuses(void **state)
{
    struct reclaim_open_options opt = {.flags = RECLAIM_CREATE, .arena_bytes = MIB};
    struct reclaim *r;

    assert_int_equal(open_as("", opt, &r), -EINVAL);
    assert_int_equal(open_as("a/b", opt, &r), -EINVAL);
    assert_int_equal(open_as("0123456789012345678901234567890123456789012345678", opt, &r), -EINVAL);
    opt.arena_bytes = MIB - 1;
    assert_int_equal(open_as(arena, opt, &r), -EINVAL);
    opt.arena_bytes = 0;
    assert_int_equal(open_as(arena, opt, &r), -EINVAL);
}

/* Another user: what the mode says counts. */
static int other_user(unsigned flags)
{
    struct reclaim_open_options opt = {.flags = flags};
    struct reclaim *r;

    if (setgid(65534) < 0 || setuid(65534) < 0)
        return 100;
    return -open_as(arena, opt, &r);
}

static void check_other_user(mode_t mode, unsigned flags, int expected)
{
    struct reclaim_open_options opt = {
        .flags = RECLAIM_CREATE | RECLAIM_TRANSIENT, .arena_bytes = MIB, .mode = mode};
    struct reclaim *r;
    pid_t child;

    (void)setup(NULL);
    assert_int_equal(open_as(arena, opt, &r), 0);
    child = fork();
    if (child == 0)
        _exit(other_user(flags));
    assert_int_equal(child_status(child), expected);
    reclaim_close(r);
}

static void test_mode(void **state)
{
    if (geteuid() != 0) {
        (void)printf("skipped: only root can become somebody else\n");
        skip();
    }
    check_other_user(0, 0, EACCES);
    check_other_user(0640, RECLAIM_READ_ONLY, EACCES);
    check_other_user(0644, 0, EACCES);
    check_other_user(0644, RECLAIM_READ_ONLY, 0);
    check_other_user(0666, 0, 0);
}

static void test_no_daemon(void **state)
{
    struct daemon real = the_daemon;
    struct reclaim *r;

    strcpy(the_daemon.directory, "/tmp/reclaim-nobody-is-here");
    assert_int_equal(create(MIB, &r), -ECONNREFUSED);
    the_daemon = real;
}

/* ---- sharing ---- */

struct node {
    struct node *next;
    int value;
};

/* The child finds what the parent published, at the same addresses, and publishes something itself. */
static int child_shares(void)
{
    struct reclaim_lane *l;
    struct reclaim *r = child_open(&l);
    struct node **root, **answer, *n;

    if (reclaim_root(r, "list", (void ***)&root) != 0 || reclaim_root(r, "answer", (void ***)&answer) != 0)
        return 1;
    if (reclaim_read_lock(l) != 0)
        return 2;
    n = reclaim_dereference(*root);
    if (!n || n->value != 1 || !n->next || n->next->value != 2 || n->next->next)
        return 3;
    reclaim_read_unlock(l);
    n = reclaim_alloc(l, sizeof(*n));
    if (!n)
        return 4;
    *n = (struct node){.value = 42};
    reclaim_assign_pointer(l, *answer, n);
    reclaim_close(r);
    return 0;
}

static void test_two_processes_share(void **state)
{
    struct reclaim_lane *l;
    struct reclaim *r = create_with_lane(MIB, &l);
    struct node **root, **again, **answer, *first, *second;
    pid_t child;

    assert_int_equal(reclaim_root(r, "list", (void ***)&root), 0);
    assert_null(*root);
    assert_int_equal(reclaim_root(r, "list", (void ***)&again), 0);
    assert_ptr_equal(root, again);
    assert_int_equal(reclaim_root(r, "answer", (void ***)&answer), 0);
    assert_ptr_not_equal(root, answer);
    assert_int_equal(reclaim_root(r, "bad name", (void ***)&answer), -EINVAL);
    first = reclaim_alloc(l, sizeof(*first));
    second = reclaim_alloc(l, sizeof(*second));
    *second = (struct node){.value = 2};
    *first = (struct node){.next = second, .value = 1};
    reclaim_assign_pointer(l, *root, first);
    child = fork();
    if (child == 0)
        _exit(child_shares());
    assert_int_equal(child_status(child), 0);
    assert_int_equal(reclaim_read_lock(l), 0);
    assert_int_equal(reclaim_dereference(*answer)->value,
                     42); /* the child is gone, what it published stays */
    reclaim_read_unlock(l);
    reclaim_close(r);
}

static void test_observer(void **state)
{
    struct reclaim_open_options opt = {.flags = RECLAIM_READ_ONLY | RECLAIM_RELOCATED};
    struct reclaim_lane *l, *observer_lane;
    struct reclaim *r = create_with_lane(MIB, &l), *observer;
    int **root, **seen;
    ptrdiff_t distance;

    assert_int_equal(open_as(arena, opt, &observer), 0);
    assert_int_equal(reclaim_lane_get(observer, &observer_lane), 0);
    assert_int_equal(reclaim_root(observer, "x", (void ***)&seen), -ENOENT);
    assert_int_equal(reclaim_root(r, "x", (void ***)&root), 0);
    assert_int_equal(reclaim_root(observer, "x", (void ***)&seen), 0);
    *root = reclaim_alloc(l, sizeof(int));
    **root = 7;
    distance = (char *)reclaim_base(observer) - (char *)reclaim_base(r);
    assert_ptr_not_equal(distance, 0);
    assert_int_equal(reclaim_read_lock(observer_lane), 0);
    assert_int_equal(*(int *)((char *)reclaim_dereference(*seen) + distance), 7);
    reclaim_read_unlock(observer_lane);
    errno = 0;
    assert_null(reclaim_alloc(observer_lane, 16));
    assert_int_equal(errno, EROFS);
    assert_int_equal(reclaim_defer_free(observer_lane, *root), -EROFS);
    assert_int_equal(reclaim_synchronize(observer_lane, 0, NULL), 0);
    reclaim_close(observer);
    reclaim_close(r);
}

/* ---- memory ---- */

/* The daemon counts at the end of a pass, which may be a moment after it has answered the barrier. */
static struct reclaim_stats stats_after(struct reclaim *r, uint64_t n_freed)
{
    struct reclaim_stats stats = {.size = sizeof(stats)};

    for (int i = 0; i < 1000; i++) {
        assert_int_equal(reclaim_stats(r, &stats), 0);
        if (stats.freed_objects >= n_freed)
            break;
        sleep_ms(10);
    }
    return stats;
}

/* Many times the arena's size goes through it. */
static void test_memory_circulates(void **state)
{
    static const size_t sizes[] = {16, 24, 100, 128, 500, 3584, 4096, 9000};
    struct reclaim_stats stats;
    struct reclaim_lane *l;
    struct reclaim *r = create_with_lane(4 * MIB, &l);
    uint64_t bytes = 0, n;

    for (n = 0; bytes < 64 * MIB; n++) {
        size_t size = sizes[n % 8];
        char *p = reclaim_alloc(l, size);

        assert_non_null(p);
        memset(p, (int)n, size);
        assert_int_equal(reclaim_defer_free(l, p), 0);
        bytes += size;
    }
    assert_int_equal(reclaim_barrier(l, NULL), 0);
    stats = stats_after(r, n);
    assert_int_equal(stats.arena_bytes, 4 * MIB);
    assert_int_equal(stats.freed_objects, n);
    assert_int_equal(stats.pending_objects, 0);
    assert_int_equal(stats.refused_records, 0);
    reclaim_close(r);
}

static void test_full_arena(void **state)
{
    struct reclaim_lane *l;
    struct reclaim *r = create_with_lane(MIB, &l);
    void *p, *all[64];
    int n = 0;

    assert_int_equal(reclaim_read_lock(l), 0); /* says no without waiting for itself */
    while ((p = reclaim_alloc(l, 65536)))
        all[n++] = p;
    assert_int_equal(errno, ENOMEM);
    assert_true(n >= 10 && n < 16);
    reclaim_read_unlock(l);
    assert_null(reclaim_alloc(l, 65536));
    assert_int_equal(errno, ENOMEM);
    for (int i = 0; i < n; i++)
        assert_int_equal(reclaim_defer_free(l, all[i]), 0);
    for (int i = 0; i < n; i++) /* waits for the grace period by itself */
        assert_non_null(reclaim_alloc(l, 65536));
    reclaim_close(r);
}

static void test_bad_frees_are_refused(void **state)
{
    struct reclaim_stats stats;
    struct reclaim_lane *l;
    struct reclaim *r = create_with_lane(MIB, &l);
    char *p = reclaim_alloc(l, 64), *q = reclaim_alloc(l, 64);

    assert_int_equal(reclaim_defer_free(l, p), 0);
    assert_int_equal(reclaim_defer_free(l, p), 0);                                  /* twice */
    assert_int_equal(reclaim_defer_free(l, q + 16), 0);                             /* the middle of one */
    assert_int_equal(reclaim_defer_free(l, (char *)reclaim_base(r) + MIB - 64), 0); /* nobody's */
    assert_int_equal(reclaim_defer_free(l, q + 1), -EINVAL);
    assert_int_equal(reclaim_defer_free(l, &stats), -EINVAL);
    assert_int_equal(reclaim_barrier(l, NULL), 0);
    stats = stats_after(r, 1);
    assert_int_equal(stats.refused_records, 3);
    assert_int_equal(stats.freed_objects, 1);
    reclaim_close(r);
}

static void test_free_unpublished(void **state)
{
    struct reclaim_lane *l;
    struct reclaim *r = create_with_lane(MIB, &l);
    void *p = reclaim_alloc(l, 48);

    assert_int_equal(reclaim_free(l, p), 0);
    assert_ptr_equal(reclaim_alloc(l, 48), p); /* at once */
    for (int i = 0; i < 100000; i++) {
        p = reclaim_alloc(l, 8000);
        assert_non_null(p);
        assert_int_equal(reclaim_free(l, p), 0);
    }
    reclaim_close(r);
}

/* ---- grace periods ---- */

static void test_cookies(void **state)
{
    const struct timespec minute = {.tv_sec = 60};
    struct reclaim_lane *l;
    struct reclaim *r = create_with_lane(MIB, &l);
    uint64_t first, second;

    assert_int_equal(reclaim_gp_start(l, &first), 0);
    assert_int_equal(reclaim_gp_wait(l, first, &minute), 0);
    assert_int_equal(reclaim_gp_poll(r, first), 1);
    assert_int_equal(reclaim_gp_start(l, &second), 0);
    assert_true(second > first);
    for (int i = 0; i < 6000 && reclaim_gp_poll(r, second) == 0; i++)
        sleep_ms(10);
    assert_int_equal(reclaim_gp_poll(r, second), 1); /* asked for, so it comes without a wait */
    assert_int_equal(reclaim_gp_poll(r, second + 100), -EINVAL);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(reclaim_synchronize(l, i % 2 ? RECLAIM_EXPEDITED : 0, NULL), 0);
        assert_int_equal(reclaim_barrier(l, NULL), 0);
    }
    assert_int_equal(reclaim_read_lock(l), 0);
    assert_int_equal(reclaim_synchronize(l, 0, NULL), -EDEADLK);
    assert_int_equal(reclaim_barrier(l, NULL), -EDEADLK);
    assert_int_equal(reclaim_gp_start(l, &second), 0);
    assert_int_equal(reclaim_gp_wait(l, second, NULL), -EDEADLK);
    assert_int_equal(reclaim_gp_poll(r, second), 0); /* we are in its way */
    reclaim_read_unlock(l);
    assert_int_equal(reclaim_gp_wait(l, second, &minute), 0);
    reclaim_close(r);
}

struct reader {
    struct reclaim *r;
    int step; /* 1: in a section; 2: may leave; 3: may end */
};

/* Not sanitized: AddressSanitizer stumbles over its own marks on the stack of a thread that is cancelled. */
__attribute__((no_sanitize_address)) static void *read_until_told(void *arg)
{
    struct reader *reader = arg;
    struct reclaim_lane *l;

    assert_int_equal(reclaim_lane_get(reader->r, &l), 0);
    assert_int_equal(reclaim_read_lock(l), 0);
    __atomic_store_n(&reader->step, 1, __ATOMIC_RELEASE);
    while (__atomic_load_n(&reader->step, __ATOMIC_ACQUIRE) != 2)
        sleep_ms(1); /* a place to be cancelled */
    reclaim_read_unlock(l);
    return NULL;
}

static void until_step(struct reader *reader, int step)
{
    while (__atomic_load_n(&reader->step, __ATOMIC_ACQUIRE) != step)
        sched_yield();
}

static void test_reader_delays_grace_period(void **state)
{
    const struct timespec little = {.tv_nsec = 100000000};
    struct reclaim_lane *l;
    struct reclaim *r = create_with_lane(MIB, &l);
    struct reader reader = {.r = r};
    pthread_t thread;
    uint64_t cookie;

    pthread_create(&thread, NULL, read_until_told, &reader);
    until_step(&reader, 1);
    assert_int_equal(reclaim_gp_start(l, &cookie), 0);
    assert_int_equal(reclaim_synchronize(l, 0, &little), -ETIMEDOUT);
    assert_int_equal(reclaim_gp_wait(l, cookie, &little), -ETIMEDOUT);
    assert_int_equal(reclaim_gp_poll(r, cookie), 0);
    __atomic_store_n(&reader.step, 2, __ATOMIC_RELEASE);
    assert_int_equal(reclaim_synchronize(l, 0, NULL), 0);
    assert_int_equal(reclaim_gp_poll(r, cookie), 1);
    pthread_join(thread, NULL);
    reclaim_close(r);
}

static void until_started(struct reclaim *r, uint64_t cookie)
{
    struct reclaim_stats stats = {.size = sizeof(stats)};

    for (int i = 0; i < 6000 && stats.gp_started < cookie; i++, sleep_ms(10))
        assert_int_equal(reclaim_stats(r, &stats), 0);
    assert_true(stats.gp_started >= cookie);
}

/* Outlives its section: the end of a thread with a lane brings a grace period of its own. */
static void *read_and_stay(void *arg)
{
    struct reader *reader = arg;

    (void)read_until_told(reader);
    until_step(reader, 3);
    return NULL;
}

/* Two cookies are asked for, one is waited for in vain: both grace periods come by themselves later. */
static void check_two_cookies(bool newer_is_waited_for)
{
    const struct timespec little = {.tv_nsec = 20000000};
    struct reclaim_lane *l;
    struct reclaim *r = create_with_lane(MIB, &l);
    struct reader reader = {.r = r};
    uint64_t cookies[2];
    pthread_t thread;

    pthread_create(&thread, NULL, read_and_stay, &reader);
    until_step(&reader, 1);
    assert_int_equal(reclaim_gp_start(l, &cookies[0]), 0);
    until_started(r, cookies[0]); /* and held up by the reader, so that the next one is another */
    assert_int_equal(reclaim_gp_start(l, &cookies[1]), 0);
    assert_true(cookies[1] > cookies[0]);
    assert_int_equal(reclaim_gp_wait(l, cookies[newer_is_waited_for], &little), -ETIMEDOUT);
    __atomic_store_n(&reader.step, 2, __ATOMIC_RELEASE);
    for (int i = 0; i < 6000 && reclaim_gp_poll(r, cookies[1]) == 0; i++)
        sleep_ms(10);
    assert_int_equal(reclaim_gp_poll(r, cookies[1]), 1);
    assert_int_equal(reclaim_gp_poll(r, cookies[0]), 1);
    __atomic_store_n(&reader.step, 3, __ATOMIC_RELEASE);
    pthread_join(thread, NULL);
    reclaim_close(r);
}

static void test_two_cookies(void **state)
{
    check_two_cookies(false);
    check_two_cookies(true);
}

static void test_cancelled_reader_is_over(void **state)
{
    struct reclaim_lane *l;
    struct reclaim *r = create_with_lane(MIB, &l);
    struct reader reader = {.r = r};
    pthread_t thread;

    pthread_create(&thread, NULL, read_until_told, &reader);
    until_step(&reader, 1);
    pthread_cancel(thread);
    assert_int_equal(reclaim_synchronize(l, 0, NULL), 0);
    pthread_join(thread, NULL);
    reclaim_close(r);
}

static void *exit_by_system_call(void *arg)
{
    struct reader *reader = arg;
    struct reclaim_lane *l;

    assert_int_equal(reclaim_lane_get(reader->r, &l), 0);
    assert_int_equal(reclaim_read_lock(l), 0);
    __atomic_store_n(&reader->step, 1, __ATOMIC_RELEASE);
    syscall(SYS_exit, 0); /* no clean-up of any library runs */
    return NULL;
}

static void test_dead_thread_is_over(void **state)
{
    struct reclaim_lane *l;
    struct reclaim *r = create_with_lane(MIB, &l);
    struct reader reader = {.r = r};
    pthread_t thread;

    pthread_create(&thread, NULL, exit_by_system_call, &reader);
    until_step(&reader, 1);
    assert_int_equal(reclaim_synchronize(l, 0, NULL), 0);
    reclaim_close(r);
}

/* Killed in a section, with memory in its magazines: the others go on, and all of it comes back. */
static void test_killed_processes(void **state)
{
    struct reclaim_lane *l;
    struct reclaim *r = create_with_lane(2 * MIB, &l);

    for (int i = 0; i < 200; i++) {
        pid_t child = fork();

        if (child == 0) {
            struct reclaim_lane *own;

            (void)child_open(&own);
            for (int k = 0; k < 50; k++)
                if (!reclaim_alloc(own, 512) || reclaim_defer_free(own, reclaim_alloc(own, 512)) != 0)
                    _exit(101);
            if (reclaim_read_lock(own) != 0)
                _exit(102);
            raise(SIGKILL);
        }
        assert_int_equal(child_status(child), 256 + SIGKILL);
        if (i % 20 == 0)
            assert_int_equal(reclaim_synchronize(l, 0, NULL), 0);
        if (i % 40 == 39) { /* what each child held when it died is lost, no more: the arena is made anew */
            reclaim_close(r);
            (void)setup(NULL);
            r = create_with_lane(2 * MIB, &l);
        }
    }
    reclaim_close(r);
}

/* ---- threads ---- */

static void *work_a_little(void *arg)
{
    struct reclaim_lane *l;
    int error = reclaim_lane_get(arg, &l);

    for (int i = 0; i < 1000 && error == 0; i++) {
        void *p = reclaim_alloc(l, 64);

        error = p ? reclaim_read_lock(l) : -errno;
        if (error == 0) {
            error = reclaim_defer_free(l, p);
            reclaim_read_unlock(l);
        }
    }
    return (void *)(intptr_t)error;
}

/* Many more than there are lanes, a few at a time. */
static void test_threads_come_and_go(void **state)
{
    struct reclaim_lane *l;
    struct reclaim *r = create_with_lane(4 * MIB, &l);

    for (int i = 0; i < 150; i++) {
        pthread_t threads[4];

        for (int k = 0; k < 4; k++)
            pthread_create(&threads[k], NULL, work_a_little, r);
        for (int k = 0; k < 4; k++) {
            void *error;

            pthread_join(threads[k], &error);
            assert_int_equal((intptr_t)error, 0);
        }
    }
    reclaim_close(r);
}

/* ---- forks ---- */

static pid_t raw_clone(void)
{
    return (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
}

static int child_of_fork(struct reclaim *r, struct reclaim_lane *l, bool reopens)
{
    struct reclaim_lane *own;
    uint64_t cookie;

    if (reclaim_read_lock(l) != -ESTALE || reclaim_alloc(l, 16) || errno != ESTALE)
        return 1;
    if (reclaim_synchronize(l, 0, NULL) != -ESTALE || reclaim_gp_start(l, &cookie) != -ESTALE)
        return 2;
    if (reclaim_lane_get(r, &own) != -ESTALE)
        return 3;
    reclaim_close(r);
    if (!reopens)
        return 0;
    r = child_open(&own);
    if (reclaim_defer_free(own, reclaim_alloc(own, 100)) != 0 || reclaim_barrier(own, NULL) != 0)
        return 4;
    reclaim_close(r);
    return 0;
}

static void check_fork(pid_t (*fork_like)(void), bool reopens)
{
    struct reclaim_lane *l;
    struct reclaim *r = create_with_lane(MIB, &l);
    pid_t child = fork_like();

    if (child == 0)
        _exit(child_of_fork(r, l, reopens));
    assert_int_equal(child_status(child), 0);
    assert_int_equal(reclaim_defer_free(l, reclaim_alloc(l, 100)), 0);
    assert_int_equal(reclaim_barrier(l, NULL), 0);
    reclaim_close(r);
}

static void test_forks(void **state)
{
    check_fork(fork, true);
    (void)setup(NULL);
    check_fork(_Fork, true);
    (void)setup(NULL);
    check_fork(raw_clone, false);
}

/* ---- a daemon that goes away; last, for it takes the daemon along ---- */

static void *kill_daemon_soon(void *arg)
{
    sleep_ms(50);
    daemon_end(&the_daemon, SIGKILL);
    return NULL;
}

static void test_daemon_killed(void **state)
{
    struct reclaim_lane *l, *other_lane;
    struct reclaim *r = create_with_lane(MIB, &l), *other;
    struct reclaim_stats stats = {.size = sizeof(stats)};
    struct reader reader = {.r = r};
    pthread_t thread, killer;
    int error = 0;

    pthread_create(&thread, NULL, read_until_told, &reader);
    until_step(&reader, 1);
    pthread_create(&killer, NULL, kill_daemon_soon, NULL);
    assert_int_equal(reclaim_synchronize(l, 0, NULL),
                     -ESHUTDOWN); /* behind the reader when the daemon dies */
    pthread_join(killer, NULL);
    __atomic_store_n(&reader.step, 2, __ATOMIC_RELEASE);
    pthread_join(thread, NULL);
    assert_int_equal(reclaim_barrier(l, NULL), -ESHUTDOWN);
    assert_int_equal(reclaim_stats(r, &stats), -ESHUTDOWN);
    while (reclaim_alloc(l, 1000)) /* what the magazine still has */
        ;
    assert_int_equal(errno, ESHUTDOWN);
    for (uint64_t i = 0; error == 0; i++) /* until the ring is full: each a record of its own */
        error = reclaim_defer_free(l, (char *)reclaim_base(r) + 65536 + i % 1024 * 512);
    assert_int_equal(error, -ESHUTDOWN);
    assert_int_equal(reclaim_read_lock(l), 0); /* reading goes on */
    reclaim_read_unlock(l);
    assert_int_equal(create(MIB, &other), -ECONNREFUSED);
    reclaim_lane_put(l);
    assert_int_equal(reclaim_lane_get(r, &other_lane), -ESHUTDOWN);
    reclaim_close(r);
    daemon_start(&the_daemon, NULL); /* over its stale sockets */
    assert_int_equal(create(MIB, &r), 0);
    reclaim_close(r);
}

#define TEST(name) cmocka_unit_test_setup(test_##name, setup)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(open_and_create),
        TEST(transient_arena_goes_with_its_last_client),
        TEST(open_refuses),
        TEST(mode),
        TEST(no_daemon),
        TEST(two_processes_share),
        TEST(observer),
        TEST(memory_circulates),
        TEST(full_arena),
        TEST(bad_frees_are_refused),
        TEST(free_unpublished),
        TEST(cookies),
        TEST(reader_delays_grace_period),
        TEST(two_cookies),
        TEST(cancelled_reader_is_over),
        TEST(dead_thread_is_over),
        TEST(killed_processes),
        TEST(threads_come_and_go),
        TEST(forks),
        TEST(daemon_killed),
    };
    int n_failed;

    daemon_or_skip();
    daemon_directory_make(&the_daemon);
    daemon_start(&the_daemon, NULL);
    n_failed = cmocka_run_group_tests_name("client", tests, NULL, NULL);
    daemon_end(&the_daemon, SIGTERM);
    daemon_directory_remove(&the_daemon);
    return n_failed;
}
