/* SPDX-License-Identifier: MIT */
/*
 * Segments: nobody can shrink, grow or unseal them, a read-only descriptor stays one, and addresses are
 * exact.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "abi.h"
#include "segment.h"

#define MIB (1ull << 20)
#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

static int new_segment(uint64_t bytes)
{
    int fd = -1;

    assert_int_equal(segment_new("test", bytes, &fd), 0);
    assert_true(fd >= 0);
    return fd;
}

static void *map(int fd, uint64_t bytes, void *at, bool writable)
{
    void *p = NULL;

    assert_int_equal(segment_map(fd, bytes, at, writable, &p), 0);
    return p;
}

static void test_sealed(void **state)
{
    int fd = new_segment(MIB);
    struct stat st;

    assert_int_equal(fcntl(fd, F_GET_SEALS) & SEALS, SEALS);
    assert_int_equal(fcntl(fd, F_GET_SEALS) & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE), 0);
    assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(st.st_size, MIB);
    const off_t sizes[] = {0, MIB - 1, MIB + 1, 2 * MIB};
    for (unsigned i = 0; i < ARRAY_SIZE(sizes); i++) {
        assert_int_equal(ftruncate(fd, sizes[i]), -1);
        assert_int_equal(errno, EPERM);
    }
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
    assert_int_equal(errno, EPERM);
    assert_int_equal(pwrite(fd, "x", 1, MIB), -1); /* nor does a write make it longer */
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(st.st_size, MIB);
    assert_int_equal(close(fd), 0);
}

static void test_bad_sizes_and_names(void **state)
{
    char name[300];
    int fd = 77;

    memset(name, 'n', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    assert_true(segment_new(name, MIB, &fd) < 0);
    assert_true(segment_new("test", UINT64_MAX, &fd) < 0);
    assert_true(segment_new("test", (uint64_t)INT64_MAX + 1, &fd) < 0);
    assert_int_equal(fd, 77);
}

/* Seen through both, written through one. */
static void test_read_only(void **state)
{
    int fd = new_segment(MIB), copy = -1;
    char *writable, *readable, *p;

    assert_int_equal(segment_reopen_read_only(fd, &copy), 0);
    assert_true(fcntl(copy, F_GETFD) & FD_CLOEXEC);
    assert_int_equal(fcntl(copy, F_GETFL) & O_ACCMODE, O_RDONLY);
    p = (void *)77;
    assert_int_equal(segment_map(copy, MIB, NULL, true, (void **)&p), -EACCES);
    assert_ptr_equal(p, (void *)77);
    readable = map(copy, MIB, NULL, false);
    writable = map(fd, MIB, NULL, true);
    writable[4711] = 'x';
    assert_int_equal(readable[4711], 'x');
    assert_int_equal(mprotect(readable, MIB, PROT_READ | PROT_WRITE), -1);
    assert_int_equal(errno, EACCES);
    assert_int_equal(write(copy, "x", 1), -1);
    assert_int_equal(fallocate(copy, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), -1);
    assert_int_equal(ftruncate(copy, 0), -1);
    segment_unmap(readable, MIB);
    segment_unmap(writable, MIB);
    segment_unmap(NULL, MIB);
    assert_int_equal(close(copy), 0);
    assert_int_equal(close(fd), 0);
    copy = 77;
    assert_true(segment_reopen_read_only(fd, &copy) < 0); /* it is closed */
    assert_int_equal(copy, 77);
}

/* Exactly there, or not at all: what is there stays. */
static void test_fixed_address(void **state)
{
    int fd = new_segment(4 * MIB), other = new_segment(4 * MIB);
    char *first = map(fd, 4 * MIB, NULL, true), *again;
    void *untouched = (void *)77;

    first[0] = 'x';
    for (int64_t by = -3; by <= 3; by++) {
        assert_int_equal(segment_map(other, 4 * MIB, first + by * (int64_t)MIB, true, &untouched), -EEXIST);
        assert_ptr_equal(untouched, (void *)77);
    }
    assert_int_equal(first[0], 'x');
    segment_unmap(first, 4 * MIB);
    again = map(other, 4 * MIB, first, true);
    assert_ptr_equal(again, first);
    assert_int_equal(again[0], 0);
    segment_unmap(again, 4 * MIB);
    assert_int_equal(close(fd) | close(other), 0);
}

/* Inside the window of their size, aligned, apart from each other. */
static void test_arena_addresses(void **state)
{
    enum { ARENAS = 4 };
    static const struct {
        uint64_t bytes, start, end;
        unsigned n;
    } cases[] = {
        {MIB, ABI_WINDOW_START, ABI_WINDOW_END, ARENAS},
        {512 * MIB, ABI_WINDOW_START, ABI_WINDOW_END, ARENAS},
        {ABI_WINDOW_BYTES_MAX, ABI_WINDOW_START, ABI_WINDOW_END, 1}, /* another has no room */
        {ABI_WINDOW_BYTES_MAX + 2 * MIB, ABI_WIDE_WINDOW_START, ABI_WIDE_WINDOW_END, ARENAS},
        {ABI_ARENA_BYTES_MAX, ABI_WIDE_WINDOW_START, ABI_WIDE_WINDOW_END, ARENAS},
    };

    for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
        int fd = new_segment(cases[i].bytes);
        void *at[ARENAS];

        for (unsigned k = 0; k < cases[i].n; k++) {
            assert_int_equal(segment_map_arena(fd, cases[i].bytes, &at[k]), 0);
            assert_true((uintptr_t)at[k] >= cases[i].start &&
                        (uintptr_t)at[k] + cases[i].bytes <= cases[i].end);
            assert_int_equal((uintptr_t)at[k] % (2 * MIB), 0);
            for (unsigned j = 0; j < k; j++)
                assert_true((char *)at[j] + cases[i].bytes <= (char *)at[k] ||
                            (char *)at[k] + cases[i].bytes <= (char *)at[j]);
        }
        *(char *)at[0] = 'x';
        assert_int_equal(*(char *)at[cases[i].n - 1], 'x');
        for (unsigned k = 0; k < cases[i].n; k++)
            segment_unmap(at[k], cases[i].bytes);
        assert_int_equal(close(fd), 0);
    }
}

