/* SPDX-License-Identifier: MIT */
/* Memory that is bounded, given back, short, and back again: cases 01, 03, 04, 11, 14, 15. */
#include "daemon-fixture.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "basic/cleanup.h"

enum {
    OBJECT_BYTES = 1024,
    LOOPS = 150000,
    EXTENT_BYTES = 1 << 20,
    OBJECTS_MAX = 400,
};

static const struct timespec limit = {.tv_sec = HANG_SECONDS};

/* ---- 01 ------------------------------------------------------------------------------------------------------------------ */

static uint64_t pending_bytes(struct reclaim *r)
{
    struct reclaim_stats stats = {.size = sizeof(stats)};

    assert_int_equal(reclaim_stats(r, &stats), 0);
    return stats.pending_bytes;
}

/* Ten times the arena; never more waits than client-pending-max and what one look at the ring may add. */
static void check_bounded(struct daemon *d, const char *setting)
{
    const uint64_t most = 16 * MIB_BYTES / 4 + ABI_RING_RECORDS * (uint64_t)OBJECT_BYTES;
    struct reclaim_lane *l;
    struct reclaim *r;

    /* drain-interval is a second: only limits make it go on */
    daemon_start(d, "--arena", "a:16M", "--set", setting, NULL);
    r = must_open(d, "a");
    l = must_lane(r);
    for (int i = 0; i < LOOPS; i++) {
        assert_int_equal(reclaim_defer_free(l, must_alloc(l, OBJECT_BYTES)), 0);
        if (i % 500 == 0)
            assert_true(pending_bytes(r) <= most);
    }
    assert_true(daemon_file_bytes(d) <= 16 * MIB_BYTES);
    assert_int_equal(reclaim_barrier(l, &limit), 0);
    assert_int_equal(arena_figure(d, "a", "frees"), LOOPS);
    reclaim_close(r);
    daemon_stop(d);
}

static void case_01_faster_than_reclaim(void **state)
{
    check_bounded(*state, "gp-wait=poll");
}

/* Behind callbacks it is as true: what waits in the FIFO is charged as long as it is not free. */
static void case_01_faster_than_callbacks(void **state)
{
    check_bounded(*state, "gp-wait=callback");
}

static void case_01_faster_than_single_callbacks(void **state)
{
    check_bounded(*state, "batching=no");
}

static void *act_unlock_later(struct actor *a, void *userdata)
{
    sleep_ms(500);
    reclaim_read_unlock(a->lane);
    return NULL;
}

/* With a reader that lets nothing be freed for half a second the loop waits for it, within the same bound. */
static void case_01_slow_reader(void **state)
{
    const uint64_t most = 16 * MIB_BYTES / 4 + ABI_RING_RECORDS * (uint64_t)OBJECT_BYTES;
    struct daemon *d = *state;
    struct actor reader = {0};
    struct reclaim_lane *l;
    struct reclaim *r;

    l = must_lane_beside_reader(d, &reader, &r);
    actor_begin(&reader, act_unlock_later, NULL);
    for (int i = 0; i < 30000; i++) {
        assert_int_equal(reclaim_defer_free(l, must_alloc(l, OBJECT_BYTES)), 0);
        if (i % 500 == 0)
            assert_true(pending_bytes(r) <= most);
    }
    assert_null(actor_end(&reader));
    actor_stop(&reader);
    reclaim_close(r);
    daemon_stop(d);
}

