/* SPDX-License-Identifier: MIT */
/*
 * status, list-arenas, show, list-clients: what there is.
 *
 * Tables have a line an entry and no blanks within a field but in the last two columns of list-clients (a date
 * has one), so that they can be split by scripts that do without JSON. `show` has a line a figure instead: all
 * that there is about one arena, in the order in which one asks: whose is it, who holds it up, what does it
 * hold, what has it done.
 */
#include <inttypes.h>
#include <string.h>

#include "basic/cleanup.h"
#include "ctl.h"
#include "table.h"

/* The only way in which a table fails. */
static int print_table(struct ctl *ctl, const struct table *t)
{
    return table_print(t, ctl->out, !ctl->no_legend) < 0 ? ctl_fail("out of memory") : CTL_DONE;
}

/* Rounded for people; --json has them exactly. */
static void add_bytes(struct table *t, struct json_object *o, const char *path)
{
    char text[FORMAT_BYTES];

    table_add(t, format_bytes_human(ctl_number(o, path), text));
}

/* Plain digits, so that columns can be added up. */
static void add_number(struct table *t, struct json_object *o, const char *path)
{
    table_addf(t, "%" PRIu64, ctl_number(o, path));
}

/* "1h 5min" is "1h5min" where a field may have no blank. In place. */
static const char *no_blanks(char *text)
{
    char *to = text;

    for (const char *from = text; *from; from++)
        if (*from != ' ')
            *to++ = *from;
    *to = '\0';
    return text;
}

/* "77/78:1.5ms": process, thread and age of the oldest read section; no blanks, as it is one field. */
static void add_reader(struct table *t, struct json_object *reader)
{
    char age[FORMAT_BYTES];

    if (!reader)
        table_add(t, "-");
    else
        table_addf(t, "%" PRIu64 "/%" PRIu64 ":%s", ctl_number(reader, "pid"), ctl_number(reader, "tid"),
                   ctl_duration(ctl_number(reader, "ageUSec"), age));
}

/* Ten short columns: they fit on a line of 100 characters with sizes of gigabytes. */
static void add_status_row(struct table *t, struct json_object *arena)
{
    table_add(t, ctl_text(arena, "name"));
    table_add(t, ctl_text(arena, "state"));
    add_number(t, arena, "figures/clients");
    add_bytes(t, arena, "figures/sizeBytes");
    add_bytes(t, arena, "figures/inUseBytes");
    add_bytes(t, arena, "figures/pendingBytes");
    add_bytes(t, arena, "figures/lazyBytes");
    add_bytes(t, arena, "figures/backedBytes");
    add_number(t, arena, "figures/gracePeriodsCompleted");
    add_reader(t, ctl_at(arena, "oldestReader"));
}

/* Two lines about the service, and one for each thing that is out of order. */
static void print_service(struct ctl *ctl, struct json_object *s)
{
    char since[FORMAT_BYTES], uptime[FORMAT_BYTES], user[FORMAT_BYTES], rss[FORMAT_BYTES],
        clients[FORMAT_BYTES];
    char arenas[FORMAT_BYTES];

    (void)fprintf(ctl->out, "reclaimd %s, %s since %s (%s), pid %" PRIu64 ", user %s\n",
                  ctl_text(s, "version"), ctl_text(s, "state"), ctl_time(ctl_number(s, "startedUSec"), since),
                  ctl_duration(ctl_number(s, "uptimeUSec"), uptime), ctl_number(s, "pid"),
                  ctl_user(ctl_number(s, "uid"), user));
    (void)fprintf(ctl->out,
                  "%s, %s of at most %" PRIu64 ", %s resident, %" PRIu64 " wake-ups, %" PRIu64
                  " membarriers, %" PRIu64 " callbacks run, %" PRIu64 " waiting\n",
                  ctl_count(ctl_number(s, "arenas"), "arena", "arenas", arenas),
                  ctl_count(ctl_number(s, "clients"), "client", "clients", clients),
                  ctl_number(s, "clientsMax"), format_bytes_human(ctl_number(s, "residentBytes"), rss),
                  ctl_number(s, "wakeups"), ctl_number(s, "membarriers"), ctl_number(s, "callbacks"),
                  ctl_number(s, "callbacksWaiting"));
    if (ctl_number(s, "memoryPressures") > 0)
        (void)fprintf(ctl->out,
                      "memory %s short: drained and purged %" PRIu64 " times, %" PRIu64
                      " more warnings let pass\n",
                      ctl_boolean(s, "underPressure") ? "is" : "was", ctl_number(s, "memoryPressures"),
                      ctl_number(s, "memoryPressuresPassed"));
    if (ctl_boolean(s, "readersMustFence"))
        (void)fputs("membarrier does not reach everybody: readers pay for a fence\n", ctl->out);
}

