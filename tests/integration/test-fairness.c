/* SPDX-License-Identifier: MIT */
/*
 * Many arenas, lanes, threads and processors at one daemon that may use a single processor, so that one
 * worker serves them all: nobody waits for another's flood to end, nothing grows with what has come and gone,
 * nothing is left behind.
 */
#include "daemon-fixture.h"

#include <dirent.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>

#include "basic/cleanup.h"

enum {
    QUIET_ARENAS = 6,
    QUIET_ROUNDS = 10,
    QUIET_OBJECTS = 100,
    FLOODERS = 24,

    PASSED = 1000000,
    QUEUE = 4096,

    LANES = 5000,
    LANES_AT_ONCE = 16,
    PROCESSES = 200,

    MIGRANTS = 8,
    MIGRANT_ROUNDS = 3000,

    FLOOD_THREADS = 80,
    FLOOD_LOOPS = 20000,
    FLOOD_BYTES = 512,
};

#define TRUTH_BYTES (16 * MIB_BYTES / 64)  /* a word a block of 512: what objects, not lanes, may need */
#define ANONYMOUS_SLACK_BYTES (512u << 10) /* threads' heaps; a hundred bytes a lane are as much */

static const struct timespec limit = {.tv_sec = HANG_SECONDS};

/* ---- The daemon ---------------------------------------------------------------------------------------- */

/* On the first of our processors alone. */
static void use_one_processor(void *userdata)
{
    cpu_set_t all, one;
    int cpu = 0;

    if (sched_getaffinity(0, sizeof(all), &all) < 0)
        _exit(77);
    while (!CPU_ISSET(cpu, &all))
        cpu++;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    if (sched_setaffinity(0, sizeof(one), &one) < 0)
        _exit(77);
}

/* A thread that has yet to run has yet to name itself. */
static unsigned n_workers(const struct daemon *d)
{
    char path[320], name[32];
    _cleanup_closedir_ DIR *dir = NULL;
    struct dirent *entry;
    unsigned n = 0;

    (void)snprintf(path, sizeof(path), "/proc/%d/task", (int)d->pid);
    dir = opendir(path);
    assert_non_null(dir);
    while ((entry = readdir(dir))) {
        _cleanup_fclose_ FILE *f = NULL;

        (void)snprintf(path, sizeof(path), "/proc/%d/task/%.200s/comm", (int)d->pid, entry->d_name);
        f = fopen(path, "re");
        n += f && fgets(name, sizeof(name), f) && strcmp(name, "reclaimer\n") == 0;
    }
    return n;
}

#define start_with_one_worker(d, ...)                                                                        \
    do {                                                                                                     \
        (d)->before_exec = use_one_processor;                                                                \
        daemon_start(d, __VA_ARGS__, NULL);                                                                  \
        assert_true(wait_until(n_workers(d) == 1));                                                          \
    } while (0)

static void *shared_memory(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    assert_true(p != MAP_FAILED);
    return p;
}

static uint64_t load(const uint64_t *p)
{
    return __atomic_load_n(p, __ATOMIC_ACQUIRE);
}

static void store(uint64_t *p, uint64_t value)
{
    __atomic_store_n(p, value, __ATOMIC_RELEASE);
}

/* ---- Threads of a process ------------------------------------------------------------------------------ */

struct crew {
    const struct daemon *d;
    const char *arena;
    struct reclaim *r;
    uint64_t stop;
    uint64_t n_deferred; /* all of them */
};

static struct crew *crew; /* shared with the child that runs it */

static void crew_make(const struct daemon *d, const char *arena)
{
    crew = shared_memory(sizeof(*crew));
    *crew = (struct crew){.d = d, .arena = arena};
}

static void crew_unmake(void)
{
    assert_int_equal(munmap(crew, sizeof(*crew)), 0);
}

/* In a child: so many threads, each runs main() and has its own lane. */
static void run_threads(unsigned n, void *(*main)(void *))
{
    pthread_t threads[FLOOD_THREADS];
    unsigned long i;

    for (i = 0; i < n; i++)
        CHECK(pthread_create(&threads[i], NULL, main, (void *)i) == 0);
    while (i-- > 0)
        CHECK(pthread_join(threads[i], NULL) == 0);
}

