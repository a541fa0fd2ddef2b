/* SPDX-License-Identifier: MIT */
/*
 * Memory pressure as a user sees it: whoever tells the daemon that memory is short gets what is pending freed
 * and what is free given back at once, however far away the timers are, and then a while of peace.
 */
#include "daemon-fixture.h"

#include <fcntl.h>
#include <grp.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "basic/cleanup.h"

enum {
    OBJECTS = 48,
    OBJECT_BYTES = 1 << 20,
    BACK_OFF_MS = 1000,
    WARNINGS = 20,
};

/* Nothing but pressure ever drains or purges. */
#define LAZY                                                                                                 \
    "--arena", "a:256M", "--set", "drain-interval=1h", "--set", "flood-bytes=1T", "--set",                   \
        "flood-objects=1000000", "--set", "purge-delay=off", "--set", "purge-threshold=1T", "--set",         \
        "client-pending-max=100%"

static char path[96]; /* of what the daemon is told by */

/* For the next daemon. NULL: the variable is not there. */
static void watch(const char *where, const char *what_to_write)
{
    if (where)
        assert_int_equal(setenv("MEMORY_PRESSURE_WATCH", where, 1), 0);
    else
        (void)unsetenv("MEMORY_PRESSURE_WATCH");
    if (what_to_write)
        assert_int_equal(setenv("MEMORY_PRESSURE_WRITE", what_to_write, 1), 0);
    else
        (void)unsetenv("MEMORY_PRESSURE_WRITE");
}

static int setup(void **state)
{
    (void)strcpy(path, "/tmp/reclaim-pressure.XXXXXX");
    if (!mkdtemp(path))
        return -1;
    (void)strcat(path, "/watch");
    watch(path, NULL);
    return 0;
}

static int teardown(void **state)
{
    int r = daemon_teardown(state);

    watch(NULL, NULL);
    (void)unlink(path);
    *strrchr(path, '/') = '\0';
    return r == 0 ? rmdir(path) : r;
}

static int64_t service_number(const struct daemon *d, const char *name)
{
    json_object *reply = ctl_json(d, "status", NULL), *status, *value;
    int64_t n;

    assert_true(json_object_object_get_ex(reply, "status", &status));
    assert_true(json_object_object_get_ex(status, name, &value));
    n = json_object_get_int64(value); /* a boolean is 0 or 1 */
    json_object_put(reply);
    return n;
}

static int64_t pressure_drains(const struct daemon *d)
{
    json_object *o = ctl_json(d, "show", "a", NULL), *value = NULL;
    int64_t n;

    assert_int_equal(json_pointer_get(o, "/figures/drains/pressure", &value), 0);
    n = json_object_get_int64(value);
    json_object_put(o);
    return n;
}

static void say(int fd)
{
    assert_int_equal(write(fd, "x", 1), 1);
}

/* So much is pending, and so much was free and backed before that. */
static void defer_some(struct reclaim_lane *l)
{
    void *objects[OBJECTS];

    for (int i = 0; i < OBJECTS; i++)
        objects[i] = memset(must_alloc(l, OBJECT_BYTES), 1, OBJECT_BYTES);
    for (int i = 0; i < OBJECTS; i++)
        assert_int_equal(reclaim_defer_free(l, objects[i]), 0);
}

/* As the daemon sees it: what no timer has moved is pending, and in memory. */
static bool is_pending(const struct daemon *d)
{
    return arena_figure(d, "a", "pendingObjects") == OBJECTS &&
           daemon_file_bytes(d) >= (uint64_t)OBJECTS * OBJECT_BYTES;
}

static bool is_given_back(const struct daemon *d)
{
    return arena_figure(d, "a", "pendingObjects") == 0 && arena_figure(d, "a", "lazyBytes") == 0 &&
           daemon_file_bytes(d) < 2 * MIB_BYTES;
}

/* An event frees and gives back all, the next ones do nothing for a second, and all of that shows. */
static void check_event(struct daemon *d, struct reclaim_lane *l, int fd)
{
    int64_t acted = service_number(d, "memoryPressures"), drains = pressure_drains(d);

    defer_some(l);
    assert_true(wait_until(is_pending(d)));
    say(fd);
    assert_true(wait_until(is_given_back(d)));
    assert_int_equal(pressure_drains(d), drains + 1);
    assert_int_equal(service_number(d, "memoryPressures"), acted + 1);
    assert_true(service_number(d, "underPressure"));
}

