/* SPDX-License-Identifier: MIT */
/*
 * The structs of control.h as the types of org.reclaimd.Control: tables of member, kind and offset.
 *
 * A new figure is a member of the struct, a row here, a line in the .varlink file and, if people shall see it, a
 * row in the control tool. Counters of 64 bits go out as JSON integers; readers that turn integers into floating
 * point lose the last digits of what has passed 2^53, which no counter of ours reaches before decades.
 *
 * json-c copies what it is given, so nothing here outlives the call that it is made for.
 */
#include <errno.h>

#include "basic/macro.h"
#include "control-internal.h"

enum member_kind {
    MEMBER_U64,
    MEMBER_U32, /* uid_t, gid_t, mode_t */
    MEMBER_PID,
    MEMBER_BOOLEAN,
    MEMBER_TEXT,
};

struct member {
    const char *name;
    enum member_kind kind;
    size_t offset;
};

/*
 * Numbers become JSON integers of 64 bits. A text that is not there is an empty one: the interface has no
 * optional texts in these places.
 */
static struct json_object *member_encode(const struct member *m, const void *from)
{
    const void *at = (const char *)from + m->offset;

    switch (m->kind) {
    case MEMBER_U64:
        return json_object_new_uint64(*(const uint64_t *)at);
    case MEMBER_U32:
        return json_object_new_int64(*(const uint32_t *)at);
    case MEMBER_PID:
        return json_object_new_int64(*(const pid_t *)at);
    case MEMBER_BOOLEAN:
        return json_object_new_boolean(*(const bool *)at);
    case MEMBER_TEXT:
        return json_object_new_string(*(const char *const *)at ?: "");
    }
    return NULL;
}

assert_cc(sizeof(uid_t) == sizeof(uint32_t) && sizeof(gid_t) == sizeof(uint32_t) &&
          sizeof(mode_t) == sizeof(uint32_t));

/*
 * The object of one struct. Without memory for a member it is null, and the reply goes out with it: the
 * daemon has worse things to do then.
 */
static struct json_object *encode(const struct member *members, size_t n, const void *from)
{
    struct json_object *o = json_object_new_object();

    if (!o)
        return NULL;
    for (size_t i = 0; i < n; i++)
        (void)json_object_object_add(o, members[i].name, member_encode(&members[i], from));
    return o;
}

/* Takes the value, also on failure, so that calls can be nested. */
struct json_object *control_json_wrap(const char *name, struct json_object *value)
{
    struct json_object *o = json_object_new_object();

    if (o && json_object_object_add(o, name, value) >= 0)
        return o;
    (void)json_object_put(value);
    (void)json_object_put(o);
    return NULL;
}

#define FIGURE(wire, field)                                                                                  \
    {                                                                                                        \
        wire, MEMBER_U64, offsetof(struct control_figures, field)                                            \
    }

static const struct member figure_members[] = {
    FIGURE("clients", clients),
    FIGURE("lanes", lanes),
    FIGURE("lanesReading", lanes_reading),
    FIGURE("sizeBytes", size_bytes),
    FIGURE("inUseObjects", in_use_objects),
    FIGURE("inUseBytes", in_use_bytes),
    FIGURE("cachedObjects", cached_objects),
    FIGURE("cachedBytes", cached_bytes),
    FIGURE("pendingObjects", pending_objects),
    FIGURE("pendingBytes", pending_bytes),
    FIGURE("lazyPages", lazy_pages),
    FIGURE("lazyBytes", lazy_bytes),
    FIGURE("backedBytes", backed_bytes),
    FIGURE("gracePeriodsStarted", gp_started),
    FIGURE("gracePeriodsCompleted", gp_completed),
    FIGURE("gracePeriodLastUSec", gp_last_usec),
    FIGURE("gracePeriodMaxUSec", gp_max_usec),
    FIGURE("pages", n_pages),
    FIGURE("batchesRunning", batches_running),
    FIGURE("batches", n_batches),
    FIGURE("purgesQueued", n_purges_queued),
    FIGURE("purgesRun", n_purges_run),
    FIGURE("holes", n_holes),
    FIGURE("punchedBytes", punched_bytes),
    FIGURE("frees", n_frees),
    FIGURE("freedBytes", freed_bytes),
    FIGURE("refusedRecords", n_refused_records),
    FIGURE("refusedAllocations", n_refused_allocations),
    FIGURE("oldestPendingUSec", oldest_pending_usec),
    FIGURE("chainObjects", n_chain_objects),
    FIGURE("sweeps", n_sweeps),
    FIGURE("keptObjects", n_kept_objects),
    FIGURE("synchronizes", n_synchronizes),
    FIGURE("synchronizing", synchronizing),
    FIGURE("directWakes", n_direct_wakes),
    FIGURE("workerWakes", n_worker_wakes),
    FIGURE("fifoWakes", n_fifo_wakes),
    FIGURE("callbacksAhead", n_callbacks_ahead),
    FIGURE("maxDirectWakes", max_direct_wakes),
    FIGURE("mutes", n_mutes),
    FIGURE("wakeups", n_wakeups),
    FIGURE("stalledReaders", stalled_readers),
    FIGURE("stalls", n_stalls),
};

