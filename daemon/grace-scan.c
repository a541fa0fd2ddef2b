/* SPDX-License-Identifier: MIT */
/* Which readers a grace period waits for. See grace.h. */
#include <errno.h>
#include <stdlib.h>

#include "basic/macro.h"
#include "basic/ordering.h"
#include "clock.h"
#include "grace-internal.h"
#include "stall-report.h"

#define SUSPECT_USEC 100000u

/* Is the slot in a section that began before number k? */
static bool slot_delays(const struct client *c, uint32_t lane, uint64_t k)
{
    /* Acquire: what the reader did in the section is done before the slot says so; pairs with
       reclaim_read_unlock() and reclaim_read_lock(). */
    uint64_t v = load_acquire(&client_slot(c, lane)->word);

    return v != 0 && v >> 16 < k;
}

static bool straggler_add(struct gp *gp, struct client *c, uint32_t lane)
{
    if (gp->n_stragglers == gp->n_room) {
        uint32_t room = gp->n_room ? gp->n_room * 2 : 16;
        struct straggler *bigger = realloc(gp->stragglers, room * sizeof(*bigger));

        if (!bigger)
            return false;
        gp->stragglers = bigger;
        gp->n_room = room;
    }
    client_ref(c);
    gp->stragglers[gp->n_stragglers++] = (struct straggler){c, lane};
    return true;
}

static void client_scan(struct gp *gp, struct client *c, uint64_t k)
{
    /* Acquire, and after the membarrier: a lane is marked before its attach is answered; pairs with
     * arena_give_lane(). */
    uint32_t marks = load_acquire(&c->n_marked);

    if (load_acquire(&c->dead)) /* nobody runs in it; pairs with client_died() */
        return;
    for (uint32_t lane = 0; lane < marks; lane++)
        if (slot_delays(c, lane, k) && !straggler_add(gp, c, lane))
            gp->rescan = true;
}

void grace_drop_stragglers(struct gp *gp)
{
    while (gp->n_stragglers > 0)
        client_unref(gp->stragglers[--gp->n_stragglers].client);
}

void grace_scan(struct arena *a, uint64_t k)
{
    struct gp *gp = &a->gp;

    grace_drop_stragglers(gp);
    gp->rescan = false;
    (void)pthread_mutex_lock(&a->clients_lock);
    for (uint32_t i = 0; i < a->n_clients; i++)
        client_scan(gp, a->clients[i], k);
    (void)pthread_mutex_unlock(&a->clients_lock);
}

/* The thread is gone although its slot is not zero. */
static bool straggler_is_gone(struct arena *a, const struct straggler *s, bool ask_kernel)
{
    struct client_lane *cl = client_lane_at(s->client, s->lane);

    if (load_acquire(&s->client->dead)) /* pairs with client_died() */
        return true;
    if (!cl)
        return false;
    if (load_acquire(
            &cl->lost)) /* whatever the words in its lane say; pairs with leave_job(), lane_check_suspect() */
        return true;
    if (lane_is_dead(&cl->lane)) {
        arena_kick_lanes(a);
        return true;
    }
    /* asked of the kernel now and then: the main thread may have yet to say so */
    return ask_kernel && client_process_is_dead(s->client);
}

/*
 * Every tenth of a second one of those who are waited for is looked at more closely, by its arena's worker: a thread that
 * changed its number by exec is gone without its owner word saying so. One at a time, as it costs a look at every thread
 * of its process.
 */
static void grace_suspect(struct arena *a, uint64_t now)
{
    struct gp *gp = &a->gp;
    struct straggler s = gp->stragglers[now / SUSPECT_USEC % gp->n_stragglers];
    struct client_lane *cl = client_lane_at(s.client, s.lane);

    if (!cl)
        return;
    store_release(&cl->suspect, 1); /* pairs with lane_check_suspect() */
    arena_kick_lanes(a);
}

/* Drops those who are waited for no more: first they go to the end, so that a client is told of all of its at once. */
static void grace_sift(struct arena *a, uint64_t k, uint64_t now, bool ask_kernel)
{
    struct gp *gp = &a->gp;
    uint32_t left = 0;

    for (uint32_t i = 0; i < gp->n_stragglers; i++) {
        struct straggler s = gp->stragglers[i];

        if (slot_delays(s.client, s.lane, k) && !straggler_is_gone(a, &s, ask_kernel)) {
            gp->stragglers[i] = gp->stragglers[left];
            gp->stragglers[left++] = s;
            continue;
        }
        grace_stall_end(a, &s, now);
    }
    while (gp->n_stragglers > left) {
        struct client *c = gp->stragglers[--gp->n_stragglers].client;

        stall_report_wake(c);
        client_unref(c);
    }
}

bool grace_check(struct grace *g, struct arena *a, uint64_t k)
{
    struct gp *gp = &a->gp;
    uint64_t now = now_usec();
    bool ask_kernel = now >= gp->threads_usec;

    (void)g;
    if (ask_kernel)
        gp->threads_usec = now + SUSPECT_USEC;
    grace_sift(a, k, now, ask_kernel);
    if (gp->rescan)
        grace_scan(a, k);
    if (gp->n_stragglers > 0 && ask_kernel)
        grace_suspect(a, now);
    return gp->n_stragglers == 0 && !gp->rescan;
}
