/* SPDX-License-Identifier: MIT */
/*
 * The clients' eventfds. They are watched edge-triggered and never read, so no client can make us block on
 * one (it could clear O_NONBLOCK); each write of it is one event. Who rings more often than any honest client
 * is muted for a moment.
 */
#include <errno.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include "basic/macro.h"
#include "basic/ordering.h"
#include "clock.h"
#include "grace-internal.h"
#include "ticket.h"

#define BELL_WINDOW_USEC 100000u
#define BELLS_PER_WINDOW_MAX                                                                                 \
    10000u /* a hundred thousand a second: more than honest lanes do when all of them wait */
#define MUTE_USEC 10000u

static int watch_match(struct cds_lfht_node *node, const void *key)
{
    return container_of(node, struct client, watch_node)->id == *(const uint64_t *)key;
}

/* Ids are small numbers in a row: spread them. */
static unsigned long watch_hash(uint64_t id)
{
    return (unsigned long)(id * 0x9e3779b97f4a7c15ull >> 16);
}

static int watch_fd(struct grace *g, struct client *c)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.u64 = c->id};

    return epoll_ctl(g->epoll_fd, EPOLL_CTL_ADD, c->event_fd, &event) < 0 ? -errno : 0;
}

int grace_watch(struct grace *g, struct client *c)
{
    int r;

    (void)pthread_mutex_lock(&g->watch_lock);
    r = watch_fd(g, c);
    if (r == 0)
        c->watched = 1;
    (void)pthread_mutex_unlock(&g->watch_lock);
    if (r < 0)
        return r;
    client_ref(c);
    urcu_memb_read_lock();
    cds_lfht_node_init(&c->watch_node);
    cds_lfht_add(g->watched, watch_hash(c->id), &c->watch_node);
    urcu_memb_read_unlock();
    return 0;
}

void grace_unwatch(struct grace *g, struct client *c)
{
    bool was;

    (void)pthread_mutex_lock(&g->watch_lock);
    was = c->watched;
    c->watched = 0;
    if (was)
        (void)epoll_ctl(g->epoll_fd, EPOLL_CTL_DEL, c->event_fd, NULL);
    (void)pthread_mutex_unlock(&g->watch_lock);
    if (!was)
        return;
    urcu_memb_read_lock();
    (void)cds_lfht_del(g->watched, &c->watch_node);
    urcu_memb_read_unlock();
    client_unref(c);
}

static void client_mute(struct grace *g, struct client *c, uint64_t now)
{
    (void)pthread_mutex_lock(&g->watch_lock);
    if (c->watched)
        (void)epoll_ctl(g->epoll_fd, EPOLL_CTL_DEL, c->event_fd, NULL);
    (void)pthread_mutex_unlock(&g->watch_lock);
    store_relaxed(&c->muted, 1); /* for display */
    c->muted_until_usec = now + MUTE_USEC;
    store_relaxed(&c->arena->gp.n_mutes, c->arena->gp.n_mutes + 1); /* a figure */
    client_ref(c);
    c->next_muted = g->muted;
    g->muted = c;
}

static int watch_again(struct grace *g, struct client *c)
{
    int r;

    (void)pthread_mutex_lock(&g->watch_lock);
    r = c->watched ? watch_fd(g, c) : 0;
    (void)pthread_mutex_unlock(&g->watch_lock);
    return r;
}

/* The lanes of the muted are looked at when they are heard again, so what they did meanwhile is not lost. */
uint64_t grace_unmute(struct grace *g, uint64_t now)
{
    struct client **p = &g->muted;
    uint64_t nearest = RUN_NEVER;

    while (*p) {
        struct client *c = *p;

        if (c->muted_until_usec > now) {
            nearest = MIN(nearest, c->muted_until_usec);
            p = &c->next_muted;
            continue;
        }
        if (watch_again(g, c) < 0) { /* no memory: later */
            c->muted_until_usec = now + MUTE_USEC;
            nearest = MIN(nearest, c->muted_until_usec);
            p = &c->next_muted;
            continue;
        }
        *p = c->next_muted;
        store_relaxed(&c->muted, 0);
        arena_ring(c->arena, c);
        client_unref(c);
    }
    return nearest;
}

