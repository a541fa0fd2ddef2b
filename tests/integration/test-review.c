/* SPDX-License-Identifier: MIT */
/*
 * What reading the daemon's code brought to light and no test had: observers that write, lanes that change
 * hands under the grace-period thread's eyes, requests of the dead, arenas that cannot be filled, stops in
 * the middle of a sweep, and barriers beside threads that die.
 */
#include "case-raw.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "basic/cleanup.h"
#include "basic/macro.h"
#include "basic/ordering.h"
#include "handle.h"

enum {
    QUIET_MS = 300,
    CHURNERS = 8,
    CHURNS = 300,
    RING_NS = 10500,
    CHAIN_OBJECTS = 1 << 17,
    CHAIN_STEP = 1021,       /* no two neighbours share a block, so the ring is soon full */
    CHAIN_LEAST = 10 * 4096, /* the daemon takes 4096 a look */
    SWEEP_ROUNDS = 3,
};

static const struct timespec limit = {.tv_sec = HANG_SECONDS};

/* ---- Sleep ---- */

static uint64_t task_switches(const struct daemon *d, const char *task)
{
    _cleanup_fclose_ FILE *file = NULL;
    char path[320], line[256];
    uint64_t n = 0;

    (void)snprintf(path, sizeof(path), "/proc/%d/task/%s/status", (int)d->pid, task);
    file = fopen(path, "re");
    assert_non_null(file);
    while (fgets(line, sizeof(line), file))
        if (strncmp(line, "voluntary_ctxt_switches:", 24) == 0)
            n = strtoull(line + 24, NULL, 10);
    return n;
}

/* How often a thread of the daemon's went to sleep. */
static uint64_t daemon_switches(const struct daemon *d)
{
    _cleanup_closedir_ DIR *dir = NULL;
    struct dirent *entry;
    char path[64];
    uint64_t n = 0;

    (void)snprintf(path, sizeof(path), "/proc/%d/task", (int)d->pid);
    dir = opendir(path);
    assert_non_null(dir);
    while ((entry = readdir(dir)))
        if (entry->d_name[0] != '.')
            n += task_switches(d, entry->d_name);
    return n;
}

static int64_t daemon_membarriers(const struct daemon *d)
{
    json_object *o = ctl_json(d, "status", NULL), *service, *value;
    int64_t n;

    assert_true(json_object_object_get_ex(o, "status", &service));
    assert_true(json_object_object_get_ex(service, "membarriers", &value));
    n = json_object_get_int64(value);
    json_object_put(o);
    return n;
}

/* No thread woke up, and none was busy all the while, which shows as calls of membarrier. */
static bool daemon_is_quiet(const struct daemon *d)
{
    int64_t membarriers = daemon_membarriers(d);
    uint64_t switches;

    sleep_ms(50);
    switches = daemon_switches(d);
    sleep_ms(QUIET_MS);
    return daemon_switches(d) == switches && daemon_membarriers(d) == membarriers;
}

/* ---- An observer that writes ---- */

static uint64_t record_of(const struct reclaim *r, const void *object)
{
    uint64_t offset = (uint64_t)((const char *)object - (const char *)reclaim_base(r));

    return abi_word((uint32_t)(offset / ABI_BLOCK_BYTES), 1u << offset % ABI_BLOCK_BYTES / ABI_GRANULE_BYTES);
}

static void observer_writes_records(struct raw *observer, const struct reclaim *r, void *const *objects)
{
    observer->lane->ring[0] = record_of(r, objects[0]);
    observer->lane->ring[1] = record_of(r, objects[1]);
    __atomic_store_n(&observer->lane->head, 2, __ATOMIC_RELEASE);
}

static void observer_writes_chain(struct raw *observer, const struct reclaim *r, void *const *objects)
{
    uint64_t granule = (uint64_t)((char *)objects[0] - (char *)reclaim_base(r)) / ABI_GRANULE_BYTES;

    *(struct abi_chain_head *)objects[0] = (struct abi_chain_head){.seq = 1}; /* the writer left it so, say */
    __atomic_store_n(&observer->lane->chain_head, abi_chain_link(granule, 0), __ATOMIC_RELEASE);
    __atomic_store_n(&observer->lane->chain_count, 1, __ATOMIC_RELEASE);
}

static void observer_asks(struct raw *observer, const struct reclaim *r, void *const *objects)
{
    (void)r;
    (void)objects;
    __atomic_store_n(&observer->lane->ask, abi_ask(1, 0, 3, 0), __ATOMIC_RELEASE);
}

