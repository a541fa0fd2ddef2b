/* SPDX-License-Identifier: MIT */
/*
 * reclaim_defer_free_head() against the real daemon: rings that stay full, because the daemon may not collect
 * or does not run, thousands of heads, and afterwards all of them freed; clients that are killed or lie in
 * the middle of it.
 */
#include "case-raw.h"

#include <signal.h>
#include <sys/wait.h>

#include "basic/macro.h"
#include "basic/ordering.h"

enum {
    MANY = 4 * ABI_RING_RECORDS, /* the ring takes a quarter, if nothing shares a record */
};

static const struct timespec limit = {.tv_sec = HANG_SECONDS};

static void start(struct daemon *d)
{
    daemon_start(d, "--arena", "a:64M", "--arena", "honest:16M", "--set", "drain-interval=5ms", "--set",
                 "client-pending-max=100%", NULL);
}

/* ---- Objects with a head in them ---- */

struct piece {
    void *object;
    struct reclaim_head *head;
};

/* The head at the beginning, in the middle, at the very end. */
static struct reclaim_head *head_at(void *object, size_t bytes, unsigned where)
{
    size_t granules = (bytes - sizeof(struct reclaim_head)) / 16;

    return (struct reclaim_head *)((char *)object + (where % 3 == 0   ? 0
                                                     : where % 3 == 1 ? granules / 2
                                                                      : granules) *
                                                        16);
}

static void piece_make(struct piece *p, struct reclaim_lane *l, size_t bytes, unsigned where)
{
    p->object = memset(must_alloc(l, bytes), 0xee, bytes); /* what an old head might look like */
    p->head = head_at(p->object, bytes, where);
}

static struct piece *pieces_new(struct reclaim_lane *l, size_t bytes, unsigned n)
{
    struct piece *pieces = calloc(n, sizeof(*pieces));

    assert_non_null(pieces);
    for (unsigned i = 0; i < n; i++)
        piece_make(&pieces[i], l, bytes, i);
    return pieces;
}

/* In an order in which no two neighbours share a block, so that the ring is soon full; n is a power of two.
 */
static void pieces_defer(struct reclaim_lane *l, const struct piece *pieces, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        const struct piece *p = &pieces[i * 1021u % n];

        assert_int_equal(reclaim_defer_free_head(l, p->object, p->head), 0);
    }
}

static uint32_t n_chained(const struct reclaim_lane *l)
{
    return lane_shared(l)->chain_count;
}

/* What is left of the words that the lane takes its objects from: handed out, but nobody's object yet. */
static int64_t cur_bytes(const struct reclaim_lane *l)
{
    int64_t n_bytes = 0;

    for (unsigned c = 0; c < ABI_CLASS_EXTENT; c++)
        n_bytes +=
            __builtin_popcount(abi_word_mask(lane_shared(l)->take[c].cur)) * (int64_t)abi_class_bytes(c);
    return n_bytes;
}

static void assert_all_freed(const struct daemon *d, const struct reclaim_lane *l, unsigned n)
{
    assert_int_equal(arena_figure(d, "a", "frees"), n);
    assert_int_equal(arena_figure(d, "a", "pendingObjects"), 0);
    assert_true(
        wait_until(arena_figure(d, "a", "inUseBytes") == cur_bytes(l))); /* magazines are being filled */
    assert_int_equal(arena_figure(d, "a", "refusedRecords"), 0);
}

/* ---- Honest ---- */

/* The pending limit is reached and the section that we are in ends only after the last call: none of them
 * waits. */
static void test_beyond_the_limit_in_a_section(void **state)
{
    struct daemon *d = *state;
    struct reclaim *r;
    struct reclaim_lane *l;
    struct piece *pieces;

    daemon_start(d, "--arena", "a:64M", "--set", "drain-interval=1h", "--set", "client-pending-max=64K",
                 NULL);
    r = must_open(d, "a");
    l = must_lane(r);
    pieces = pieces_new(l, 64, MANY);
    assert_int_equal(reclaim_read_lock(l), 0);
    pieces_defer(l, pieces, MANY / 2); /* twice: the daemon may take all there is until it sees the limit */
    assert_true(wait_until(lane_shared(l)->over_limit));
    pieces_defer(l, pieces + MANY / 2, MANY / 2);
    assert_true(n_chained(l) > 0);
    assert_int_equal(lane_shared(l)->waiting, 0);
    reclaim_read_unlock(l);
    assert_int_equal(reclaim_barrier(l, &limit), 0);
    assert_all_freed(d, l, MANY);
    free(pieces);
    reclaim_close(r);
    daemon_stop(d);
}