/* The command comes last: it is the only text that others choose. */
static void add_stall_row(struct table *t, struct json_object *stall)
{
    char text[FORMAT_BYTES];

    table_add(t, ctl_text(stall, "arena"));
    add_number(t, stall, "client");
    add_number(t, stall, "pid");
    add_number(t, stall, "tid");
    table_add(t, ctl_user(ctl_number(stall, "uid"), text));
    table_add(t, no_blanks(ctl_duration(ctl_number(stall, "durationUSec"), text)));
    add_number(t, stall, "gracePeriod");
    add_number(t, stall, "objects");
    add_bytes(t, stall, "bytes");
    add_number(t, stall, "waiters");
    table_add(t, ctl_text(stall, "command"));
}

/* Only when something stalls: who, for how long, and what waits for it. */
static int print_stalls(struct ctl *ctl, struct json_object *status)
{
    static const char *const columns[] = {"STALLED",  ">CLIENT",  ">PID",          ">TID",
                                          "USER",     ">FOR",     ">GRACE-PERIOD", ">WAITING-OBJECTS",
                                          ">WAITING", ">CALLERS", "COMMAND",       NULL};
    _cleanup_(table_freep) struct table *t = table_new(columns);
    struct json_object *stalls = ctl_at(status, "stalls");
    size_t n = json_object_is_type(stalls, json_type_array) ? json_object_array_length(stalls) : 0;
    uint64_t n_all = ctl_number(status, "figures/stalledReaders");
    int r;

    if (n == 0)
        return CTL_DONE;
    for (size_t i = 0; i < n; i++)
        add_stall_row(t, json_object_array_get_idx(stalls, i));
    (void)fputc('\n', ctl->out);
    r = print_table(ctl, t);
    if (n_all > n)
        (void)fprintf(ctl->out, "and %" PRIu64 " more\n", n_all - n);
    return r;
}

/*
 * Two calls, as the list of arenas may need several replies. An arena that comes or goes between them is
 * no error.
 */
int verb_status(struct ctl *ctl, int argc, char **argv)
{
    static const char *const columns[] = {"ARENA",          "STATE",         ">CLIENTS", ">SIZE",
                                          ">IN-USE",        ">PENDING",      ">LAZY",    ">BACKED",
                                          ">GRACE-PERIODS", "OLDEST-READER", NULL};
    _cleanup_(table_freep) struct table *t = table_new(columns);
    struct json_object *reply, *arenas, *status;
    int r;

    r = ctl_call(ctl, CTL_INTERFACE ".GetStatus", NULL, &reply);
    if (r != CTL_DONE)
        return r;
    r = ctl_call_list(ctl, CTL_INTERFACE ".ListArenas", NULL, "arenas", &arenas);
    if (r != CTL_DONE) {
        (void)json_object_put(reply);
        return r;
    }
    status = ctl_at(reply, "status");
    (void)json_object_object_add(reply, "arenas", arenas);
    if (!ctl_print_json(ctl, reply)) {
        print_service(ctl, status);
        for (size_t i = 0; i < json_object_array_length(arenas); i++)
            add_status_row(t, json_object_array_get_idx(arenas, i));
        if (json_object_array_length(arenas) > 0) {
            (void)fputc('\n', ctl->out);
            r = print_table(ctl, t);
        }
        if (r == CTL_DONE)
            r = print_stalls(ctl, status);
    }
    (void)json_object_put(reply);
    return r;
}