/* Its channel is writable as any other. Nothing of the writer's is freed by it, not even when it leaves. */
static void check_observer(struct daemon *d,
                           void (*write)(struct raw *observer, const struct reclaim *r, void *const *objects))
{
    struct raw observer;
    struct reclaim *r;
    struct reclaim_lane *l;
    void *objects[2];

    daemon_start(d, "--arena", "a:16M", "--set", "drain-interval=1ms", "--set", "purge-delay=off", NULL);
    r = must_open(d, "a");
    l = must_lane(r);
    for (int i = 0; i < 2; i++)
        objects[i] = memset(must_alloc(l, 1024), 0x5a, 1024);
    assert_int_equal(raw_open(&observer, d, "a", ABI_OPEN_READ_ONLY), 0);
    raw_lane(&observer);
    write(&observer, r, objects);
    raw_ring(&observer);
    ctl_do(d, "barrier", "a", NULL);
    assert_int_equal(arena_figure(d, "a", "pendingObjects") + arena_figure(d, "a", "frees"), 0);
    assert_true(wait_until(daemon_is_quiet(d)));
    raw_close(&observer);
    assert_true(wait_until(n_clients(d) == 1));
    ctl_do(d, "barrier", "a", NULL);
    assert_int_equal(arena_figure(d, "a", "frees"), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(((char *)objects[i])[1023], 0x5a);
        assert_int_equal(reclaim_defer_free(l, objects[i]), 0);
    }
    assert_int_equal(reclaim_barrier(l, &limit), 0);
    assert_int_equal(arena_figure(d, "a", "frees"), 2);
    assert_int_equal(arena_figure(d, "a", "refusedRecords"), 0);
    reclaim_close(r);
    daemon_stop(d);
}

static void test_observer_writes_records(void **state)
{
    check_observer(*state, observer_writes_records);
}

static void test_observer_writes_chain(void **state)
{
    check_observer(*state, observer_writes_chain);
}

static void test_observer_asks(void **state)
{
    check_observer(*state, observer_asks);
}

/* ---- Lanes that change hands ---- */

struct churn {
    struct reclaim *r;
    bool waits, stop;
    int n, error;
    pthread_t thread;
};

static void *churn_main(void *userdata)
{
    struct churn *c = userdata;
    struct reclaim_lane *l;

    for (int i = 0; i < c->n && c->error == 0; i++) {
        c->error = reclaim_lane_get(c->r, &l);
        if (c->error == 0 && c->waits)
            c->error = reclaim_synchronize(l, RECLAIM_EXPEDITED, &limit);
        if (c->error == 0)
            reclaim_lane_put(l);
    }
    return NULL;
}

/* Nearly as often as it may without being muted: each bell has all its lanes looked at. */
static void *ring_main(void *userdata)
{
    const uint64_t one = 1;
    struct churn *c = userdata;
    struct timespec now;
    int64_t next = 0;

    while (!__atomic_load_n(&c->stop, __ATOMIC_RELAXED)) {
        (void)clock_gettime(CLOCK_MONOTONIC, &now);
        if (now.tv_sec * 1000000000 + now.tv_nsec < next)
            continue;
        next = now.tv_sec * 1000000000 + now.tv_nsec + RING_NS;
        if (write(c->r->eventfd, &one, sizeof(one)) < 0)
            return NULL;
    }
    return NULL;
}

static void check_churn(struct daemon *d, int n, bool waits)
{
    struct churn churners[CHURNERS], ringer;
    struct reclaim *r;

    daemon_start(d, "--arena", "a:16M", "--set", "gp-first-check=0", NULL);
    r = must_open(d, "a");
    (void)must_lane(r); /* there is an eventfd now */
    ringer = (struct churn){.r = r};
    assert_int_equal(pthread_create(&ringer.thread, NULL, ring_main, &ringer), 0);
    for (int i = 0; i < CHURNERS; i++) {
        churners[i] = (struct churn){.r = r, .n = n, .waits = waits};
        assert_int_equal(pthread_create(&churners[i].thread, NULL, churn_main, &churners[i]), 0);
    }
    for (int i = 0; i < CHURNERS; i++)
        assert_int_equal(pthread_join(churners[i].thread, NULL), 0);
    __atomic_store_n(&ringer.stop, true, __ATOMIC_RELAXED);
    assert_int_equal(pthread_join(ringer.thread, NULL), 0);
    daemon_audit(d); /* it lives */
    for (int i = 0; i < CHURNERS; i++)
        assert_int_equal(churners[i].error, 0);
    reclaim_close(r);
    daemon_stop(d);
}

static void test_lanes_come_and_go(void **state)
{
    check_churn(*state, 10 * CHURNS, false);
}

