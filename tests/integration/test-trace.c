/* SPDX-License-Identifier: MIT */
/*
 * What a daemon at work tells: its events to those who trace it, over its control socket and by reclaimctl,
 * and the figures of what waits.
 */
#include "case-trace.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

enum {
    OBJECTS = 100, /* fewer than make a flood */
    EXTENT_BYTES = 1 << 20,
    LINE_BYTES = 512,
};

/* ---- Over the socket ---- */

static void defer_objects(struct reclaim_lane *l)
{
    void *objects[OBJECTS];

    for (int i = 0; i < OBJECTS; i++)
        objects[i] = must_alloc(l, 64);
    for (int i = 0; i < OBJECTS; i++)
        assert_int_equal(reclaim_defer_free(l, objects[i]), 0);
}

static void expect_client(json_object *event, uint64_t client)
{
    assert_int_equal(event_number(event, "client"), client);
}

/* A barrier has what is pending drained, after a grace period freed, and only then returns. */
static void expect_barrier(struct tracer *t, size_t *at)
{
    size_t drained = *at;
    json_object *drain = tracer_next(t, &drained, "drain"), *start = tracer_next(t, at, "gp_start"), *end;

    end = tracer_next(t, at, "gp_end");
    assert_int_equal(event_number(start, "number"), event_number(end, "number"));
    assert_int_equal(event_number(drain, "objects"), OBJECTS);
    assert_int_equal(event_number(drain, "bytes"), OBJECTS * 64);
    assert_true(event_number(drain, "pages") > 0);
    assert_string_equal(json_object_get_string(event_member(drain, "cause")), "barrier");
    *at = *at > drained ? *at : drained;
    (void)tracer_next(t, at, "bulk_free");
}

static void events_come_in_order(void **state)
{
    struct daemon *d = *state;
    struct reclaim_lane *l;
    struct reclaim *r;
    struct tracer t;
    json_object *e, *start;
    uint64_t client;
    size_t at = 0;

    daemon_start(d, "--arena", "a:16M", "--arena", "other:1M", "--set", "drain-interval=1h", NULL);
    tracer_open(&t, d, "\"arena\":\"a\"");
    r = must_open(d, "a");
    l = must_lane(r);
    e = tracer_next(&t, &at, "attach");
    assert_int_equal(event_number(e, "pid"), getpid());
    client = event_number(e, "client");

    defer_objects(l);
    assert_int_equal(reclaim_barrier(l, NULL), 0);
    expect_barrier(&t, &at);

    assert_int_equal(reclaim_synchronize(l, 0, NULL), 0);
    expect_client(tracer_next(&t, &at, "sync_request"), client);
    start = tracer_next(&t, &at, "gp_start");
    e = tracer_next(&t, &at, "gp_end");
    assert_int_equal(event_number(e, "number"), event_number(start, "number"));
    assert_true(event_number(e, "monotonicUSec") >= event_number(start, "monotonicUSec"));
    expect_client(tracer_next(&t, &at, "sync_complete"), client);
    assert_int_equal(tracer_sum(&t, "bulk_free", "objects"), OBJECTS);
    assert_int_equal(tracer_sum(&t, "bulk_free", "bytes"), OBJECTS * 64);

    ctl_do(d, "synchronize", "a", NULL); /* the daemon's own */
    expect_client(tracer_next(&t, &at, "sync_request"), 0);
    expect_client(tracer_next(&t, &at, "sync_complete"), 0);
    reclaim_close(r);
    expect_client(tracer_next(&t, &at, "detach"), client);
    assert_int_equal(t.n_dropped, 0);
    tracer_close(&t);
    daemon_stop(d);
}