/* Whose it is, then what it holds, by objects and bytes. */
static void add_arena_row(struct table *t, struct json_object *arena)
{
    char name[FORMAT_BYTES];

    table_add(t, ctl_text(arena, "name"));
    table_add(t, ctl_text(arena, "state"));
    table_add(t, ctl_user(ctl_number(arena, "owner"), name));
    table_add(t, ctl_group(ctl_number(arena, "group"), name));
    table_addf(t, "%04" PRIo64, ctl_number(arena, "mode"));
    table_add(t, ctl_boolean(arena, "transient") ? "yes" : "no");
    add_bytes(t, arena, "figures/sizeBytes");
    add_number(t, arena, "figures/clients");
    add_number(t, arena, "figures/lanes");
    add_number(t, arena, "figures/inUseObjects");
    add_bytes(t, arena, "figures/inUseBytes");
    add_number(t, arena, "figures/pendingObjects");
    add_bytes(t, arena, "figures/pendingBytes");
    add_bytes(t, arena, "figures/backedBytes");
}

/* A list as a table, one row an entry, or as JSON. Puts the list. */
static int print_list(struct ctl *ctl, struct json_object *list, const char *const *columns,
                      void (*add_row)(struct table *t, struct json_object *entry))
{
    _cleanup_(table_freep) struct table *t = table_new(columns);
    int status = CTL_DONE;

    if (!ctl_print_json(ctl, list)) {
        for (size_t i = 0; i < json_object_array_length(list); i++)
            add_row(t, json_object_array_get_idx(list, i));
        status = print_table(ctl, t);
    }
    (void)json_object_put(list);
    return status;
}

/* Those that the caller may see, in the daemon's order. */
int verb_list_arenas(struct ctl *ctl, int argc, char **argv)
{
    static const char *const columns[] = {"ARENA",    "STATE",           "OWNER",   "GROUP",
                                          "MODE",     "TRANSIENT",       ">SIZE",   ">CLIENTS",
                                          ">LANES",   ">IN-USE-OBJECTS", ">IN-USE", ">PENDING-OBJECTS",
                                          ">PENDING", ">BACKED",         NULL};
    struct json_object *list;
    int status = ctl_call_list(ctl, CTL_INTERFACE ".ListArenas", NULL, "arenas", &list);

    return status == CTL_DONE ? print_list(ctl, list, columns, add_arena_row) : status;
}

/* As add_stall_row(); a client that stalls nothing has a dash there. */
static void add_client_row(struct table *t, struct json_object *client)
{
    char text[FORMAT_BYTES];

    add_number(t, client, "id");
    add_number(t, client, "pid");
    table_add(t, ctl_user(ctl_number(client, "uid"), text));
    table_add(t, ctl_text(client, "arena"));
    table_add(t, ctl_text(client, "state"));
    add_number(t, client, "lanes");
    add_number(t, client, "lanesReading");
    add_number(t, client, "pendingObjects");
    add_bytes(t, client, "pendingBytes");
    add_number(t, client, "refusedRecords");
    table_add(t, ctl_at(client, "stall")
                     ? no_blanks(ctl_duration(ctl_number(client, "stall/durationUSec"), text))
                     : "-");
    table_add(t, ctl_time(ctl_number(client, "sinceUSec"), text));
    table_add(t, ctl_text(client, "command"));
}

/* Who holds what: the first look when a limit is reached. */
int verb_list_clients(struct ctl *ctl, int argc, char **argv)
{
    static const char *const columns[] = {
        ">CLIENT",          ">PID",     "USER",     "ARENA",       "STATE", ">LANES",  ">READING",
        ">PENDING-OBJECTS", ">PENDING", ">REFUSED", ">STALLS-FOR", "SINCE", "COMMAND", NULL};
    struct json_object *list;
    int status =
        ctl_call_list(ctl, CTL_INTERFACE ".ListClients", ctl_object("arena", argv[0]), "clients", &list);

    return status == CTL_DONE ? print_list(ctl, list, columns, add_client_row) : status;
}

enum {
    SHOW_BYTES = 512, /* ten buckets with counts of twenty digits */
};

