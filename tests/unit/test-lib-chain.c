/* SPDX-License-Identifier: MIT */
/*
 * reclaim_defer_free_head() without a daemon: what it writes and in which order, that it never waits, whom it
 * wakes. Links with a copy of the library that has test points.
 */
#include <signal.h>
#include <sys/wait.h>

#include "basic/testpoint.h"

#include "lib-fixture.h"

static uint64_t link_to(uint32_t block, unsigned granule, uint64_t head_granules)
{
    return abi_chain_link((uint64_t)block * 32 + granule, head_granules);
}

/* The daemon's view of it, through its own mapping. */
static struct abi_chain_head *seen_at(const struct fixture *x, const void *head)
{
    return (struct abi_chain_head *)(x->f->arena + ((uintptr_t)head - FAKE_BASE));
}

static int chain(struct fixture *x, void *p, void *head)
{
    return reclaim_defer_free_head(x->l, p, head);
}

/* Every second block, so that each makes a record. */
static void fill_ring(struct reclaim_lane *l)
{
    for (uint32_t i = 0; i < ABI_RING_RECORDS; i++)
        assert_int_equal(reclaim_defer_free(l, at(ABI_FIRST_BLOCK + i % 1024 * 2, 0)), 0);
}

/* ---- What is written ---- */

static void test_ring_with_room(void **state)
{
    struct fixture *x = *state;
    struct abi_chain_head *head = seen_at(x, at(200, 1));

    *head = (struct abi_chain_head){.next = 77, .seq = 78, .reserved = 79};
    assert_int_equal(chain(x, at(200, 0), at(200, 1)), 0);
    assert_int_equal(chain(x, at(200, 4), at(200, 4)), 0);
    assert_int_equal(x->shared->ring[0], abi_word(200, 0x11));
    assert_int_equal(chain(x, at(200, 4), at(200, 4)),
                     0); /* twice: a record of its own, for the daemon to refuse */
    assert_int_equal(chain(x, at(300, 31), at(300, 31)), 0);
    assert_int_equal(x->shared->head, 3);
    assert_int_equal(x->shared->ring[1], abi_word(200, 0x10));
    assert_int_equal(x->shared->ring[2], abi_word(300, 1u << 31));
    assert_int_equal(x->shared->chain_count, 0);
    assert_int_equal(x->shared->chain_head, 0);
    assert_true(head->next == 77 && head->seq == 78 && head->reserved == 79); /* nobody needed it */
}

/* What the fake daemon walks: newest first, numbers going down. */
static void assert_chain(const struct fixture *x, const uint64_t *links, unsigned n)
{
    uint64_t link = x->shared->chain_head;

    assert_int_equal(x->shared->chain_count, n);
    for (unsigned i = n; i-- > 0;) {
        uint64_t granule = (link >> 24) + (link & 0xffffff);
        const struct abi_chain_head *head = seen_at(x, (char *)FAKE_BASE + granule * ABI_GRANULE_BYTES);

        assert_int_equal(link, links[i]);
        assert_int_equal(head->seq, i + 1);
        assert_int_equal(head->reserved, 0);
        link = head->next;
    }
    assert_int_equal(link, 0);
}

static void test_full_ring(void **state)
{
    struct fixture *x = *state;
    const uint32_t last = FAKE_ARENA_BYTES / ABI_BLOCK_BYTES - 1;
    const struct {
        uint32_t block, granule, head_block, head_granule;
    } objects[] = {
        {201, 0, 201, 0},
        {201, 3, 201, 8},
        {ABI_FIRST_BLOCK, 1, last, 30}, /* from the first granule of the arena to the last but one */
        {last, 31, last, 31},
    };
    uint64_t links[ARRAY_SIZE(objects)];

    fill_ring(x->l);
    memset(seen_at(x, at(201, 0)), 0xff, ABI_BLOCK_BYTES);
    for (unsigned i = 0; i < ARRAY_SIZE(objects); i++) {
        uint64_t blocks = objects[i].head_block - objects[i].block;

        links[i] = link_to(objects[i].block, objects[i].granule,
                           blocks * 32 + objects[i].head_granule - objects[i].granule);
        assert_int_equal(chain(x, at(objects[i].block, objects[i].granule),
                               at(objects[i].head_block, objects[i].head_granule)),
                         0);
        assert_chain(x, links, i + 1);
    }
    assert_int_equal(x->shared->head, ABI_RING_RECORDS);
}

