/* SPDX-License-Identifier: MIT */
/* A listener of the daemon's events; see case-trace.h. */
#include "case-trace.h"

static void tracer_receive(struct tracer *t)
{
    json_object *reply, *events, *dropped;
    const char *text;

    assert_int_equal(varlink_client_receive(t->client, HANG_SECONDS * UINT64_C(1000000), &text), 0);
    reply = json_tokener_parse(text);
    if (json_pointer_get(reply, "/parameters/events", &events) != 0 ||
        json_pointer_get(reply, "/parameters/dropped", &dropped) != 0)
        fail_msg("not what Trace answers: %s", text);
    t->n_dropped += json_object_get_uint64(dropped);
    for (size_t i = 0; i < json_object_array_length(events); i++)
        (void)json_object_array_add(t->events, json_object_get(json_object_array_get_idx(events, i)));
    (void)json_object_put(reply);
}

void tracer_open(struct tracer *t, const struct daemon *d, const char *parameters)
{
    char call[256];

    *t = (struct tracer){.events = json_object_new_array()};
    (void)snprintf(call, sizeof(call),
                   "{\"method\":\"org.reclaimd.Control.Trace\",\"parameters\":{%s},\"more\":true}",
                   parameters);
    assert_int_equal(varlink_client_connect(d->control, &t->client), 0);
    assert_int_equal(varlink_client_send(t->client, call), 0);
    tracer_receive(t);
    assert_int_equal(json_object_array_length(t->events), 0);
}

void tracer_close(struct tracer *t)
{
    t->client = varlink_client_free(t->client);
    (void)json_object_put(t->events);
}

json_object *event_member(json_object *event, const char *name)
{
    json_object *value = NULL;

    if (!json_object_object_get_ex(event, name, &value))
        fail_msg("no %s in %s", name, json_object_to_json_string(event));
    return value;
}

uint64_t event_number(json_object *event, const char *name)
{
    return json_object_get_uint64(event_member(event, name));
}

bool event_is(json_object *event, const char *name)
{
    return strcmp(json_object_get_string(event_member(event, "event")), name) == 0;
}

json_object *tracer_next(struct tracer *t, size_t *at, const char *name)
{
    for (;; (*at)++) {
        json_object *event;

        while (*at == json_object_array_length(t->events))
            tracer_receive(t);
        event = json_object_array_get_idx(t->events, *at);
        assert_string_equal(json_object_get_string(event_member(event, "arena")), "a");
        if (event_is(event, name)) {
            (*at)++;
            return event;
        }
    }
}

uint64_t tracer_sum(const struct tracer *t, const char *name, const char *member)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < json_object_array_length(t->events); i++)
        if (event_is(json_object_array_get_idx(t->events, i), name))
            sum += event_number(json_object_array_get_idx(t->events, i), member);
    return sum;
}
