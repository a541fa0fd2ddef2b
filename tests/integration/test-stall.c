/* SPDX-License-Identifier: MIT */
/*
 * Readers that do not leave their section: who is told, of whom, how often, and what comes of stall-action.
 *
 * stall-timeout is as short as it may be. Nothing here depends on how long anything takes, but for what the
 * daemon promises not to say earlier.
 */
#include "case-trace.h"

#include <fcntl.h>
#include <grp.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include "basic/cleanup.h"

enum {
    OBJECTS = 100,
    OBJECT_BYTES = 64,
    TIMEOUT_USEC = 100000, /* the least that stall-timeout can be */
    READERS = 12,          /* more than the log has lines for */
    LINES = 8,
};

#define EVENTS "\"events\":[\"stall\",\"stall_ended\",\"stall_kill\"]"
#define COMMAND "stuck \x1b[1mone" /* a program may call itself what it likes */
#define COMMAND_SHOWN "stuck ?[1mone"

/* ---- Another process, with a thread that stays in its section until it is told to leave ---- */

struct stuck {
    const struct daemon *d;
    int to_child[2], from_child[2];
    pid_t pid, tid;
};

static void *stuck_thread(void *userdata)
{
    struct stuck *s = userdata;
    pid_t tid = (pid_t)syscall(SYS_gettid);
    struct reclaim_lane *l;
    struct reclaim *r;
    char byte;

    CHECK(read(s->to_child[0], &byte, 1) == 1);
    CHECK(try_open(s->d, "a", 0, 0, 0, NULL, &r) == 0);
    CHECK(reclaim_lane_get(r, &l) == 0 && reclaim_read_lock(l) == 0);
    CHECK(write(s->from_child[1], &tid, sizeof(tid)) == sizeof(tid));
    CHECK(read(s->to_child[0], &byte, 1) == 0); /* it is closed */
    reclaim_read_unlock(l);
    reclaim_close(r);
    return NULL;
}