/* Warning upon warning: once a second something is done, and all the others are counted. */
static void check_back_off(struct daemon *d, int fd)
{
    uint64_t begun = clock_ms();
    int64_t acted = service_number(d, "memoryPressures"), passed = service_number(d, "memoryPressuresPassed");

    for (int i = 0; i < WARNINGS; i++) {
        say(fd);
        sleep_ms(5);
    }
    assert_true(wait_until(service_number(d, "memoryPressuresPassed") > passed));
    acted = service_number(d, "memoryPressures") - acted;
    assert_true(acted <= 1 + (int64_t)((clock_ms() - begun) / BACK_OFF_MS));
}

static void check_words(const struct daemon *d)
{
    struct ctl_result r = ctl_run(d, "status", NULL);

    assert_true(daemon_log_has(d, "memory is short: draining, purging, dropping caches"));
    assert_true(strstr(r.out, "memory is short: drained and purged "));
    ctl_result_deinit(&r);
}

/* ---- What the service manager offers ------------------------------------------------------------------- */

static void test_fifo(void **state)
{
    struct daemon *d = *state;
    struct reclaim_lane *l;
    struct reclaim *r;
    int fd;

    assert_int_equal(mkfifo(path, 0600), 0);
    daemon_start(d, LAZY, NULL);
    fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC); /* the daemon listens, or this fails */
    assert_true(fd >= 0);
    r = must_open(d, "a");
    l = must_lane(r);
    assert_int_equal(service_number(d, "memoryPressures"), 0);
    assert_false(service_number(d, "underPressure"));
    check_event(d, l, fd);
    check_back_off(d, fd);
    check_words(d);
    sleep_ms(BACK_OFF_MS + 50);
    check_event(d, l, fd); /* the next shortage is met like the first */
    assert_int_equal(close(fd), 0);
    reclaim_close(r);
    daemon_stop(d);
}

static int listen_at(const char *where)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s", where);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(listen(fd, 4), 0);
    return fd;
}

/* What is to be written arrives first; when the other end goes there is a word in the log, and the service
 * goes on. */
static void test_socket(void **state)
{
    const char expected[] = "some 200000 2000000"; /* with its NUL */
    struct daemon *d = *state;
    char buffer[64];
    struct reclaim_lane *l;
    struct reclaim *r;
    int listener = listen_at(path), fd;

    watch(path, "c29tZSAyMDAwMDAgMjAwMDAwMAA=");
    daemon_start(d, LAZY, NULL);
    fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(read(fd, buffer, sizeof(buffer)), sizeof(expected));
    assert_memory_equal(buffer, expected, sizeof(expected));
    r = must_open(d, "a");
    l = must_lane(r);
    check_event(d, l, fd);
    check_back_off(d, fd);
    check_words(d);
    assert_int_equal(close(fd) | close(listener), 0);
    assert_true(wait_until(daemon_log_has(d, "memory pressure is watched no more")));
    defer_some(l);
    ctl_do(d, "drain", "a", NULL);
    assert_int_equal(arena_figure(d, "a", "pendingObjects"), 0);
    reclaim_close(r);
    daemon_stop(d);
}

/* off: nothing happens, whatever is said; auto: what was said meanwhile is heard. */
static void test_off(void **state)
{
    struct daemon *d = *state;
    struct reclaim *r;
    int fd;

    assert_int_equal(mkfifo(path, 0600), 0);
    fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
    assert_true(fd >= 0);
    daemon_start(d, LAZY, "--set", "memory-pressure=off", NULL);
    r = must_open(d, "a");
    defer_some(must_lane(r));
    say(fd);
    for (int i = 0; i < 5; i++) { /* each is a turn of the main thread, which would have heard */
        assert_int_equal(service_number(d, "memoryPressures"), 0);
        sleep_ms(10);
    }
    assert_true(wait_until(is_pending(d)));
    assert_int_equal(pressure_drains(d), 0);
    ctl_do(d, "set", "memory-pressure=auto", NULL);
    assert_true(wait_until(is_given_back(d)));
    assert_int_equal(pressure_drains(d), 1);
    ctl_do(d, "set", "memory-pressure=off", NULL);
    sleep_ms(BACK_OFF_MS + 50);
    say(fd);
    assert_int_equal(service_number(d, "memoryPressures"), 1);
    assert_int_equal(close(fd), 0);
    reclaim_close(r);
    daemon_stop(d);
}

/* With every batch in flight behind a reader, the shortage is not forgotten: what came later goes once he has
 * left. */
