/* SPDX-License-Identifier: MIT */
/* The service starts, ends, is killed and is pestered: cases 06, 09, 10, 19, 20. */
#include "case-raw.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "basic/cleanup.h"

enum {
    BURST_BYTES = 192 << 20,
    RESTARTERS = 4,
};

static const struct timespec limit = {.tv_sec = HANG_SECONDS};

/* ---- 06 ------------------------------------------------------------------------------------------------------------------ */

static void case_06_clients_are_full(void **state)
{
    char words[WORDS_BYTES] = "";
    struct daemon *d = *state;
    struct reclaim *all[3], *one_more = NULL;
    json_object *clients;

    daemon_start(d, "--arena", "a:16M", "--set", "clients-max=3", NULL);
    for (int i = 0; i < 3; i++)
        all[i] = try_open(d, "a", i ? RECLAIM_RELOCATED : 0, 0, 0, NULL, &all[i]) == 0 ? all[i] : NULL;
    assert_non_null(all[2]);
    assert_int_equal(try_open(d, "a", RECLAIM_RELOCATED, 0, 0, words, &one_more), -EMFILE);
    assert_null(one_more);
    assert_non_null(strstr(words, "clients-max"));
    assert_non_null(strstr(words, "3"));
    clients = ctl_json(d, "list-clients", NULL); /* who holds them */
    assert_int_equal(json_object_array_length(clients), 3);
    (void)client_find(clients, getpid());
    json_object_put(clients);
    ctl_do(d, "set", "clients-max=4", NULL); /* at once */
    assert_int_equal(try_open(d, "a", RECLAIM_RELOCATED, 0, 0, words, &one_more), 0);
    reclaim_close(one_more);
    for (int i = 0; i < 3; i++)
        reclaim_close(all[i]);
    daemon_stop(d);
}

static void case_06_lanes_are_full(void **state)
{
    struct abi_request request = raw_request(ABI_OP_LANE_GET, NULL);
    struct daemon *d = *state;
    struct abi_reply reply;
    struct raw raw;

    daemon_start(d, "--arena", "a:16M", "--set", "lanes-max=1", NULL);
    assert_int_equal(raw_open(&raw, d, "a", 0), 0);
    raw_lane(&raw);
    assert_true(raw_ask(raw.socket, &request, &reply));
    assert_int_equal(reply.error, -EMFILE);
    assert_non_null(strstr(reply.message, "lanes-max"));
    raw_close(&raw);
    assert_true(wait_until(n_clients(d) == 0));
    daemon_stop(d);
}

/* ---- 09 and 20 ------------------------------------------------------------------------------------------------------------- */

static void case_09_stale_and_live_sockets(void **state)
{
    char words[WORDS_BYTES];
    struct daemon *d = *state;
    struct reclaim *r;
    struct stat st;

    daemon_start(d, "--arena", "a:16M", NULL);
    assert_int_equal(daemon_try(d, words, NULL), 1); /* a second live one */
    assert_non_null(strstr(words, "another reclaimd"));
    assert_non_null(strstr(words, d->directory));
    daemon_kill(d);
    assert_int_equal(stat(d->client, &st), 0); /* stale */
    ctl_refused(d, 1, d->directory, "status", NULL);
    daemon_start(d, "--arena", "a:16M", NULL);
    r = must_open(d, "a");
    assert_int_equal(reclaim_synchronize(must_lane(r), 0, &limit), 0);
    reclaim_close(r);
    daemon_stop(d);
}

/* Somebody else's socket, and something that is no socket. */
static void case_09_socket_of_another_program(void **state)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char words[WORDS_BYTES];
    struct daemon *d = *state;

    daemon_start(d, NULL);
    daemon_terminate(d);
    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s", d->control);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(daemon_try(d, words, NULL), 1);
    assert_non_null(strstr(words, "listens"));
    (void)close(fd);
    (void)unlink(d->control);
    fd = open(d->client, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    (void)close(fd);
    assert_int_equal(daemon_try(d, words, NULL), 1);
    assert_non_null(strstr(words, "no socket"));
    daemon_remove(d);
}