/* One line of `show`: a name, and a figure in one of several forms. */
struct show_row {
    const char *label;
    char form; /* n: number, b: bytes, d: duration, f: float, h: histogram by powers of two */
    const char *path;
};

static const struct show_row show_rows[] = {
    {"Clients", 'n', "figures/clients"},
    {"Lanes", 'n', "figures/lanes"},
    {"Lanes reading", 'n', "figures/lanesReading"},
    {"Size", 'b', "figures/sizeBytes"},
    {"In use, objects", 'n', "figures/inUseObjects"},
    {"In use", 'b', "figures/inUseBytes"},
    {"In magazines, objects", 'n', "figures/cachedObjects"},
    {"In magazines", 'b', "figures/cachedBytes"},
    {"Pending, objects", 'n', "figures/pendingObjects"},
    {"Pending", 'b', "figures/pendingBytes"},
    {"Oldest pending", 'd', "figures/oldestPendingUSec"},
    {"Lazy, pages", 'n', "figures/lazyPages"},
    {"Lazy", 'b', "figures/lazyBytes"},
    {"Backed", 'b', "figures/backedBytes"},
    {"Grace periods started", 'n', "figures/gracePeriodsStarted"},
    {"Grace periods completed", 'n', "figures/gracePeriodsCompleted"},
    {"Last grace period", 'd', "figures/gracePeriodLastUSec"},
    {"Longest grace period", 'd', "figures/gracePeriodMaxUSec"},
    {"Drains by drain-interval", 'n', "figures/drains/interval"},
    {"Drains by flood-objects", 'n', "figures/drains/floodObjects"},
    {"Drains by flood-bytes", 'n', "figures/drains/floodBytes"},
    {"Drains for want of room", 'n', "figures/drains/full"},
    {"Drains under pressure", 'n', "figures/drains/pressure"},
    {"Drains on request", 'n', "figures/drains/request"},
    {"Drains for barriers", 'n', "figures/drains/barrier"},
    {"Drains after deaths", 'n', "figures/drains/death"},
    {"Record pages", 'n', "figures/pages"},
    {"Objects a page", 'f', "figures/objectsPerPage"},
    {"Pages by their objects", 'h', "figures/pageHistogram"},
    {"Objects by the chain", 'n', "figures/chainObjects"},
    {"Sweeps for want of pages", 'n', "figures/sweeps"},
    {"Kept, unproven", 'n', "figures/keptObjects"},
    {"Batches running", 'n', "figures/batchesRunning"},
    {"Batches", 'n', "figures/batches"},
    {"Objects freed", 'n', "figures/frees"},
    {"Bytes freed", 'b', "figures/freedBytes"},
    {"Purges queued", 'n', "figures/purgesQueued"},
    {"Purges run", 'n', "figures/purgesRun"},
    {"Holes punched", 'n', "figures/holes"},
    {"Bytes punched", 'b', "figures/punchedBytes"},
    {"Refused records", 'n', "figures/refusedRecords"},
    {"Refused allocations", 'n', "figures/refusedAllocations"},
    {"Synchronizes served", 'n', "figures/synchronizes"},
    {"Synchronizing now", 'n', "figures/synchronizing"},
    {"Woken at the end", 'n', "figures/directWakes"},
    {"Woken by a worker", 'n', "figures/workerWakes"},
    {"Woken behind callbacks", 'n', "figures/fifoWakes"},
    {"Most woken at one end", 'n', "figures/maxDirectWakes"},
    {"Wake-ups", 'n', "figures/wakeups"},
    {"Clients muted", 'n', "figures/mutes"},
    {"Stalled readers", 'n', "figures/stalledReaders"},
    {"Stalls", 'n', "figures/stalls"},
};

