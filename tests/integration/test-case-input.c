/* SPDX-License-Identifier: MIT */
/*
 * What people and programs get wrong, and what they may not do: each is one clear error, and the service goes on. Rights
 * and limits need a second real user: only root can be one.
 */
#include "case-raw.h"

#include <fcntl.h>
#include <grp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "basic/cleanup.h"
#include "basic/macro.h"

/* ---- Bad input --------------------------------------------------------------------------------------------------------- */

static void refused(struct daemon *d, const char *words, const char *option, const char *value)
{
    char said[WORDS_BYTES];
    int status = daemon_try(d, said, option, value, NULL);

    if (status != 2 || !strstr(said, words))
        fail_msg("status %d, or no '%s' in: %s", status, words, said);
}

static void input_command_line_of_daemon(void **state)
{
    struct daemon *d = *state;

    refused(d, "'--frob'", "--frob", NULL);
    refused(d, "did you mean", "--sett", "a=b");
    refused(d, "needs a value", "--set", NULL);
    refused(d, "nope", "--set", "nope=1");
    refused(d, "banana", "--set", "drain-interval=banana");
    refused(d, "drain-interval", "--set", "drain-interval=2h");
    refused(d, "drain-interval", "--set", "drain-interval");
    refused(d, "poll", "--set", "gp-wait=sometimes");
    refused(d, "size", "--arena", "a");
    refused(d, "did you mean --arena?", "--arenaa=a:1M", NULL);
    refused(d, "--arena: size: '0' is not between 1M and 2T", "--arena", "a:0");
    refused(d, "--arena: size: '64MiB' is not a size; write it as 64M", "--arena", "a:64MiB");
    refused(d, "2T", "--arena", "a:3T");
    refused(d, "'a/b:1M'", "--arena", "a/b:1M");
    refused(d, "loud", "--log-level", "loud");
    refused(d, "argument", "status", NULL);
    daemon_remove(d);
}

static void configuration_refused(struct daemon *d, const char *text, const char *words)
{
    char path[128], said[WORDS_BYTES];
    FILE *f;
    int status;

    (void)snprintf(path, sizeof(path), "%s/log", d->directory); /* goes with the directory */
    f = fopen(path, "we");
    assert_non_null(f);
    (void)fputs(text, f);
    (void)fclose(f);
    status = daemon_try(d, said, "--config", path, NULL);
    if (status != 1 || !strstr(said, words) || !strstr(said, path))
        fail_msg("status %d, or no '%s' in: %s", status, words, said);
}

static void input_configuration_file(void **state)
{
    struct daemon *d = *state;
    char words[WORDS_BYTES];

    assert_int_equal(daemon_try(d, words, "--config", "/nonexistent/file", NULL), 1);
    assert_non_null(strstr(words, "/nonexistent/file"));
    configuration_refused(d, "[reclaimd]\ndrain-intervall = 1s\n", ":2: ");
    configuration_refused(d, "[reclaimd]\n\ndrain-interval = soon\n", ":3: ");
    configuration_refused(d, "[reclaimd]\nbatches = 65\n", "64");
    configuration_refused(d, "[nosuch]\n", ":1: ");
    configuration_refused(d, "drain-interval = 1s\n", ":1: ");
    daemon_remove(d);
}

static void memory_put(int fd, const char *text)
{
    assert_int_equal(ftruncate(fd, 0), 0);
    assert_int_equal(pwrite(fd, text, strlen(text), 0), strlen(text));
}

/* A reload makes the arenas that are new in the files, and says so; those with another size stay, and it says so too. */
static void input_reload_of_arenas(void **state)
{
    struct daemon *d = *state;
    _cleanup_close_ int fd = memfd_create("configuration", MFD_CLOEXEC); /* leaves nothing behind */
    struct ctl_result r;
    char path[64];

    assert_true(fd >= 0);
    (void)snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)getpid(), fd);
    memory_put(fd, "[arena routes]\nsize = 4M\n");
    daemon_start(d, "--config", path, NULL);
    memory_put(fd, "[arena routes]\nsize = 8M\n[arena n2]\nsize = 64M\n");
    for (int again = 0; again < 2; again++) {
        r = ctl_run(d, "reload", NULL);
        assert_int_equal(r.status, 0);
        assert_int_equal(strstr(r.out, "n2: made, 64M\n") != NULL, !again);
        assert_non_null(strstr(r.out, "routes: stays 4M, the files say 8M; "));
        ctl_result_deinit(&r);
    }
    ctl_do(d, "remove-arena", "routes", NULL);
    r = ctl_run(d, "reload", NULL);
    assert_string_equal(r.out, "routes: made, 8M\n");
    ctl_result_deinit(&r);
    daemon_stop(d);
}