/* By the names of the causes, which are those of the interface. */
static struct json_object *encode_drains(const struct control_figures *f)
{
    struct json_object *o = json_object_new_object();

    for (int i = 0; o && i < _CONTROL_DRAIN_MAX; i++)
        (void)json_object_object_add(o, control_drain_cause_to_string(i),
                                     json_object_new_uint64(f->n_drains[i]));
    return o;
}

static struct json_object *encode_page_histogram(const struct control_figures *f)
{
    struct json_object *a = json_object_new_array();

    for (int i = 0; a && i < CONTROL_PAGE_HISTOGRAM; i++)
        (void)json_object_array_add(a, json_object_new_uint64(f->page_histogram[i]));
    return a;
}

/*
 * The objects a page are a ratio and go over the wire as such: from sums over arenas nobody could compute
 * it.
 */
struct json_object *control_json_figures(const struct control_figures *figures)
{
    struct json_object *o = encode(figure_members, ARRAY_SIZE(figure_members), figures);
    double per_page = figures->n_pages > 0 ? (double)figures->n_page_objects / (double)figures->n_pages : 0.0;

    if (!o)
        return NULL;
    (void)json_object_object_add(o, "objectsPerPage", json_object_new_double(per_page));
    (void)json_object_object_add(o, "pageHistogram", encode_page_histogram(figures));
    (void)json_object_object_add(o, "drains", encode_drains(figures));
    return o;
}

/* The struct is nothing but counters, so it sums as an array of them. */
void control_figures_add(struct control_figures *sum, const struct control_figures *figures)
{
    uint64_t last_usec = MAX(sum->gp_last_usec, figures->gp_last_usec);
    uint64_t max_usec = MAX(sum->gp_max_usec, figures->gp_max_usec);
    uint64_t oldest_usec = MAX(sum->oldest_pending_usec, figures->oldest_pending_usec);
    uint64_t max_wakes = MAX(sum->max_direct_wakes, figures->max_direct_wakes);
    const uint64_t *from = (const uint64_t *)figures;
    uint64_t *to = (uint64_t *)sum;

    assert_cc(sizeof(struct control_figures) % sizeof(uint64_t) == 0);
    for (size_t i = 0; i < sizeof(*sum) / sizeof(uint64_t); i++)
        to[i] += from[i];
    sum->gp_last_usec = last_usec;
    sum->gp_max_usec = max_usec;
    sum->oldest_pending_usec = oldest_usec;
    sum->max_direct_wakes = max_wakes;
}

static const struct member reader_members[] = {
    {"client", MEMBER_U64, offsetof(struct control_reader, client)},
    {"pid", MEMBER_PID, offsetof(struct control_reader, pid)},
    {"tid", MEMBER_PID, offsetof(struct control_reader, tid)},
    {"ageUSec", MEMBER_U64, offsetof(struct control_reader, age_usec)},
};

static const struct member arena_members[] = {
    {"name", MEMBER_TEXT, offsetof(struct control_arena_info, name)},
    {"state", MEMBER_TEXT, offsetof(struct control_arena_info, state)},
    {"owner", MEMBER_U32, offsetof(struct control_arena_info, owner)},
    {"group", MEMBER_U32, offsetof(struct control_arena_info, group)},
    {"mode", MEMBER_U32, offsetof(struct control_arena_info, mode)},
    {"transient", MEMBER_BOOLEAN, offsetof(struct control_arena_info, transient)},
    {"baseAddress", MEMBER_U64, offsetof(struct control_arena_info, base_address)},
    {"createdUSec", MEMBER_U64, offsetof(struct control_arena_info, created_usec)},
};

