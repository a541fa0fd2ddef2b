/* SPDX-License-Identifier: MIT */
/*
 * monitor: a line an interval. What is counted is shown as the difference to the line before.
 *
 * The daemon sends a sample each interval, in one call that goes on. A line is printed and flushed as its sample
 * comes, so that a pipe sees it at once; hence columns of fixed width, which a long figure may move but never
 * cuts. With --json each sample is a document of its own, with the daemon's counters as they are.
 */
#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "basic/text.h"
#include "ctl.h"

#define INTERVAL_MIN_USEC (10 * USEC_PER_MSEC)
#define INTERVAL_MAX_USEC USEC_PER_HOUR

struct column {
    const char *name;
    char form; /* n: number, b: bytes, +: what was added since the line before */
    int width; /* wide enough for what usually comes; a longer one moves the line, nothing is cut */
    const char *path;
};

static const struct column columns[] = {
    {"CLIENTS", 'n', 7, "clients"},
    {"READING", 'n', 7, "lanesReading"},
    {"STALLED", 'n', 7, "stalledReaders"},
    {"IN-USE", 'b', 8, "inUseBytes"},
    {"PENDING", 'b', 8, "pendingBytes"},
    {"LAZY", 'b', 8, "lazyBytes"},
    {"BACKED", 'b', 8, "backedBytes"},
    {"GPS", '+', 7, "gracePeriodsCompleted"},
    {"FREES", '+', 10, "frees"},
    {"BATCHES", '+', 8, "batches"},
    {"PURGES", '+', 7, "purgesRun"},
    {"REFUSED", '+', 8, "refusedRecords"},
    {"WAKEUPS", '+', 8, "wakeups"},
};

struct monitor {
    uint64_t n_lines, n_lines_max;
    uint64_t last[ARRAY_SIZE(columns)];
};

/* Once, above the first line. Scripts that want none say --no-legend. */
static void print_legend(struct ctl *ctl)
{
    (void)fprintf(ctl->out, "%-8s", "TIME");
    for (size_t i = 0; i < ARRAY_SIZE(columns); i++)
        (void)fprintf(ctl->out, "  %*s", columns[i].width, columns[i].name);
    (void)fputc('\n', ctl->out);
}

/* The first line has nothing to be compared with: "-". */
static void print_cell(struct ctl *ctl, struct monitor *m, size_t i, uint64_t n)
{
    char text[FORMAT_BYTES];

    if (columns[i].form == 'b')
        (void)format_bytes_human(n, text);
    else if (columns[i].form == '+' && m->n_lines == 0)
        (void)strcpy(text, "-");
    else
        (void)snprintf(text, sizeof(text), "%" PRIu64, columns[i].form == '+' ? n - m->last[i] : n);
    (void)fprintf(ctl->out, "  %*s", columns[i].width, text);
    m->last[i] = n;
}

/* The clock is the daemon's, so that lines fit its log. */
static void print_sample(struct ctl *ctl, struct monitor *m, struct json_object *sample)
{
    time_t seconds = (time_t)(ctl_number(sample, "timeUSec") / USEC_PER_SEC);
    struct json_object *figures = ctl_at(sample, "figures");
    char clock[FORMAT_BYTES] = "-";
    struct tm tm;

    if (localtime_r(&seconds, &tm))
        (void)strftime(clock, sizeof(clock), "%T", &tm);
    (void)fputs(clock, ctl->out);
    for (size_t i = 0; i < ARRAY_SIZE(columns); i++)
        print_cell(ctl, m, i, ctl_number(figures, columns[i].path));
    (void)fputc('\n', ctl->out);
}

/* Anything but CTL_DONE ends the stream; that there were enough lines is no failure, as verb_monitor() knows.
 */
static int on_sample(struct ctl *ctl, struct json_object *sample, void *data)
{
    struct monitor *m = data;

    if (m->n_lines == 0 && !ctl->no_legend && ctl->json == CTL_JSON_OFF)
        print_legend(ctl);
    if (!ctl_print_json(ctl, sample))
        print_sample(ctl, m, sample);
    if (fflush(ctl->out) != 0)
        return CTL_FAILED; /* why is told when the program ends */
    return ++m->n_lines == m->n_lines_max ? CTL_FAILED : CTL_DONE;
}

/* Left out, the daemon's own default holds. Its bounds are the interface's, and a wrong line is told as one. */
static int add_interval(struct ctl *ctl, struct json_object *o)
{
    struct error_line why;
    uint64_t usec;
    int r;

    if (!ctl->interval)
        return CTL_DONE;
    r = parse_usec(ctl->interval, &usec);
    if (r < 0) {
        parse_error_describe(PARSE_TIME, r, ctl->interval, &why);
        return ctl_usage("--interval: %s", why.text);
    }
    if (usec < INTERVAL_MIN_USEC || usec > INTERVAL_MAX_USEC)
        return ctl_usage("--interval: '%s' is out of range; 10ms..1h", text_quote(ctl->interval).text);
    (void)json_object_object_add(o, "intervalUSec", json_object_new_uint64(usec));
    return CTL_DONE;
}

/*
 * Ends by --count, by the daemon's end, or by a signal, which needs no handler: there is nothing to undo.
 */
int verb_monitor(struct ctl *ctl, int argc, char **argv)
{
    struct monitor m = {.n_lines_max = UINT64_MAX};
    struct json_object *o;
    int status;

    if (ctl->count && parse_u64(ctl->count, 1, UINT64_MAX - 1, &m.n_lines_max) < 0)
        return ctl_usage("--count: '%s' is no number of lines", text_quote(ctl->count).text);
    o = ctl_object("arena", argv[0]);
    status = add_interval(ctl, o);
    if (status != CTL_DONE) {
        (void)json_object_put(o);
        return status;
    }
    status = ctl_call_more(ctl, CTL_INTERFACE ".Monitor", o, on_sample, &m);
    return m.n_lines == m.n_lines_max ? CTL_DONE : status;
}