/* The open record takes bits however full the ring is; after a collect the ring comes first again, and the
   numbers of the chain go on where they were. */
static void test_ring_and_chain_take_turns(void **state)
{
    struct fixture *x = *state;
    const uint64_t links[] = {link_to(501, 0, 1), link_to(503, 0, 1), link_to(505, 0, 1)};
    const uint32_t open_block = ABI_FIRST_BLOCK + 1023 * 2;

    fill_ring(x->l);
    assert_int_equal(chain(x, at(501, 0), at(501, 1)), 0);
    assert_int_equal(chain(x, at(open_block, 9), at(open_block, 9)), 0);
    assert_int_equal(x->shared->ring[ABI_RING_RECORDS - 1], abi_word(open_block, 0x201));
    assert_int_equal(chain(x, at(503, 0), at(503, 1)), 0);
    assert_chain(x, links, 2);
    store_release(&x->shared->tail, 1u); /* room for one */
    assert_int_equal(chain(x, at(507, 0), at(507, 0)), 0);
    assert_int_equal(x->shared->ring[0], abi_word(507, 1));
    assert_int_equal(chain(x, at(505, 0), at(505, 1)), 0);
    assert_int_equal(x->shared->head, ABI_RING_RECORDS + 1);
    assert_chain(x, links, 3);
    assert_int_equal(reclaim_defer_free(x->l, at(507, 5)), 0); /* the other call does not mind */
    assert_int_equal(x->shared->ring[0], abi_word(507, 0x21));
}

/* ---- What it refuses ---- */

static void check_refused(struct fixture *x)
{
    char *end = (char *)FAKE_BASE + FAKE_ARENA_BYTES;
    struct reclaim_head outside;

    assert_int_equal(chain(x, at(200, 1), at(200, 0)), -EINVAL);
    assert_int_equal(chain(x, at(200, 0), NULL), -EINVAL);
    assert_int_equal(chain(x, at(200, 0), (char *)at(200, 0) + 8), -EINVAL);
    assert_int_equal(chain(x, at(200, 0), (char *)at(200, 0) + 1), -EINVAL);
    assert_int_equal(chain(x, at(200, 0), end), -EINVAL);
    assert_int_equal(chain(x, at(200, 0), &outside), -EINVAL);
    assert_int_equal(chain(x, (char *)at(200, 0) + 8, at(200, 1)), -EINVAL);
    assert_int_equal(chain(x, at(ABI_FIRST_BLOCK - 1, 31), at(ABI_FIRST_BLOCK, 0)), -EINVAL);
    assert_int_equal(chain(x, end, end), -EINVAL);
    assert_int_equal(chain(x, &outside, &outside), -EINVAL);
}

/* Whether the ring has room or not. */
static void test_refuses(void **state)
{
    struct fixture *x = *state;

    check_refused(x);
    assert_int_equal(x->shared->head, 0);
    fill_ring(x->l);
    check_refused(x);
    assert_int_equal(x->shared->head, ABI_RING_RECORDS);
    assert_int_equal(x->shared->chain_count, 0);
}

static void test_null(void **state)
{
    struct fixture *x = *state;

    assert_int_equal(chain(x, NULL, NULL), 0);
    assert_int_equal(chain(x, NULL, at(200, 0)), 0);
    assert_int_equal(x->shared->head, 0);
}

static void test_read_only(void **state)
{
    struct fixture *x = *state;

    assert_int_equal(chain(x, at(200, 0), at(200, 0)), -EROFS);
    assert_int_equal(chain(x, NULL, NULL), 0);
}