/* Each way in which batches end. */
static void frees_are_told_in_every_mode(void **state)
{
    static const char *const modes[][2] = {{"gp-wait=poll", "batching=yes"},
                                           {"gp-wait=callback", "batching=yes"},
                                           {"gp-wait=poll", "batching=no"}};
    struct daemon *d = *state;

    for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
        struct reclaim_lane *l;
        struct reclaim *r;
        struct tracer t;
        size_t at = 0;

        daemon_start(d, "--arena", "a:16M", "--set", modes[i][0], "--set", modes[i][1], NULL);
        tracer_open(&t, d, "\"events\":[\"bulk_free\"]");
        r = must_open(d, "a");
        l = must_lane(r);
        defer_objects(l);
        assert_int_equal(reclaim_barrier(l, NULL), 0);
        while (tracer_sum(&t, "bulk_free", "objects") < OBJECTS)
            (void)tracer_next(&t, &at, "bulk_free");
        assert_int_equal(tracer_sum(&t, "bulk_free", "objects"), OBJECTS);
        assert_int_equal(tracer_sum(&t, "bulk_free", "bytes"), OBJECTS * 64);
        reclaim_close(r);
        tracer_close(&t);
        daemon_stop(d);
    }
}

static void *act_synchronize(struct actor *a, void *userdata)
{
    return (void *)(intptr_t)reclaim_synchronize(a->lane, 0, NULL);
}

static void *act_barrier(struct actor *a, void *userdata)
{
    return (void *)(intptr_t)reclaim_barrier(a->lane, NULL);
}

static void stalls_and_purges_are_told(void **state)
{
    struct daemon *d = *state;
    struct actor waiter = {0};
    struct reclaim_lane *l;
    struct reclaim *r;
    struct tracer t;
    json_object *e;
    size_t at = 0;
    void *extent;

    daemon_start(d, "--arena", "a:16M", "--set", "stall-timeout=100ms", NULL);
    tracer_open(&t, d, "\"events\":[\"stall\",\"purge\",\"gp_end\"]");
    r = must_open(d, "a");
    l = must_lane(r);
    actor_start(&waiter, r);
    assert_int_equal(reclaim_read_lock(l), 0);
    actor_begin(&waiter, act_synchronize, NULL);
    e = tracer_next(&t, &at, "stall");
    assert_true(event_number(e, "client") > 0);
    assert_true(event_number(e, "durationUSec") >= 100000);
    reclaim_read_unlock(l);
    assert_null(actor_end(&waiter));
    assert_true(event_number(tracer_next(&t, &at, "gp_end"), "durationUSec") >= 100000);

    extent = must_alloc(l, EXTENT_BYTES);
    memset(extent, 1, EXTENT_BYTES);
    assert_int_equal(reclaim_free(l, extent), 0);
    ctl_do(d, "drain", "a", NULL);
    ctl_do(d, "purge", "a", NULL);
    e = tracer_next(&t, &at, "purge");
    assert_true(event_number(e, "holes") > 0);
    assert_true(event_number(e, "bytes") >= EXTENT_BYTES);
    actor_stop(&waiter);
    reclaim_close(r);
    tracer_close(&t);
    daemon_stop(d);
}

/* ---- Figures ---- */

static uint64_t page_histogram_at(const struct daemon *d, size_t bucket)
{
    json_object *arena = ctl_json(d, "show", "a", NULL), *buckets;
    uint64_t n;

    assert_int_equal(json_pointer_get(arena, "/figures/pageHistogram", &buckets), 0);
    assert_int_equal(json_object_array_length(buckets), 10);
    n = json_object_get_uint64(json_object_array_get_idx(buckets, bucket));
    (void)json_object_put(arena);
    return n;
}

static uint64_t n_membarriers(const struct daemon *d)
{
    json_object *reply = ctl_json(d, "status", NULL), *n;
    uint64_t ret;

    assert_int_equal(json_pointer_get(reply, "/status/membarriers", &n), 0);
    ret = json_object_get_uint64(n);
    (void)json_object_put(reply);
    return ret;
}

