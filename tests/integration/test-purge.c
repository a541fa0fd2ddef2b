/* SPDX-License-Identifier: MIT */
/*
 * Giving memory back while it is in use: purges beside hand-outs, requests during a purge, pages that clients
 * touch, and extents of which several are handed out at once.
 */
#include "case-raw.h"

#include <signal.h>
#include <sys/mman.h>

#include "basic/macro.h"

enum {
    WORKERS = 3,
    BURSTS = 25,
    BURST = 120,
    EXTENT_BYTES = 16384,
    N_TURNS = 512,
    HELD = 64,
    MAGAZINE_BYTES = 256 << 10, /* so much may lie in a lane's magazine */
};

static const struct timespec limit = {.tv_sec = HANG_SECONDS};

/* ---- Under load ---- */

struct worker {
    const struct daemon *d;
    unsigned number;
};

/* 4 KiB to 124 KiB, the same one many times in a row. */
static size_t burst_bytes(const struct worker *w, unsigned burst)
{
    return ABI_PAGE_BYTES * (burst % 3 == 2 ? 1 + (burst * 7 + w->number * 5) % 31 : 4);
}

static uint64_t stamp(const struct worker *w, unsigned burst, unsigned i)
{
    return (uint64_t)(w->number + 1) << 48 | (uint64_t)(burst + 1) << 24 | i;
}

/* Each page has its owner's stamp as long as it is his. */
static void worker_burst(struct worker *w, struct reclaim_lane *l, unsigned burst)
{
    size_t bytes = burst_bytes(w, burst);
    char *extents[BURST];

    for (unsigned i = 0; i < BURST; i++) {
        extents[i] = reclaim_alloc(l, bytes);
        CHECK(extents[i]);
        for (size_t at = 0; at < bytes; at += ABI_PAGE_BYTES)
            *(uint64_t *)(extents[i] + at) = stamp(w, burst, i);
    }
    for (unsigned i = 0; i < BURST; i++) {
        for (size_t at = 0; at < bytes; at += ABI_PAGE_BYTES)
            CHECK(*(uint64_t *)(extents[i] + at) == stamp(w, burst, i));
        CHECK(reclaim_defer_free(l, extents[i]) == 0);
    }
}

static int worker_run(void *userdata)
{
    struct worker *w = userdata;
    struct reclaim_lane *l;
    struct reclaim *r;

    CHECK(try_open(w->d, "a", 0, 0, 0, NULL, &r) == 0);
    CHECK(reclaim_lane_get(r, &l) == 0);
    for (unsigned burst = 0; burst < BURSTS; burst++)
        worker_burst(w, l, burst);
    CHECK(reclaim_barrier(l, &limit) == 0);
    CHECK(reclaim_alloc(l, 2 * MIB_BYTES)); /* what lay in the magazine goes back */
    CHECK(reclaim_barrier(l, &limit) == 0);
    reclaim_close(r);
    return 0;
}

/* The books are right at any time, and no page goes from under its owner. */
static void purge_under_load(void **state)
{
    static const char *const settings[] = {"purge-while-purging=yes", "purge-threshold=1M",
                                           "purge-while-purging=no", "purge-threshold=0",
                                           "purge-threshold=8M"};
    struct daemon *d = *state;
    struct worker workers[WORKERS];
    pid_t pids[WORKERS];

    daemon_start(d, "--arena", "a:256M", "--set", "drain-interval=2ms", "--set", "purge-threshold=2M",
                 "--set", "purge-delay=20ms", NULL);
    for (unsigned i = 0; i < WORKERS; i++) {
        workers[i] = (struct worker){d, i};
        pids[i] = child_start(worker_run, &workers[i]);
    }
    for (unsigned i = 0; i < 2 * ARRAY_SIZE(settings); i++) {
        ctl_do(d, "set", settings[i % ARRAY_SIZE(settings)], NULL);
        daemon_audit(d);
        ctl_do(d, "purge", "a", NULL);
    }
    for (unsigned i = 0; i < WORKERS; i++)
        child_must_succeed(pids[i]);
    assert_true(wait_until(n_clients(d) == 0));
    assert_true(wait_until(arena_figure(d, "a", "pendingObjects") == 0));
    assert_int_equal(arena_figure(d, "a", "cachedObjects"), 0);
    assert_int_equal(arena_figure(d, "a", "inUseObjects"), WORKERS); /* the last of each */
    ctl_do(d, "purge", "a", NULL);
    assert_true(arena_figure(d, "a", "punchedBytes") > 0);
    assert_int_equal(arena_figure(d, "a", "purgesQueued"), arena_figure(d, "a", "purgesRun"));
    assert_int_equal(arena_figure(d, "a", "lazyBytes"), 0);
    assert_int_equal(arena_figure(d, "a", "backedBytes"), daemon_file_bytes(d));
    daemon_stop(d);
}