static void test_evicted(void **state)
{
    struct fixture *x = *state;

    store_release(&x->shared->evicted, 1u);
    assert_int_equal(chain(x, at(301, 0), at(301, 0)), -ESHUTDOWN);
    assert_int_equal(x->shared->head, 0);
    store_release(&x->shared->evicted, 0u);
    fill_ring(x->l);
    store_release(&x->shared->evicted, 1u);
    assert_int_equal(chain(x, at(301, 0), at(301, 0)), -ESHUTDOWN);
    assert_int_equal(x->shared->chain_count, 0);
}

static void test_child_of_a_fork(void **state)
{
    struct fixture *x = *state;
    int status;
    pid_t child;

    fill_ring(x->l);
    child = fork();
    if (child == 0)
        _exit(chain(x, at(201, 0), at(201, 0)) == -ESTALE && chain(x, NULL, NULL) == -ESTALE ? 0 : 1);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(x->shared->chain_count, 0);
}

/* ---- Never waits ---- */

/* Nobody serves: a call that waited would come back with an error, and would have said so in `waiting`. */
static void test_never_waits(void **state)
{
    struct fixture *x = *state;

    fill_ring(x->l);
    store_release(&x->shared->over_limit, 1u);
    assert_int_equal(reclaim_read_lock(x->l), 0);
    for (unsigned i = 0; i < 4000; i++)
        assert_int_equal(chain(x, at(ABI_FIRST_BLOCK + 1 + i, 0), at(ABI_FIRST_BLOCK + 1 + i, i % 32)), 0);
    reclaim_read_unlock(x->l);
    fake_stop(x->f);
    assert_int_equal(chain(x, at(201, 1), at(201, 2)), 0);
    assert_int_equal(x->shared->chain_count, 4001);
    assert_int_equal(x->shared->waiting, 0);
}

/* ---- Bells ---- */

static void check_bells(struct fixture *x)
{
    fill_ring(x->l);
    (void)fake_bells(x->f);
    x->f->domain->sleeps = ABI_ASLEEP;
    store_release(&x->shared->want, 9u);
    assert_int_equal(chain(x, at(501, 0), at(501, 0)), 0);
    assert_int_equal(x->shared->bell, 9);
    assert_int_equal(fake_bells(x->f), 1);
    assert_int_equal(chain(x, at(503, 0), at(503, 0)), 0);
    assert_int_equal(fake_bells(x->f), 0); /* once for each value of want */
    store_release(&x->shared->want, 10u);
    assert_int_equal(chain(x, at(505, 0), at(505, 0)), 0);
    assert_int_equal(fake_bells(x->f), 1);
    x->f->domain->sleeps = ABI_AWAKE;
    store_release(&x->shared->want, 11u);
    assert_int_equal(chain(x, at(507, 0), at(507, 0)), 0);
    assert_int_equal(x->shared->bell, 11);
    assert_int_equal(fake_bells(x->f), 0);
    assert_int_equal(x->shared->chain_count, 4);
}

static void test_bells(void **state)
{
    check_bells(*state);
}

static void test_bells_of_a_fenced_lane(void **state)
{
    check_bells(*state);
}

/* Its timer may be an hour away: each overflow is told, each object of an overflow is not. */
static void test_dozing_daemon_hears_of_overflow(void **state)
{
    struct fixture *x = *state;

    fill_ring(x->l);
    (void)fake_bells(x->f);
    x->f->domain->sleeps = ABI_DOZING;
    for (unsigned round = 0; round < 3; round++) {
        assert_int_equal(chain(x, at(501, round), at(501, round)), 0);
        assert_int_equal(fake_bells(x->f), 1);
        for (unsigned i = 0; i < 10; i++)
            assert_int_equal(chain(x, at(601 + 2 * i, round), at(601 + 2 * i, round)), 0);
        assert_int_equal(fake_bells(x->f), 0);
        store_release(&x->shared->tail, x->shared->tail + 1);
        assert_int_equal(chain(x, at(700 + round, 0), at(700 + round, 0)), 0); /* the ring again */
        assert_int_equal(fake_bells(x->f), 0);
    }
    assert_int_equal(x->shared->chain_count, 33);
}

