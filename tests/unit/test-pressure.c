/* SPDX-License-Identifier: MIT */
/*
 * Memory pressure, as the service manager tells of it through a FIFO or a socket, and base64, in which it
 * says what to write there. Links with --wrap=clock_gettime: the time of this test is its own.
 */
#include <dirent.h>
#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "basic/base64.h"
#include "basic/macro.h"
#include "log.h"
#include "pressure.h"

static time_t seconds; /* the daemon's monotonic clock */

int __wrap_clock_gettime(clockid_t clock, struct timespec *ret);

int __wrap_clock_gettime(clockid_t clock, struct timespec *ret)
{
    *ret = (struct timespec){.tv_sec = seconds};
    return 0;
}

static struct event_base *base;
static struct pressure *pressure;
static char directory[64], path[128];
static unsigned n_acted;

static void act(void *userdata)
{
    assert_ptr_equal(userdata, &n_acted);
    n_acted++;
}

static int setup(void **state)
{
    (void)snprintf(directory, sizeof(directory), "/tmp/reclaim-test-XXXXXX");
    assert_non_null(mkdtemp(directory));
    (void)snprintf(path, sizeof(path), "%s/watch", directory);
    assert_int_equal(setenv("MEMORY_PRESSURE_WATCH", path, 1), 0);
    (void)unsetenv("MEMORY_PRESSURE_WRITE");
    log_init(LOG_CRIT);
    seconds = 1000;
    n_acted = 0;
    base = event_base_new();
    assert_non_null(base);
    assert_int_equal(pressure_new(base, act, &n_acted, &pressure), 0);
    return 0;
}

static int teardown(void **state)
{
    pressure = pressure_free(pressure);
    assert_null(pressure);
    event_base_free(base);
    (void)unlink(path);
    return rmdir(directory);
}

static unsigned n_descriptors(void)
{
    DIR *d = opendir("/proc/self/fd");
    unsigned n = 0;

    assert_non_null(d);
    while (readdir(d))
        n++;
    (void)closedir(d);
    return n;
}

static void loop(void)
{
    for (unsigned i = 0; i < 3; i++)
        assert_true(event_base_loop(base, EVLOOP_NONBLOCK) >= 0);
}

static void say(int fd)
{
    assert_int_equal(write(fd, "x", 1), 1);
    loop();
}

static int fifo(void)
{
    int fd;

    assert_int_equal(mkfifo(path, 0600), 0);
    fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

/* ---- FIFO ---- */

/* An event acts; the next ones are let pass for a second, and memory is short for ten. */
static void test_fifo_and_back_off(void **state)
{
    static const struct {
        unsigned wait_seconds;
        bool acts;
    } cases[] = {{0, true}, {0, false}, {1, true}, {0, false}, {0, false}, {5, true}};
    int fd = fifo();
    unsigned n = 0, said = 0;

    pressure_set(pressure, true);
    loop();
    assert_int_equal(n_acted, 0);
    assert_false(pressure_is_high(pressure));
    for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
        seconds += cases[i].wait_seconds;
        say(fd);
        n += cases[i].acts;
        assert_int_equal(n_acted, n);
        assert_int_equal(pressure_n_acted(pressure), n);
        assert_int_equal(pressure_n_passed(pressure), ++said - n);
        assert_true(pressure_is_high(pressure));
    }
    loop();
    assert_int_equal(n_acted, n); /* what was said is read, and not heard again */
    seconds += 9;
    assert_true(pressure_is_high(pressure));
    seconds += 1;
    assert_false(pressure_is_high(pressure));
    assert_int_equal(close(fd), 0);
}

/* A FIFO that its other writers left goes on. */
static void test_fifo_without_writers(void **state)
{
    int fd = fifo();

    pressure_set(pressure, true);
    assert_int_equal(close(fd), 0);
    loop();
    fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    assert_true(fd >= 0); /* it is watched still */
    say(fd);
    assert_int_equal(n_acted, 1);
    assert_int_equal(close(fd), 0);
}

static void test_off_and_auto(void **state)
{
    int fd = fifo();
    unsigned n = n_descriptors();

    say(fd);
    assert_int_equal(n_acted, 0); /* until it is said to */
    assert_int_equal(read(fd, &(char){0}, 1), 1);
    pressure_set(pressure, true);
    assert_true(n_descriptors() > n);
    pressure_set(pressure, true); /* again: nothing changes */
    say(fd);
    assert_int_equal(n_acted, 1);
    pressure_set(pressure, false);
    pressure_set(pressure, false);
    assert_int_equal(n_descriptors(), n);
    seconds += 2;
    say(fd);
    assert_int_equal(n_acted, 1);
    pressure_set(pressure, true);
    loop(); /* what was said meanwhile is heard now */
    assert_int_equal(n_acted, 2);
    assert_int_equal(close(fd), 0);
}

/* ---- Socket ---- */

static int listener(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    assert_in_range(snprintf(address.sun_path, sizeof(address.sun_path), "%s", path), 1,
                    sizeof(address.sun_path) - 1);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(listen(fd, 4), 0);
    return fd;
}