static int stuck_main(void *userdata)
{
    struct stuck *s = userdata;
    pthread_t thread;

    (void)close(s->to_child[1]);
    (void)prctl(PR_SET_NAME, COMMAND);
    CHECK(pthread_create(&thread, NULL, stuck_thread, s) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    return 0;
}

/* In two steps: a process that has threads makes no child that has some. */
static void stuck_fork(struct stuck *s, const struct daemon *d)
{
    s->d = d;
    assert_int_equal(pipe2(s->to_child, O_CLOEXEC) | pipe2(s->from_child, O_CLOEXEC), 0);
    s->pid = child_start(stuck_main, s);
    (void)close(s->to_child[0]);
    (void)close(s->from_child[1]);
}

/* Once it returns, the section is open. */
static void stuck_begin(struct stuck *s)
{
    assert_int_equal(write(s->to_child[1], "", 1), 1);
    assert_int_equal(read(s->from_child[0], &s->tid, sizeof(s->tid)), sizeof(s->tid));
    assert_int_not_equal(s->tid, s->pid);
}

static void stuck_start(struct stuck *s, const struct daemon *d)
{
    stuck_fork(s, d);
    stuck_begin(s);
}

static void stuck_release(struct stuck *s)
{
    (void)close(s->to_child[1]);
    (void)close(s->from_child[0]);
}

static void stuck_expect_killed(struct stuck *s)
{
    int status = child_wait(s->pid);

    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    stuck_release(s);
}

/* ---- What waits for it ---- */

static void defer_objects(struct reclaim_lane *l)
{
    void *objects[OBJECTS];

    for (int i = 0; i < OBJECTS; i++)
        objects[i] = must_alloc(l, OBJECT_BYTES);
    for (int i = 0; i < OBJECTS; i++)
        assert_int_equal(reclaim_defer_free(l, objects[i]), 0);
}

static void *act_synchronize(struct actor *a, void *userdata)
{
    return (void *)(intptr_t)reclaim_synchronize(a->lane, 0, NULL);
}

/* ---- What is told ---- */

static json_object *at(json_object *o, const char *path)
{
    json_object *found;

    if (json_pointer_get(o, path, &found) != 0)
        fail_msg("no %s in %s", path, json_object_to_json_string(o));
    return found;
}

static uint64_t number_at(json_object *o, const char *path)
{
    return json_object_get_uint64(at(o, path));
}

static void expect_reader(json_object *o, const struct stuck *s)
{
    assert_int_equal(event_number(o, "pid"), s->pid);
    assert_int_equal(event_number(o, "tid"), s->tid);
    assert_string_equal(json_object_get_string(event_member(o, "command")), COMMAND_SHOWN);
}

/* The first report that has all of it: the worker may count what was deferred a moment after the first one. */
static json_object *next_with(struct tracer *t, size_t *pos, const char *member, uint64_t n)
{
    json_object *e;

    do
        e = tracer_next(t, pos, "stall");
    while (event_number(e, member) < n);
    assert_int_equal(event_number(e, member), n);
    return e;
}

static void expect_listed(const struct daemon *d, const struct stuck *s, uint64_t number)
{
    json_object *clients = ctl_json(d, "list-clients", NULL), *mine = client_find(clients, getpid()),
                *stuck = client_find(clients, s->pid), *stall = at(stuck, "/stall");

    assert_int_equal(number_at(mine, "/stalledReaders"), 0);
    assert_false(json_object_object_get_ex(mine, "stall", NULL));
    assert_int_equal(number_at(stuck, "/stalledReaders"), 1);
    expect_reader(stall, s);
    assert_int_equal(number_at(stall, "/gracePeriod"), number);
    assert_int_equal(number_at(stall, "/objects"), OBJECTS);
    assert_int_equal(number_at(stall, "/bytes"), OBJECTS * OBJECT_BYTES);
    assert_true(number_at(stall, "/durationUSec") >= TIMEOUT_USEC);
    (void)json_object_put(clients);
}

static void expect_in_status(const struct daemon *d, const struct stuck *s, uint64_t number)
{
    json_object *reply = ctl_json(d, "status", NULL), *stall = at(reply, "/status/stalls/0");
    char words[WORDS_BYTES];
    struct ctl_result r;

    assert_int_equal(json_object_array_length(at(reply, "/status/stalls")), 1);
    assert_int_equal(number_at(reply, "/status/figures/stalledReaders"), 1);
    assert_string_equal(json_object_get_string(at(reply, "/arenas/0/state")), "stalled");
    assert_string_equal(json_object_get_string(at(stall, "/arena")), "a");
    expect_reader(stall, s);
    assert_int_equal(number_at(stall, "/gracePeriod"), number);
    assert_int_equal(number_at(stall, "/objects"), OBJECTS);
    (void)json_object_put(reply);

    r = ctl_run(d, "status", NULL);
    (void)snprintf(words, sizeof(words), "%d  %d", (int)s->pid, (int)s->tid);
    if (r.status != 0 || !strstr(r.out, "\nSTALLED ") || !strstr(r.out, words) ||
        !strstr(r.out, COMMAND_SHOWN))
        fail_msg("status: %s%s", r.out, r.err);
    ctl_result_deinit(&r);
}

static void expect_no_stall(const struct daemon *d)
{
    json_object *reply = ctl_json(d, "status", NULL), *clients = ctl_json(d, "list-clients", NULL);

    assert_int_equal(json_object_array_length(at(reply, "/status/stalls")), 0);
    assert_int_equal(number_at(reply, "/status/figures/stalledReaders"), 0);
    assert_string_equal(json_object_get_string(at(reply, "/arenas/0/state")), "ready");
    for (size_t i = 0; i < json_object_array_length(clients); i++)
        assert_false(json_object_object_get_ex(json_object_array_get_idx(clients, i), "stall", NULL));
    (void)json_object_put(reply);
    (void)json_object_put(clients);
}

static void a_stall_is_told_whole(void **state)
{
    struct daemon *d = *state;
    struct actor waiter = {0};
    struct stuck s = {0};
    struct reclaim_lane *l;
    struct reclaim *r;
    struct tracer t;
    json_object *e;
    uint64_t number, usec;
    char words[WORDS_BYTES];
    size_t pos = 0;

    daemon_start(d, "--arena", "a:16M", "--set", "stall-timeout=100ms", "--set", "drain-interval=1ms", NULL);
    stuck_start(&s, d);
    tracer_open(&t, d, EVENTS);
    r = must_open(d, "a");
    l = must_lane(r);
    actor_start(&waiter, r);
    defer_objects(l);
    e = next_with(&t, &pos, "objects", OBJECTS);
    expect_reader(e, &s);
    assert_int_equal(event_number(e, "bytes"), OBJECTS * OBJECT_BYTES);
    number = event_number(e, "number");
    usec = event_number(e, "durationUSec");
    assert_true(usec >= TIMEOUT_USEC);

    actor_begin(&waiter, act_synchronize, NULL);
    e = next_with(&t, &pos, "waiters", 1); /* again, and what waits now */
    expect_reader(e, &s);
    assert_int_equal(event_number(e, "number"), number);
    assert_true(event_number(e, "durationUSec") >= 3 * (uint64_t)TIMEOUT_USEC);
    usec = event_number(e, "durationUSec");
    expect_listed(d, &s, number);
    expect_in_status(d, &s, number);
    (void)snprintf(words, sizeof(words),
                   "(pid %d, tid %d, uid %d, " COMMAND_SHOWN ") holds up grace period %d for ", (int)s.pid,
                   (int)s.tid, (int)getuid(), (int)number);
    assert_true(daemon_log_has(d, words));

    stuck_release(&s);
    e = tracer_next(&t, &pos, "stall_ended");
    expect_reader(e, &s);
    assert_int_equal(event_number(e, "number"), number);
    assert_true(event_number(e, "durationUSec") >= usec);
    assert_null(actor_end(&waiter));
    child_must_succeed(s.pid);
    assert_true(daemon_log_has(d, COMMAND_SHOWN ") held up grace period "));
    expect_no_stall(d);
    assert_int_equal(arena_figure(d, "a", "stalls"), 1);
    actor_stop(&waiter);
    reclaim_close(r);
    tracer_close(&t);
    daemon_stop(d);
}

/* A timeout that is made shorter acts on who reads already. */
static void a_changed_timeout_acts_at_once(void **state)
{
    struct daemon *d = *state;
    struct actor reader = {0}, waiter = {0};
    struct reclaim *r;
    struct tracer t;
    size_t pos = 0;

    daemon_start(d, "--arena", "a:16M", "--set", "stall-timeout=1h", NULL);
    tracer_open(&t, d, EVENTS);
    r = must_open(d, "a");
    actor_start_reading(&reader, r);
    actor_start(&waiter, r);
    actor_begin(&waiter, act_synchronize, NULL);
    assert_true(wait_until(arena_figure(d, "a", "synchronizing") == 1));
    ctl_do(d, "set", "--arena", "a", "stall-timeout=100ms", NULL);
    assert_int_equal(event_number(tracer_next(&t, &pos, "stall"), "tid"), reader.tid);
    assert_null(actor_do(&reader, act_read_unlock, NULL));
    assert_null(actor_end(&waiter));
    (void)tracer_next(&t, &pos, "stall_ended");
    actor_stop(&reader);
    actor_stop(&waiter);
    reclaim_close(r);
    tracer_close(&t);
    daemon_stop(d);
}

/* While a is stalled, b goes on. */
static void other_arenas_go_on(void **state)
{
    struct daemon *d = *state;
    struct actor reader = {0}, waiter = {0};
    struct reclaim_lane *l;
    struct reclaim *a, *b;
    struct tracer t;
    size_t pos = 0;

    daemon_start(d, "--arena", "a:16M", "--arena", "b:16M", "--set", "stall-timeout=100ms", NULL);
    tracer_open(&t, d, EVENTS);
    a = must_open(d, "a");
    b = must_open(d, "b");
    l = must_lane(b);
    actor_start_reading(&reader, a);
    actor_start(&waiter, a);
    actor_begin(&waiter, act_synchronize, NULL);
    (void)tracer_next(&t, &pos, "stall");
    for (int i = 0; i < 20; i++) {
        defer_objects(l);
        assert_int_equal(reclaim_synchronize(l, 0, NULL), 0);
        assert_int_equal(reclaim_barrier(l, NULL), 0);
    }
    assert_int_equal(arena_figure(d, "b", "stalledReaders"), 0);
    assert_int_equal(arena_figure(d, "b", "pendingObjects"), 0);
    assert_int_equal(arena_figure(d, "a", "stalledReaders"), 1);
    assert_null(actor_do(&reader, act_read_unlock, NULL));
    assert_null(actor_end(&waiter));
    actor_stop(&reader);
    actor_stop(&waiter);
    reclaim_close(a);
    reclaim_close(b);
    tracer_close(&t);
    daemon_stop(d);
}

static unsigned n_lines_with(const struct daemon *d, const char *words)
{
    _cleanup_free_ char *log = daemon_log(d);
    unsigned n = 0;

    for (const char *p = log; (p = strstr(p, words)); p++)
        n++;
    return n;
}

/* The log has a limit and says what it leaves out; all else has none. */
static void every_reader_is_in_the_books(void **state)
{
    struct daemon *d = *state;
    struct actor readers[READERS] = {0}, waiter = {0};
    json_object *reply;
    struct reclaim *r;
    struct tracer t;
    size_t pos = 0;

    daemon_start(d, "--arena", "a:16M", "--set", "stall-timeout=1h", NULL);
    tracer_open(&t, d, EVENTS);
    r = must_open(d, "a");
    actor_start(&waiter, r);
    for (int i = 0; i < READERS; i++) {
        actor_start(&readers[i], r);
        assert_null(actor_do(&readers[i], act_read_lock, NULL));
    }
    actor_begin(&waiter, act_synchronize, NULL);
    assert_true(wait_until(arena_figure(d, "a", "synchronizing") == 1));
    ctl_do(d, "set", "stall-timeout=2s", NULL);
    for (int i = 0; i < READERS; i++) {
        json_object *e = tracer_next(&t, &pos, "stall");
        bool found = false;

        for (int j = 0; j < READERS; j++)
            found |= (pid_t)event_number(e, "tid") == readers[j].tid;
        assert_true(found);
    }
    ctl_do(d, "set", "stall-timeout=1h", NULL); /* so that this was the only report */
    reply = ctl_json(d, "status", NULL);
    assert_int_equal(json_object_array_length(at(reply, "/status/stalls")), READERS);
    assert_int_equal(number_at(reply, "/status/figures/stalledReaders"), READERS);
    (void)json_object_put(reply);
    assert_true(wait_until(daemon_log_has(d, "and 4 more readers hold up grace period")));
    assert_int_equal(n_lines_with(d, " holds up grace period"), LINES);

    for (int i = 0; i < READERS; i++) {
        assert_null(actor_do(&readers[i], act_read_unlock, NULL));
        assert_int_equal(event_number(tracer_next(&t, &pos, "stall_ended"), "tid"), readers[i].tid);
    }
    assert_null(actor_end(&waiter));
    assert_int_equal(n_lines_with(d, ", and does no longer"), LINES);
    assert_true(daemon_log_has(d, "and 4 more readers that held up grace period"));
    assert_int_equal(arena_figure(d, "a", "stalls"), READERS);
    for (int i = 0; i < READERS; i++)
        actor_stop(&readers[i]);
    actor_stop(&waiter);
    reclaim_close(r);
    tracer_close(&t);
    daemon_stop(d);
}

/* ---- stall-action = kill ---- */

static void kill_ends_the_process(void **state)
{
    struct daemon *d = *state;
    struct actor waiter = {0};
    struct stuck s = {0};
    struct reclaim *r;
    struct tracer t;
    json_object *e;
    size_t pos = 0;

    daemon_start(d, "--arena", "a:16M", "--set", "stall-timeout=100ms", "--set", "stall-action=kill", NULL);
    stuck_start(&s, d);
    tracer_open(&t, d, EVENTS);
    r = must_open(d, "a");
    actor_start(&waiter, r);
    actor_begin(&waiter, act_synchronize, NULL);
    expect_reader(tracer_next(&t, &pos, "stall"), &s);
    e = tracer_next(&t, &pos, "stall_kill");
    assert_int_equal(event_number(e, "pid"), s.pid);
    assert_int_equal(event_number(e, "errno"), 0);
    expect_reader(tracer_next(&t, &pos, "stall_ended"), &s);
    stuck_expect_killed(&s);
    assert_null(actor_end(&waiter));
    assert_true(daemon_log_has(d, ", as stall-action says"));
    actor_stop(&waiter);
    reclaim_close(r);
    tracer_close(&t);
    daemon_stop(d);
}

static void become_nobody(void *userdata)
{
    struct daemon *d = userdata;

    if (chown(d->directory, NOBODY, NOBODY) < 0 || setgroups(0, NULL) < 0 ||
        setresgid(NOBODY, NOBODY, NOBODY) < 0 || setresuid(NOBODY, NOBODY, NOBODY) < 0)
        _exit(126);
}

/* A daemon that may not says so, each time, and goes on waiting. */
static void who_may_not_kill_says_so(void **state)
{
    struct daemon *d = *state;
    struct actor waiter = {0};
    struct stuck s = {0};
    struct reclaim *r;
    struct tracer t;
    size_t pos = 0;

    if (geteuid() != 0) {
        (void)printf("skipped: only root can run the daemon as another user\n");
        skip();
    }
    d->before_exec = become_nobody;
    d->userdata = d;
    daemon_start(d, "--arena", "a:16M", "--set", "stall-timeout=100ms", "--set", "stall-action=kill", NULL);
    stuck_start(&s, d);
    tracer_open(&t, d, EVENTS);
    r = must_open(d, "a");
    actor_start(&waiter, r);
    actor_begin(&waiter, act_synchronize, NULL);
    for (int i = 0; i < 2; i++) {
        json_object *e = tracer_next(&t, &pos, "stall_kill");

        assert_int_equal(event_number(e, "pid"), s.pid);
        assert_int_equal(event_number(e, "errno"), EPERM);
    }
    assert_true(daemon_log_has(d, COMMAND_SHOWN ") cannot be killed: Operation not permitted"));
    assert_int_equal(kill(s.pid, 0), 0);
    stuck_release(&s);
    expect_reader(tracer_next(&t, &pos, "stall_ended"), &s);
    child_must_succeed(s.pid);
    assert_null(actor_end(&waiter));
    actor_stop(&waiter);
    reclaim_close(r);
    tracer_close(&t);
    daemon_stop(d);
}

/* ---- The process's own callback ---- */

enum { CALLS_MAX = 64 };

struct heard {
    sem_t called;
    unsigned n;
    struct reclaim_stall calls[CALLS_MAX];
};

static void hear(const struct reclaim_stall *stall, void *userdata)
{
    struct heard *h = userdata;

    h->calls[h->n % CALLS_MAX] = *stall;
    h->n++;
    (void)sem_post(&h->called);
}

/* The next call that says that it ended, or does not; all others were about that reader, too. */
static const struct reclaim_stall *heard_next(struct heard *h, unsigned *i, const struct actor *reader,
                                              int ended)
{
    const struct reclaim_stall *s;
    struct timespec until;

    do {
        (void)clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += HANG_SECONDS;
        assert_int_equal(sem_timedwait(&h->called, &until), 0);
        s = &h->calls[(*i)++ % CALLS_MAX];
        assert_int_equal(s->tid, reader->tid);
        assert_ptr_equal(s->lane, reader->lane);
        assert_ptr_equal(s->r, reader->r);
    } while (s->ended != ended);
    return s;
}

static void stall_by(struct actor *reader, struct actor *waiter, struct heard *h, unsigned *i)
{
    const struct reclaim_stall *s;
    uint64_t number;

    assert_null(actor_do(reader, act_read_lock, NULL));
    actor_begin(waiter, act_synchronize, NULL);
    s = heard_next(h, i, reader, 0);
    assert_true(s->usec >= TIMEOUT_USEC);
    assert_int_equal(s->waiters, 1);
    number = s->grace_period;
    assert_null(actor_do(reader, act_read_unlock, NULL));
    s = heard_next(h, i, reader, 1);
    assert_int_equal(s->grace_period, number);
    assert_true(s->usec >= TIMEOUT_USEC);
    assert_null(actor_end(waiter));
}

/* Another process's stall in between is none of its business. */
static void a_process_hears_of_its_own_readers(void **state)
{
    struct daemon *d = *state;
    struct actor reader = {0}, waiter = {0};
    struct heard h = {.n = 0};
    struct stuck s = {0};
    struct reclaim *r;
    struct tracer t;
    unsigned i = 0;
    size_t pos = 0;

    daemon_start(d, "--arena", "a:16M", "--set", "stall-timeout=100ms", NULL);
    stuck_fork(&s, d);
    r = must_open(d, "a");
    assert_int_equal(sem_init(&h.called, 0, 0), 0);
    assert_int_equal(reclaim_set_stall_callback(r, hear, &h), 0);
    actor_start(&reader, r);
    actor_start(&waiter, r);
    stall_by(&reader, &waiter, &h, &i);

    stuck_begin(&s);
    tracer_open(&t, d, EVENTS);
    actor_begin(&waiter, act_synchronize, NULL);
    expect_reader(tracer_next(&t, &pos, "stall"), &s);
    stuck_release(&s);
    expect_reader(tracer_next(&t, &pos, "stall_ended"), &s);
    child_must_succeed(s.pid);
    assert_null(actor_end(&waiter));
    stall_by(&reader, &waiter, &h, &i); /* nothing was told before it */

    assert_int_equal(reclaim_set_stall_callback(r, NULL, NULL), 0);
    assert_int_equal(h.n, i);
    actor_stop(&reader);
    actor_stop(&waiter);
    reclaim_close(r);
    tracer_close(&t);
    daemon_stop(d);
}

int main(void)
{
    struct daemon d = {0};
    const struct CMUnitTest tests[] = {
        daemon_test(a_stall_is_told_whole),
        daemon_test(a_changed_timeout_acts_at_once),
        daemon_test(other_arenas_go_on),
        daemon_test(every_reader_is_in_the_books),
        daemon_test(kill_ends_the_process),
        daemon_test(who_may_not_kill_says_so),
        daemon_test(a_process_hears_of_its_own_readers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