static void test_arena_too_large(void **state)
{
    int fd = new_segment(MIB);
    void *p = (void *)77;

    assert_int_equal(segment_map_arena(fd, ABI_WIDE_WINDOW_END - ABI_WIDE_WINDOW_START + 1, &p), -EFBIG);
    assert_int_equal(segment_map_arena(fd, UINT64_MAX, &p), -EFBIG);
    assert_int_equal(close(fd), 0);
    assert_true(segment_map_arena(fd, MIB, &p) < 0);
    assert_ptr_equal(p, (void *)77);
}

static uint64_t backed(int fd)
{
    uint64_t bytes = 77;

    assert_int_equal(segment_backed_bytes(fd, &bytes), 0);
    return bytes;
}

/* A segment takes memory where it is touched, however long it is. */
static void test_backed_bytes(void **state)
{
    int fd = new_segment(1024 * MIB);
    char *p = map(fd, 1024 * MIB, NULL, true);
    uint64_t bytes = 77, n;

    assert_int_equal(backed(fd), 0);
    p[5 * MIB] = 'x';
    p[900 * MIB] = 'x';
    n = backed(fd);
    assert_in_range(n, 2 * 4096, 8 * MIB); /* huge pages, maybe */
    assert_int_equal(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 512 * MIB), 0);
    assert_true(backed(fd) < n);
    assert_int_equal(p[5 * MIB], 0); /* a hole is zeros: no fault */
    segment_unmap(p, 1024 * MIB);
    assert_int_equal(close(fd), 0);
    assert_int_equal(segment_backed_bytes(fd, &bytes), -EBADF);
    assert_int_equal(bytes, 77);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sealed),          cmocka_unit_test(test_bad_sizes_and_names),
        cmocka_unit_test(test_read_only),       cmocka_unit_test(test_fixed_address),
        cmocka_unit_test(test_arena_addresses), cmocka_unit_test(test_arena_too_large),
        cmocka_unit_test(test_backed_bytes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