static struct reclaim_lane *child_lane(void)
{
    struct reclaim_lane *l = NULL;

    CHECK(reclaim_lane_get(crew->r, &l) == 0);
    return l;
}

/* ---- One floods, the others do not --------------------------------------------------------------------- */

static void *flood_main(void *userdata)
{
    struct reclaim_lane *l = child_lane();
    int r;

    while (!load(&crew->stop)) {
        for (int i = 0; i < 200; i++) {
            void *p = reclaim_alloc(l, 16 + (size_t)i % 4 * 48);

            CHECK(p);
            while ((r = reclaim_defer_free(l, p)) ==
                   -EAGAIN) /* it waited for its part of the daemon's time */
                ;
            CHECK(r == 0);
        }
        (void)__atomic_add_fetch(&crew->n_deferred, 200, __ATOMIC_RELAXED);
    }
    return NULL;
}

static int flood_run(void *userdata)
{
    CHECK(try_open(crew->d, crew->arena, 0, 0, 0, NULL, &crew->r) == 0);
    run_threads(FLOODERS, flood_main);
    reclaim_close(crew->r);
    return 0;
}

static void quiet_round(struct reclaim_lane *l)
{
    for (int i = 0; i < QUIET_OBJECTS; i++)
        assert_int_equal(reclaim_defer_free(l, must_alloc(l, 64)), 0);
    assert_int_equal(reclaim_barrier(l, &limit), 0);
}

/* Every quiet arena's frees are done and its barrier returns, again and again, and all the time the flood
 * goes on. */
static void check_quiet_ones(struct daemon *d)
{
    struct reclaim *quiet[QUIET_ARENAS];
    char name[8];

    for (int i = 0; i < QUIET_ARENAS; i++) {
        (void)snprintf(name, sizeof(name), "q%d", i);
        quiet[i] = must_open(d, name);
    }
    for (int round = 0; round < QUIET_ROUNDS; round++) {
        uint64_t before = load(&crew->n_deferred);

        for (int i = 0; i < QUIET_ARENAS; i++)
            quiet_round(must_lane(quiet[i]));
        assert_true(wait_until(load(&crew->n_deferred) > before));
    }
    for (int i = 0; i < QUIET_ARENAS; i++) {
        (void)snprintf(name, sizeof(name), "q%d", i);
        assert_int_equal(arena_figure(d, name, "frees"), QUIET_ROUNDS * QUIET_OBJECTS);
        assert_int_equal(arena_figure(d, name, "pendingObjects"), 0);
        reclaim_close(quiet[i]);
    }
}

/* With a small limit fewer objects of the flood stand in the callback queue, which all arenas share. */
static void check_flood(struct daemon *d, const char *setting, const char *client_limit)
{
    pid_t pid;

    start_with_one_worker(d, "--arena", "flood:128M", "--arena", "q0:4M", "--arena", "q1:4M", "--arena",
                          "q2:4M", "--arena", "q3:4M", "--arena", "q4:4M", "--arena", "q5:4M", "--set",
                          setting, "--set", client_limit);
    crew_make(d, "flood");
    pid = child_start(flood_run, NULL);
    assert_true(wait_until(load(&crew->n_deferred) > 100000));
    check_quiet_ones(d);
    store(&crew->stop, 1);
    child_must_succeed(pid);
    assert_true(wait_until(arena_figure(d, "flood", "clients") == 0));
    assert_true(wait_until(arena_figure(d, "flood", "pendingObjects") == 0));
    assert_int_equal(arena_figure(d, "flood", "inUseObjects"), 0);
    assert_true((uint64_t)arena_figure(d, "flood", "frees") >= load(&crew->n_deferred));
    crew_unmake();
    daemon_stop(d);
}

static void test_flood_polling(void **state)
{
    check_flood(*state, "gp-wait=poll", "client-pending-max=25%");
}

static void test_flood_of_zeroing(void **state)
{
    check_flood(*state, "zero-on-free=yes", "client-pending-max=25%");
}

static void test_flood_of_callbacks(void **state)
{
    check_flood(*state, "gp-wait=callback", "client-pending-max=1M");
}

static void test_flood_of_singles(void **state)
{
    check_flood(*state, "batching=no", "client-pending-max=1M");
}

