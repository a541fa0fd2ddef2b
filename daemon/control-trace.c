/* SPDX-License-Identifier: MIT */
/*
 * Trace: the events of trace.h as a stream, to each listener those that it asked for and may see, until it
 * hangs up.
 *
 * The ring has one reader, so all listeners are served by one timer, which is there only while somebody
 * listens: else nothing is recorded and nothing wakes up. Each look empties the ring, and a listener gets
 * what concerns it in replies of a bounded size. Nobody who reads slowly holds up the others or makes us
 * hold more and more: what finds his connection full is dropped and counted for him, beside what the ring
 * itself had no room for.
 *
 * Rights are those to see the event's arena, as it was then: owner, group and mode come with the event, so
 * an arena that is gone by now is told of too, and nothing has to be looked up.
 */
#include <errno.h>
#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "control-internal.h"
#include "trace.h"

enum {
    TRACE_LOOK_MSEC = 20,
    TRACE_EVENTS_A_REPLY = 128,          /* some 16 KiB */
    TRACE_UNSENT_BYTES_MAX = 512 * 1024, /* a fraction of what a user may have queued in all */
};

struct tracer {
    LIST_ENTRY(tracer) tracers;
    struct control *control;
    struct varlink_call *call;
    char arena[ARENA_NAME_BYTES]; /* empty: all */
    uint32_t events;              /* a bit each */
    bool is_admin;                /* as of this look */
    struct json_object *batch;    /* an array of events not sent yet; NULL: none */
    uint64_t n_dropped;           /* not told yet */
    uint64_t ring_dropped_seen;
};

/* ---- Events as JSON ---- */

/* Numbers, but for what made a drain begin. */
static struct json_object *value_json(const char *name, uint64_t value)
{
    if (strcmp(name, "cause") == 0)
        return json_object_new_string(control_drain_cause_to_string((enum control_drain_cause)value) ?: "");
    return json_object_new_uint64(value);
}

static struct json_object *record_json(const struct trace_record *r)
{
    struct json_object *o = json_object_new_object();
    const char *name;

    if (!o)
        return NULL;
    (void)json_object_object_add(o, "monotonicUSec", json_object_new_uint64(r->usec));
    (void)json_object_object_add(o, "event", json_object_new_string(trace_event_to_string(r->event)));
    (void)json_object_object_add(o, "arena", json_object_new_string(r->origin.arena));
    for (unsigned i = 0; (name = trace_value_name(r->event, i)); i++)
        (void)json_object_object_add(o, name, value_json(name, r->values[i]));
    if (r->origin.command[0])
        (void)json_object_object_add(o, "command",
                                     json_object_new_string(text_quote(r->origin.command).text));
    return o;
}

/* ---- One listener ---- */

/* The batch, an empty one too, and what was dropped since the last reply. */
static void tracer_send(struct tracer *t)
{
    uint64_t ring_dropped = trace_n_dropped();
    struct json_object *o = control_json_wrap("events", t->batch ?: json_object_new_array());

    t->batch = NULL;
    t->n_dropped += ring_dropped - t->ring_dropped_seen;
    t->ring_dropped_seen = ring_dropped;
    if (!o)
        return;
    (void)json_object_object_add(o, "dropped", json_object_new_uint64(t->n_dropped));
    t->n_dropped = 0;
    (void)varlink_call_notify(t->call, o); /* if it is lost, gone comes */
}

static bool tracer_wants(const struct tracer *t, const struct trace_record *r)
{
    struct control_arena_info arena = {
        .owner = r->origin.owner, .group = r->origin.group, .mode = r->origin.mode};

    if (!(t->events & (UINT32_C(1) << r->event)) || (t->arena[0] && strcmp(t->arena, r->origin.arena) != 0))
        return false;
    return control_peer_may(varlink_call_peer(t->call), t->is_admin, CONTROL_SEE, &arena);
}

/* Without memory an event is one that was dropped. */
static void tracer_take(struct tracer *t, const struct trace_record *r)
{
    struct json_object *o;

    if (varlink_call_unsent_bytes(t->call) > TRACE_UNSENT_BYTES_MAX) {
        t->n_dropped++;
        return;
    }
    t->batch = t->batch ?: json_object_new_array();
    o = t->batch ? record_json(r) : NULL;
    if (!o || json_object_array_add(t->batch, o) < 0) {
        (void)json_object_put(o);
        t->n_dropped++;
    } else if (json_object_array_length(t->batch) >= TRACE_EVENTS_A_REPLY) {
        tracer_send(t);
    }
}

/* ---- All of them ---- */