/* A daemon that does not run at all. Once it does, it finds everything by itself. */
static void test_daemon_that_stands_still(void **state)
{
    static const size_t sizes[] = {16, 48, 128, 160, 512, 640, 1024, 3584};
    struct daemon *d = *state;
    struct reclaim *r;
    struct reclaim_lane *l;
    struct piece *pieces;
    unsigned n_freed = 0;

    start(d);
    r = must_open(d, "a");
    l = must_lane(r);
    for (unsigned s = 0; s < ARRAY_SIZE(sizes); s++) {
        uint32_t before = n_chained(l);

        pieces = pieces_new(l, sizes[s], MANY);
        daemon_halt(d);
        pieces_defer(l, pieces, MANY);
        assert_true(n_chained(l) > before);
        daemon_go_on(d);
        n_freed += MANY;
        assert_true(wait_until(arena_figure(d, "a", "frees") == n_freed)); /* no call of ours helps */
        free(pieces);
    }
    assert_all_freed(d, l, n_freed);
    reclaim_close(r);
    daemon_stop(d);
}

/* Pages, of which the last 16 bytes are in the object as well. */
static void test_extents(void **state)
{
    static const size_t sizes[] = {4096, 3 * 4096, 40 * 4096, 2 * MIB_BYTES};
    struct piece pieces[3 * ARRAY_SIZE(sizes)], *small;
    struct daemon *d = *state;
    struct reclaim *r;
    struct reclaim_lane *l;

    start(d);
    r = must_open(d, "a");
    l = must_lane(r);
    small = pieces_new(l, 512, ABI_RING_RECORDS);
    for (unsigned i = 0; i < ARRAY_SIZE(pieces); i++)
        piece_make(&pieces[i], l, sizes[i / 3], i);
    daemon_halt(d);
    pieces_defer(l, small, ABI_RING_RECORDS); /* one a record: the ring is full */
    for (unsigned i = 0; i < ARRAY_SIZE(pieces); i++)
        assert_int_equal(reclaim_defer_free_head(l, pieces[i].object, pieces[i].head), 0);
    assert_int_equal(n_chained(l), ARRAY_SIZE(pieces));
    daemon_go_on(d);
    assert_true(wait_until(arena_figure(d, "a", "frees") == ABI_RING_RECORDS + ARRAY_SIZE(pieces)));
    assert_all_freed(d, l, ABI_RING_RECORDS + ARRAY_SIZE(pieces));
    free(small);
    reclaim_close(r);
    daemon_stop(d);
}

/* Nothing of a chained object is freed, let alone handed out, while a section that may see it is open. */
static void test_reader_keeps_chained_objects(void **state)
{
    const struct timespec moment = {.tv_nsec = 50 * 1000000};
    struct daemon *d = *state;
    struct actor reader = {0};
    struct reclaim *r;
    struct reclaim_lane *l;
    struct piece *pieces;

    start(d);
    r = must_open(d, "a");
    l = must_lane(r);
    pieces = pieces_new(l, 64, MANY);
    actor_start_reading(&reader, r);
    daemon_halt(d);
    pieces_defer(l, pieces, MANY);
    assert_true(n_chained(l) > 0);
    daemon_go_on(d);
    assert_true(wait_until(arena_figure(d, "a", "pendingObjects") == MANY));
    assert_int_equal(reclaim_barrier(l, &moment), -ETIMEDOUT);
    for (unsigned i = 0; i < MANY; i++) /* behind the head, which is gone */
        assert_int_equal(
            ((unsigned char *)pieces[i].object)[(char *)pieces[i].head == (char *)pieces[i].object ? 16 : 0],
            0xee);
    assert_int_equal(arena_figure(d, "a", "frees"), 0);
    assert_null(actor_do(&reader, act_read_unlock, NULL));
    assert_int_equal(reclaim_barrier(l, &limit), 0);
    assert_all_freed(d, l, MANY);
    actor_stop(&reader);
    free(pieces);
    reclaim_close(r);
    daemon_stop(d);
}

