/* SPDX-License-Identifier: MIT */
/*
 * Headroom: what the machine and its control groups leave, on files of this test's own. The test links with
 * --wrap=fopen64, and so answers for /proc and /sys.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "basic/macro.h"
#include "memory.h"

#define MIB (1ull << 20)

struct file {
    const char *path, *text;
};

/* What the files say; others are not there. NULL: the real ones. */
static const struct file *files;
static unsigned n_opened;

FILE *__real_fopen64(const char *path, const char *mode);
FILE *__wrap_fopen64(const char *path, const char *mode);

FILE *__wrap_fopen64(const char *path, const char *mode)
{
    if (!files)
        return __real_fopen64(path, mode);
    n_opened++;
    for (const struct file *f = files; f->path; f++)
        if (strcmp(f->path, path) == 0)
            return fmemopen((void *)f->text, strlen(f->text), "r");
    return NULL;
}

#define MEMINFO(total, available)                                                                            \
    {                                                                                                        \
        "/proc/meminfo", "MemTotal:       " #total " kB\nMemFree:        1 kB\nMemAvailable:   " #available  \
                         " kB\nBuffers:        2 kB\n"                                                       \
    }
#define GROUP(text)                                                                                          \
    {                                                                                                        \
        "/proc/self/cgroup", text                                                                            \
    }
#define ROOT "/sys/fs/cgroup"
#define ROOT_V1 "/sys/fs/cgroup/memory"

/* To the byte: so much may be backed, and no more. */
static void assert_left(const char *what, uint64_t percent, uint64_t left)
{
    memory_set_reserve(percent); /* forgets what was read before */
    if (left == UINT64_MAX) {
        if (memory_take(UINT64_MAX - 1) != 0)
            fail_msg("%s: limited", what);
        return;
    }
    if (memory_take(left + 1) != -ENOMEM)
        fail_msg("%s: more than there is", what);
    if (memory_take(left) != 0)
        fail_msg("%s: less than there is", what);
}

static const struct {
    const char *what;
    uint64_t percent, left;
    struct file files[12];
} headroom_cases[] = {
    {"machine alone", 0, 500 * 1024, {MEMINFO(1000, 500)}},
    {"reserve", 20, 300 * 1024, {MEMINFO(1000, 500)}},
    {"reserve is all", 50, 0, {MEMINFO(1000, 500)}},
    {"reserve is more", 90, 0, {MEMINFO(1000, 500)}},
    {"nobody says", 5, UINT64_MAX, {{"/other", ""}}},
    {"limit of our group",
     0,
     70 * MIB,
     {MEMINFO(4000000, 2000000),
      GROUP("0::/a/b\n"),
      {ROOT "/a/b/memory.max", "104857600\n"},
      {ROOT "/a/b/memory.current", "31457280\n"}}},
    {"memory.high is nearer",
     0,
     20 * MIB,
     {MEMINFO(4000000, 2000000),
      GROUP("0::/a/b\n"),
      {ROOT "/a/b/memory.max", "104857600\n"},
      {ROOT "/a/b/memory.high", "52428800\n"},
      {ROOT "/a/b/memory.current", "31457280\n"}}},
    {"a group above ours",
     0,
     10 * MIB,
     {MEMINFO(4000000, 2000000),
      GROUP("0::/a/b/c\n"),
      {ROOT "/a/b/c/memory.max", "104857600\n"},
      {ROOT "/a/b/c/memory.current", "0\n"},
      {ROOT "/a/memory.max", "94371840\n"},
      {ROOT "/a/memory.current", "83886080\n"}}},
    {"the root's own",
     0,
     1 * MIB,
     {MEMINFO(4000000, 2000000),
      GROUP("0::/\n"),
      {ROOT "/memory.max", "2097152\n"},
      {ROOT "/memory.current", "1048576\n"}}},
    {"no limit",
     0,
     2000000 * 1024ull,
     {MEMINFO(4000000, 2000000),
      GROUP("0::/a\n"),
      {ROOT "/a/memory.max", "max\n"},
      {ROOT "/a/memory.high", "max\n"},
      {ROOT "/a/memory.current", "83886080\n"}}},
    {"above the limit already",
     0,
     0,
     {MEMINFO(4000000, 2000000),
      GROUP("0::/a\n"),
      {ROOT "/a/memory.max", "100\n"},
      {ROOT "/a/memory.current", "83886080\n"}}},
    {"the machine is nearer than the group",
     10,
     (200000 - 4000000 / 100) * 1024ull,
     {MEMINFO(400000, 200000),
      GROUP("0::/a\n"),
      {ROOT "/a/memory.max", "1099511627776\n"},
      {ROOT "/a/memory.current", "0\n"}}},
    {"old hierarchy, among others",
     0,
     3 * MIB,
     {MEMINFO(4000000, 2000000),
      GROUP("9:name=systemd:/x\n4:memory:/m/n\n1:cpu:/\n0::/\n"),
      {ROOT_V1 "/m/n/memory.limit_in_bytes", "9223372036854771712\n"},
      {ROOT_V1 "/m/n/memory.usage_in_bytes", "7340032\n"},
      {ROOT_V1 "/m/memory.limit_in_bytes", "10485760\n"},
      {ROOT_V1 "/m/memory.usage_in_bytes", "7340032\n"}}},
    {"a limit without a use says nothing",
     0,
     2000000 * 1024ull,
     {MEMINFO(4000000, 2000000), GROUP("0::/a\n"), {ROOT "/a/memory.max", "100\n"}}},
};

