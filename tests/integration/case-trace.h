/* SPDX-License-Identifier: MIT */
/* A listener of the daemon's events, over its control socket. */
#ifndef RECLAIM_TEST_CASE_TRACE_H
#define RECLAIM_TEST_CASE_TRACE_H

#include "basic/varlink-frame.h"
#include "daemon-fixture.h"

struct tracer {
    struct varlink_client *client;
    json_object *events; /* all that came so far */
    uint64_t n_dropped;
};

/* Once it returns, all that happens is told. parameters: of the call Trace, as JSON. */
void tracer_open(struct tracer *t, const struct daemon *d, const char *parameters);
void tracer_close(struct tracer *t);

/* The next one of that name at *at or behind it, waiting for it to come; *at is then behind it. All are of arena a. */
json_object *tracer_next(struct tracer *t, size_t *at, const char *name);
/* Of all of that name so far. */
uint64_t tracer_sum(const struct tracer *t, const char *name, const char *member);

/* Members of an event, which must be there. */
json_object *event_member(json_object *event, const char *name);
uint64_t event_number(json_object *event, const char *name);
bool event_is(json_object *event, const char *name);

#endif