/* Objects go round: freed, handed out anew, chained again, with whatever old heads lie in them. */
static void test_round_and_round(void **state)
{
    struct daemon *d = *state;
    struct reclaim *r;
    struct reclaim_lane *l;
    unsigned n = 0;

    daemon_start(d, "--arena", "a:2M", "--set", "drain-interval=1ms", "--set", "client-pending-max=64K",
                 NULL);
    r = must_open(d, "a");
    l = must_lane(r);
    for (unsigned round = 0; round < 8; round++) {
        struct piece *pieces = pieces_new(l, 64, MANY);

        pieces_defer(l, pieces, MANY);
        n += MANY;
        free(pieces);
    }
    assert_true(n_chained(l) > 0);
    assert_int_equal(reclaim_barrier(l, &limit), 0);
    assert_all_freed(d, l, n);
    reclaim_close(r);
    daemon_stop(d);
}

/* ---- Killed ---- */

struct victim {
    struct daemon *d;
    int ready, go; /* pipes: one byte each */
    unsigned n;    /* deferred before it dies */
};

static int victim_run(void *userdata)
{
    struct victim *v = userdata;
    struct reclaim_lane *l;
    struct reclaim *r;
    char byte = 0;

    CHECK(try_open(v->d, "a", 0, 0, 0, NULL, &r) == 0);
    CHECK(reclaim_lane_get(r, &l) == 0);
    static struct piece pieces[MANY];
    for (unsigned i = 0; i < MANY; i++) {
        pieces[i].object = reclaim_alloc(l, 512);
        CHECK(pieces[i].object);
        pieces[i].head = head_at(pieces[i].object, 512, i);
    }
    CHECK(write(v->ready, &byte, 1) == 1 && read(v->go, &byte, 1) == 1);
    for (unsigned i = 0; i < v->n; i++)
        CHECK(reclaim_defer_free_head(l, pieces[i].object, pieces[i].head) == 0);
    CHECK(lane_shared(l)->chain_count == v->n - ABI_RING_RECORDS);
    (void)raise(SIGKILL);
    return 1;
}

