/* SPDX-License-Identifier: MIT */
/*
 * trace: a line an event, as it happens.
 *
 * What events there are and what they carry is the daemon's business: members are printed as they come,
 * bytes and durations known by the ends of their names; stalls alone are told in words. With --json=short each event is an object on a line
 * of its own, for machines. In both, events that the daemon had to drop are a line too, in their place.
 *
 * There is no end but the daemon's or Ctrl-C, which is the ordinary one and so a success. It is let through
 * only while nothing is half printed.
 */
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ctl.h"

/* Safe in a handler; all that was printed has been flushed. */
static void end_quietly(int signal_number)
{
    _exit(CTL_DONE);
}

static void interrupt_is(int how)
{
    sigset_t set;

    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGINT);
    (void)sigprocmask(how, &set, NULL);
}

static bool ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);

    return n >= m && strcasecmp(name + n - m, end) == 0;
}

/* " bytes=16K"; durations as words, without the unit in their names. */
static void print_member(struct ctl *ctl, const char *name, struct json_object *value)
{
    char text[FORMAT_BYTES];

    if (ends_with(name, "bytes"))
        (void)fprintf(ctl->out, " %s=%s", name, format_bytes_human(json_object_get_uint64(value), text));
    else if (ends_with(name, "USec"))
        (void)fprintf(ctl->out, " %.*s=%s", (int)(strlen(name) - strlen("USec")), name,
                      ctl_duration(json_object_get_uint64(value), text));
    else
        (void)fprintf(ctl->out, " %s=%s", name, json_object_get_string(value));
}

static bool has_column(const char *name)
{
    return strcmp(name, "monotonicUSec") == 0 || strcmp(name, "event") == 0 || strcmp(name, "arena") == 0;
}

static void print_members(struct ctl *ctl, struct json_object *event)
{
    json_object_object_foreach(event, name, value)
    {
        if (!has_column(name))
            print_member(ctl, name, value);
    }
}

/* " client 3 (pid 7, tid 8, router)": who it was, by whatever names there are. */
static void print_reader(struct ctl *ctl, struct json_object *event)
{
    (void)fprintf(ctl->out, " client %" PRIu64 " (pid %" PRIu64, ctl_number(event, "client"),
                  ctl_number(event, "pid"));
    if (ctl_number(event, "tid") > 0)
        (void)fprintf(ctl->out, ", tid %" PRIu64, ctl_number(event, "tid"));
    (void)fprintf(ctl->out, ", %s)", ctl_text(event, "command"));
}

static void print_stall(struct ctl *ctl, struct json_object *event)
{
    char age[FORMAT_BYTES], bytes[FORMAT_BYTES], objects[FORMAT_BYTES], callers[FORMAT_BYTES];

    (void)fprintf(ctl->out, " holds up grace period %" PRIu64 " for %s; %s (%s) and %s wait",
                  ctl_number(event, "number"), ctl_duration(ctl_number(event, "durationUSec"), age),
                  ctl_count(ctl_number(event, "objects"), "object", "objects", objects),
                  format_bytes_human(ctl_number(event, "bytes"), bytes),
                  ctl_count(ctl_number(event, "waiters"), "caller", "callers", callers));
}

static void print_stall_ended(struct ctl *ctl, struct json_object *event)
{
    char age[FORMAT_BYTES];

    (void)fprintf(ctl->out, " held up grace period %" PRIu64 " for %s, and does no longer",
                  ctl_number(event, "number"), ctl_duration(ctl_number(event, "durationUSec"), age));
}

static void print_stall_kill(struct ctl *ctl, struct json_object *event)
{
    uint64_t error = ctl_number(event, "errno");

    if (error == 0)
        (void)fputs(" is killed, as stall-action says", ctl->out);
    else
        (void)fprintf(ctl->out, " cannot be killed: %s", strerror((int)error));
}

