/* SPDX-License-Identifier: MIT */
/*
 * drain, purge, synchronize, barrier, audit: do it now, and say how long it took and what came of it.
 *
 * All five are one call and one kind of answer, a result for each arena; they differ in the words of a line.
 */
#include <inttypes.h>

#include "ctl.h"

/* One arena's line, without its beginning "NAME: " and its newline. */
typedef void (*describe_fn)(struct ctl *ctl, struct json_object *result, const char *duration);

struct operation {
    const char *method;
    describe_fn describe;
};

/* What had been deferred and is free now. */
static void describe_freed(struct ctl *ctl, struct json_object *result, const char *duration)
{
    char objects[FORMAT_BYTES], bytes[FORMAT_BYTES];

    (void)fprintf(ctl->out, "%s freed (%s) in %s",
                  ctl_count(ctl_number(result, "objects"), "object", "objects", objects),
                  format_bytes_human(ctl_number(result, "bytes"), bytes), duration);
}

/* Pages went back to the operating system; objects do not matter to it. */
static void describe_purged(struct ctl *ctl, struct json_object *result, const char *duration)
{
    char bytes[FORMAT_BYTES];

    (void)fprintf(ctl->out, "%s given back in %s", format_bytes_human(ctl_number(result, "bytes"), bytes),
                  duration);
}

/* Nothing is freed by waiting; only the time counts. */
static void describe_waited(struct ctl *ctl, struct json_object *result, const char *duration)
{
    (void)fprintf(ctl->out, "a grace period in %s", duration);
}

/* A sound arena in a line; else the complaints, each on its own. */
static void describe_audit(struct ctl *ctl, struct json_object *result, const char *duration)
{
    struct json_object *complaints = ctl_at(result, "complaints");
    size_t n = complaints ? json_object_array_length(complaints) : 0;
    char text[FORMAT_BYTES];

    if (n == 0)
        (void)fprintf(ctl->out, "sound, %s looked at in %s",
                      ctl_count(ctl_number(result, "objects"), "object", "objects", text), duration);
    else
        (void)fprintf(ctl->out, "%s", ctl_count(n, "complaint", "complaints", text));
    for (size_t i = 0; i < n; i++)
        (void)fprintf(ctl->out, "\n  %s", json_object_get_string(json_object_array_get_idx(complaints, i)));
}

/* What one arena's result adds to the exit status. */
static int print_result(struct ctl *ctl, struct json_object *result, const struct operation *operation)
{
    const char *arena = ctl_text(result, "arena"), *failure = ctl_text(result, "failure");
    char duration[FORMAT_BYTES];

    if (*failure)
        return ctl_fail("arena %s: %s", arena, failure);
    if (ctl->json == CTL_JSON_OFF) {
        (void)fprintf(ctl->out, "%s: ", arena);
        operation->describe(ctl, result, ctl_duration(ctl_number(result, "usec"), duration));
        (void)fputc('\n', ctl->out);
    }
    return CTL_DONE;
}

/*
 * Over all arenas, for the last line and the exit status; also when the list itself went out as JSON.
 */
static size_t count_complaints(struct json_object *results)
{
    struct json_object *complaints;
    size_t n = 0;

    for (size_t i = 0; i < json_object_array_length(results); i++) {
        complaints = ctl_at(json_object_array_get_idx(results, i), "complaints");
        n += complaints ? json_object_array_length(complaints) : 0;
    }
    return n;
}

/*
 * Results are printed in the daemon's order of arenas, whichever ended first. One arena's failure leaves
 * the other lines, but not the exit status, as they are.
 */
static int operate(struct ctl *ctl, const char *arena, const struct operation *operation)
{
    struct json_object *reply, *results;
    char text[FORMAT_BYTES];
    size_t n_complaints;
    int status = ctl_call(ctl, operation->method, ctl_object("arena", arena), &reply);

    if (status != CTL_DONE)
        return status;
    results = ctl_at(reply, "results");
    (void)ctl_print_json(ctl, results);
    for (size_t i = 0; results && i < json_object_array_length(results); i++)
        status |= print_result(ctl, json_object_array_get_idx(results, i), operation);
    n_complaints = results ? count_complaints(results) : 0;
    if (n_complaints > 0)
        status |= ctl_fail("the audit has %s; what is not a client's wrong free is a bug, please report it",
                           ctl_count(n_complaints, "complaint", "complaints", text));
    (void)json_object_put(reply);
    return status;
}

/* What is pending now, freed after its grace period. */
int verb_drain(struct ctl *ctl, int argc, char **argv)
{
    return operate(ctl, argv[0], &(struct operation){CTL_INTERFACE ".Drain", describe_freed});
}

/* Free pages, given back to the operating system. */
int verb_purge(struct ctl *ctl, int argc, char **argv)
{
    return operate(ctl, argv[0], &(struct operation){CTL_INTERFACE ".Purge", describe_purged});
}

/* One whole grace period. */
int verb_synchronize(struct ctl *ctl, int argc, char **argv)
{
    return operate(ctl, argv[0], &(struct operation){CTL_INTERFACE ".Synchronize", describe_waited});
}

/* All frees so far, by whomever. */
int verb_barrier(struct ctl *ctl, int argc, char **argv)
{
    return operate(ctl, argv[0], &(struct operation){CTL_INTERFACE ".Barrier", describe_freed});
}

/* The one verb whose success can still be bad news: complaints are a failure. */
int verb_audit(struct ctl *ctl, int argc, char **argv)
{
    return operate(ctl, argv[0], &(struct operation){CTL_INTERFACE ".Audit", describe_audit});
}