static void client_look_at_tickets(struct grace *g, struct client *c)
{
    uint32_t marks = load_acquire(&c->n_marked); /* pairs with arena_give_lane() */

    for (uint32_t lane = 0; lane < marks; lane++) {
        struct client_lane *cl = client_lane_at(c, lane);

        if (cl)
            ticket_look(g, c->arena, cl);
    }
}

/*
 * Did it ring for its arena's worker? A ticket alone wakes nobody but us: a worker that woke too would take the
 * processor from whom we wake. A hostile count is a number that moved or not: it speaks for its own lane only.
 *
 * We may see a count before its bell, when another lane rings, and then ignore that bell. That is sound: the pass
 * which we ask for here begins after the count was seen, so it sees all that was stored before, and whatever it does
 * not take ends in another pass or in the membarrier and second look of arena_sleep(), as for any bell (B1 in
 * lib/wait.c). A count that is not seen yet has its own bell still to come.
 */
static bool client_wants_worker(const struct client *c)
{
    uint32_t marks = load_acquire(&c->n_marked); /* pairs with arena_give_lane() */
    bool wants = false;

    for (uint32_t lane = 0; lane < marks; lane++) {
        struct client_lane *cl = client_lane_at(c, lane);
        uint32_t rings;

        if (!cl)
            continue;
        /* Acquire: what the lane rings for, for the pass that we ask for; pairs with lane_ring_worker(). */
        rings = load_acquire(&cl->lane.shared->rings);
        wants |= rings != cl->rings_seen;
        cl->rings_seen = rings;
    }
    return wants;
}

static bool client_rings_too_often(struct client *c, uint64_t now)
{
    if (now - c->bell_window_usec > BELL_WINDOW_USEC) {
        c->bell_window_usec = now;
        c->n_bells = 0;
    }
    return ++c->n_bells > BELLS_PER_WINDOW_MAX;
}

void grace_handle_bell(struct grace *g, uint64_t client_id, uint64_t now)
{
    struct cds_lfht_iter iter;
    struct cds_lfht_node *node;
    struct client *c;

    urcu_memb_read_lock();
    cds_lfht_lookup(g->watched, watch_hash(client_id), watch_match, &client_id, &iter);
    node = cds_lfht_iter_get_node(&iter);
    if (node &&
        client_ref_if_any(container_of(node, struct client, watch_node))) { /* else it went meanwhile */
        c = container_of(node, struct client, watch_node);
        client_look_at_tickets(g, c);
        if (client_wants_worker(c))
            arena_ring(c->arena, c);
        if (client_rings_too_often(c, now))
            client_mute(g, c, now);
        client_unref(c);
    }
    urcu_memb_read_unlock();
}

void grace_look_at(struct grace *g, struct client *c)
{
    if (exchange_acq_rel(&c->look_queued,
                         1)) /* whoever queued it: it is looked at after that; pairs with the store below */
        return;
    client_ref(c);
    cds_wfcq_node_init(&c->look_node);
    (void)cds_wfcq_enqueue(&g->looks_head, &g->looks_tail, &c->look_node);
    (void)eventfd_write(g->wake_fd, 1);
}

void grace_handle_looks(struct grace *g)
{
    struct cds_wfcq_node *node;

    while ((node = __cds_wfcq_dequeue_blocking(&g->looks_head, &g->looks_tail))) {
        struct client *c = container_of(node, struct client, look_node);

        (void)exchange_acq_rel(&c->look_queued, 0); /* before looking; pairs with grace_look_at() */
        client_look_at_tickets(g, c);
        client_unref(c);
    }
}