static void test_each_new_owner_waits(void **state)
{
    check_churn(*state, CHURNS, true);
}

/* ---- A lane waited for by the dead ---- */

struct asker {
    const struct daemon *d;
    int pipe[2];
};

/* Two lanes got and given back: while a reader lets no grace period end, neither is free. Then a third. */
static int ask_for_a_third(void *userdata)
{
    struct abi_request get = raw_request(ABI_OP_LANE_GET, NULL);
    const struct asker *asker = userdata;
    struct abi_reply replies[2];
    struct raw raw;

    CHECK(raw_open(&raw, asker->d, "t", 0) == 0);
    for (int i = 0; i < 2; i++)
        CHECK(raw_ask(raw.socket, &get, &replies[i]) && replies[i].error == 0);
    for (int i = 0; i < 2; i++) {
        struct abi_request put = raw_request(ABI_OP_LANE_PUT, NULL);

        put.lane = replies[i].lane;
        put.generation = replies[i].generation;
        CHECK(raw_send(raw.socket, &put, sizeof(put), NULL, 0));
    }
    CHECK(raw_send(raw.socket, &get, sizeof(get), NULL, 0));
    CHECK(write(asker->pipe[1], "", 1) == 1);
    CHECK(raw_receive(raw.socket, &replies[0], NULL)); /* does not come, or the reader was no reader */
    return 1;
}

static bool arena_is_there(const struct daemon *d, const char *name)
{
    struct ctl_result r = ctl_run(d, "show", name, NULL);
    bool is = r.status == 0;

    ctl_result_deinit(&r);
    return is;
}

static void test_killed_while_waiting_for_a_lane(void **state)
{
    struct daemon *d = *state;
    struct asker asker = {.d = d};
    struct reclaim_lane *l;
    struct reclaim *r;
    char byte;
    pid_t pid;

    daemon_start(d, "--set", "lanes-max=2", NULL);
    assert_int_equal(try_open(d, "t", RECLAIM_TRANSIENT, MIB_BYTES, 0600, NULL, &r), 0);
    l = must_lane(r);
    assert_int_equal(reclaim_read_lock(l), 0);
    assert_int_equal(pipe2(asker.pipe, O_CLOEXEC), 0);
    pid = child_start(ask_for_a_third, &asker);
    assert_int_equal(read(asker.pipe[0], &byte, 1), 1);
    assert_true(wait_until(arena_figure(d, "t", "lanes") == 3)); /* both of its lanes are not free yet */
    child_kill(pid);
    sleep_ms(50); /* the daemon has heard of it; if not, nothing is tested, but nothing fails */
    reclaim_read_unlock(l);
    assert_true(wait_until(n_clients(d) == 1));
    assert_true(wait_until(arena_figure(d, "t", "lanes") == 1));
    reclaim_close(r);
    assert_true(wait_until(!arena_is_there(d, "t")));
    (void)close(asker.pipe[0]);
    (void)close(asker.pipe[1]);
    daemon_terminate(d); /* there is no arena to audit */
    daemon_remove(d);
}

/* ---- An arena that is full ---- */

/* Nobody stays awake for magazines that cannot be filled; once something is freed they are filled again. */
static void test_full_arena_sleeps(void **state)
{
    static const size_t sizes[] = {1024, 64, 16};
    struct daemon *d = *state;
    void *p, *last[ARRAY_SIZE(sizes)] = {NULL};
    struct reclaim_lane *l;
    struct reclaim *r;

    daemon_start(d, "--arena", "a:1M", "--set", "drain-interval=1ms", "--set", "purge-delay=off", NULL);
    r = must_open(d, "a");
    l = must_lane(r);
    for (unsigned i = 0; i < ARRAY_SIZE(sizes); i++) {
        while ((p = reclaim_alloc(l, sizes[i])))
            last[i] = p;
        assert_int_equal(errno, ENOMEM);
    }
    assert_true(wait_until(daemon_is_quiet(d)));
    assert_non_null(last[0]);
    assert_int_equal(reclaim_defer_free(l, last[0]), 0);
    assert_int_equal(reclaim_barrier(l, &limit), 0);
    assert_ptr_equal(reclaim_alloc(l, sizes[0]), last[0]);
    reclaim_close(r);
    daemon_stop(d);
}

/* ---- Cookies ---- */