/* ---- One only allocates, one only frees ---------------------------------------------------------------- */

/* In the arena; the one writes head and slots, the other tail. */
struct queue {
    uint64_t head, tail;
    void *slots[QUEUE];
};

static struct queue *queue_find(struct reclaim *r, struct reclaim_lane *l)
{
    void **root;

    CHECK(reclaim_root(r, "queue", &root) == 0);
    if (!*root)
        reclaim_assign_pointer(l, *root,
                               memset(reclaim_alloc(l, sizeof(struct queue)), 0, sizeof(struct queue)));
    return *root;
}

static int producer_run(void *userdata)
{
    struct reclaim_lane *l;
    struct queue *q;

    CHECK(try_open(userdata, "a", 0, 0, 0, NULL, &crew->r) == 0);
    l = child_lane();
    q = queue_find(crew->r, l);
    for (uint64_t i = 0; i < PASSED; i++) {
        uint64_t *p;

        while (i - load(&q->tail) == QUEUE)
            (void)sched_yield();
        p = reclaim_alloc(l, 64);
        CHECK(p);
        *p = i;
        q->slots[i % QUEUE] = p;
        store(&q->head, i + 1);
    }
    while (!load(&crew->stop)) /* its magazines are looked at while it lives */
        sleep_ms(1);
    reclaim_close(crew->r);
    return 0;
}

static void consume(struct reclaim_lane *l, struct queue *q)
{
    for (uint64_t i = 0; i < PASSED; i++) {
        uint64_t *p;

        while (i == load(&q->head))
            (void)sched_yield();
        p = q->slots[i % QUEUE];
        assert_true(*p == i);
        assert_int_equal(reclaim_defer_free(l, p), 0);
        store(&q->tail, i + 1);
    }
}

/* What is allocated here is freed there, a million times: the arena, a sixth of them, never fills, and
 * nothing stays. */
static void test_producer_and_consumer(void **state)
{
    struct daemon *d = *state;
    struct reclaim_lane *l;
    struct reclaim *r;
    pid_t pid;

    start_with_one_worker(d, "--arena", "a:10M");
    crew_make(d, "a");
    r = must_open(d, "a");
    l = must_lane(r);
    (void)queue_find(r, l);
    pid = child_start(producer_run, d);
    consume(l, queue_find(r, l));
    assert_int_equal(reclaim_barrier(l, &limit), 0);
    assert_int_equal(arena_figure(d, "a", "frees"), PASSED);
    assert_in_range(arena_figure(d, "a", "inUseObjects"), 1,
                    1 + 8); /* the queue; a block that the producer is in */
    assert_int_equal(arena_figure(d, "a", "refusedRecords"), 0);
    assert_true(arena_figure(d, "a", "cachedBytes") <= (int64_t)MIB_BYTES);
    daemon_audit(d);
    store(&crew->stop, 1);
    child_must_succeed(pid);
    assert_true(
        wait_until(arena_figure(d, "a", "lanes") == 1 && arena_figure(d, "a", "pendingObjects") == 0));
    assert_int_equal(arena_figure(d, "a", "inUseObjects"), 1);
    crew_unmake();
    reclaim_close(r);
    daemon_stop(d);
}

/* ---- Lanes come and go --------------------------------------------------------------------------------- */

static uint64_t lane_numbers; /* a bit each */

static void *visitor_main(void *userdata)
{
    const struct abi_lane *first = lane_shared(((struct reclaim_lane **)userdata)[0]);
    struct reclaim *r = ((struct reclaim **)userdata)[1];
    static uint64_t n_visits;
    struct reclaim_lane *l;
    uint64_t n = __atomic_fetch_add(&n_visits, 1, __ATOMIC_RELAXED);

    if (reclaim_lane_get(r, &l) < 0)
        return NULL;
    (void)__atomic_fetch_or(&lane_numbers, UINT64_C(1) << (lane_shared(l) - first), __ATOMIC_RELAXED);
    (void)reclaim_defer_free(l, reclaim_alloc(l, 64)); /* its magazine has more of them */
    if (n % 2)
        reclaim_lane_put(l);
    return l; /* else it goes with the thread */
}