static int hold(void *userdata)
{
    struct reclaim *r = NULL;
    struct reclaim_lane *l;

    CHECK(try_open(userdata, "a", 0, 0, 0, NULL, &r) == 0);
    CHECK(reclaim_lane_get(r, &l) == 0);
    for (int i = 0; i < BURST_BYTES >> 20; i++) {
        void *p = reclaim_alloc(l, MIB_BYTES);

        CHECK(p);
        memset(p, 1, MIB_BYTES);
    }
    for (;;)
        (void)pause();
}

static uint64_t shmem_bytes(void)
{
    _cleanup_fclose_ FILE *f = fopen("/proc/meminfo", "re");
    unsigned long long kib = 0;
    char line[128];

    while (f && fgets(line, sizeof(line), f) && sscanf(line, "Shmem: %llu", &kib) != 1)
        ;
    return kib * 1024;
}

/* Processes that have the directory on their command line. */
static unsigned n_processes(const char *directory)
{
    _cleanup_closedir_ DIR *dir = opendir("/proc");
    struct dirent *entry;
    unsigned n = 0;

    while ((entry = readdir(dir))) {
        char path[300], line[1024];
        _cleanup_close_ int fd = -EBADF;
        ssize_t length;

        (void)snprintf(path, sizeof(path), "/proc/%s/cmdline", entry->d_name);
        fd = entry->d_name[0] >= '1' && entry->d_name[0] <= '9' ? open(path, O_RDONLY | O_CLOEXEC) : -EBADF;
        length = fd >= 0 ? read(fd, line, sizeof(line)) : 0;
        n += length > 0 && memmem(line, (size_t)length, directory, strlen(directory)) != NULL;
    }
    return n;
}

static void case_20_everything_killed(void **state)
{
    struct daemon *d = *state;
    struct dirent *entry;
    uint64_t full;
    pid_t pid;

    daemon_start(d, "--arena", "a:256M", NULL);
    pid = child_start(hold, d);
    assert_true(wait_until(daemon_file_bytes(d) >= BURST_BYTES));
    full = shmem_bytes();
    daemon_kill(d);
    child_kill(pid);
    assert_true(wait_until(shmem_bytes() + BURST_BYTES / 2 < full)); /* half: others use shared memory as well */
    assert_int_equal(n_processes(d->directory), 0);
    {
        _cleanup_closedir_ DIR *dir = opendir(d->directory);
        struct stat st;

        while ((entry = readdir(dir)))
            if (entry->d_name[0] != '.' && strcmp(entry->d_name, "log") != 0) {
                assert_int_equal(fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW), 0);
                assert_true(S_ISSOCK(st.st_mode));
            }
    }
    daemon_start(d, "--arena", "a:16M", NULL);
    daemon_stop(d);
}

/* ---- 10 -------------------------------------------------------------------------------------------------------------------- */

static bool error_is_clear(int error)
{
    return error == -ECONNREFUSED || error == -ECONNRESET || error == -ESHUTDOWN || error == -ENOENT;
}

/* Opens, works and closes while the daemon comes and goes; ends when it has worked often enough after the end. */
static int restarter(void *userdata)
{
    struct daemon *d = userdata;
    unsigned n_good = 0, n_bad = 0;

    for (unsigned i = 0; n_good < 300 || n_bad == 0; i++) {
        char words[WORDS_BYTES] = "";
        struct reclaim *r = NULL;
        struct reclaim_lane *l;
        int error = try_open(d, "a", 0, 0, 0, words, &r);

        if (error == 0 && (error = reclaim_lane_get(r, &l)) == 0)
            error = reclaim_synchronize(l, 0, NULL);
        if (error == 0 && !reclaim_alloc(l, 64))
            error = -errno;
        n_good += error == 0;
        n_bad += error < 0;
        if (error < 0)
            CHECK(error_is_clear(error) && (r || words[0]));
        reclaim_close(r);
        if (error < 0)
            sleep_ms(1);
    }
    return 0;
}