/* Who asks for one size again and again gets some more at once. The books know of them, and they go with the lane. */
static void extents_kept_in_a_lane(void **state)
{
    struct daemon *d = *state;
    struct reclaim_lane *l;
    struct reclaim *r;

    daemon_start(d, "--arena", "a:64M", NULL);
    r = must_open(d, "a");
    l = must_lane(r);
    for (int i = 0; i < 4; i++) /* the answers are 1, 2 and 4 */
        must_alloc(l, 16384);
    assert_int_equal(arena_figure(d, "a", "cachedObjects"), 3);
    assert_int_equal(arena_figure(d, "a", "cachedBytes"), 3 * 16384);
    daemon_audit(d);
    reclaim_lane_put(l);
    assert_true(wait_until(arena_figure(d, "a", "cachedObjects") == 0));
    l = must_lane(r);
    assert_int_equal(reclaim_barrier(l, &limit), 0);
    assert_int_equal(arena_figure(d, "a", "frees"), 3);
    assert_int_equal(arena_figure(d, "a", "inUseObjects"), 4); /* those are the caller's still */
    reclaim_close(r);
    daemon_stop(d);
}

static void *act_alloc_extent(struct actor *a, void *userdata)
{
    return reclaim_alloc(a->lane, 16384);
}

/* Nor does who could not have one take all of what comes free later: the other needs it as much. */
static void extents_of_a_full_arena_are_shared(void **state)
{
    enum { MOST = 1024 };
    static void *mine[MOST];
    struct daemon *d = *state;
    struct actor other = {0};
    struct reclaim_lane *l;
    struct reclaim *r;
    unsigned n = 0, m = 0;

    daemon_start(d, "--arena", "a:16M", "--set", "client-pending-max=100%", NULL);
    r = must_open(d, "a");
    l = must_lane(r);
    actor_start(&other, r);
    while (n < MOST && (mine[n] = reclaim_alloc(l, 16384)))
        n++;
    assert_null(actor_do(&other, act_alloc_extent, NULL));
    for (unsigned i = 0; i < 16; i++)
        assert_int_equal(reclaim_defer_free(l, mine[--n]), 0);
    assert_int_equal(reclaim_barrier(l, &limit), 0);
    assert_non_null(actor_do(&other, act_alloc_extent, NULL));
    while (reclaim_alloc(l, 16384))
        m++;
    assert_true(m >= 12);
    actor_stop(&other);
    reclaim_close(r);
    daemon_stop(d);
}

/*
 * Extents that wait in the ring are as large as those that are pending: the limit is for both, but for a few. Behind a
 * reader that lets nothing be freed the loop is held at it.
 */
static void *act_defer_extents(struct actor *a, void *userdata)
{
    unsigned *n = userdata;
    void *p;

    while ((p = reclaim_alloc(a->lane, 65536)) && reclaim_defer_free(a->lane, p) == 0)
        __atomic_add_fetch(n, 1, __ATOMIC_RELAXED);
    return NULL;
}

/* Whoever looks why the writer stands still finds it. */
static bool client_is_told_at_limit(const struct daemon *d)
{
    struct ctl_result c = ctl_run(d, "list-clients", NULL);

    bool told = strstr(c.out, "at-limit") != NULL;

    ctl_result_deinit(&c);
    return told;
}

static void case_01_extents_behind_a_reader(void **state)
{
    const unsigned at_limit = (8 << 20) / 65536,
                   more = 64 + 8; /* in a ring; the last page, and those being cut */
    struct daemon *d = *state;
    struct actor writer = {0};
    struct reclaim_lane *l;
    struct reclaim *r;
    unsigned n = 0, seen;

    daemon_start(d, "--arena", "a:256M", "--set", "client-pending-max=8M", NULL);
    r = must_open(d, "a");
    l = must_lane(r);
    actor_start(&writer, r);
    assert_int_equal(reclaim_read_lock(l), 0);
    actor_begin(&writer, act_defer_extents, &n);
    do { /* until it stands still */
        seen = __atomic_load_n(&n, __ATOMIC_RELAXED);
        sleep_ms(500);
    } while (seen == 0 || __atomic_load_n(&n, __ATOMIC_RELAXED) != seen);
    assert_true(seen >= at_limit);
    assert_true(seen <= at_limit + more);
    assert_true(client_is_told_at_limit(d));
    assert_true(pending_bytes(r) <= (8 << 20) + 65536);
    assert_null(actor_end(&writer)); /* in the end it is told: -EAGAIN */
    reclaim_read_unlock(l);
    actor_stop(&writer);
    reclaim_close(r);
    daemon_stop(d);
}