/* What is wrong is said once. */
static void input_second_daemon(void **state)
{
    struct daemon *d = *state;
    char words[WORDS_BYTES];

    daemon_start(d, NULL);
    assert_int_equal(daemon_try(d, words, NULL), 1);
    assert_non_null(strstr(words, "cannot start: another reclaimd runs in "));
    assert_ptr_equal(strchr(words, '\n'), words + strlen(words) - 1);
    daemon_stop(d);
}

static void input_control_tool(void **state)
{
    struct daemon *d = *state;

    daemon_start(d, "--arena", "a:16M", NULL);
    ctl_refused(d, 2, "'frob'", "frob", NULL);
    ctl_refused(d, 2, "'--frob'", "--frob", "status", NULL);
    ctl_refused(d, 2, "too many arguments", "status", "a", "b", "c", NULL);
    ctl_refused(d, 1, "'nope'", "show", "nope", NULL);
    ctl_refused(d, 1, "'nope'", "get", "nope", NULL);
    ctl_refused(d, 1, "'nope'", "set", "nope=1", NULL);
    ctl_refused(d, 1, "drain-interval", "set", "drain-interval=banana", NULL);
    ctl_refused(d, 1, "1h", "set", "drain-interval=2h", NULL);
    ctl_refused(d, 1, "clients-max", "set", "--arena", "a", "clients-max=5", NULL); /* not an arena's */
    ctl_refused(d, 1, "'nope'", "set", "--arena", "nope", "drain-interval=5ms", NULL);
    ctl_refused(d, 1, "too small", "create-arena", "b", "--size", "0", NULL);
    ctl_refused(d, 1, "too large", "create-arena", "b", "--size", "3T", NULL);
    ctl_refused(d, 1, "arena-size-max", "create-arena", "b", "--size", "65G", NULL);
    ctl_refused(d, 1, "name", "create-arena", "b/c", "--size", "1M", NULL);
    ctl_refused(d, 1, "there already", "create-arena", "a", "--size", "1M", NULL);
    ctl_refused(d, 1, "no client 99", "evict", "99", NULL);
    /* all or nothing */
    ctl_refused(d, 1, "batches", "set", "drain-interval=5ms", "batches=0", NULL);
    {
        struct ctl_result r = ctl_run(d, "get", "drain-interval", NULL);

        assert_null(strstr(r.out, "5ms"));
        ctl_result_deinit(&r);
    }
    daemon_stop(d);
    assert_int_equal(mkdir("/tmp/reclaim-case-none", 0700) < 0 && errno != EEXIST, 0);
    ctl_refused(&(struct daemon){.directory = "/tmp/reclaim-case-none"}, 1, "/tmp/reclaim-case-none", "status", NULL);
    (void)rmdir("/tmp/reclaim-case-none");
}

/* 2 TiB arenas until no address is left: each until then is made, the next is refused in words, and room comes back. */
static void input_address_window(void **state)
{
    struct daemon *d = *state;
    struct ctl_result r = {0};
    char name[16];
    int n = 0;

    daemon_start(d, "--set", "arena-size-max=2T", "--set", "arenas-per-user-max=100", NULL);
    ctl_do(d, "create-arena", "small", "--size", "256G", NULL);
    do {
        ctl_result_deinit(&r);
        (void)snprintf(name, sizeof(name), "wide%d", n++);
        r = ctl_run(d, "create-arena", name, "--size", "2T", NULL);
    } while (r.status == 0 && n < 64);
    assert_in_range(n, 2, 63);
    assert_int_equal(r.status, 1); /* drawn at random, so another try might find a place */
    assert_non_null(strstr(r.err, "address window"));
    ctl_result_deinit(&r);
    ctl_do(d, "create-arena", "beside", "--size", "64M", NULL);
    ctl_do(d, "remove-arena", "wide0", NULL);
    assert_true(wait_until(({
        bool done;

        r = ctl_run(d, "create-arena", name, "--size", "2T", NULL);
        done = r.status == 0;
        ctl_result_deinit(&r);
        done;
    })));
    daemon_terminate(d); /* no audit: tables of 2 TiB take their time */
    daemon_remove(d);
}