/*
 * Somebody may have put in as many again meanwhile: those are for the next look, as others want the thread
 * too.
 */
static void tracers_look(evutil_socket_t fd, short what, void *data)
{
    struct control *c = data;
    struct trace_record record;
    struct tracer *t;

    LIST_FOREACH(t, &c->tracers, tracers)
    t->is_admin = control_call_is_admin(c, t->call);
    for (unsigned i = 0; i < TRACE_RING_SIZE && trace_take(&record); i++)
        LIST_FOREACH(t, &c->tracers, tracers)
    if (tracer_wants(t, &record))
        tracer_take(t, &record);
    LIST_FOREACH(t, &c->tracers, tracers)
    if (t->batch || t->n_dropped > 0 || trace_n_dropped() != t->ring_dropped_seen)
        tracer_send(t);
}

/* What at least one of them wants is recorded; the timer goes with the last one. */
static int tracers_update(struct control *c)
{
    static const struct timeval interval = {.tv_usec = TRACE_LOOK_MSEC * 1000};
    uint32_t events = 0;
    struct tracer *t;

    LIST_FOREACH(t, &c->tracers, tracers)
    events |= t->events;
    trace_want(events);
    if (events == 0 && c->trace_timer) {
        event_free(c->trace_timer);
        c->trace_timer = NULL;
    }
    if (events == 0 || c->trace_timer)
        return 0;
    c->trace_timer = event_new(c->base, -1, EV_PERSIST, tracers_look, c);
    return c->trace_timer && event_add(c->trace_timer, &interval) >= 0 ? 0 : -ENOMEM;
}

static void tracer_free(struct tracer *t)
{
    LIST_REMOVE(t, tracers);
    (void)tracers_update(t->control); /* fewer need no memory */
    (void)json_object_put(t->batch);
    (void)varlink_call_unref(t->call);
    free(t);
}

/* The caller hung up, was cut off, or the control ends. */
static void tracer_on_gone(struct varlink_call *call, void *data)
{
    tracer_free(data);
}

/* ---- The call ---- */

static void fail_unknown_event(struct varlink_call *call, const char *name)
{
    char names[256] = "";

    for (int i = 0; i < TRACE_EVENT_MAX; i++)
        (void)snprintf(names + strlen(names), sizeof(names) - strlen(names), "%s%s", i > 0 ? ", " : "",
                       trace_event_to_string(i));
    control_fail_with(call, -EINVAL, "no event '%s'; there are %s", text_quote(name).text, names);
}

/* Negative: a name is wrong, or is no name, and the call has been answered. No names: all events. */
static int events_parse(struct varlink_call *call, struct json_object *names, uint32_t *ret)
{
    size_t n = names ? json_object_array_length(names) : 0;
    uint32_t events = 0;

    for (size_t i = 0; i < n; i++) {
        struct json_object *name = json_object_array_get_idx(names, i);
        enum trace_event event;

        if (!json_object_is_type(name, json_type_string)) {
            (void)varlink_call_invalid(call, "events");
            return -EINVAL;
        }
        event = trace_event_from_string(json_object_get_string(name));
        if (event == TRACE_EVENT_INVALID) {
            fail_unknown_event(call, json_object_get_string(name));
            return -EINVAL;
        }
        events |= UINT32_C(1) << event;
    }
    *ret = events ?: TRACE_ALL;
    return 0;
}

/* The first reply goes out at once and empty: whatever happens after it is told. */
void control_trace(struct varlink_call *call, const void *parameters, void *userdata)
{
    const struct control_trace_parameters *p = parameters;
    struct control *c = userdata;
    struct tracer *t;
    uint32_t events;

    if (events_parse(call, p->events, &events) < 0)
        return;
    if (p->arena && control_call_check_arena(c, call, p->arena, CONTROL_SEE) < 0)
        return;
    t = calloc(1, sizeof(*t));
    if (!t) {
        control_fail(call, -ENOMEM, NULL);
        return;
    }
    tracers_look(-1, 0, c); /* what was before it is for the others alone */
    *t = (struct tracer){.control = c, .call = varlink_call_ref(call), .events = events};
    t->ring_dropped_seen = trace_n_dropped();
    (void)strncpy(t->arena, p->arena ?: "", ARENA_NAME_MAX);
    LIST_INSERT_HEAD(&c->tracers, t, tracers);
    if (tracers_update(c) < 0) {
        control_fail(call, -ENOMEM, NULL);
        tracer_free(t);
        return;
    }
    varlink_call_set_gone(call, tracer_on_gone, t);
    tracer_send(t);
}