/* One after the other, LANES_AT_ONCE at most at a time. */
static void visit(struct reclaim *r, struct reclaim_lane *first, unsigned n)
{
    void *userdata[2] = {first, r}, *lane;

    for (unsigned i = 0; i < n; i++) {
        pthread_t thread;

        assert_int_equal(pthread_create(&thread, NULL, visitor_main, userdata), 0);
        assert_int_equal(pthread_join(thread, &lane), 0);
        assert_non_null(lane);
    }
}

/* So many lanes at a time as there may be. */
static void use_all_lanes(struct reclaim *r)
{
    struct actor actors[LANES_AT_ONCE - 1] = {0};

    for (int i = 0; i < LANES_AT_ONCE - 1; i++)
        actor_start(&actors[i], r);
    for (int i = 0; i < LANES_AT_ONCE - 1; i++) {
        assert_int_equal(reclaim_defer_free(actors[i].lane, must_alloc(actors[i].lane, 64)), 0);
        actor_stop(&actors[i]);
    }
}

struct sizes {
    uint64_t state, channels, anonymous, fds;
};

static struct sizes sizes_of(const struct daemon *d)
{
    char path[64], line[128];
    struct sizes s = {
        .state = daemon_memfd_bytes(d, "reclaimd:state"),
        .channels = daemon_memfd_bytes(d, "reclaimd:channel"),
        .fds = daemon_n_fds(d),
    };
    _cleanup_fclose_ FILE *f = NULL;

    (void)snprintf(path, sizeof(path), "/proc/%d/status", (int)d->pid);
    f = fopen(path, "re");
    assert_non_null(f);
    while (fgets(line, sizeof(line), f))
        (void)sscanf(line, "RssAnon: %lu kB", &s.anonymous);
    s.anonymous *= 1024;
    assert_true(s.state > 0 && s.channels > 0 && s.anonymous > 0);
    return s;
}

static void check_not_grown(const struct daemon *d, const struct sizes *before)
{
    struct sizes now;

    assert_true(wait_until((now = sizes_of(d)).fds <= before->fds));
    assert_true(now.state <= before->state + TRUTH_BYTES);
    assert_true(now.channels <= before->channels);
    assert_true(now.anonymous <= before->anonymous + ANONYMOUS_SLACK_BYTES);
}

static bool is_settled(const struct daemon *d, int64_t n_lanes)
{
    return arena_figure(d, "a", "clients") == 1 && arena_figure(d, "a", "lanes") == n_lanes &&
           arena_figure(d, "a", "pendingObjects") == 0;
}

/* Threads, some of which put their lane and some do not: the numbers come round, and the daemon is as large
 * as before. */
static void test_lanes_come_and_go(void **state)
{
    struct daemon *d = *state;
    struct reclaim_lane *l;
    struct sizes before;
    struct reclaim *r;

    start_with_one_worker(d, "--arena", "a:16M", "--set", "lanes-max=16");
    r = must_open(d, "a");
    l = must_lane(r);
    use_all_lanes(r);
    visit(r, l, 200);
    assert_true(wait_until(is_settled(d, 1)));
    before = sizes_of(d);
    lane_numbers = 0;
    visit(r, l, LANES);
    assert_true(lane_numbers != 0 && lane_numbers < UINT64_C(1) << LANES_AT_ONCE);
    assert_true(wait_until(is_settled(d, 1)));
    check_not_grown(d, &before);
    assert_int_equal(arena_figure(d, "a", "inUseObjects"), 0);
    reclaim_close(r);
    daemon_stop(d);
}

static int visitor_run(void *userdata)
{
    struct reclaim_lane *l;

    CHECK(try_open(crew->d, "a", 0, 0, 0, NULL, &crew->r) == 0);
    l = child_lane();
    CHECK(reclaim_defer_free(l, reclaim_alloc(l, 64)) == 0);
    if (*(unsigned *)userdata % 2)
        reclaim_close(crew->r);
    else if (*(unsigned *)userdata % 4)
        (void)raise(SIGKILL);
    return 0; /* closed, killed, or just gone */
}