/* The arena is full, and a reader lets nothing be freed: the answer is no, not silence. */
static void case_15_full_behind_a_reader(void **state)
{
    struct daemon *d = *state;
    struct reclaim_lane *l;
    struct actor reader = {0};
    struct reclaim *r;

    daemon_start(d, "--arena", "a:1M", NULL);
    r = must_open(d, "a");
    l = must_lane(r);
    actor_start(&reader, r);
    while (reclaim_alloc(l, 4096))
        ;
    assert_null(actor_do(&reader, act_read_lock, NULL));
    errno = 0;
    assert_null(reclaim_alloc(l, 4096));
    assert_int_equal(errno, ENOMEM);
    assert_null(actor_do(&reader, act_read_unlock, NULL));
    actor_stop(&reader);
    reclaim_close(r);
    daemon_stop(d);
}

/* ---- 03 and 04 ------------------------------------------------------------------------------------------------------------ */

static void burst(struct reclaim_lane *l, size_t bytes, unsigned n)
{
    void **objects = calloc(n, sizeof(*objects));

    assert_non_null(objects);
    for (unsigned i = 0; i < n; i++)
        objects[i] = memset(must_alloc(l, bytes), 1, bytes);
    for (unsigned i = 0; i < n; i++)
        assert_int_equal(reclaim_defer_free(l, objects[i]), 0);
    free(objects);
}

/* Nothing happens after the burst, but that we look, which wakes no arena. Its books and the file agree on the fall. */
static void check_floor(struct daemon *d, const char *interval, size_t bytes, unsigned n)
{
    const uint64_t promised_ms = 50 + 100 + 1000;
    struct reclaim_lane *l;
    struct reclaim *r;
    uint64_t floor, file, peak;

    daemon_start(d, "--arena", "a:512M", "--set", interval, "--set", "purge-delay=100ms", "--set",
                 "client-pending-max=100%", NULL);
    r = must_open(d, "a");
    l = must_lane(r);
    burst(l, bytes, 4); /* magazines and roots are there */
    assert_int_equal(reclaim_barrier(l, &limit), 0);
    sleep_ms((long)promised_ms);
    floor = daemon_file_bytes(d) + MIB_BYTES;
    burst(l, bytes, n);
    peak = daemon_file_bytes(d);
    assert_true(peak >= floor + bytes * n / 2);
    sleep_ms((long)promised_ms);
    assert_true(
        wait_until((file = daemon_file_bytes(d)) <= floor)); /* the machine may be busy: only a hang fails */
    assert_true(wait_until((uint64_t)arena_figure(d, "a", "backedBytes") <= floor));
    assert_int_equal(arena_figure(d, "a", "pendingObjects"), 0);
    assert_true(arena_figure(d, "a", "punchedBytes") > 0);
    reclaim_close(r);
    daemon_stop(d);
}

static void case_03_floor_after_burst_of_extents(void **state)
{
    check_floor(*state, "drain-interval=50ms", EXTENT_BYTES, 256);
}

static void case_03_floor_after_burst_of_small_objects(void **state)
{
    check_floor(*state, "drain-interval=50ms", 256, 300000);
}

static void case_03_floor_after_burst_of_pages(void **state)
{
    check_floor(*state, "drain-interval=50ms", 4096, 20000);
}