static void input_library(void **state)
{
    struct daemon *d = *state, nowhere = {.directory = "/nonexistent"};
    char words[WORDS_BYTES] = "";
    struct reclaim *r = NULL;

    assert_int_equal(try_open(&nowhere, "a", 0, 0, 0, words, &r), -ECONNREFUSED);
    assert_non_null(strstr(words, "no daemon"));
    daemon_start(d, "--arena", "a:16M", NULL);
    assert_int_equal(try_open(d, "b", 0, 0, 0, words, &r), -ENOENT);
    assert_non_null(strstr(words, "no arena b"));
    assert_int_equal(try_open(d, "a/b", 0, 0, 0, words, &r), -EINVAL);
    assert_int_equal(try_open(d, "b", RECLAIM_CREATE, 0, 0, words, &r), -EINVAL);
    assert_non_null(strstr(words, "1 MiB"));
    assert_int_equal(try_open(d, "b", 0, 3ull << 40, 0, words, &r), -EINVAL);
    assert_non_null(strstr(words, "2 TiB"));
    assert_int_equal(try_open(d, "b", 0, 65ull << 30, 0, words, &r), -ENOSPC);
    assert_non_null(strstr(words, "arena-size-max"));
    assert_int_equal(try_open(d, "a", RECLAIM_EXCL, MIB_BYTES, 0, words, &r), -EEXIST);
    assert_int_equal(try_open(d, "a", 1u << 20, 0, 0, words, &r), -EINVAL);
    assert_null(r);
    daemon_stop(d);
}

static void input_abi_version(void **state)
{
    struct abi_request request = raw_request(ABI_OP_OPEN, "a");
    struct daemon *d = *state;
    struct abi_reply reply;
    int fd;

    daemon_start(d, "--arena", "a:16M", NULL);
    fd = raw_connect(d->client, SOCK_SEQPACKET);
    request.major++;
    assert_true(raw_ask(fd, &request, &reply));
    assert_int_equal(reply.error, -EPROTO);
    assert_non_null(strstr(reply.message, "version"));
    assert_true(raw_is_closed(fd));
    (void)close(fd);
    fd = raw_connect(d->client, SOCK_SEQPACKET);
    request = raw_request(ABI_OP_OPEN, "a");
    request.fingerprint++;
    assert_true(raw_ask(fd, &request, &reply));
    assert_int_equal(reply.error, -EPROTO);
    assert_non_null(strstr(reply.message, "layout"));
    (void)close(fd);
    fd = raw_connect(d->client, SOCK_SEQPACKET);
    request = raw_request(ABI_OP_OPEN, "a");
    request.minor += 7; /* a later minor version is welcome */
    assert_true(raw_ask(fd, &request, &reply));
    assert_int_equal(reply.error, 0);
    (void)close(fd);
    assert_true(wait_until(n_clients(d) == 0));
    daemon_stop(d);
}

/* ---- Rights and limits of a second user ------------------------------------------------------------------------------------ */

struct visitor {
    const struct daemon *d;
    int (*run)(const struct daemon *d);
};

static int visitor_main(void *userdata)
{
    const struct visitor *v = userdata;

    CHECK(setgroups(0, NULL) == 0);
    CHECK(setresgid(NOBODY, NOBODY, NOBODY) == 0 && setresuid(NOBODY, NOBODY, NOBODY) == 0);
    CHECK(prctl(PR_SET_DUMPABLE, 1) == 0); /* its own /proc/self is its own again */
    return v->run(v->d);
}