static void figures_tell_of_what_waits(void **state)
{
    struct daemon *d = *state;
    struct actor waiter = {0};
    struct reclaim_lane *l;
    struct reclaim *r;
    int64_t age;
    uint64_t n;

    daemon_start(d, "--arena", "a:16M", "--set", "drain-interval=1h", NULL);
    r = must_open(d, "a");
    l = must_lane(r);
    assert_int_equal(arena_figure(d, "a", "oldestPendingUSec"), 0);
    defer_objects(l);
    assert_true(wait_until(arena_figure(d, "a", "pendingObjects") == OBJECTS));
    assert_true(wait_until(arena_figure(d, "a", "oldestPendingUSec") > 100000)); /* it grows */

    assert_int_equal(reclaim_read_lock(l), 0);
    actor_start(&waiter, r);
    actor_begin(&waiter, act_barrier, NULL);
    assert_true(wait_until(arena_figure(d, "a", "batchesRunning") == 1));
    age = arena_figure(d, "a", "oldestPendingUSec");
    assert_true(age > 100000); /* a batch is no younger */
    defer_objects(l);
    assert_true(wait_until(arena_figure(d, "a", "pendingObjects") == 2 * OBJECTS));
    assert_true(arena_figure(d, "a", "oldestPendingUSec") >= age); /* whatever comes after it */
    reclaim_read_unlock(l);
    assert_null(actor_end(&waiter));
    assert_int_equal(reclaim_barrier(l, NULL), 0);
    assert_true(wait_until(arena_figure(d, "a", "oldestPendingUSec") == 0));
    assert_int_equal(page_histogram_at(d, 6), 2); /* 64..127 */

    assert_int_equal(reclaim_read_lock(l), 0);
    actor_begin(&waiter, act_synchronize, NULL);
    assert_true(wait_until(arena_figure(d, "a", "synchronizing") == 1));
    reclaim_read_unlock(l);
    assert_null(actor_end(&waiter));
    assert_int_equal(arena_figure(d, "a", "synchronizing"), 0);
    n = n_membarriers(d);
    assert_int_equal(reclaim_synchronize(l, 0, NULL), 0);
    assert_true(n_membarriers(d) > n);
    actor_stop(&waiter);
    reclaim_close(r);
    daemon_stop(d);
}

/* ---- By reclaimctl ---- */

struct ctl_tracer {
    const struct daemon *d;
    int fds[2];
    pid_t pid;
    FILE *out;
};

static int ctl_trace_exec(void *userdata)
{
    struct ctl_tracer *t = userdata;

    (void)dup2(t->fds[1], STDOUT_FILENO);
    (void)execl(getenv("RECLAIMCTL"), "reclaimctl", "--control", t->d->control, "trace", "a",
                "--events=drain,gp_start,gp_end,bulk_free", (char *)NULL);
    return 127;
}

/* Reads on to a line that has these words. */
static void ctl_trace_expect(struct ctl_tracer *t, const char *words)
{
    char line[LINE_BYTES] = "";

    do
        if (!fgets(line, sizeof(line), t->out))
            fail_msg("the trace ended before '%s'", words);
    while (!strstr(line, words));
}

static void reclaimctl_follows_a_drain(void **state)
{
    struct daemon *d = *state;
    struct ctl_tracer t = {.d = d};
    struct reclaim_lane *l;
    struct reclaim *r;
    int status;

    daemon_start(d, "--arena", "a:16M", "--set", "drain-interval=5ms", NULL);
    (void)alarm(2 * HANG_SECONDS);
    assert_int_equal(pipe2(t.fds, O_CLOEXEC), 0);
    t.pid = child_start(ctl_trace_exec, &t);
    (void)close(t.fds[1]);
    t.out = fdopen(t.fds[0], "r");
    ctl_trace_expect(&t, "EVENT"); /* from here on */
    r = must_open(d, "a");
    l = must_lane(r);
    defer_objects(l);
    ctl_trace_expect(&t, " drain          a             cause=interval objects=");
    ctl_trace_expect(&t, " gp_start       a             number=");
    ctl_trace_expect(&t, " gp_end         a             number=");
    ctl_trace_expect(&t, " bulk_free      a             objects=");
    assert_int_equal(kill(t.pid, SIGINT), 0);
    status = child_wait(t.pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    (void)fclose(t.out);
    reclaim_close(r);
    daemon_stop(d);
}

int main(void)
{
    struct daemon d = {0};
    const struct CMUnitTest tests[] = {
        daemon_test(events_come_in_order),       daemon_test(frees_are_told_in_every_mode),
        daemon_test(stalls_and_purges_are_told), daemon_test(figures_tell_of_what_waits),
        daemon_test(reclaimctl_follows_a_drain),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