static void case_04_status_and_file_fall(void **state)
{
    struct daemon *d = *state;
    struct reclaim_lane *l;
    struct reclaim *r;

    daemon_start(d, "--arena", "a:256M", "--set", "drain-interval=20ms", "--set", "purge-delay=off", "--set",
                 "purge-threshold=1G", NULL);
    r = must_open(d, "a");
    l = must_lane(r);
    burst(l, EXTENT_BYTES, 64);
    assert_int_equal(reclaim_barrier(l, &limit), 0);
    assert_true(
        wait_until(arena_figure(d, "a", "lazyBytes") >= 32 * (int64_t)MIB_BYTES)); /* "freed", but resident */
    assert_int_equal(arena_figure(d, "a", "backedBytes"), daemon_file_bytes(d));
    ctl_do(d, "purge", "a", NULL);
    assert_true(daemon_file_bytes(d) < 2 * MIB_BYTES);
    assert_true(wait_until(arena_figure(d, "a", "backedBytes") == (int64_t)daemon_file_bytes(d)));
    assert_int_equal(arena_figure(d, "a", "lazyBytes"), 0);
    reclaim_close(r);
    daemon_stop(d);
}

/* ---- 11 ------------------------------------------------------------------------------------------------------------------ */

static void check_map(const struct daemon *d, const char *line)
{
    if (strstr(line, "/dev/shm/") ||
        (strstr(line, " /tmp/") && !strstr(line, "reclaimd") && strstr(line, d->directory)))
        fail_msg("mapped: %s", line);
}

/* Only the sockets and the log that this test asked for are files; what is shared has no name anywhere. */
static void case_11_nothing_in_shm_and_tmp(void **state)
{
    struct daemon *d = *state;
    struct reclaim *r;
    const pid_t pids[2] = {(daemon_start(d, "--arena", "a:16M", NULL), d->pid), getpid()};
    char path[64], line[512];
    struct dirent *entry;

    r = must_open(d, "a");
    burst(must_lane(r), 64, 1000);
    for (int i = 0; i < 2; i++) {
        _cleanup_fclose_ FILE *maps = NULL;

        (void)snprintf(path, sizeof(path), "/proc/%d/maps", (int)pids[i]);
        maps = fopen(path, "re");
        assert_non_null(maps);
        while (fgets(line, sizeof(line), maps))
            check_map(d, line);
    }
    {
        _cleanup_closedir_ DIR *dir = opendir(d->directory);

        while ((entry = readdir(dir)))
            assert_true(entry->d_name[0] == '.' || strcmp(entry->d_name, "control") == 0 ||
                        strcmp(entry->d_name, "client") == 0 || strcmp(entry->d_name, "log") == 0);
    }
    (void)unlink(d->client); /* somebody empties /tmp: who is attached goes on */
    (void)unlink(d->control);
    burst(must_lane(r), 64, 1000);
    assert_int_equal(reclaim_barrier(must_lane(r), &limit), 0);
    reclaim_close(r);
    daemon_terminate(d);
    daemon_remove(d);
}

/* ---- 14 and 15 ------------------------------------------------------------------------------------------------------------ */

static unsigned fill(struct reclaim_lane *l, void *objects[OBJECTS_MAX], size_t bytes)
{
    unsigned n = 0;

    while (n < OBJECTS_MAX && (objects[n] = reclaim_alloc(l, bytes)))
        n++;
    assert_true(n < OBJECTS_MAX);
    assert_int_equal(errno, ENOMEM);
    assert_true(strstr(reclaim_strerror(-errno), "no memory"));
    return n;
}

static void meminfo_write(const char *path, unsigned available_mib)
{
    FILE *f = fopen(path, "r+e");

    assert_non_null(f);
    (void)fprintf(f, "MemTotal:       %8u kB\nMemFree:        %8u kB\nMemAvailable:   %8u kB\n", 1000 * 1024,
                  available_mib * 1024, available_mib * 1024);
    assert_int_equal(fclose(f), 0);
}

/* In the daemon's own mount namespace /proc/meminfo says what the test wants. */
static void meminfo_mount(void *userdata)
{
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount(userdata, "/proc/meminfo", NULL, MS_BIND, NULL) < 0)
        _exit(77);
}

static bool may_mount(void)
{
    return geteuid() == 0;
}

