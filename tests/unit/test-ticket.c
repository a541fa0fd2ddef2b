/* SPDX-License-Identifier: MIT */
/* Tickets of one lane: which are taken, whose end is told, what comes after those that were given up. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "arena.h"
#include "basic/macro.h"
#include "basic/ordering.h"
#include "grace-internal.h"
#include "manager-internal.h"
#include "ticket.h"

enum { REFS = 100 };

/* The test is the client, the grace-period thread and whoever completes. Nothing else runs. */
struct fixture {
    struct grace grace;
    struct manager manager;
    struct arena arena;
    struct arena_snapshot snapshot;
    struct client client;
    struct client_lane cl;
    struct abi_lane *shared;
    uint32_t sequence;
};

static int setup(void **state)
{
    struct fixture *x = calloc(1, sizeof(*x));

    assert_non_null(x);
    x->shared = aligned_alloc(ABI_PAGE_BYTES, sizeof(*x->shared));
    assert_non_null(x->shared);
    memset(x->shared, 0, sizeof(*x->shared));
    x->grace.thread = pthread_self();
    x->grace.wake_fd = -1;
    pthread_mutex_init(&x->grace.list_lock, NULL);
    __cds_wfcq_init(&x->grace.looks_head, &x->grace.looks_tail);
    x->manager.grace = &x->grace;
    gp_init(&x->arena.gp, 0, 0);
    x->arena.snapshot = &x->snapshot;
    x->client.arena = &x->arena;
    x->client.manager = &x->manager;
    x->client.refs = x->arena.refs = REFS;
    x->cl.client = &x->client;
    x->cl.lane.shared = x->shared;
    tickets_init(&x->cl);
    *state = x;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *x = *state;

    tickets_deinit(&x->cl);
    gp_deinit(&x->arena.gp);
    free(x->shared);
    free(x);
    return 0;
}

/* What the client does, and the grace-period thread at its bell. */
static void ask(struct fixture *x, enum abi_ticket_kind kind, uint64_t cookie)
{
    x->shared->ticket_cookie = cookie;
    store_release(&x->shared->ticket, (uint64_t)++x->sequence << 32 | kind); /* pairs with ticket_look() */
    ticket_look(&x->grace, &x->arena, &x->cl);
}

static unsigned n_in_flight(const struct fixture *x)
{
    unsigned n = 0;

    for (unsigned i = 0; i < TICKETS_A_LANE; i++)
        n += x->cl.tickets.all[i].state == TICKET_SERVING;
    return n;
}

static struct ticket *find(struct fixture *x, uint32_t sequence)
{
    for (unsigned i = 0; i < TICKETS_A_LANE; i++)
        if (x->cl.tickets.all[i].state == TICKET_SERVING && x->cl.tickets.all[i].sequence == sequence)
            return &x->cl.tickets.all[i];
    fail_msg("ticket %u is not in flight", (unsigned)sequence);
    return NULL;
}

static void end(struct fixture *x, uint32_t sequence, int error)
{
    struct ticket *t = find(x, sequence);

    ticket_complete(t, error);
    assert_int_equal(t->state, TICKET_IDLE);
}

static void assert_told(const struct fixture *x, uint32_t sequence, int error)
{
    assert_int_equal(x->shared->ticket_done, sequence);
    assert_int_equal(x->shared->ticket_error, error);
}

static void test_one_after_the_other(void **state)
{
    struct fixture *x = *state;

    ask(x, ABI_TICKET_GP_WAIT, 1);
    assert_int_equal(n_in_flight(x), 1);
    assert_false(tickets_are_idle(&x->cl));
    assert_int_equal(x->client.refs, REFS + 1);
    assert_told(x, 0, 0);
    ticket_look(&x->grace, &x->arena, &x->cl); /* a bell for something else */
    assert_int_equal(n_in_flight(x), 1);
    end(x, 1, -ESHUTDOWN);
    assert_told(x, 1, -ESHUTDOWN);
    assert_true(tickets_are_idle(&x->cl));
    assert_int_equal(x->client.refs, REFS);
    ask(x, ABI_TICKET_KIND_MAX, 0); /* refused at once */
    assert_told(x, 2, -EINVAL);
    ask(x, ABI_TICKET_GP_WAIT, 0); /* over at once */
    assert_told(x, 3, 0);
    assert_int_equal(x->client.refs, REFS);
    assert_int_equal(x->client.look_queued, 0);
}

/* The first one was given up: whatever its end, and whenever it comes, the second one's is what is told. */
static void test_newer_ends_first(void **state)
{
    struct fixture *x = *state;

    ask(x, ABI_TICKET_GP_WAIT, 1);
    ask(x, ABI_TICKET_GP_WAIT, 1);
    assert_int_equal(n_in_flight(x), 2);
    end(x, 2, 0);
    assert_told(x, 2, 0);
    end(x, 1, -ESHUTDOWN);
    assert_told(x, 2, 0);
    assert_true(tickets_are_idle(&x->cl));
    assert_int_equal(x->client.refs, REFS);
}

static void test_older_ends_first(void **state)
{
    struct fixture *x = *state;

    ask(x, ABI_TICKET_GP_WAIT, 1);
    ask(x, ABI_TICKET_GP_WAIT, 1);
    end(x, 1, -ESHUTDOWN);
    assert_told(x, 0, 0);
    end(x, 2, 0);
    assert_told(x, 2, 0);
}

/* Beyond the limit the newest waits until one is over; what was given up in between is never served. */
static void test_too_many_given_up(void **state)
{
    struct fixture *x = *state;

    for (unsigned i = 0; i < TICKETS_A_LANE + 3; i++)
        ask(x, ABI_TICKET_GP_WAIT, 1);
    assert_int_equal(n_in_flight(x), TICKETS_A_LANE);
    assert_int_equal(x->client.refs, REFS + TICKETS_A_LANE);
    end(x, 2, 0);
    assert_told(x, 0, 0);
    assert_int_equal(x->client.look_queued, 1); /* it asks for a look by itself */
    ticket_look(&x->grace, &x->arena, &x->cl);
    assert_int_equal(n_in_flight(x), TICKETS_A_LANE);
    end(x, TICKETS_A_LANE + 3, -ESHUTDOWN);
    assert_told(x, TICKETS_A_LANE + 3, -ESHUTDOWN);
    for (unsigned i = 1; i <= TICKETS_A_LANE; i++)
        if (i != 2)
            end(x, i, 0);
    assert_told(x, TICKETS_A_LANE + 3, -ESHUTDOWN);
    assert_true(tickets_are_idle(&x->cl));
    assert_int_equal(x->client.refs, REFS + 1); /* the look's */
}

/* A client that asks for nonsense for ever has the thread look no oftener than it rings. */
static void test_no_look_without_need(void **state)
{
    struct fixture *x = *state;

    ask(x, ABI_TICKET_GP_WAIT, 1);
    store_relaxed(&x->shared->ticket,
                  77ull << 32 | ABI_TICKET_BARRIER); /* asked, and its bell is on its way */
    end(x, 1, 0);
    assert_int_equal(x->client.look_queued, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(one_after_the_other), TEST(newer_ends_first),     TEST(older_ends_first),
        TEST(too_many_given_up),   TEST(no_look_without_need),
    };

    int n_failed;

    urcu_memb_register_thread();
    n_failed = cmocka_run_group_tests_name("ticket", tests, NULL, NULL);
    urcu_memb_unregister_thread();
    return n_failed;
}