/* Two are asked for and only the first is waited for: the second comes as well. */
static void test_second_cookie_comes_too(void **state)
{
    const struct timespec moment = {.tv_nsec = 20 * 1000000};
    struct daemon *d = *state;
    struct actor reader = {0};
    uint64_t cookies[2];
    struct reclaim_lane *l;
    struct reclaim *r;

    l = must_lane_beside_reader(d, &reader, &r);
    assert_int_equal(reclaim_gp_start(l, &cookies[0]), 0);
    assert_true(wait_until(reclaim_gp_start(l, &cookies[1]) == 0 && cookies[1] > cookies[0]));
    assert_int_equal(reclaim_gp_wait(l, cookies[0], &moment), -ETIMEDOUT);
    assert_null(actor_do(&reader, act_read_unlock, NULL));
    assert_int_equal(reclaim_gp_wait(l, cookies[0], &limit), 0);
    assert_true(wait_until(reclaim_gp_poll(r, cookies[1]) == 1));
    actor_stop(&reader);
    reclaim_close(r);
    daemon_stop(d);
}

/* ---- A stop in the middle of a sweep ---- */

/* Every other page that it does not have: as many holes as there can be. */
static void touch_free_pages(const struct daemon *d)
{
    struct raw raw;
    char *arena;

    assert_int_equal(raw_open(&raw, d, "a", 0), 0);
    arena = mmap(NULL, raw.reply.arena_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, raw.fds[2], 0);
    assert_true(arena != MAP_FAILED);
    for (uint64_t at = MIB_BYTES; at < raw.reply.arena_bytes; at += 2 * ABI_PAGE_BYTES)
        arena[at] = 1;
    assert_int_equal(munmap(arena, raw.reply.arena_bytes), 0);
    raw_close(&raw);
}

/* How it ends is not asked: the daemon may be gone before it answers. */
static int ask_for_purge(void *userdata)
{
    struct ctl_result r = ctl_run(userdata, "purge", "a", NULL);

    ctl_result_deinit(&r);
    return 0;
}

static void test_stop_during_a_sweep(void **state)
{
    struct daemon *d = *state;

    for (int i = 0; i < SWEEP_ROUNDS; i++) {
        uint64_t touched;
        pid_t pid;

        daemon_start(d, "--arena", "a:256M", "--set", "purge-delay=off", NULL);
        touch_free_pages(d);
        assert_true(wait_until(n_clients(d) == 0));
        touched = daemon_file_bytes(d);
        assert_true(touched >= 100 * MIB_BYTES);
        pid = child_start(ask_for_purge, d);
        assert_true(wait_until(daemon_file_bytes(d) < touched)); /* it has begun */
        daemon_terminate(d);
        child_must_succeed(pid);
        daemon_remove(d);
    }
}

/* ---- Barriers beside dying threads ---- */

static void *act_barrier(struct actor *a, void *userdata)
{
    return (void *)(intptr_t)reclaim_barrier(a->lane, &limit);
}

static void *act_free_and_barrier(struct actor *a, void *userdata)
{
    CHECK(reclaim_defer_free(a->lane, reclaim_alloc(a->lane, 64)) == 0);
    return act_barrier(a, userdata);
}

struct chainer {
    const struct daemon *d;
    struct reclaim *r;
    int go[2], done[2];
};

static void *chain_and_die(void *userdata)
{
    struct chainer *c = userdata;
    void **objects = calloc(CHAIN_OBJECTS, sizeof(*objects));
    struct reclaim_lane *l;
    char byte;

    CHECK(objects && reclaim_lane_get(c->r, &l) == 0);
    for (unsigned i = 0; i < CHAIN_OBJECTS; i++) {
        objects[i] = reclaim_alloc(l, 64);
        CHECK(objects[i]);
    }
    CHECK(write(c->done[1], "", 1) == 1);
    CHECK(read(c->go[0], &byte, 1) == 1);
    for (uint64_t i = 0; i < CHAIN_OBJECTS; i++) {
        void *p = objects[i * CHAIN_STEP % CHAIN_OBJECTS];

        CHECK(reclaim_defer_free_head(l, p, p) == 0);
    }
    CHECK(lane_shared(l)->chain_count >= CHAIN_LEAST);
    free(objects);
    (void)syscall(SYS_exit, 0);
    return NULL;
}

