/* SPDX-License-Identifier: MIT */
/* What is read of /proc, and the sampler on top of it, against this very process. */
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "basic/macro.h"
#include "clock.h"
#include "procfs.h"
#include "sampler.h"

enum {
    N_SLEEPS = 20,
    MEGABYTE = 1 << 20,
    NO_PROCESS = 0x7fffffff, /* above any pid_max */
};

/* Each sleep is one voluntary switch at least. */
static void test_wakeups_count_sleeps(void **state)
{
    uint64_t before = procfs_wakeups(getpid());

    for (int i = 0; i < N_SLEEPS; i++)
        clock_sleep_ms(1);
    assert_true(procfs_wakeups(getpid()) >= before + N_SLEEPS);
}

static void test_cpu_counts_work(void **state)
{
    uint64_t before = procfs_cpu_ns(getpid());
    volatile uint64_t sum = 0;

    for (uint64_t i = 0; i < 50000000; i++)
        sum = sum + i;
    assert_true(procfs_cpu_ns(getpid()) > before);
}

static void *sleeper(void *userdata)
{
    (void)pthread_barrier_wait(userdata);
    (void)pthread_barrier_wait(userdata);
    return NULL;
}

static void find_name(void *data, pid_t tid, const char *name, uint64_t wakeups)
{
    if (strcmp(name, "a-sleeper") == 0)
        (*(int *)data)++;
}

static void test_threads_have_names(void **state)
{
    pthread_barrier_t barrier;
    pthread_t thread;
    int n = 0;

    assert_int_equal(pthread_barrier_init(&barrier, NULL, 2), 0);
    assert_int_equal(pthread_create(&thread, NULL, sleeper, &barrier), 0);
    (void)pthread_barrier_wait(&barrier);
    assert_int_equal(pthread_setname_np(thread, "a-sleeper"), 0);
    procfs_threads(getpid(), find_name, &n);
    (void)pthread_barrier_wait(&barrier);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(n, 1);
}

/* Backed bytes only, and a file with two descriptors once. */
static uint64_t memfd_bytes(pid_t pid)
{
    static struct procfs_memfds all;

    procfs_memfds(pid, NULL, &all);
    return all.bytes;
}

static void test_memfds_count_once(void **state)
{
    uint64_t before = memfd_bytes(getpid());
    int fd = memfd_create("test", MFD_CLOEXEC), again;

    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, 64 * MEGABYTE), 0);
    assert_int_equal(memfd_bytes(getpid()), before);
    assert_int_equal(posix_fallocate(fd, 0, MEGABYTE), 0);
    again = dup(fd);
    assert_int_equal(memfd_bytes(getpid()), before + MEGABYTE);
    (void)close(again);
    (void)close(fd);
    assert_int_equal(memfd_bytes(getpid()), before);
}

static void test_nobody_is_nothing(void **state)
{
    assert_int_equal(procfs_cpu_ns(NO_PROCESS), 0);
    assert_int_equal(procfs_wakeups(NO_PROCESS), 0);
    assert_int_equal(procfs_anonymous_bytes(NO_PROCESS), 0);
    assert_int_equal(memfd_bytes(NO_PROCESS), 0);
}

static void *touch(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    assert_ptr_not_equal(p, MAP_FAILED);
    memset(p, 1, bytes);
    return p;
}

/* The peak stays when the memory is gone; whether in between a sample fell is left to it: the last one is at
 * the end. */
static void test_sampler_keeps_what_grew(void **state)
{
    struct sampler sampler = {.pids = {getpid()}, .n_pids = 1};
    void *held = touch(64 * MEGABYTE), *p; /* was there before: not ours to count */
    uint64_t grown;

    sampler_mark_start(&sampler);
    assert_int_equal(sampler_start(&sampler), 0);
    p = touch(32 * MEGABYTE);
    grown = sampler_stop(&sampler);
    (void)munmap(p, 32 * MEGABYTE);
    (void)munmap(held, 64 * MEGABYTE);
    assert_true(grown >= 31 * MEGABYTE && grown < 64 * MEGABYTE);
    assert_int_equal(sampler_stop(&sampler), grown); /* twice is harmless */
}

/* With a daemon its memfds count too; those that were there before are others', however they grow. */
static void test_sampler_of_a_daemon(void **state)
{
    static struct sampler sampler;
    int other = memfd_create("other", MFD_CLOEXEC), fd;
    uint64_t grown;

    sampler.daemon = getpid();
    sampler_mark_start(&sampler);
    fd = memfd_create("arena", MFD_CLOEXEC);
    assert_true(other >= 0 && fd >= 0);
    assert_int_equal(posix_fallocate(other, 0, 64 * MEGABYTE), 0);
    assert_int_equal(posix_fallocate(fd, 0, 32 * MEGABYTE), 0);
    assert_int_equal(sampler_start(&sampler), 0);
    grown = sampler_stop(&sampler);
    (void)close(fd);
    (void)close(other);
    assert_true(grown >= 32 * MEGABYTE && grown < 64 * MEGABYTE);
    assert_true(sampler.others_peak_bytes >= 64 * MEGABYTE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wakeups_count_sleeps), cmocka_unit_test(test_cpu_counts_work),
        cmocka_unit_test(test_threads_have_names),   cmocka_unit_test(test_memfds_count_once),
        cmocka_unit_test(test_nobody_is_nothing),    cmocka_unit_test(test_sampler_keeps_what_grew),
        cmocka_unit_test(test_sampler_of_a_daemon),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