/* The reader is left out when there is none. */
struct json_object *control_json_arena(const struct control_arena_info *info)
{
    struct json_object *o = encode(arena_members, ARRAY_SIZE(arena_members), info);

    if (!o)
        return NULL;
    (void)json_object_object_add(o, "figures", control_json_figures(&info->figures));
    if (info->oldest_reader.found)
        (void)json_object_object_add(
            o, "oldestReader", encode(reader_members, ARRAY_SIZE(reader_members), &info->oldest_reader));
    return o;
}

static const struct member stall_members[] = {
    {"arena", MEMBER_TEXT, offsetof(struct control_stall, arena)},
    {"client", MEMBER_U64, offsetof(struct control_stall, client)},
    {"pid", MEMBER_PID, offsetof(struct control_stall, pid)},
    {"tid", MEMBER_PID, offsetof(struct control_stall, tid)},
    {"uid", MEMBER_U32, offsetof(struct control_stall, uid)},
    {"gracePeriod", MEMBER_U64, offsetof(struct control_stall, gp)},
    {"durationUSec", MEMBER_U64, offsetof(struct control_stall, usec)},
    {"objects", MEMBER_U64, offsetof(struct control_stall, n_objects)},
    {"bytes", MEMBER_U64, offsetof(struct control_stall, bytes)},
    {"waiters", MEMBER_U64, offsetof(struct control_stall, n_waiters)},
};

/* A process chooses its own name: whatever it is, it is safe to print on a terminal afterwards. */
static void add_command(struct json_object *o, const char *comm)
{
    if (o)
        (void)json_object_object_add(o, "command", json_object_new_string(text_quote(comm ?: "").text));
}

struct json_object *control_json_stall(const struct control_stall *stall)
{
    struct json_object *o = encode(stall_members, ARRAY_SIZE(stall_members), stall);

    add_command(o, stall->comm);
    return o;
}

static const struct member client_members[] = {
    {"id", MEMBER_U64, offsetof(struct control_client_info, id)},
    {"pid", MEMBER_PID, offsetof(struct control_client_info, pid)},
    {"uid", MEMBER_U32, offsetof(struct control_client_info, uid)},
    {"gid", MEMBER_U32, offsetof(struct control_client_info, gid)},
    {"arena", MEMBER_TEXT, offsetof(struct control_client_info, arena)},
    {"state", MEMBER_TEXT, offsetof(struct control_client_info, state)},
    {"lanes", MEMBER_U64, offsetof(struct control_client_info, lanes)},
    {"lanesReading", MEMBER_U64, offsetof(struct control_client_info, lanes_reading)},
    {"pendingObjects", MEMBER_U64, offsetof(struct control_client_info, pending_objects)},
    {"pendingBytes", MEMBER_U64, offsetof(struct control_client_info, pending_bytes)},
    {"refusedRecords", MEMBER_U64, offsetof(struct control_client_info, n_refused_records)},
    {"sinceUSec", MEMBER_U64, offsetof(struct control_client_info, since_usec)},
    {"stalledReaders", MEMBER_U64, offsetof(struct control_client_info, stalled_readers)},
};

/* Without a reader that stalls there is none. */
struct json_object *control_json_client(const struct control_client_info *info)
{
    struct json_object *o = encode(client_members, ARRAY_SIZE(client_members), info);

    add_command(o, info->comm);
    if (o && info->stall.client)
        (void)json_object_object_add(o, "stall", control_json_stall(&info->stall));
    return o;
}

