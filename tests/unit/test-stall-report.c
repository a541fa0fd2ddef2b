/* SPDX-License-Identifier: MIT */
/* Reports of stalls to a client with many readers: each has its record, and the client is woken once for all. */
#include <linux/futex.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

#include <cmocka.h>

#include "basic/macro.h"
#include "grace-internal.h"

enum {
    N_CLIENTS = 3,
    N_LANES = 40, /* of each */
};

#define TIMEOUT_USEC 1000u

/* ---- Wakes, counted instead of made ---- */

static const void *woken[1000];
static unsigned n_woken;

long __wrap_syscall(long number, uint32_t *word, int operation);

long __wrap_syscall(long number, uint32_t *word, int operation)
{
    assert_int_equal(number, SYS_futex);
    assert_int_equal(operation, FUTEX_WAKE);
    assert_true(n_woken < ARRAY_SIZE(woken));
    woken[n_woken++] = word;
    return 0;
}

/* ---- An arena with readers ---- */

struct channel {
    struct abi_channel head;
    struct abi_slot slots[N_LANES];
    struct abi_lane lanes[N_LANES];
};

struct world {
    struct arena *arena;
    struct arena_parameters p;
    struct client clients[N_CLIENTS];
    struct client *list[N_CLIENTS];
    struct channel channels[N_CLIENTS];
    struct client_lane lanes[N_CLIENTS][N_LANES];
    struct client_lane *lane_lists[N_CLIENTS][N_LANES];
};

static void client_init(struct world *w, unsigned i)
{
    struct client *c = w->list[i] = &w->clients[i];
    struct channel *channel = &w->channels[i];

    c->refs = 1;
    c->id = i + 1;
    c->arena = w->arena;
    c->pidfd = -1;
    c->channel = &channel->head;
    c->slot_offset = offsetof(struct channel, slots);
    c->lane_offset = offsetof(struct channel, lanes);
    c->n_lanes = c->n_marked = N_LANES;
    c->lanes = w->lane_lists[i];
    for (unsigned k = 0; k < N_LANES; k++) {
        w->lane_lists[i][k] = &w->lanes[i][k];
        w->lanes[i][k].client = c;
        w->lanes[i][k].lane.shared = &channel->lanes[k];
        channel->lanes[k].owner[0] = 1 + k; /* its thread lives */
    }
}

static int world_make(void **state)
{
    struct world *w = aligned_alloc(ABI_CACHE_LINE, ALIGN_UP(sizeof(*w), ABI_CACHE_LINE));
    struct arena *a = aligned_alloc(ABI_CACHE_LINE, ALIGN_UP(sizeof(*a), ABI_CACHE_LINE));

    memset(w, 0, sizeof(*w));
    memset(a, 0, sizeof(*a));
    w->arena = a;
    w->p = (struct arena_parameters){.stall_timeout_usec = TIMEOUT_USEC};
    strcpy(a->name, "a");
    (void)pthread_mutex_init(&a->clients_lock, NULL);
    (void)pthread_mutex_init(&a->published_lock, NULL);
    gp_init(&a->gp, 5, 4);
    a->clients = w->list;
    a->n_clients = N_CLIENTS;
    for (unsigned i = 0; i < N_CLIENTS; i++)
        client_init(w, i);
    n_woken = 0;
    *state = w;
    return 0;
}

static int world_free(void **state)
{
    struct world *w = *state;

    grace_drop_stragglers(&w->arena->gp);
    free(w->arena->gp.stragglers);
    w->arena->gp.stragglers = NULL;
    gp_deinit(&w->arena->gp);
    free(w->arena);
    free(w);
    return 0;
}

/* From the lane on, in every client: a section that began before the grace period, or none. */
static void sections_set(struct world *w, unsigned first, bool inside)
{
    for (unsigned i = 0; i < N_CLIENTS; i++)
        for (unsigned k = first; k < N_LANES; k++)
            w->channels[i].slots[k].word = inside ? UINT64_C(4) << 16 : 0;
}

static void stalls_begin(struct world *w)
{
    sections_set(w, 0, true);
    grace_scan(w->arena, 5);
    assert_int_equal(w->arena->gp.n_stragglers, N_CLIENTS * N_LANES);
    grace_stall(w->arena, &w->p, TIMEOUT_USEC);
}

/* One for each client, and each lane from the first on was told so. */
static void assert_told(const struct world *w, unsigned first, bool ended)
{
    assert_int_equal(n_woken, N_CLIENTS);
    for (unsigned i = 0; i < N_CLIENTS; i++) {
        bool found = false;

        for (unsigned k = 0; k < n_woken; k++)
            found |= woken[k] == &w->channels[i].head.stalls;
        assert_true(found);
        for (unsigned k = first; k < N_LANES; k++) {
            const struct abi_stall *s = &w->channels[i].lanes[k].stall;

            assert_true(s->sequence != 0 && s->sequence % 2 == 0);
            assert_int_equal(s->gp, 5);
            assert_int_equal(s->ended, ended);
        }
    }
    n_woken = 0;
}

static void test_one_wake_a_report(void **state)
{
    struct world *w = *state;

    stalls_begin(w);
    assert_told(w, 0, false);
    assert_int_equal(w->arena->gp.n_stalls, N_CLIENTS * N_LANES);
    grace_stall(w->arena, &w->p, TIMEOUT_USEC + 1); /* nothing new to tell */
    assert_int_equal(n_woken, 0);
}

/* Half of them leave, then the rest; who stays is waited for in the same order. */
static void test_one_wake_for_ends(void **state)
{
    struct world *w = *state;
    struct gp *gp = &w->arena->gp;

    gp->threads_usec = UINT64_MAX; /* there are no such processes */
    stalls_begin(w);
    n_woken = 0;
    sections_set(w, N_LANES / 2, false);
    assert_false(grace_check(NULL, w->arena, 5));
    assert_told(w, N_LANES / 2, true);
    assert_int_equal(gp->n_stragglers, N_CLIENTS * N_LANES / 2);
    for (unsigned i = 0; i < gp->n_stragglers; i++) {
        assert_ptr_equal(gp->stragglers[i].client, w->list[i / (N_LANES / 2)]);
        assert_int_equal(gp->stragglers[i].lane, i % (N_LANES / 2));
    }
    sections_set(w, 0, false);
    assert_true(grace_check(NULL, w->arena, 5));
    assert_told(w, 0, true);
    assert_int_equal(gp->n_stalled, 0);
    for (unsigned i = 0; i < N_CLIENTS; i++)
        assert_int_equal(w->clients[i].refs, 1);
}

/* They ended when nobody was on the list any more: the same. */
static void test_one_wake_for_forgotten(void **state)
{
    struct world *w = *state;

    stalls_begin(w);
    n_woken = 0;
    grace_drop_stragglers(&w->arena->gp);
    grace_stall_over(w->arena, TIMEOUT_USEC + 1);
    assert_told(w, 0, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_one_wake_a_report, world_make, world_free),
        cmocka_unit_test_setup_teardown(test_one_wake_for_ends, world_make, world_free),
        cmocka_unit_test_setup_teardown(test_one_wake_for_forgotten, world_make, world_free),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