static void case_14_memory_reserve(void **state)
{
    char path[] = "/tmp/reclaim-meminfo.XXXXXX";
    struct daemon *d = *state;
    void *objects[OBJECTS_MAX];
    struct reclaim_lane *l;
    struct reclaim *r;
    unsigned n;

    if (!may_mount()) {
        (void)printf("skipped: only root can give the daemon a /proc/meminfo of its own\n");
        skip();
    }
    (void)close(mkstemp(path));
    meminfo_write(path, 70);
    d->before_exec = meminfo_mount;
    d->userdata = path;
    daemon_start(d, "--arena", "a:256M", "--set", "memory-reserve=5%", "--set", "purge-delay=off",
                 NULL); /* 50M of 70M */
    r = must_open(d, "a");
    l = must_lane(r);
    objects[0] = reclaim_alloc(l, 64 * MIB_BYTES); /* could be sized, not backed */
    assert_null(objects[0]);
    assert_int_equal(errno, ENOMEM);
    meminfo_write(path, 45); /* below the reserve */
    sleep_ms(100);
    assert_null(reclaim_alloc(l, EXTENT_BYTES));
    assert_int_equal(errno, ENOMEM);
    assert_true(arena_figure(d, "a", "refusedAllocations") >= 2);

    meminfo_write(path, 70); /* case 15: service resumes by itself */
    sleep_ms(100);
    for (n = 0; n < 8; n++)
        (void)memset(objects[n] = must_alloc(l, EXTENT_BYTES), 1,
                     EXTENT_BYTES); /* whatever was handed out is there */
    for (unsigned i = 0; i < n; i++)
        assert_int_equal(reclaim_defer_free(l, objects[i]), 0);
    reclaim_close(r);
    daemon_stop(d);
    (void)unlink(path);
}

/* A memory control group of our own below the root of the hierarchy, whichever version that is. */
static bool group_make(char path[128], uint64_t bytes)
{
    static const char *const roots[2][2] = {{"/sys/fs/cgroup/memory", "memory.limit_in_bytes"},
                                            {"/sys/fs/cgroup", "memory.max"}};

    for (int i = 0; i < 2; i++) {
        char file[192];
        FILE *f;

        (void)snprintf(file, sizeof(file), "%s/cgroup.procs", roots[i][0]);
        if (access(file, W_OK) < 0)
            continue;
        (void)snprintf(path, 128, "%s/reclaimd-test-%d", roots[i][0], (int)getpid());
        if (mkdir(path, 0755) < 0)
            continue;
        (void)snprintf(file, sizeof(file), "%s/%s", path, roots[i][1]);
        f = fopen(file, "we");
        if (f && fprintf(f, "%llu", (unsigned long long)bytes) > 0 && fclose(f) == 0)
            return true;
        (void)rmdir(path);
    }
    return false;
}

static void group_join(void *userdata)
{
    char file[192];
    FILE *f;

    (void)snprintf(file, sizeof(file), "%s/cgroup.procs", (const char *)userdata);
    f = fopen(file, "we");
    if (!f || fprintf(f, "0") < 0 || fclose(f) != 0)
        _exit(77);
}

/* Past the limit the kernel would kill the daemon: it must stop before. */
static void case_14_control_group(void **state)
{
    struct daemon *d = *state;
    void *objects[OBJECTS_MAX];
    struct reclaim_lane *l;
    struct reclaim *r;
    char group[128];
    unsigned n;

    if (!group_make(group, 96 * MIB_BYTES)) {
        (void)printf("skipped: no memory control group can be made here\n");
        skip();
    }
    d->before_exec = group_join;
    d->userdata = group;
    daemon_start(d, "--arena", "a:256M", "--set", "purge-delay=off", NULL);
    r = must_open(d, "a");
    l = must_lane(r);
    n = fill(l, objects, EXTENT_BYTES);
    assert_true(n >= 16 && n < 96);
    for (unsigned i = 0; i < n; i++)
        (void)memset(objects[i], 1, EXTENT_BYTES);
    for (int i = 0; i < 100000 && reclaim_alloc(l, 512); i++) /* nor by small steps */
        ;
    assert_true(daemon_lives(d));
    for (unsigned i = 0; i < n; i++)
        assert_int_equal(reclaim_defer_free(l, objects[i]), 0);
    assert_int_equal(reclaim_barrier(l, &limit), 0);
    ctl_do(d, "purge", "a", NULL);
    (void)must_alloc(l, EXTENT_BYTES);
    reclaim_close(r);
    daemon_stop(d);
    assert_true(wait_until(rmdir(group) == 0));
}