/* "1: 5, 4..7: 2, 512..: 1": what is not there is left out. */
static void show_histogram(struct json_object *buckets, char ret[static SHOW_BYTES])
{
    size_t n = json_object_is_type(buckets, json_type_array) ? json_object_array_length(buckets) : 0, at = 0;
    char range[FORMAT_BYTES];

    (void)strcpy(ret, "none");
    for (size_t i = 0; i < n && i < 32 && at < SHOW_BYTES; i++) {
        uint64_t first = UINT64_C(1) << i,
                 count = json_object_get_uint64(json_object_array_get_idx(buckets, i));

        if (count == 0)
            continue;
        if (i == n - 1)
            (void)snprintf(range, sizeof(range), "%" PRIu64 "..", first);
        else if (i == 0)
            (void)strcpy(range, "1");
        else
            (void)snprintf(range, sizeof(range), "%" PRIu64 "..%" PRIu64, first, 2 * first - 1);
        at += (size_t)snprintf(ret + at, SHOW_BYTES - at, "%s%s: %" PRIu64, at > 0 ? ", " : "", range, count);
    }
}

/* One figure in the form that its row says. */
static void show_value(struct json_object *arena, const struct show_row *row, char ret[static SHOW_BYTES])
{
    uint64_t n = row->form == 'h' ? 0 : ctl_number(arena, row->path);

    if (row->form == 'h')
        show_histogram(ctl_at(arena, row->path), ret);
    else if (row->form == 'b')
        (void)format_bytes_human(n, ret);
    else if (row->form == 'd')
        (void)ctl_duration(n, ret);
    else if (row->form == 'f')
        (void)snprintf(ret, FORMAT_BYTES, "%.1f", json_object_get_double(ctl_at(arena, row->path)));
    else
        (void)snprintf(ret, FORMAT_BYTES, "%" PRIu64, n);
}

/* The label's width is that of the longest one. */
static void show_line(struct ctl *ctl, const char *label, const char *value)
{
    (void)fprintf(ctl->out, "%-26s %s\n", label, value);
}

/* What stays the same as long as the arena lives. */
static void show_identity(struct ctl *ctl, struct json_object *arena)
{
    char text[FORMAT_BYTES];

    show_line(ctl, "Arena", ctl_text(arena, "name"));
    show_line(ctl, "State", ctl_text(arena, "state"));
    show_line(ctl, "Owner", ctl_user(ctl_number(arena, "owner"), text));
    show_line(ctl, "Group", ctl_group(ctl_number(arena, "group"), text));
    (void)snprintf(text, sizeof(text), "%04" PRIo64, ctl_number(arena, "mode"));
    show_line(ctl, "Mode", text);
    show_line(ctl, "Transient", ctl_boolean(arena, "transient") ? "yes" : "no");
    (void)snprintf(text, sizeof(text), "0x%" PRIx64, ctl_number(arena, "baseAddress"));
    show_line(ctl, "Address", text);
    show_line(ctl, "Since", ctl_time(ctl_number(arena, "createdUSec"), text));
}

/* The answer to the question why nothing is freed. */
static void show_reader(struct ctl *ctl, struct json_object *reader)
{
    char text[4 * FORMAT_BYTES], age[FORMAT_BYTES];

    if (reader)
        (void)snprintf(text, sizeof(text), "client %" PRIu64 ", pid %" PRIu64 ", tid %" PRIu64 ", for %s",
                       ctl_number(reader, "client"), ctl_number(reader, "pid"), ctl_number(reader, "tid"),
                       ctl_duration(ctl_number(reader, "ageUSec"), age));
    show_line(ctl, "Oldest reader", reader ? text : "none");
}

/* A list of one: the daemon says itself when there is no such arena. */
int verb_show(struct ctl *ctl, int argc, char **argv)
{
    struct json_object *list, *arena;
    char text[SHOW_BYTES];
    int status =
        ctl_call_list(ctl, CTL_INTERFACE ".ListArenas", ctl_object("arena", argv[0]), "arenas", &list);

    if (status != CTL_DONE)
        return status;
    arena = ctl_at(list, "0");
    if (!ctl_print_json(ctl, arena)) {
        show_identity(ctl, arena);
        show_reader(ctl, ctl_at(arena, "oldestReader"));
        for (size_t i = 0; i < ARRAY_SIZE(show_rows); i++) {
            show_value(arena, &show_rows[i], text);
            show_line(ctl, show_rows[i].label, text);
        }
    }
    (void)json_object_put(list);
    return CTL_DONE;
}