static void visit(const struct daemon *d, int (*run)(const struct daemon *d))
{
    struct visitor v = {.d = d, .run = run};

    child_must_succeed(child_start(visitor_main, &v));
}

static void need_root(void)
{
    if (geteuid() == 0)
        return;
    (void)printf("skipped: only root can become a second user\n");
    skip();
}

static int visit_modes(const struct daemon *d)
{
    char words[WORDS_BYTES] = "";
    struct reclaim *r = NULL;
    struct reclaim_lane *l;

    CHECK(try_open(d, "m0600", 0, 0, 0, words, &r) == -EACCES);
    CHECK(strstr(words, "m0600") && strstr(words, "0600") && strstr(words, "65534"));
    CHECK(try_open(d, "m0600", RECLAIM_READ_ONLY, 0, 0, words, &r) == -EACCES);
    CHECK(try_open(d, "m0660", 0, 0, 0, words, &r) == -EACCES);
    CHECK(try_open(d, "m0644", 0, 0, 0, words, &r) == -EACCES && strstr(words, "use"));

    CHECK(try_open(d, "m0644", RECLAIM_READ_ONLY, 0, 0, words, &r) == 0);
    CHECK(reclaim_lane_get(r, &l) == 0 && reclaim_read_lock(l) == 0);
    reclaim_read_unlock(l);
    CHECK(!reclaim_alloc(l, 64) && errno == EROFS);
    CHECK(reclaim_defer_free(l, (char *)reclaim_base(r) + ABI_CHUNK_BYTES) == -EROFS);
    reclaim_close(r);

    CHECK(try_open(d, "m0666", 0, 0, 0, words, &r) == 0);
    CHECK(reclaim_lane_get(r, &l) == 0 && reclaim_defer_free(l, reclaim_alloc(l, 64)) == 0);
    CHECK(reclaim_barrier(l, NULL) == 0);
    reclaim_close(r);
    return 0;
}