/* ---- Few large holes ---- */

static void *act_alloc(struct actor *a, void *userdata)
{
    return reclaim_alloc(a->lane, EXTENT_BYTES);
}

/* Two threads take turns; what one of them frees lies together, whatever the other still has. */
static void neighbours_are_punched_together(void **state)
{
    struct daemon *d = *state;
    struct actor other = {0};
    void *extents[N_TURNS];
    struct reclaim_lane *l;
    struct reclaim *r;

    daemon_start(d, "--arena", "a:256M", "--set", "drain-interval=2ms", "--set", "purge-delay=off", NULL);
    r = must_open(d, "a");
    l = must_lane(r);
    actor_start(&other, r);
    for (unsigned i = 0; i < N_TURNS; i++) {
        extents[i] = must_alloc(l, EXTENT_BYTES);
        assert_non_null(actor_do(&other, act_alloc, NULL));
    }
    for (unsigned i = 0; i < N_TURNS; i++)
        assert_int_equal(reclaim_defer_free(l, extents[i]), 0);
    assert_int_equal(reclaim_barrier(l, &limit), 0);
    ctl_do(d, "purge", "a", NULL);
    assert_int_equal(arena_figure(d, "a", "punchedBytes"), N_TURNS * EXTENT_BYTES);
    assert_in_range(arena_figure(d, "a", "holes"), 1, N_TURNS / 8);
    actor_stop(&other);
    reclaim_close(r);
    daemon_stop(d);
}

/* ---- Pages that are touched after they were given back ---- */

static void touch_all(const struct daemon *d)
{
    volatile char *arena;
    struct raw raw;

    assert_int_equal(raw_open(&raw, d, "a", 0), 0);
    arena = mmap(NULL, raw.reply.arena_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, raw.fds[2], 0);
    assert_true(arena != MAP_FAILED);
    for (uint64_t at = raw.reply.arena_bytes / 2; at < raw.reply.arena_bytes; at += ABI_PAGE_BYTES)
        arena[at] = arena[at]; /* a store that leaves what is there */
    assert_int_equal(munmap((void *)arena, raw.reply.arena_bytes), 0);
    raw_close(&raw);
}

/* By age alone: nobody asks, and nothing is lazy but what one free has left. */
static void touched_pages_are_found_by_age(void **state)
{
    struct daemon *d = *state;
    struct reclaim_lane *l;
    struct reclaim *r;
    uint64_t *kept;

    daemon_start(d, "--arena", "a:64M", "--set", "drain-interval=2ms", "--set", "purge-delay=50ms", NULL);
    r = must_open(d, "a");
    l = must_lane(r);
    kept = must_alloc(l, MIB_BYTES);
    *kept = 42;
    touch_all(d);
    assert_true(wait_until(n_clients(d) == 1));
    assert_true(daemon_file_bytes(d) >= 32 * MIB_BYTES);
    assert_int_equal(reclaim_defer_free(l, must_alloc(l, EXTENT_BYTES)), 0);
    assert_int_equal(reclaim_barrier(l, &limit), 0);
    assert_true(wait_until(daemon_file_bytes(d) < 2 * MIB_BYTES));
    assert_true(wait_until(arena_figure(d, "a", "backedBytes") == (int64_t)daemon_file_bytes(d)));
    assert_int_equal(*kept, 42);
    reclaim_close(r);
    daemon_stop(d);
}