/* What an administrator has to act on is told in words. False: it is none of these. */
static bool print_in_words(struct ctl *ctl, struct json_object *event)
{
    static const struct {
        const char *name;
        void (*print)(struct ctl *ctl, struct json_object *event);
    } words[] = {
        {"stall", print_stall}, {"stall_ended", print_stall_ended}, {"stall_kill", print_stall_kill}};

    for (size_t i = 0; i < ARRAY_SIZE(words); i++)
        if (strcmp(ctl_text(event, "event"), words[i].name) == 0) {
            print_reader(ctl, event);
            words[i].print(ctl, event);
            return true;
        }
    return false;
}

/* Seconds since boot, as in the kernel's own traces, so that the two can be laid side by side. */
static void print_event(struct ctl *ctl, struct json_object *event)
{
    uint64_t usec = ctl_number(event, "monotonicUSec");

    (void)fprintf(ctl->out, "%8" PRIu64 ".%06" PRIu64 "  %-13s  %-12s ", usec / USEC_PER_SEC,
                  usec % USEC_PER_SEC, ctl_text(event, "event"), ctl_text(event, "arena"));
    if (!print_in_words(ctl, event))
        print_members(ctl, event);
    (void)fputc('\n', ctl->out);
}

static void print_dropped(struct ctl *ctl, uint64_t n)
{
    struct json_object *o;
    char text[FORMAT_BYTES];

    if (ctl->json == CTL_JSON_OFF) {
        (void)fprintf(ctl->out, "... %s dropped\n", ctl_count(n, "event", "events", text));
        return;
    }
    o = json_object_new_object();
    (void)json_object_object_add(o, "dropped", json_object_new_uint64(n));
    (void)ctl_print_json(ctl, o);
    (void)json_object_put(o);
}

/* The legend says that the daemon listens to us: what happens from then on will be printed. */
static void print_legend_once(struct ctl *ctl, bool *printed)
{
    if (!*printed && !ctl->no_legend && ctl->json == CTL_JSON_OFF)
        (void)fprintf(ctl->out, "%15s  %-13s  %-12s  %s\n", "TIME", "EVENT", "ARENA", "WHAT");
    *printed = true;
}

static int on_events(struct ctl *ctl, struct json_object *reply, void *data)
{
    struct json_object *events = ctl_at(reply, "events");
    uint64_t n_dropped = ctl_number(reply, "dropped");
    int status;

    if (!json_object_is_type(events, json_type_array))
        return ctl_fail("the daemon's answer has no events; is it of another version than reclaimctl?");
    interrupt_is(SIG_BLOCK);
    print_legend_once(ctl, data);
    for (size_t i = 0; i < json_object_array_length(events); i++) {
        struct json_object *event = json_object_array_get_idx(events, i);

        if (!ctl_print_json(ctl, event))
            print_event(ctl, event);
    }
    if (n_dropped > 0)
        print_dropped(ctl, n_dropped);
    status = fflush(ctl->out) == 0 ? CTL_DONE : CTL_FAILED; /* why is told when the program ends */
    interrupt_is(SIG_UNBLOCK);
    return status;
}

/* "gp_start,gp_end" as an array; which of them there are is for the daemon to say. */
static int add_events(struct ctl *ctl, struct json_object *o)
{
    struct json_object *names;
    char *list, *rest, *name;

    if (!ctl->events)
        return CTL_DONE;
    list = rest = strdup(ctl->events);
    names = json_object_new_array();
    if (!list || !names) {
        free(list);
        (void)json_object_put(names);
        return ctl_fail("out of memory");
    }
    while ((name = strsep(&rest, ",")))
        (void)json_object_array_add(names, json_object_new_string(name));
    (void)json_object_object_add(o, "events", names);
    free(list);
    return CTL_DONE;
}

int verb_trace(struct ctl *ctl, int argc, char **argv)
{
    struct sigaction end = {.sa_handler = end_quietly};
    struct json_object *o = ctl_object("arena", argv[0]);
    bool legend_printed = false;
    int status = add_events(ctl, o);

    if (status != CTL_DONE) {
        (void)json_object_put(o);
        return status;
    }
    (void)sigaction(SIGINT, &end, NULL);
    return ctl_call_more(ctl, CTL_INTERFACE ".Trace", o, on_events, &legend_printed);
}