static int chainer_main(void *userdata)
{
    struct chainer *c = userdata;
    pthread_t thread;

    CHECK(try_open(c->d, "a", 0, 0, 0, NULL, &c->r) == 0);
    CHECK(pthread_create(&thread, NULL, chain_and_die, c) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(write(c->done[1], "", 1) == 1);
    for (;;)
        (void)pause();
}

/* The daemon stands still while it is made, so it finds the thread dead with all of it still to be taken. */
static void test_barrier_covers_the_chain_of_a_dead_thread(void **state)
{
    struct daemon *d = *state;
    struct chainer chainer = {.d = d};
    struct actor waiter = {0};
    struct reclaim *r;
    siginfo_t info;
    char byte;
    pid_t pid;

    daemon_start(d, "--arena", "a:64M", "--set", "client-pending-max=100%", NULL);
    r = must_open(d, "a");
    actor_start(&waiter, r);
    assert_int_equal(pipe2(chainer.go, O_CLOEXEC), 0);
    assert_int_equal(pipe2(chainer.done, O_CLOEXEC), 0);
    pid = child_start(chainer_main, &chainer);
    assert_int_equal(read(chainer.done[0], &byte, 1), 1);
    assert_int_equal(kill(d->pid, SIGSTOP), 0);
    assert_int_equal(waitid(P_PID, (id_t)d->pid, &info, WSTOPPED), 0);
    assert_int_equal(write(chainer.go[1], "", 1), 1);
    assert_int_equal(read(chainer.done[0], &byte, 1), 1);
    actor_begin(&waiter, act_barrier, NULL);
    assert_true(wait_until(load_acquire(&lane_shared(waiter.lane)->ticket_waiting)));
    assert_int_equal(kill(d->pid, SIGCONT), 0);
    assert_null(actor_end(&waiter));
    assert_true(arena_figure(d, "a", "frees") >= CHAIN_OBJECTS);
    assert_int_equal(arena_figure(d, "a", "refusedRecords"), 0);
    child_kill(pid);
    for (int i = 0; i < 2; i++) {
        (void)close(chainer.go[i]);
        (void)close(chainer.done[i]);
    }
    actor_stop(&waiter);
    reclaim_close(r);
    daemon_stop(d);
}

static void *alloc_and_die(void *userdata)
{
    struct reclaim_lane *l;

    CHECK(reclaim_lane_get(userdata, &l) == 0 && reclaim_alloc(l, 64));
    (void)syscall(SYS_exit, 0);
    return NULL;
}

/*
 * The old reader holds the barrier's grace period. The young one came after that had begun, so it does not,
 * but it holds the next, which the burial of a thread that dies meanwhile waits for. The barrier is over when
 * the old one leaves.
 */
static void test_barrier_waits_for_no_burial(void **state)
{
    struct actor old = {0}, young = {0}, waiter = {0};
    struct daemon *d = *state;
    uint64_t started;
    pthread_t thread;
    struct reclaim *r;
    struct raw raw;

    daemon_start(d, "--arena", "a:16M", NULL);
    r = must_open(d, "a");
    actor_start(&old, r);
    actor_start(&young, r);
    actor_start(&waiter, r);
    assert_int_equal(raw_open(&raw, d, "a", 0), 0);
    assert_null(actor_do(&old, act_read_lock, NULL));
    started = load_acquire(&raw.domain->started);
    actor_begin(&waiter, act_free_and_barrier, NULL);
    assert_true(wait_until(load_acquire(&raw.domain->started) > started));
    assert_null(actor_do(&young, act_read_lock, NULL));
    assert_int_equal(pthread_create(&thread, NULL, alloc_and_die, r), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    raw_lane(&raw);                                                      /* a reason to look at lanes */
    assert_true(wait_until(arena_figure(d, "a", "pendingObjects") > 1)); /* what its magazine held */
    assert_int_equal(arena_figure(d, "a", "lanes"), 5);
    assert_null(actor_do(&old, act_read_unlock, NULL));
    assert_null(actor_end(&waiter));
    assert_int_equal(arena_figure(d, "a", "frees"), 1);
    assert_int_equal(arena_figure(d, "a", "lanes"), 5);
    assert_null(actor_do(&young, act_read_unlock, NULL));
    assert_true(wait_until(arena_figure(d, "a", "lanes") == 4));
    raw_close(&raw);
    actor_stop(&old);
    actor_stop(&young);
    actor_stop(&waiter);
    reclaim_close(r);
    daemon_stop(d);
}

int main(void)
{
    struct daemon d = {0};
    const struct CMUnitTest tests[] = {
        daemon_test(test_observer_writes_records),
        daemon_test(test_observer_writes_chain),
        daemon_test(test_observer_asks),
        daemon_test(test_lanes_come_and_go),
        daemon_test(test_each_new_owner_waits),
        daemon_test(test_killed_while_waiting_for_a_lane),
        daemon_test(test_full_arena_sleeps),
        daemon_test(test_second_cookie_comes_too),
        daemon_test(test_stop_during_a_sweep),
        daemon_test(test_barrier_covers_the_chain_of_a_dead_thread),
        daemon_test(test_barrier_waits_for_no_burial),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