static void test_behind_a_reader(void **state)
{
    struct daemon *d = *state;
    struct actor reader = {0};
    struct reclaim_lane *l;
    struct reclaim *r;
    int fd;

    assert_int_equal(mkfifo(path, 0600), 0);
    fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
    assert_true(fd >= 0);
    daemon_start(d, LAZY, "--set", "batches=1", NULL);
    r = must_open(d, "a");
    l = must_lane(r);
    actor_start_reading(&reader, r);
    defer_some(l);
    say(fd);
    assert_true(wait_until(pressure_drains(d) == 1));
    defer_some(l);
    sleep_ms(BACK_OFF_MS + 50);
    say(fd);
    assert_true(wait_until(service_number(d, "memoryPressures") == 2));
    assert_true(arena_figure(d, "a", "pendingObjects") >= OBJECTS); /* a reader is a reader */
    assert_null(actor_do(&reader, act_read_unlock, NULL));
    assert_true(wait_until(is_given_back(d)));
    actor_stop(&reader);
    assert_int_equal(close(fd), 0);
    reclaim_close(r);
    daemon_stop(d);
}

/* ---- The kernel's own file ----------------------------------------------------------------------------- */

static size_t n_found(const char *text, const char *words)
{
    size_t n = 0;

    for (; (text = strstr(text, words)); text++)
        n++;
    return n;
}

/* Where nothing can be watched one line says so, however often parameters change, and everything else goes
 * on. */
static void check_unwatched(struct daemon *d, const char *why)
{
    _cleanup_free_ char *log = NULL;
    struct reclaim *r = must_open(d, "a");

    defer_some(must_lane(r));
    ctl_do(d, "set", "flood-interval=2ms", NULL);
    ctl_do(d, "set", "drain-interval=1ms", "purge-delay=1ms", NULL);
    assert_true(wait_until(is_given_back(d)));
    log = daemon_log(d);
    assert_int_equal(n_found(log, "memory pressure is not watched"), 1);
    assert_non_null(strstr(log, why));
    assert_int_equal(service_number(d, "memoryPressures"), 0);
    reclaim_close(r);
    daemon_stop(d);
}

static void test_nothing_there(void **state)
{
    struct daemon *d = *state;

    daemon_start(d, LAZY, NULL); /* nothing was made at the path */
    check_unwatched(d, path);
}

static void hide_kernel_file(void *userdata)
{
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("none", "/proc/pressure", "tmpfs", 0, NULL) < 0)
        _exit(77);
}

/* As with ProcSubset=pid, or a kernel without PSI. */
static void test_no_kernel_file(void **state)
{
    struct daemon *d = *state;

    if (geteuid() != 0 || access("/proc/pressure", F_OK) < 0) {
        (void)printf("skipped: only root can hide /proc/pressure from the daemon\n");
        skip();
    }
    watch(NULL, NULL);
    d->before_exec = hide_kernel_file;
    daemon_start(d, LAZY, NULL);
    check_unwatched(d, "/proc/pressure/memory: No such file or directory");
}

static void become_nobody(void *userdata)
{
    const struct daemon *d = userdata;

    if (geteuid() != 0)
        return;
    if (chown(d->directory, NOBODY, NOBODY) < 0 || setgroups(0, NULL) < 0 ||
        setresgid(NOBODY, NOBODY, NOBODY) < 0 || setresuid(NOBODY, NOBODY, NOBODY) < 0)
        _exit(77);
}

/* Without anything from a service manager the kernel is asked, and anybody may: its window is one of two
 * seconds. */
static void test_kernel_file_unprivileged(void **state)
{
    struct daemon *d = *state;
    int fd = open("/proc/pressure/memory", O_RDWR | O_CLOEXEC);

    if (fd < 0 || write(fd, "some 150000 2000000", 20) < 0) {
        (void)printf("skipped: this kernel does not tell of memory pressure\n");
        (void)close(fd);
        skip();
    }
    (void)close(fd);
    watch(NULL, NULL);
    d->before_exec = become_nobody;
    d->userdata = d;
    daemon_start(d, LAZY, NULL);
    assert_true(daemon_has_open(d, "/proc/pressure/memory"));
    assert_false(daemon_log_has(d, "memory pressure is not watched"));
    ctl_do(d, "set", "memory-pressure=off", NULL);
    assert_false(daemon_has_open(d, "/proc/pressure/memory"));
    daemon_stop(d);
}

#define pressure_test(name) cmocka_unit_test_prestate_setup_teardown(name, setup, teardown, &d)

int main(void)
{
    static struct daemon d;
    const struct CMUnitTest tests[] = {
        pressure_test(test_fifo),
        pressure_test(test_socket),
        pressure_test(test_off),
        pressure_test(test_behind_a_reader),
        pressure_test(test_nothing_there),
        pressure_test(test_no_kernel_file),
        pressure_test(test_kernel_file_unprivileged),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