static const struct member status_members[] = {
    {"version", MEMBER_TEXT, offsetof(struct control_status, version)},
    {"state", MEMBER_TEXT, offsetof(struct control_status, state)},
    {"pid", MEMBER_PID, offsetof(struct control_status, pid)},
    {"uid", MEMBER_U32, offsetof(struct control_status, uid)},
    {"startedUSec", MEMBER_U64, offsetof(struct control_status, started_usec)},
    {"uptimeUSec", MEMBER_U64, offsetof(struct control_status, uptime_usec)},
    {"arenas", MEMBER_U64, offsetof(struct control_status, arenas)},
    {"clients", MEMBER_U64, offsetof(struct control_status, clients)},
    {"clientsMax", MEMBER_U64, offsetof(struct control_status, clients_max)},
    {"readersMustFence", MEMBER_BOOLEAN, offsetof(struct control_status, readers_must_fence)},
    {"underPressure", MEMBER_BOOLEAN, offsetof(struct control_status, under_pressure)},
    {"memoryPressures", MEMBER_U64, offsetof(struct control_status, n_pressures)},
    {"memoryPressuresPassed", MEMBER_U64, offsetof(struct control_status, n_pressures_passed)},
    {"callbacksWaiting", MEMBER_U64, offsetof(struct control_status, callbacks_waiting)},
    {"callbacks", MEMBER_U64, offsetof(struct control_status, n_callbacks)},
    {"wakeups", MEMBER_U64, offsetof(struct control_status, n_wakeups)},
    {"residentBytes", MEMBER_U64, offsetof(struct control_status, rss_bytes)},
    {"membarriers", MEMBER_U64, offsetof(struct control_status, n_membarriers)},
    {"configFile", MEMBER_TEXT, offsetof(struct control_status, config_file)},
};

/* With the sum over the arenas and the stalls, which the caller of this made for the eyes of its own caller.
 * Takes the stalls. */
struct json_object *control_json_status(const struct control_status *status,
                                        const struct control_figures *sum, struct json_object *stalls)
{
    struct json_object *o = encode(status_members, ARRAY_SIZE(status_members), status);

    if (!o) {
        (void)json_object_put(stalls);
        return NULL;
    }
    (void)json_object_object_add(o, "figures", control_json_figures(sum));
    (void)json_object_object_add(o, "stalls", stalls);
    return o;
}

static const struct member parameter_members[] = {
    {"name", MEMBER_TEXT, offsetof(struct control_parameter_info, name)},
    {"type", MEMBER_TEXT, offsetof(struct control_parameter_info, type)},
    {"unit", MEMBER_TEXT, offsetof(struct control_parameter_info, unit)},
    {"range", MEMBER_TEXT, offsetof(struct control_parameter_info, range)},
    {"default", MEMBER_TEXT, offsetof(struct control_parameter_info, default_value)},
    {"value", MEMBER_TEXT, offsetof(struct control_parameter_info, value)},
    {"origin", MEMBER_TEXT, offsetof(struct control_parameter_info, origin)},
    {"description", MEMBER_TEXT, offsetof(struct control_parameter_info, doc)},
};

/* The scope as a word: a later one may be neither. */
struct json_object *control_json_parameter(const struct control_parameter_info *info)
{
    struct json_object *o = encode(parameter_members, ARRAY_SIZE(parameter_members), info);

    if (o)
        (void)json_object_object_add(o, "scope",
                                     json_object_new_string(info->arena_scope ? "arena" : "daemon"));
    return o;
}

static const struct member change_members[] = {
    {"name", MEMBER_TEXT, offsetof(struct control_change, name)},
    {"old", MEMBER_TEXT, offsetof(struct control_change, old_value)},
    {"new", MEMBER_TEXT, offsetof(struct control_change, new_value)},
};

/* Without an arena it is the daemon's own value. */
struct json_object *control_json_change(const struct control_change *change)
{
    struct json_object *o = encode(change_members, ARRAY_SIZE(change_members), change);

    if (o && change->arena)
        (void)json_object_object_add(o, "arena", json_object_new_string(change->arena));
    return o;
}

static const struct member result_members[] = {
    {"usec", MEMBER_U64, offsetof(struct control_result, usec)},
    {"objects", MEMBER_U64, offsetof(struct control_result, n_objects)},
    {"bytes", MEMBER_U64, offsetof(struct control_result, bytes)},
};

/* A failed one has its failure and no figures. */
struct json_object *control_json_result(const char *arena, const struct control_result *result,
                                        const char *failure)
{
    static const struct control_result nothing = {};
    struct json_object *o, *complaints = json_object_new_array();

    result = result ?: &nothing;
    o = encode(result_members, ARRAY_SIZE(result_members), result);
    if (!o || !complaints) {
        (void)json_object_put(complaints);
        (void)json_object_put(o);
        return NULL;
    }
    for (size_t i = 0; i < result->n_complaints; i++)
        (void)json_object_array_add(complaints, json_object_new_string(result->complaints[i]));
    (void)json_object_object_add(o, "arena", json_object_new_string(arena));
    (void)json_object_object_add(o, "complaints", complaints);
    if (failure)
        (void)json_object_object_add(o, "failure", json_object_new_string(failure));
    return o;
}