static void case_10_clients_restart_meanwhile(void **state)
{
    struct daemon *d = *state;
    pid_t pids[RESTARTERS];

    daemon_start(d, "--arena", "a:16M", NULL);
    for (int i = 0; i < RESTARTERS; i++)
        pids[i] = child_start(restarter, d);
    for (int i = 0; i < 5; i++) {
        sleep_ms(50);
        daemon_terminate(d);
        sleep_ms(20);
        daemon_start(d, "--arena", "a:16M", NULL);
    }
    for (int i = 0; i < RESTARTERS; i++)
        child_must_succeed(pids[i]);
    assert_true(wait_until(n_clients(d) == 0));
    daemon_stop(d);
}

static void *act_wait_for_ever(struct actor *a, void *userdata)
{
    return (void *)(intptr_t)reclaim_synchronize(a->lane, 0, NULL);
}

static void *act_alloc_for_ever(struct actor *a, void *userdata)
{
    while (reclaim_defer_free(a->lane, reclaim_alloc(a->lane, 4096)) == 0 && errno != ESHUTDOWN)
        ;
    return NULL;
}

/* Whoever sleeps on a daemon that ends is told so, then attaches anew. killed: it says no good-bye. */
static void check_sleepers(struct daemon *d, bool killed)
{
    struct actor reader = {0}, waiter = {0}, worker = {0};
    struct reclaim *r;

    daemon_start(d, "--arena", "a:16M", NULL);
    r = must_open(d, "a");
    actor_start(&reader, r);
    actor_start(&waiter, r);
    actor_start(&worker, r);
    assert_null(actor_do(&reader, act_read_lock, NULL));
    actor_begin(&waiter, act_wait_for_ever, NULL);
    errno = 0;
    actor_begin(&worker, act_alloc_for_ever, NULL);
    sleep_ms(50);
    if (killed)
        daemon_kill(d);
    else
        daemon_terminate(d);
    assert_int_equal((intptr_t)actor_end(&waiter), -ESHUTDOWN);
    assert_null(actor_end(&worker));
    assert_null(actor_do(&reader, act_read_unlock, NULL)); /* what is mapped stays readable */
    actor_stop(&reader);
    actor_stop(&waiter);
    actor_stop(&worker);
    reclaim_close(r);
    daemon_start(d, "--arena", "a:16M", NULL);
    r = must_open(d, "a");
    assert_int_equal(reclaim_synchronize(must_lane(r), 0, &limit), 0);
    reclaim_close(r);
    daemon_stop(d);
}

static void case_10_sleepers_at_the_end(void **state)
{
    check_sleepers(*state, false);
    check_sleepers(*state, true);
}

/* A client that says nothing for a while is a client all the same. */
static void case_10_quiet_client_stays(void **state)
{
    struct reclaim_stats stats = {.size = sizeof(stats)};
    struct daemon *d = *state;
    struct reclaim *r;

    daemon_start(d, "--arena", "a:16M", NULL);
    r = must_open(d, "a");
    (void)must_lane(r);
    assert_int_equal(reclaim_stats(r, &stats), 0);
    sleep_ms(6000);
    assert_int_equal(reclaim_stats(r, &stats), 0);
    assert_int_equal(reclaim_synchronize(must_lane(r), 0, &limit), 0);
    reclaim_close(r);
    daemon_stop(d);
}

/* ---- 19 -------------------------------------------------------------------------------------------------------------------- */

static int load(void *userdata)
{
    struct reclaim *r = NULL;
    struct reclaim_lane *l;

    CHECK(try_open(userdata, "a", 0, 0, 0, NULL, &r) == 0);
    CHECK(reclaim_lane_get(r, &l) == 0);
    for (;;)
        CHECK(reclaim_defer_free(l, reclaim_alloc(l, 64)) == 0);
}

static bool makes_progress(const struct daemon *d)
{
    int64_t before = arena_figure(d, "a", "frees");

    return wait_until(arena_figure(d, "a", "frees") > before);
}