/* What it had chained is freed by the count; what it still had is what it alone had. */
static void test_client_killed(void **state)
{
    struct daemon *d = *state;
    struct victim v = {.d = d, .n = MANY - 1000};
    int ready[2], go[2], status;
    char byte = 0;
    pid_t pid;

    start(d);
    assert_int_equal(pipe(ready), 0);
    assert_int_equal(pipe(go), 0);
    v.ready = ready[1];
    v.go = go[0];
    pid = child_start(victim_run, &v);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    daemon_halt(d);
    assert_int_equal(write(go[1], &byte, 1), 1);
    status = child_wait(pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    daemon_go_on(d);
    assert_true(wait_until(n_clients(d) == 0));
    assert_true(wait_until(arena_figure(d, "a", "inUseBytes") == 1000 * 512 &&
                           arena_figure(d, "a", "pendingObjects") == 0));
    assert_true(arena_figure(d, "a", "frees") >= v.n); /* and what lay in its magazines */
    for (unsigned i = 0; i < 2; i++) {
        (void)close(ready[i]);
        (void)close(go[i]);
    }
    daemon_stop(d);
}

/* ---- Hostile ---- */

static uint64_t random_next(uint64_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed;
}

/* Links that look right more often than not, so that what lies behind the first check is reached. */
static void scribble(const struct reclaim *r, struct reclaim_head *head, unsigned kind, uint64_t *seed)
{
    uint64_t own = abi_chain_link(((uintptr_t)head - (uintptr_t)reclaim_base(r)) / 16, 0),
             any = random_next(seed);

    switch (kind) {
    case 0:
        store_relaxed(&head->next, UINT64_MAX);
        break;
    case 1:
        store_relaxed(&head->next, own);
        break;
    case 2:
        store_relaxed(&head->next, abi_chain_link(any % (reclaim_size(r) / 16), any >> 60));
        break;
    case 3:
        store_relaxed(&head->next, any);
        store_relaxed(&head->seq, (uint32_t)(any >> 32));
        break;
    case 4:
        store_relaxed(&head->seq, head->seq + (uint32_t)(any % 3) - 1);
        break;
    default:
        store_relaxed(&head->next, (own & ~0xffffffull) | any % 64);
        break;
    }
}

static void honest_works(const struct daemon *d)
{
    struct reclaim *r = must_open(d, "honest");
    struct reclaim_lane *l = must_lane(r);

    for (int i = 0; i < 1000; i++) {
        struct reclaim_head *p = must_alloc(l, 64);

        assert_int_equal(reclaim_defer_free_head(l, p, p), 0);
    }
    assert_int_equal(reclaim_barrier(l, &limit), 0);
    reclaim_close(r);
}

/* Heads are overwritten before the daemon looks. It frees what is really the client's, counts the rest, and
 * goes on. */
static void test_garbage_in_heads(void **state)
{
    struct daemon *d = *state;
    uint64_t seed = 88172645463325252ull;

    start(d);
    for (unsigned kind = 0; kind < 6; kind++) {
        int64_t refused = arena_figure(d, "a", "refusedRecords");
        struct reclaim *r = must_open(d, "a");
        struct reclaim_lane *l = must_lane(r);
        struct piece *pieces = pieces_new(l, 64, MANY);

        daemon_halt(d);
        pieces_defer(l, pieces, MANY);
        assert_true(n_chained(l) > 0);
        for (unsigned i = 0; i < MANY; i++)
            if (random_next(&seed) % 500 == 0 || i == (MANY - 1) * 1021u % MANY) /* the newest in any case */
                scribble(r, pieces[i].head, kind, &seed);
        daemon_go_on(d);
        assert_int_equal(reclaim_barrier(l, &limit), 0);
        assert_true(arena_figure(d, "a", "refusedRecords") > refused);
        assert_true(daemon_lives(d));
        honest_works(d);
        free(pieces);
        reclaim_close(r);
    }
    daemon_stop(d);
}

/* Everything that the chain is made of, rewritten while the daemon walks it. */
static int scribbler_run(void *userdata)
{
    struct daemon *d = userdata;
    uint64_t seed = 2463534242ull;
    struct reclaim_lane *l;
    struct reclaim *r;
    struct piece pieces[256];

    CHECK(try_open(d, "a", 0, 0, 0, NULL, &r) == 0);
    CHECK(reclaim_lane_get(r, &l) == 0);
    for (unsigned i = 0; i < ARRAY_SIZE(pieces); i++) {
        pieces[i].object = reclaim_alloc(l, 64);
        CHECK(pieces[i].object);
        pieces[i].head = pieces[i].object;
    }
    for (;;) {
        struct abi_lane *lane = lane_shared(l);
        uint64_t any = random_next(&seed);
        struct piece *p = &pieces[any % ARRAY_SIZE(pieces)];
        uint64_t granule = ((uintptr_t)p->head - (uintptr_t)reclaim_base(r)) / 16;

        scribble(r, p->head, (unsigned)(any >> 32) % 6, &seed);
        store_relaxed(&p->head->seq, lane->chain_count + (uint32_t)(any >> 40) % 4);
        store_release(&lane->chain_head,
                      any >> 50 & 1 ? abi_chain_link(granule, any >> 51 & 7) : random_next(&seed));
        store_release(&lane->chain_count, lane->chain_count + (any >> 60 ? 1 : (uint32_t)random_next(&seed)));
        (void)reclaim_defer_free(l, NULL);
    }
}

static void test_garbage_while_it_walks(void **state)
{
    struct daemon *d = *state;
    pid_t pid;

    start(d);
    pid = child_start(scribbler_run, d);
    assert_true(wait_until(arena_figure(d, "a", "refusedRecords") > 1000));
    for (int i = 0; i < 5; i++)
        honest_works(d);
    child_kill(pid);
    assert_true(wait_until(n_clients(d) == 0));
    honest_works(d);
    daemon_stop(d);
}

int main(void)
{
    struct daemon d = {0};
    const struct CMUnitTest tests[] = {
        daemon_test(test_beyond_the_limit_in_a_section),
        daemon_test(test_daemon_that_stands_still),
        daemon_test(test_extents),
        daemon_test(test_reader_keeps_chained_objects),
        daemon_test(test_round_and_round),
        daemon_test(test_client_killed),
        daemon_test(test_garbage_in_heads),
        daemon_test(test_garbage_while_it_walks),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
