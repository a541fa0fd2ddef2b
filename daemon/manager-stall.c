/* SPDX-License-Identifier: MIT */
/*
 * What control shows of stalls: the marks that the grace-period thread leaves at clients and lanes
 * (grace-stall.c). They are words of their own, loaded relaxed: a stall that ends meanwhile is shown once
 * more, which nobody can tell from having asked earlier.
 */
#include "basic/macro.h"
#include "basic/ordering.h"
#include "clock.h"
#include "manager-internal.h"

/* False: its reader does not stall. */
static bool lane_stall(const struct client *c, const struct client_lane *cl, struct control_stall *ret)
{
    uint64_t gp = cl ? load_relaxed(&cl->stall_gp) : 0, now = now_usec(), since;
    struct arena_figures f;

    if (gp == 0)
        return false;
    arena_published(c->arena, &f);
    since = load_relaxed(&cl->stall_since_usec);
    *ret = (struct control_stall){
        .client = c->id,
        .pid = c->pid,
        .tid = (pid_t)load_relaxed(&cl->stall_tid),
        .uid = c->uid,
        .comm = c->comm,
        .arena = c->arena->name,
        .gp = gp,
        .usec = now - MIN(now, since),
        .n_objects = f.pending_objects,
        .bytes = f.pending_bytes,
        .n_waiters = sync_load_waiters(load_relaxed(&c->arena->gp.load)),
    };
    return true;
}

static int client_visit_stalls(const struct client *c, control_stall_fn visit, void *data)
{
    uint32_t marks =
        load_relaxed(&c->n_stalled) > 0 ? load_acquire(&c->n_marked) : 0; /* pairs with arena_give_lane() */
    struct control_stall stall;
    int r = 0;

    for (uint32_t i = 0; i < marks && r == 0; i++)
        if (lane_stall(c, client_lane_at(c, i), &stall))
            r = visit(data, &stall);
    return r;
}

static int keep_longest(void *data, const struct control_stall *stall)
{
    struct control_stall *longest = data;

    if (longest->client == 0 || stall->usec > longest->usec)
        *longest = *stall;
    return 0;
}

void manager_client_stall(const struct client *c, struct control_client_info *info)
{
    info->stalled_readers = load_relaxed(&c->n_stalled);
    (void)client_visit_stalls(c, keep_longest, &info->stall);
}

struct visit_stalls {
    control_stall_fn visit;
    void *data;
};

static int visit_client(void *data, struct client *c)
{
    const struct visit_stalls *v = data;

    return client_visit_stalls(c, v->visit, v->data);
}

int manager_visit_stalls(void *userdata, control_stall_fn visit, void *data)
{
    struct manager *m = userdata;
    int r = connections_visit(m->connections, visit_client, &(struct visit_stalls){visit, data});

    return MIN(r, 0); /* a visitor that has enough is no failure */
}