static void test_headroom(void **state)
{
    for (unsigned i = 0; i < ARRAY_SIZE(headroom_cases); i++) {
        files = headroom_cases[i].files;
        assert_left(headroom_cases[i].what, headroom_cases[i].percent, headroom_cases[i].left);
    }
    files = NULL;
}

/* What was given is not given again, though the kernel does not know of it yet. */
static void test_takes_add_up(void **state)
{
    static const struct file machine[] = {MEMINFO(1000000, 500000), {0}};
    uint64_t n = 0;

    files = machine;
    memory_set_reserve(0);
    n_opened = 0;
    assert_int_equal(memory_take(0), 0);
    assert_true(n_opened > 0);
    n_opened = 0;
    while (n_opened == 0 && n < 1000000) { /* until it looks again: by then far less than all was taken */
        assert_int_equal(memory_take(64 * 1024), 0);
        n++;
    }
    assert_in_range(n, 1, 500000 / 64 / 16 + 1);
    files = NULL;
}

/* memory-reserve acts at once, both ways. */
static void test_reserve_acts_at_once(void **state)
{
    static const struct file machine[] = {MEMINFO(1000, 500), {0}};

    files = machine;
    memory_set_reserve(0);
    assert_int_equal(memory_take(1024), 0);
    memory_set_reserve(100);
    assert_int_equal(memory_take(1), -ENOMEM);
    memory_set_reserve(49);
    assert_int_equal(memory_take(1024), 0);
    files = NULL;
}

static void test_total(void **state)
{
    static const struct file machine[] = {MEMINFO(123456, 500), {0}};
    static const struct file nothing[] = {{"/other", ""}, {0}};

    assert_in_range(memory_total_bytes(), MIB, 1ull << 50); /* of this machine */
    files = machine;
    assert_int_equal(memory_total_bytes(), 123456 * 1024);
    files = nothing;
    assert_int_equal(memory_total_bytes(), UINT64_MAX);
    files = NULL;
    memory_set_reserve(0);
    assert_int_equal(memory_take(UINT64_MAX / 4), -ENOMEM); /* no machine has that much */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_headroom),
        cmocka_unit_test(test_takes_add_up),
        cmocka_unit_test(test_reserve_acts_at_once),
        cmocka_unit_test(test_total),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