static void test_dozing_daemon_hears_of_floods_and_extents(void **state)
{
    struct fixture *x = *state;

    fill_ring(x->l);
    x->f->domain->flood_objects = 8;
    x->f->domain->extent_block = 4000;
    x->f->domain->sleeps = ABI_DOZING;
    assert_int_equal(chain(x, at(501, 0), at(501, 0)), 0);
    (void)fake_bells(x->f);
    for (unsigned flood = 0; flood < 3; flood++) {
        for (unsigned i = 1; i < 8; i++)
            assert_int_equal(chain(x, at(501 + 2 * flood, i), at(501 + 2 * flood, i)), 0);
        assert_int_equal(fake_bells(x->f), 0);
        assert_int_equal(chain(x, at(501 + 2 * flood, 8), at(501 + 2 * flood, 8)), 0);
        assert_int_equal(fake_bells(x->f), 1);
    }
    assert_int_equal(chain(x, at(4000, 0), at(4000, 7)), 0);
    assert_int_equal(fake_bells(x->f), 1);
}

/* ---- Killed in the middle ---- */

/* In the child of a fork, with a lane of its own: chains three, or is killed. */
static void child_chains(struct fake *f)
{
    struct reclaim_lane *l;
    struct reclaim *r = fake_open(f, &l);

    for (uint32_t i = 0; i < ABI_RING_RECORDS; i++)
        if (reclaim_defer_free(l, at(ABI_FIRST_BLOCK + i % 1024 * 2, 0)) != 0)
            _exit(1);
    testpoint_reload();
    for (unsigned i = 0; i < 3; i++)
        if (reclaim_defer_free_head(l, at(501 + i * 2, 0), at(501 + i * 2, i)) != 0)
            _exit(2);
    reclaim_close(r);
    _exit(3);
}

/* The daemon finds whole links only: of the object that was under way, or of the one before. */
static void check_killed(struct fixture *x, const char *point, uint32_t expected_count,
                         uint64_t expected_head)
{
    struct abi_lane *lane = fake_lane(x->f, 1);
    struct fixture seen = {.f = x->f, .shared = lane};
    const uint64_t links[] = {link_to(501, 0, 0), link_to(503, 0, 1)};
    pid_t child;
    int status;

    assert_int_equal(setenv("RECLAIM_TEST_POINT", point, 1), 0);
    child = fork();
    if (child == 0)
        child_chains(x->f);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(unsetenv("RECLAIM_TEST_POINT"), 0);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    pthread_mutex_lock(&x->f->lock); /* the fake clears lanes under it */
    assert_int_equal(lane->chain_count, expected_count);
    assert_int_equal(lane->chain_head, expected_head);
    lane->chain_count = expected_head == links[1] ? 2 : 1;
    assert_chain(&seen, links, lane->chain_count);
    pthread_mutex_unlock(&x->f->lock);
}

static void test_killed(void **state)
{
    struct fixture *x = *state;

    check_killed(x, "chain-link:kill@2", 1, link_to(501, 0, 0));
    check_killed(x, "chain-head:kill@2", 1, link_to(503, 0, 1));
    check_killed(x, "chain-count:kill@2", 2, link_to(503, 0, 1));
}

#define with(test, how) cmocka_unit_test_setup_teardown(test, how, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        with(test_ring_with_room, setup),
        with(test_full_ring, setup),
        with(test_ring_and_chain_take_turns, setup),
        with(test_refuses, setup),
        with(test_null, setup),
        with(test_read_only, setup_read_only),
        with(test_evicted, setup),
        with(test_child_of_a_fork, setup),
        with(test_never_waits, setup),
        with(test_bells, setup),
        with(test_bells_of_a_fenced_lane, setup_fenced),
        with(test_dozing_daemon_hears_of_overflow, setup),
        with(test_dozing_daemon_hears_of_floods_and_extents, setup),
        with(test_killed, setup),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