static void case_15_full_then_free_again(void **state)
{
    struct daemon *d = *state;
    void *objects[OBJECTS_MAX];
    struct reclaim_lane *l;
    struct reclaim *r;
    unsigned n;

    daemon_start(d, "--arena", "a:64M", "--set", "client-pending-max=100%",
                 NULL); /* drain-interval is a second */
    r = must_open(d, "a");
    l = must_lane(r);
    for (int round = 0; round < 20; round++) {
        n = fill(l, objects, EXTENT_BYTES);
        assert_true(n >= 60);
        /* inside a section nothing waits for a grace period, so it says no at once */
        assert_int_equal(reclaim_read_lock(l), 0);
        assert_int_equal(reclaim_defer_free(l, objects[--n]), 0);
        assert_null(reclaim_alloc(l, EXTENT_BYTES));
        assert_int_equal(errno, ENOMEM);
        reclaim_read_unlock(l);
        /* outside the urgent round finds it: no waiting for the drain timer */
        objects[n++] = must_alloc(l, EXTENT_BYTES);
        while (n > 0)
            assert_int_equal(reclaim_defer_free(l, objects[--n]), 0);
    }
    assert_int_equal(reclaim_barrier(l, &limit), 0);
    assert_int_equal(arena_figure(d, "a", "inUseObjects"), 0);
    reclaim_close(r);
    daemon_stop(d);
}

static void case_15_full_of_small_objects(void **state)
{
    enum { MANY = 40000 };
    struct daemon *d = *state;
    void **objects = calloc(MANY, sizeof(*objects));
    struct reclaim_lane *l;
    struct reclaim *r;

    daemon_start(d, "--arena", "a:4M", "--set", "client-pending-max=100%", NULL);
    r = must_open(d, "a");
    l = must_lane(r);
    for (int round = 0; round < 5; round++) {
        size_t bytes = 128u << round % 3, n = 0;

        while (n < MANY && (objects[n] = reclaim_alloc(l, bytes)))
            n++;
        assert_int_equal(errno, ENOMEM);
        assert_true(n * bytes >= 2 * MIB_BYTES);
        while (n > 0)
            assert_int_equal(reclaim_defer_free(l, objects[--n]), 0);
    }
    free(objects);
    reclaim_close(r);
    daemon_stop(d);
}

int main(void)
{
    struct daemon d = {0};
    const struct CMUnitTest tests[] = {
        daemon_test(case_01_faster_than_reclaim),
        daemon_test(case_01_faster_than_callbacks),
        daemon_test(case_01_faster_than_single_callbacks),
        daemon_test(case_01_slow_reader),
        daemon_test(case_01_extents_behind_a_reader),
        daemon_test(case_15_full_behind_a_reader),
        daemon_test(extents_kept_in_a_lane),
        daemon_test(extents_of_a_full_arena_are_shared),
        daemon_test(case_03_floor_after_burst_of_extents),
        daemon_test(case_03_floor_after_burst_of_small_objects),
        daemon_test(case_03_floor_after_burst_of_pages),
        daemon_test(case_04_status_and_file_fall),
        daemon_test(case_11_nothing_in_shm_and_tmp),
        daemon_test(case_14_memory_reserve),
        daemon_test(case_14_control_group),
        daemon_test(case_15_full_then_free_again),
        daemon_test(case_15_full_of_small_objects),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