/* What MEMORY_PRESSURE_WRITE says arrives, byte by byte; then each word of the other side is an event. */
static void test_socket(void **state)
{
    static const struct {
        const char *encoded, *bytes;
        size_t n;
    } cases[] = {
        {NULL, "", 0},
        {"c29tZSAyMDAwMDAgMjAwMDAwMAA=", "some 200000 2000000", 20}, /* with its NUL */
        {"AP8K", "\0\xff\n", 3},
    };

    for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
        int server = listener(), peer;
        char buffer[64];

        if (cases[i].encoded)
            assert_int_equal(setenv("MEMORY_PRESSURE_WRITE", cases[i].encoded, 1), 0);
        pressure_set(pressure, true);
        peer = accept4(server, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        assert_true(peer >= 0);
        if (cases[i].n > 0) {
            assert_int_equal(read(peer, buffer, sizeof(buffer)), cases[i].n);
            assert_memory_equal(buffer, cases[i].bytes, cases[i].n);
        }
        assert_int_equal(read(peer, buffer, sizeof(buffer)), -1);
        loop();
        assert_int_equal(n_acted, i);
        seconds += 2;
        say(peer);
        assert_int_equal(n_acted, i + 1);
        pressure_set(pressure, false);
        assert_int_equal(close(peer) | close(server) | unlink(path), 0);
    }
}

/* The other end goes: no event, nothing is watched any more, and it can be watched anew. */
static void test_socket_closes(void **state)
{
    unsigned n = n_descriptors();
    int server = listener(), peer;

    pressure_set(pressure, true);
    peer = accept(server, NULL, NULL);
    assert_int_equal(close(peer), 0);
    loop();
    assert_int_equal(n_acted, 0);
    assert_int_equal(n_descriptors(), n + 1);
    pressure_set(pressure, true);
    peer = accept(server, NULL, NULL);
    say(peer);
    assert_int_equal(n_acted, 1);
    assert_int_equal(close(peer) | close(server), 0);
}

/* ---- Nothing to watch ---- */

/* Whatever is wrong with it: no descriptor stays open, and the daemon goes on. */
static void test_nothing_to_watch(void **state)
{
    static const struct {
        const char *watch, *write;
        mode_t type; /* of what is made at the path */
    } cases[] = {
        {"/dev/null", NULL, 0},  {"/nonexistent/pressure", NULL, 0},
        {"", NULL, 0},           {NULL, NULL, S_IFREG}, /* of which no events come */
        {NULL, "AA=A", S_IFIFO}, {NULL, "A", S_IFIFO},
    };
    unsigned n = n_descriptors();

    for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
        assert_int_equal(setenv("MEMORY_PRESSURE_WATCH", cases[i].watch ? cases[i].watch : path, 1), 0);
        if (cases[i].write)
            assert_int_equal(setenv("MEMORY_PRESSURE_WRITE", cases[i].write, 1), 0);
        if (cases[i].type)
            assert_int_equal(mknod(path, cases[i].type | 0600, 0), 0);
        pressure_set(pressure, true);
        loop();
        assert_int_equal(n_descriptors(), n);
        assert_int_equal(n_acted, 0);
        assert_false(pressure_is_high(pressure));
        (void)unlink(path);
    }
    assert_null(pressure_free(NULL));
    assert_int_equal(setenv("MEMORY_PRESSURE_WATCH", path, 1) | unsetenv("MEMORY_PRESSURE_WRITE"), 0);
    assert_int_equal(close(fifo()), 0);
    pressure_set(pressure, true);
    pressure = pressure_free(pressure); /* closes what it watched */
    assert_int_equal(n_descriptors(), n);
}

/* ---- base64 ---- */

static void test_base64(void **state)
{
    static const struct {
        const char *text;
        ssize_t n;
        const char *bytes;
    } cases[] = {
        {"", 0, ""},
        {"Zg==", 1, "f"},
        {"Zm8=", 2, "fo"},
        {"Zm9v", 3, "foo"},
        {"Zm9vYg==", 4, "foob"},
        {"Zm9vYmE=", 5, "fooba"},
        {"Zm9vYmFy", 6, "foobar"},
        {"AAAA", 3, "\0\0\0"},
        {"////", 3, "\xff\xff\xff"},
        {"+/+/", 3, "\xfb\xff\xbf"},
        {"Z", -EINVAL, NULL},
        {"Zg", -EINVAL, NULL},
        {"Zg=", -EINVAL, NULL},
        {"Z===", -EINVAL, NULL},
        {"Zg=a", -EINVAL, NULL},
        {"=Zg=", -EINVAL, NULL},
        {"Zm9v ", -EINVAL, NULL},
        {"Zm\n=", -EINVAL, NULL},
        {"Zm9-", -EINVAL, NULL},
        {"Zm9_", -EINVAL, NULL},
        {"Zm9\xff", -EINVAL, NULL},
        {"Zm9vYmFyZg==", -ENOBUFS, NULL}, /* seven bytes */
    };

    for (unsigned i = 0; i < ARRAY_SIZE(cases); i++) {
        char buffer[7];
        ssize_t n;

        buffer[6] = 'x';
        n = base64_decode(cases[i].text, buffer, 6);
        if (n != cases[i].n)
            fail_msg("\"%s\": %zd, not %zd", cases[i].text, n, cases[i].n);
        if (n > 0)
            assert_memory_equal(buffer, cases[i].bytes, (size_t)n);
        assert_int_equal(buffer[6], 'x');
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_fifo_and_back_off, setup, teardown),
        cmocka_unit_test_setup_teardown(test_fifo_without_writers, setup, teardown),
        cmocka_unit_test_setup_teardown(test_off_and_auto, setup, teardown),
        cmocka_unit_test_setup_teardown(test_socket, setup, teardown),
        cmocka_unit_test_setup_teardown(test_socket_closes, setup, teardown),
        cmocka_unit_test_setup_teardown(test_nothing_to_watch, setup, teardown),
        cmocka_unit_test(test_base64),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