static void test_processes_come_and_go(void **state)
{
    struct daemon *d = *state;
    struct sizes before = {0};
    struct reclaim *r;

    start_with_one_worker(d, "--arena", "a:16M");
    crew_make(d, "a");
    r = must_open(d, "a");
    (void)must_lane(r);
    for (unsigned i = 0; i < PROCESSES; i++) {
        (void)child_wait(child_start(visitor_run, &i));
        if (i == PROCESSES / 4) {
            assert_true(wait_until(is_settled(d, 1)));
            before = sizes_of(d);
        }
    }
    assert_true(wait_until(is_settled(d, 1)));
    check_not_grown(d, &before);
    assert_int_equal(arena_figure(d, "a", "inUseObjects"), 0);
    crew_unmake();
    reclaim_close(r);
    daemon_stop(d);
}

/* ---- Threads that move about --------------------------------------------------------------------------- */

static void move_on(const cpu_set_t *all, unsigned *seed)
{
    int cpu = rand_r(seed) % CPU_SETSIZE;
    cpu_set_t one;

    while (!CPU_ISSET(cpu, all))
        cpu = (cpu + 1) % CPU_SETSIZE;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    CHECK(sched_setaffinity(0, sizeof(one), &one) == 0);
}

/* Replaces a random one of its objects, now here, now there; in the end it frees all. */
static void *migrant_main(void *userdata)
{
    struct reclaim_lane *l = child_lane();
    unsigned seed = (unsigned)(unsigned long)userdata;
    void *objects[64] = {NULL};
    cpu_set_t all;

    CHECK(sched_getaffinity(0, sizeof(all), &all) == 0);
    for (int i = 0; i < MIGRANT_ROUNDS; i++) {
        int n = rand_r(&seed) % 64;

        if (i % 3 == 0)
            move_on(&all, &seed);
        CHECK(reclaim_defer_free(l, objects[n]) == 0);
        objects[n] = reclaim_alloc(l, 1 + (size_t)rand_r(&seed) % 3000);
        CHECK(objects[n]);
        (void)__atomic_add_fetch(&crew->n_deferred, 1, __ATOMIC_RELAXED);
    }
    for (int i = 0; i < 64; i++)
        CHECK(reclaim_defer_free(l, objects[i]) == 0);
    return NULL;
}

static int migrants_run(void *userdata)
{
    CHECK(try_open(userdata, "a", 0, 0, 0, NULL, &crew->r) == 0);
    run_threads(MIGRANTS, migrant_main);
    CHECK(reclaim_barrier(child_lane(), &limit) == 0);
    CHECK(reclaim_stats(crew->r, &(struct reclaim_stats){.size = sizeof(struct reclaim_stats)}) == 0);
    return 0;
}

static void test_migrants(void **state)
{
    struct daemon *d = *state;

    daemon_start(d, "--arena", "a:64M", NULL);
    crew_make(d, "a");
    child_must_succeed(child_start(migrants_run, d));
    assert_true(
        wait_until(arena_figure(d, "a", "clients") == 0 && arena_figure(d, "a", "pendingObjects") == 0));
    assert_int_equal(arena_figure(d, "a", "inUseObjects"), 0);
    assert_int_equal(arena_figure(d, "a", "cachedObjects"), 0);
    assert_int_equal(arena_figure(d, "a", "refusedRecords"), 0);
    assert_int_equal(load(&crew->n_deferred), MIGRANTS * MIGRANT_ROUNDS);
    assert_true(arena_figure(d, "a", "frees") >= MIGRANTS * MIGRANT_ROUNDS);
    crew_unmake();
    daemon_stop(d);
}

/* ---- Eighty against one -------------------------------------------------------------------------------- */

static void *flooder_main(void *userdata)
{
    struct reclaim_lane *l = child_lane();

    for (int i = 0; i < FLOOD_LOOPS; i++) {
        void *p = reclaim_alloc(l, FLOOD_BYTES);

        CHECK(p && reclaim_defer_free(l, p) == 0);
    }
    (void)__atomic_add_fetch(&crew->n_deferred, FLOOD_LOOPS, __ATOMIC_RELAXED);
    while (!load(&crew->stop)) /* a ring whose thread is gone is emptied whatever waits */
        sleep_ms(1);
    return NULL;
}

static int flooders_run(void *userdata)
{
    CHECK(try_open(userdata, "a", 0, 0, 0, NULL, &crew->r) == 0);
    run_threads(FLOOD_THREADS, flooder_main);
    CHECK(reclaim_barrier(child_lane(), &limit) == 0);
    reclaim_close(crew->r);
    return 0;
}