static int monitor(void *userdata)
{
    const struct daemon *d = userdata;

    (void)freopen("/dev/null", "we", stdout);
    (void)execl(getenv("RECLAIMCTL"), "reclaimctl", "--runtime-directory", d->directory, "--json=short", "monitor",
                "--interval", "10ms", NULL);
    return 127;
}

static void send_rubbish(const struct daemon *d, const char *text, size_t bytes, bool wait)
{
    int fd = raw_connect(d->control, SOCK_STREAM);
    char answer[4096];

    while (bytes > 0) {
        ssize_t n = send(fd, text, bytes, MSG_NOSIGNAL);

        if (n < 0)
            break; /* it does not want more of it */
        text += n;
        bytes -= (size_t)n;
    }
    if (wait)
        (void)recv(fd, answer, sizeof(answer), 0);
    (void)close(fd);
}

static void case_19_control_tool_against_a_busy_service(void **state)
{
    struct daemon *d = *state;
    pid_t worker, pids[10];

    daemon_start(d, "--arena", "a:16M", "--set", "drain-interval=5ms", NULL);
    worker = child_start(load, d);
    assert_true(makes_progress(d));
    for (int i = 0; i < 10; i++)
        pids[i] = child_start(monitor, d);
    for (int i = 0; i < 10; i++) {
        ctl_do(d, "drain", NULL);
        ctl_do(d, "purge", "a", NULL);
        ctl_do(d, "synchronize", "a", NULL);
        ctl_do(d, "barrier", NULL);
        daemon_audit(d);
        child_kill(pids[i]);
    }
    assert_true(makes_progress(d));
    child_kill(worker);
    assert_true(wait_until(n_clients(d) == 0));
    daemon_stop(d);
}

static void case_19_rubbish(void **state)
{
    static const char broken[] = "{\"method\": \"org.reclaimd.Control.GetStatus\", ", unknown[] = "{\"method\": \"org.x.Y\"}",
                      list[] = "[]", half[] = "{\"method\"", number[] = "{\"method\": 7}", binary[] = "\x01\xff\xfe\x80";
    static char large[3 << 20], deep[200000];
    struct daemon *d = *state;
    unsigned n_fds;
    pid_t worker;

    daemon_start(d, "--arena", "a:16M", "--set", "drain-interval=5ms", NULL);
    worker = child_start(load, d);
    assert_true(makes_progress(d));
    n_fds = daemon_n_fds(d);
    memset(large, ' ', sizeof(large));
    memset(deep, '[', sizeof(deep) - 1);
    for (int i = 0; i < 5; i++) {
        send_rubbish(d, broken, sizeof(broken), true);
        send_rubbish(d, unknown, sizeof(unknown), true);
        send_rubbish(d, list, sizeof(list), true);
        send_rubbish(d, number, sizeof(number), true);
        send_rubbish(d, binary, sizeof(binary), true);
        send_rubbish(d, half, sizeof(half) - 1, false); /* and gone */
        send_rubbish(d, "\0\0\0", 3, true);
        send_rubbish(d, large, sizeof(large), true); /* over 1 MiB, and it never ends */
        send_rubbish(d, deep, sizeof(deep), true);
        assert_true(daemon_lives(d));
    }
    assert_true(makes_progress(d));
    assert_true(wait_until(daemon_n_fds(d) <= n_fds));
    child_kill(worker);
    assert_true(wait_until(n_clients(d) == 0));
    daemon_stop(d);
}

int main(void)
{
    struct daemon d = {0};
    const struct CMUnitTest tests[] = {
        daemon_test(case_06_clients_are_full),
        daemon_test(case_06_lanes_are_full),
        daemon_test(case_09_stale_and_live_sockets),
        daemon_test(case_09_socket_of_another_program),
        daemon_test(case_10_clients_restart_meanwhile),
        daemon_test(case_10_sleepers_at_the_end),
        daemon_test(case_10_quiet_client_stays),
        daemon_test(case_19_control_tool_against_a_busy_service),
        daemon_test(case_19_rubbish),
        daemon_test(case_20_everything_killed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
