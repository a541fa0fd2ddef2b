/* SPDX-License-Identifier: MIT */
/*
 * How a client goes. Its pidfd is readable once the process has ended, a zombie too; its socket closes at
 * exec, where the pidfd stays silent but the mapping is gone, so then its lanes decide: the client is gone
 * when none has a live owner.
 */
#include <errno.h>
#include <event2/event.h>
#include <sys/socket.h>

#include "basic/macro.h"
#include "basic/ordering.h"
#include "connection-internal.h"
#include "log.h"
#include "manager.h"

static const struct timeval hangup_again = {.tv_usec = 100000};

static void connection_gone_post(struct main_post *post)
{
    struct connection *c = container_of(post, struct connection, gone_post);
    struct client *client = c->client;
    struct arena *a = client->arena;

    c->gone = true;
    grace_unwatch(manager_grace(c->owner->manager), client);
    log_debug("arena %s: client %llu is gone", a->name, (unsigned long long)client->id);
    arena_ref(a);
    if (!c->busy)
        connection_unlink_and_free(c);
    if (a->transient && load_relaxed(&a->n_clients) == 0 && !a->removing)
        manager_arena_remove(a->manager, a);
    arena_unref(a);
}

/* Worker: nothing of it is left in the arena. */
static void client_gone(struct arena *a, struct connection *c)
{
    struct client *client = c->client;

    if (client->gone)
        return;
    client->gone = 1;
    client->on_free = NULL;
    arena_remove_client(a, client);
    account_close(&client->account);
    mainqueue_post(manager_mainqueue(a->manager), &c->gone_post, connection_gone_post);
}

/* Worker: its last lane is free. */
static void client_lanes_free(struct arena *a, struct client *client)
{
    client_gone(a, client->connection);
}

static void leave_job(struct job *job, struct arena *a)
{
    struct connection *c = container_of(job, struct connection, leave_job);
    struct client *client = c->client;

    client->on_free = client_lanes_free;
    /* free ones too: it gets none any more, and what it may still write to their slots shall hold up nobody */
    for (uint32_t i = 0; i < client->n_marked; i++)
        if (client_lane_at(client, i))
            arena_lose_lane(a, client_lane_at(client, i));
    if (client->n_live == 0)
        client_gone(a, c);
}

void connection_leave(struct connection *c)
{
    if (c->leaving)
        return;
    c->leaving = true;
    connection_uncount(c);
    if (c->hangup_timer)
        (void)event_del(c->hangup_timer);
    arena_post(c->client->arena, &c->leave_job, leave_job);
}

static void client_died(struct connection *c)
{
    if (load_relaxed(&c->client->dead))
        return;
    log_debug("arena %s: client %llu (pid %d) has ended", c->client->arena->name,
              (unsigned long long)c->client->id, (int)c->client->pid);
    /* its process ran nothing after this, also when it was leaving already; pairs with grace_check(), grace_scan() */
    store_release(&c->client->dead, 1);
    c->closed = true;
    if (c->event)
        (void)event_del(c->event);
    connection_leave(c);
}

static void death_event(evutil_socket_t fd, short what, void *userdata)
{
    (void)fd;
    (void)what;
    client_died(userdata);
}

void connections_sweep_dead(struct connections *cs)
{
    for (struct connection *c = cs->first; c; c = c->next)
        if (c->client && client_process_is_dead(c->client))
            client_died(c);
}

/* ---- After a hang-up ---- */

static void check_post_run(struct main_post *post)
{
    struct connection *c = container_of(post, struct connection, check_post);

    c->checking = false;
    if (c->leaving)
        return;
    if (load_relaxed(&c->client->n_owned) == 0)
        connection_leave(c);
    else
        (void)event_add(c->hangup_timer, &hangup_again);
}

/* Worker: how many lanes have an owner that lives? A thread that changed its number by exec does not show in
 * the word. */
static void check_job_run(struct job *job, struct arena *a)
{
    struct connection *c = container_of(job, struct connection, check_job);
    struct client *client = c->client;
    uint32_t n = 0;

    for (uint32_t i = 0; i < client->n_marked; i++) {
        struct client_lane *cl = client_lane_at(client, i);

        if (!cl || cl->life != LANE_LIVE)
            continue;
        /* acquire, as in lane_is_dead(); pairs with lane_claim() */
        if (lane_is_dead(&cl->lane) || load_acquire(&cl->lane.shared->phase) != cl->lane.shared->generation ||
            !client_has_thread(client, load_relaxed(&cl->lane.shared->owner[0]) & ABI_OWNER_TID))
            arena_lose_lane(a, cl);
        else
            n++;
    }
    store_relaxed(&client->n_owned, n); /* the post carries it */
    mainqueue_post(manager_mainqueue(a->manager), &c->check_post, check_post_run);
}

static void hangup_check(struct connection *c)
{
    if (c->checking || c->leaving)
        return;
    c->checking = true;
    arena_post(c->client->arena, &c->check_job, check_job_run);
}

static void hangup_timer(evutil_socket_t fd, short what, void *userdata)
{
    (void)fd;
    (void)what;
    hangup_check(userdata);
}

void connection_hung_up(struct connection *c)
{
    c->closed = true;
    if (c->event)
        (void)event_del(c->event);
    (void)shutdown(c->fd, SHUT_RDWR); /* whoever is still there hears of it */
    if (!c->client) {
        if (!c->busy)
            connection_unlink_and_free(c);
        return;
    }
    hangup_check(c);
}

void connection_attached(struct connection *c)
{
    struct event_base *base = manager_event_base(c->owner->manager);

    c->client->connection = c;
    c->counted = true;
    c->owner->n_clients++;
    c->death_event = event_new(base, c->client->pidfd, EV_READ, death_event, c);
    c->hangup_timer = evtimer_new(base, hangup_timer, c);
    if (!c->death_event || !c->hangup_timer || event_add(c->death_event, NULL) < 0) {
        log_error("cannot watch the process of client %llu", (unsigned long long)c->client->id);
        connection_hung_up(c);
    }
}