/* Never more waits than client-pending-max and one look at one ring; all of it is freed. */
static void test_eighty_threads(void **state)
{
    const int64_t most = 4 * MIB_BYTES + ABI_RING_RECORDS * (int64_t)FLOOD_BYTES;
    struct daemon *d = *state;
    uint64_t end = clock_ms() + 2 * HANG_SECONDS * 1000;
    int64_t peak = 0;
    pid_t pid;

    start_with_one_worker(d, "--arena", "a:512M", "--set", "client-pending-max=4M");
    crew_make(d, "a");
    pid = child_start(flooders_run, d);
    while (load(&crew->n_deferred) < FLOOD_THREADS * FLOOD_LOOPS && clock_ms() < end) {
        int64_t pending = arena_figure(d, "a", "pendingBytes");

        peak = pending > peak ? pending : peak;
        assert_true(pending <= most);
    }
    assert_int_equal(load(&crew->n_deferred), FLOOD_THREADS * FLOOD_LOOPS);
    assert_true(peak > 0);
    store(&crew->stop, 1);
    child_must_succeed(pid);
    assert_true(
        wait_until(arena_figure(d, "a", "clients") == 0 && arena_figure(d, "a", "pendingObjects") == 0));
    assert_int_equal(arena_figure(d, "a", "inUseObjects"), 0);
    assert_int_equal(arena_figure(d, "a", "refusedAllocations"), 0);
    crew_unmake();
    daemon_stop(d);
}

/* ---- An expedited grace period on the reader's own processor ------------------------------------------- */

static int64_t cpu_ns(clockid_t clock)
{
    struct timespec t;

    assert_int_equal(clock_gettime(clock, &t), 0);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void *act_synchronize(struct actor *a, void *userdata)
{
    return (void *)(intptr_t)reclaim_synchronize(a->lane, RECLAIM_EXPEDITED, NULL);
}

/* Nobody sleeps between the looks at a reader, who needs that very processor to get on: it has most of it. */
static void test_expedited_leaves_the_reader_its_processor(void **state)
{
    const int64_t work_ns = 200000000;
    struct daemon *d = *state;
    struct actor waiter = {0};
    struct reclaim_lane *l;
    struct reclaim *r;
    cpu_set_t all;
    clockid_t daemon_clock;
    int64_t mine, theirs;

    start_with_one_worker(d, "--arena", "a:16M", "--set", "expedited=yes");
    assert_int_equal(clock_getcpuclockid(d->pid, &daemon_clock), 0);
    r = must_open(d, "a");
    l = must_lane(r);
    actor_start(&waiter, r);
    assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
    use_one_processor(NULL);
    assert_int_equal(reclaim_read_lock(l), 0);
    actor_begin(&waiter, act_synchronize, NULL);
    assert_true(wait_until(arena_figure(d, "a", "gracePeriodsStarted") >
                           arena_figure(d, "a", "gracePeriodsCompleted")));
    theirs = cpu_ns(daemon_clock);
    mine = cpu_ns(CLOCK_THREAD_CPUTIME_ID);
    while (cpu_ns(CLOCK_THREAD_CPUTIME_ID) - mine < work_ns)
        ;
    theirs = cpu_ns(daemon_clock) - theirs;
    assert_true(theirs < work_ns / 2);
    reclaim_read_unlock(l);
    assert_null(actor_end(&waiter));
    assert_int_equal(sched_setaffinity(0, sizeof(all), &all), 0);
    actor_stop(&waiter);
    reclaim_close(r);
    daemon_stop(d);
}

int main(void)
{
    static struct daemon d;
    const struct CMUnitTest tests[] = {
        daemon_test(test_flood_polling),         daemon_test(test_flood_of_zeroing),
        daemon_test(test_flood_of_callbacks),    daemon_test(test_flood_of_singles),
        daemon_test(test_producer_and_consumer), daemon_test(test_lanes_come_and_go),
        daemon_test(test_processes_come_and_go), daemon_test(test_migrants),
        daemon_test(test_eighty_threads),        daemon_test(test_expedited_leaves_the_reader_its_processor),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
