/* SPDX-License-Identifier: MIT */
/*
 * Monitor: the figures now and again each interval, until the caller hangs up. A caller who does not read is
 * cut off by the server's budget; his timer goes with the connection.
 */
#include <errno.h>
#include <event2/event.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "basic/parse.h"
#include "control-internal.h"

struct monitor {
    struct control *control;
    struct varlink_call *call;
    struct event *timer;
    char arena[ARENA_NAME_BYTES]; /* empty: all */
};

/*
 * Drops the call, answered or not; an unanswered one takes its connection along, which is gone then
 * anyhow.
 */
static void monitor_free(struct monitor *m)
{
    if (m->timer)
        event_free(m->timer);
    (void)varlink_call_unref(m->call);
    free(m);
}

/* The caller hung up, was cut off, or the control ends. */
static void monitor_on_gone(struct varlink_call *call, void *data)
{
    monitor_free(data);
}

/* Wall-clock time, for people; intervals are the event loop's. */
static uint64_t now_usec(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * USEC_PER_SEC + (uint64_t)now.tv_nsec / 1000;
}

/* Negative: there will be no further sample, and the call has been answered or is lost. */
static int monitor_sample(struct monitor *m)
{
    const char *arena = m->arena[0] ? m->arena : NULL;
    struct control_figures figures;
    struct json_object *o;
    int r;

    r = arena ? control_call_check_arena(m->control, m->call, arena, CONTROL_SEE) : 0;
    if (r < 0)
        return r;
    r = control_call_sum_figures(m->control, m->call, arena, &figures);
    if (r < 0) {
        control_fail(m->call, r, NULL);
        return r;
    }
    o = control_json_wrap("figures", control_json_figures(&figures));
    if (o)
        (void)json_object_object_add(o, "timeUSec", json_object_new_uint64(now_usec()));
    (void)varlink_call_notify(m->call, o); /* if it is lost, gone comes */
    return 0;
}

/* A tick that fails is the last one. */
static void monitor_on_timer(evutil_socket_t fd, short what, void *data)
{
    struct monitor *m = data;

    if (monitor_sample(m) < 0)
        monitor_free(m);
}

/* A timer that is late is not made up for: the samples say when they were taken. */
static int monitor_start(struct monitor *m, uint64_t interval_usec)
{
    struct timeval interval = {
        .tv_sec = (time_t)(interval_usec / USEC_PER_SEC),
        .tv_usec = (suseconds_t)(interval_usec % USEC_PER_SEC),
    };

    m->timer = event_new(m->control->base, -1, EV_PERSIST, monitor_on_timer, m);
    return m->timer && event_add(m->timer, &interval) >= 0 ? 0 : -ENOMEM;
}

/* An hour is the longest: beyond it, a caller does better to ask again. */
static bool interval_is_valid(const struct varlink_optional *interval)
{
    return !interval->present || (interval->value >= CONTROL_MONITOR_INTERVAL_MIN_MSEC * USEC_PER_MSEC &&
                                  interval->value <= USEC_PER_HOUR);
}

/* The first sample goes out at once, so that a caller sees that he is served. */
void control_monitor(struct varlink_call *call, const void *parameters, void *userdata)
{
    const struct control_monitor_parameters *p = parameters;
    struct monitor *m;

    if (!interval_is_valid(&p->interval_usec)) {
        control_fail_with(call, -ERANGE, "the interval is out of range; 10ms..1h");
        return;
    }
    if (p->arena && control_call_check_arena(userdata, call, p->arena, CONTROL_SEE) < 0)
        return;
    m = calloc(1, sizeof(*m));
    if (!m) {
        control_fail(call, -ENOMEM, NULL);
        return;
    }
    m->control = userdata;
    m->call = varlink_call_ref(call);
    (void)strncpy(m->arena, p->arena ?: "", ARENA_NAME_MAX);
    varlink_call_set_gone(call, monitor_on_gone, m);
    if (monitor_start(m, p->interval_usec.present ? p->interval_usec.value : USEC_PER_SEC) < 0) {
        control_fail(call, -ENOMEM, NULL);
        monitor_free(m);
    } else if (monitor_sample(m) < 0) {
        monitor_free(m);
    }
}