/* ---- Extents, several at once ---- */

/* Handed out, cached, pending and free are all there is, and what is cached is bounded. */
static void cached_extents_are_counted(void **state)
{
    struct daemon *d = *state;
    struct reclaim_lane *l;
    struct reclaim *r;
    int64_t cached;

    daemon_start(d, "--arena", "a:64M", "--set", "drain-interval=2ms", NULL);
    r = must_open(d, "a");
    l = must_lane(r);
    for (unsigned i = 1; i <= HELD; i++) {
        (void)must_alloc(l, EXTENT_BYTES);
        assert_int_equal(arena_figure(d, "a", "inUseObjects"), i);
        cached = arena_figure(d, "a", "cachedObjects");
        assert_in_range(cached, 0, MAGAZINE_BYTES / EXTENT_BYTES - 1);
        assert_int_equal(arena_figure(d, "a", "cachedBytes"), cached * EXTENT_BYTES);
        assert_int_equal(arena_figure(d, "a", "inUseBytes"), i * EXTENT_BYTES);
    }
    while (arena_figure(d, "a", "cachedObjects") == 0)
        (void)must_alloc(l, EXTENT_BYTES);
    cached = arena_figure(d, "a", "inUseObjects");
    (void)must_alloc(l, EXTENT_BYTES + 1); /* of another size: what is left of the first goes back */
    assert_int_equal(reclaim_barrier(l, &limit), 0);
    assert_int_equal(arena_figure(d, "a", "cachedObjects"), 0);
    assert_int_equal(arena_figure(d, "a", "inUseObjects"), cached + 1);
    assert_int_equal(arena_figure(d, "a", "refusedRecords"), 0);
    reclaim_close(r);
    daemon_stop(d);
}

static int hold_until_killed(void *userdata)
{
    struct reclaim_lane *l;
    struct reclaim *r;

    CHECK(try_open(userdata, "a", 0, 0, 0, NULL, &r) == 0);
    CHECK(reclaim_lane_get(r, &l) == 0);
    for (unsigned i = 0; i < HELD + 1; i++)
        CHECK(reclaim_alloc(l, EXTENT_BYTES));
    (void)raise(SIGKILL);
    return 0;
}

/* What it held is lost; what lay in its magazine is not. */
static void cached_extents_of_the_dead_come_back(void **state)
{
    struct daemon *d = *state;
    pid_t pid;

    daemon_start(d, "--arena", "a:64M", "--set", "drain-interval=2ms", NULL);
    pid = child_start(hold_until_killed, d);
    (void)child_wait(pid);
    assert_true(wait_until(n_clients(d) == 0));
    assert_true(wait_until(arena_figure(d, "a", "pendingObjects") == 0));
    assert_int_equal(arena_figure(d, "a", "inUseObjects"), HELD + 1);
    assert_true(arena_figure(d, "a", "frees") > 0);
    daemon_stop(d);
}

/* The whole arena can be had by one who asks for the same again and again. */
static void the_last_extent_is_handed_out(void **state)
{
    struct daemon *d = *state;
    struct reclaim_lane *l;
    struct reclaim *r;
    unsigned n = 0;

    daemon_start(d, "--arena", "a:16M", "--set", "drain-interval=2ms", NULL);
    r = must_open(d, "a");
    l = must_lane(r);
    while (reclaim_alloc(l, EXTENT_BYTES))
        n++;
    assert_int_equal(errno, ENOMEM);
    assert_int_equal(n, (16 * MIB_BYTES - ABI_CHUNK_BYTES) / EXTENT_BYTES); /* all but the first chunk */
    assert_int_equal(arena_figure(d, "a", "cachedObjects"), 0);
    reclaim_close(r);
    daemon_stop(d);
}

int main(void)
{
    static struct daemon d;
    const struct CMUnitTest tests[] = {
        daemon_test(purge_under_load),
        daemon_test(neighbours_are_punched_together),
        daemon_test(touched_pages_are_found_by_age),
        daemon_test(cached_extents_are_counted),
        daemon_test(cached_extents_of_the_dead_come_back),
        daemon_test(the_last_extent_is_handed_out),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