/* A read-only descriptor is one: also through /proc. */
static int visit_read_only(const struct daemon *d)
{
    char path[64];
    struct raw raw;

    CHECK(raw_open(&raw, d, "m0644", ABI_OPEN_READ_ONLY) == 0);
    for (int i = 0; i < 3; i += 2) { /* domain and arena */
        CHECK(mmap(NULL, ABI_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, raw.fds[i], 0) == MAP_FAILED);
        (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", raw.fds[i]);
        CHECK(open(path, O_RDWR | O_CLOEXEC) < 0 && errno == EACCES);
    }
    return 0;
}

static void rights_by_mode(void **state)
{
    static const char *const modes[] = {"0600", "0644", "0660", "0666"};
    struct daemon *d = *state;

    need_root();
    daemon_start(d, NULL);
    for (int i = 0; i < 4; i++) {
        char name[8] = "m";

        (void)strcpy(name + 1, modes[i]);
        ctl_do(d, "create-arena", name, "--size", "4M", "--mode", modes[i], NULL);
    }
    visit(d, visit_modes);
    visit(d, visit_read_only);
    assert_true(wait_until(n_clients(d) == 0));
    daemon_stop(d);
}

static int visit_control(const struct daemon *d)
{
    struct ctl_result r = ctl_run(d, "list-arenas", NULL);

    CHECK(r.status == 0 && strstr(r.out, "m0666") && !strstr(r.out, "m0600")); /* what he may not see is not there */
    r = ctl_run(d, "show", "m0600", NULL);
    CHECK(r.status == 1 && strstr(r.err, "no arena"));
    r = ctl_run(d, "set", "drain-interval=5ms", NULL);
    CHECK(r.status == 1 && r.err[0] && !r.out[0]);
    r = ctl_run(d, "remove-arena", "m0666", NULL);
    CHECK(r.status == 1 && r.err[0]);
    r = ctl_run(d, "reload", NULL);
    CHECK(r.status == 1 && r.err[0]);
    r = ctl_run(d, "create-arena", "mine", "--size", "4M", NULL);
    CHECK(r.status == 0);
    r = ctl_run(d, "set", "--arena", "mine", "drain-interval=5ms", NULL);
    CHECK(r.status == 0);
    r = ctl_run(d, "create-arena", "gift", "--size", "4M", "--owner", "0", NULL);
    CHECK(r.status == 1 && r.err[0]);
    return 0;
}

static void rights_of_control(void **state)
{
    struct daemon *d = *state;

    need_root();
    daemon_start(d, NULL);
    ctl_do(d, "create-arena", "m0600", "--size", "4M", NULL);
    ctl_do(d, "create-arena", "m0666", "--size", "4M", "--mode", "0666", NULL);
    visit(d, visit_control);
    ctl_do(d, "show", "m0666", NULL);
    daemon_stop(d);
}

static int visit_limits(const struct daemon *d)
{
    char words[WORDS_BYTES] = "";
    struct reclaim *r[3] = {NULL};
    struct reclaim_lane *l;
    unsigned n;

    CHECK(try_open(d, "large", 0, 17 * MIB_BYTES, 0, words, &r[0]) == -ENOSPC && strstr(words, "arena-size-max"));
    CHECK(try_open(d, "one", 0, 16 * MIB_BYTES, 0, words, &r[0]) == 0);
    CHECK(try_open(d, "two", 0, 16 * MIB_BYTES, 0, words, &r[1]) == 0);
    CHECK(try_open(d, "three", 0, 16 * MIB_BYTES, 0, words, &r[2]) == -EMFILE && strstr(words, "arenas-per-user-max"));
    CHECK(reclaim_lane_get(r[0], &l) == 0);
    for (n = 0; n < 16 && reclaim_alloc(l, MIB_BYTES); n++)
        ;
    CHECK(errno == ENOMEM && n <= 4); /* user-bytes-max */
    CHECK(reclaim_lane_get(r[1], &l) == 0);
    CHECK(!reclaim_alloc(l, 2 * MIB_BYTES) && errno == ENOMEM); /* all his arenas together */
    return 0;
}

/* What he has freed, in pieces too small for what he wants now, is given back and no longer counts. */
static int visit_limit_after_frees(const struct daemon *d)
{
    void *pieces[100];
    struct reclaim_lane *l;
    struct reclaim *r;

    CHECK(try_open(d, "pieces", 0, 16 * MIB_BYTES, 0, NULL, &r) == 0);
    CHECK(reclaim_lane_get(r, &l) == 0);
    for (unsigned i = 0; i < ARRAY_SIZE(pieces); i++)
        CHECK((pieces[i] = reclaim_alloc(l, 32768)));
    for (unsigned i = 0; i < ARRAY_SIZE(pieces); i += 2)
        CHECK(reclaim_defer_free(l, pieces[i]) == 0);
    CHECK(reclaim_alloc(l, 2 * MIB_BYTES));
    return 0;
}

static void limits_of_a_user_count_what_is_backed(void **state)
{
    struct daemon *d = *state;

    need_root();
    daemon_start(d, "--set", "user-bytes-max=4M", NULL);
    visit(d, visit_limit_after_frees);
    assert_true(wait_until(n_clients(d) == 0));
    daemon_stop(d);
}

static void limits_of_a_user(void **state)
{
    struct daemon *d = *state;

    need_root();
    daemon_start(d, "--arena", "root:16M", "--set", "arenas-per-user-max=2", "--set", "arena-size-max=16M", "--set",
                 "user-bytes-max=4M", NULL);
    visit(d, visit_limits);
    {
        struct reclaim *r = must_open(d, "root"); /* others have what they had */

        (void)must_alloc(must_lane(r), 8 * MIB_BYTES);
        reclaim_close(r);
    }
    assert_true(wait_until(n_clients(d) == 0));
    daemon_stop(d);
}

int main(void)
{
    struct daemon d = {0};
    const struct CMUnitTest tests[] = {
        daemon_test(input_command_line_of_daemon),
        daemon_test(input_reload_of_arenas),
        daemon_test(input_second_daemon),
        daemon_test(input_configuration_file),
        daemon_test(input_control_tool),
        daemon_test(input_address_window),
        daemon_test(input_library),
        daemon_test(input_abi_version),
        daemon_test(rights_by_mode),
        daemon_test(rights_of_control),
        daemon_test(limits_of_a_user),
        daemon_test(limits_of_a_user_count_what_is_backed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
