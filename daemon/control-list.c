/* SPDX-License-Identifier: MIT */
/*
 * GetStatus, ListArenas, ListClients: what there is. A caller sees what he may see; what he may not see is not
 * there for him.
 *
 * Lists are answered in one reply, which has its limit, or, when the caller asks for more, in chunks as they
 * fill. Both are made in one walk: a list is a snapshot of one moment, and no arena comes or goes between its
 * chunks, as they are only queued here. What a slow caller makes us hold meanwhile is charged to his uid.
 */
#include <errno.h>

#include "control-internal.h"

/* A reply that grows by entries; when more is wanted, it leaves in chunks. */
struct list {
    struct varlink_call *call;
    const char *name; /* of the member of the reply that holds the entries */
    struct json_object *entries;
};

/* Takes the entry. */
static int list_add(struct list *l, struct json_object *entry)
{
    int r;

    if (!entry || !l->entries)
        return -ENOMEM;
    r = json_object_array_add(l->entries, entry);
    if (r < 0 || !varlink_call_wants_more(l->call) ||
        json_object_array_length(l->entries) < CONTROL_CHUNK_ENTRIES)
        return r < 0 ? -ENOMEM : 0;
    r = varlink_call_notify(l->call, control_json_wrap(l->name, l->entries));
    l->entries = json_object_new_array();
    return r;
}

/* Answers the call: with the list, or with the error that stopped it. */
static void list_finish(struct list *l, int r)
{
    if (r >= 0 && l->entries) {
        r = varlink_call_reply(l->call, control_json_wrap(l->name, l->entries));
        if (r == -EMSGSIZE)
            control_fail(l->call, r, NULL);
        return;
    }
    (void)json_object_put(l->entries);
    control_fail(l->call, r < 0 ? r : -ENOMEM, NULL);
}

/* One more arena into the sum. */
static int visit_sum(void *data, const struct control_arena_info *info)
{
    control_figures_add(data, &info->figures);
    return 0;
}

/* Nobody learns by a sum what he may not see: it is over the caller's own view. */
int control_call_sum_figures(struct control *c, const struct varlink_call *call, const char *arena,
                             struct control_figures *ret)
{
    struct control_figures sum = {};
    int r = control_call_visit_arenas(c, call, arena, CONTROL_SEE, visit_sum, &sum);

    if (r < 0)
        return r;
    *ret = sum;
    return 0;
}

/* The names of arenas that the caller may see, as the keys of an object: a set that is quick to ask. */
static int visit_name(void *data, const struct control_arena_info *info)
{
    return json_object_object_add(data, info->name, NULL) < 0 ? -ENOMEM : 0;
}

/* json_object_put() it, on failure too. */
static int call_visible(struct control *c, const struct varlink_call *call, const char *arena,
                        struct json_object **ret)
{
    *ret = json_object_new_object();
    return *ret ? control_call_visit_arenas(c, call, arena, CONTROL_SEE, visit_name, *ret) : -ENOMEM;
}

/* ---- The service ---- */

/* The readers that stall in arenas that the caller sees; how many more there are stands in the figures. */
struct stall_walk {
    struct json_object *stalls, *visible;
};

static int visit_stall(void *data, const struct control_stall *stall)
{
    struct stall_walk *w = data;

    if (!json_object_object_get_ex(w->visible, stall->arena, NULL))
        return 0;
    if (json_object_array_length(w->stalls) >= CONTROL_STALLS_MAX)
        return 1;
    return json_object_array_add(w->stalls, control_json_stall(stall)) < 0 ? -ENOMEM : 0;
}

static int call_stalls(struct control *c, const struct varlink_call *call, struct json_object **ret)
{
    struct stall_walk w = {.stalls = json_object_new_array()};
    int r = w.stalls ? call_visible(c, call, NULL, &w.visible) : -ENOMEM;

    if (r >= 0)
        r = c->ops->stalls(c->userdata, visit_stall, &w);
    (void)json_object_put(w.visible);
    if (r < 0)
        (void)json_object_put(w.stalls);
    else
        *ret = w.stalls;
    return r;
}

/* The service's own figures are for everybody, as `ps` would show most of them anyhow. */
void control_get_status(struct varlink_call *call, const void *parameters, void *userdata)
{
    struct control *c = userdata;
    struct control_status status = {};
    struct json_object *stalls;
    struct control_figures sum;
    int r = c->ops->status(c->userdata, &status);

    if (r >= 0)
        r = control_call_sum_figures(c, call, NULL, &sum);
    if (r >= 0)
        r = call_stalls(c, call, &stalls);
    if (r < 0)
        control_fail(call, r, NULL);
    else
        (void)varlink_call_reply(call,
                                 control_json_wrap("status", control_json_status(&status, &sum, stalls)));
}

/* ---- Lists ---- */

/* One entry of ListArenas. */
static int visit_arena(void *data, const struct control_arena_info *info)
{
    return list_add(data, control_json_arena(info));
}

/*
 * With a name, a list of one or an error; without, whatever the caller may see, which may be nothing.
 */
void control_list_arenas(struct varlink_call *call, const void *parameters, void *userdata)
{
    const struct control_arena_parameters *p = parameters;
    struct control *c = userdata;
    struct list l = {.call = call, .name = "arenas"};

    if (p->arena && control_call_check_arena(c, call, p->arena, CONTROL_SEE) < 0)
        return;
    l.entries = json_object_new_array();
    list_finish(&l, control_call_visit_arenas(c, call, p->arena, CONTROL_SEE, visit_arena, &l));
}

struct client_walk {
    struct list list;
    struct json_object *visible;
};

/* The name of an arena that the caller cannot see is told with his own client: he attached to it. */
static int visit_client(void *data, const struct control_client_info *info)
{
    struct client_walk *w = data;

    if (info->uid != varlink_call_peer(w->list.call)->uid &&
        !json_object_object_get_ex(w->visible, info->arena, NULL))
        return 0;
    return list_add(&w->list, control_json_client(info));
}

/* A caller sees the clients of the arenas that he sees, and his own wherever they are. */
void control_list_clients(struct varlink_call *call, const void *parameters, void *userdata)
{
    const struct control_arena_parameters *p = parameters;
    struct control *c = userdata;
    struct client_walk w = {.list = {.call = call, .name = "clients"}};
    int r;

    if (p->arena && control_call_check_arena(c, call, p->arena, CONTROL_SEE) < 0)
        return;
    w.list.entries = json_object_new_array();
    r = call_visible(c, call, p->arena, &w.visible);
    if (r >= 0)
        r = c->ops->clients(c->userdata, p->arena, 0, visit_client, &w);
    (void)json_object_put(w.visible);
    list_finish(&w.list, r);
}
