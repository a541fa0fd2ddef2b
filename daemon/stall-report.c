/* SPDX-License-Identifier: MIT */
/*
 * How a stall is told; see stall-report.h.
 *
 * What the client is told stands in its channel, where it could overwrite it: nothing there is ever read
 * back. A report is a line of the lane, written between an odd and an even number, so that who reads while we
 * write sees it; then the channel's word changes, for a thread that may sleep on it. That one is woken once
 * all lines are written: a client may have thousands of lanes, and a system call for each would hold up
 * every arena.
 */
#include "stall-report.h"

#include <inttypes.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "arena.h"
#include "basic/ordering.h"
#include "basic/text.h"
#include "clock.h"
#include "log.h"
#include "trace-events.h"

#define TID_MAX (1u << 22) /* the kernel's own limit */

uint32_t stall_tid(const struct client_lane *cl)
{
    /* Relaxed: the client's own word about itself, for display only. */
    uint32_t tid = load_relaxed(&cl->lane.shared->owner[0]) & ABI_OWNER_TID;

    return tid <= TID_MAX ? tid : 0;
}

/* ---- To the log ---- */

/* OBJECT_PID is what journalctl and others know; from a daemon that runs as root the journal adds to it. */
static void fields_add_client(struct log_fields *f, const char *message_id, const struct arena *a,
                              const struct client *c, uint64_t number)
{
    log_fields_add(f, "MESSAGE_ID=%s", message_id);
    log_fields_add(f, "RECLAIMD_ARENA=%s", a->name);
    log_fields_add(f, "RECLAIMD_CLIENT=%" PRIu64, c->id);
    log_fields_add(f, "RECLAIMD_GRACE_PERIOD=%" PRIu64, number);
    log_fields_add(f, "RECLAIMD_UID=%u", (unsigned)c->uid);
    log_fields_add(f, "RECLAIMD_COMMAND=%s", text_quote(c->comm).text);
    if (c->pid > 0)
        log_fields_add(f, "OBJECT_PID=%d", (int)c->pid);
}

static void fields_add_report(struct log_fields *f, const char *message_id, const struct arena *a,
                              const struct stall_report *r)
{
    fields_add_client(f, message_id, a, r->client, r->number);
    log_fields_add(f, "RECLAIMD_TID=%" PRIu32, r->tid);
    log_fields_add(f, "RECLAIMD_STALL_USEC=%" PRIu64, r->usec);
    log_fields_add(f, "RECLAIMD_WAITING_OBJECTS=%" PRIu64, r->objects);
    log_fields_add(f, "RECLAIMD_WAITING_BYTES=%" PRIu64, r->bytes);
    log_fields_add(f, "RECLAIMD_WAITERS=%" PRIu64, r->waiters);
}

static void log_stall(const struct arena *a, const struct stall_report *r)
{
    const struct client *c = r->client;
    struct log_fields fields = {.n = 0};

    fields_add_report(&fields, MESSAGE_STALL, a, r);
    log_message_with(LOG_WARNING, &fields,
                     "arena %s: client %" PRIu64 " (pid %d, tid %" PRIu32
                     ", uid %u, %s) holds up grace period %" PRIu64 " for %" PRIu64 " ms; behind it %" PRIu64
                     " objects (%" PRIu64 " bytes) wait, and callers: %" PRIu64,
                     a->name, c->id, (int)c->pid, r->tid, (unsigned)c->uid, text_quote(c->comm).text,
                     r->number, r->usec / 1000, r->objects, r->bytes, r->waiters);
}

static void log_ended(const struct arena *a, const struct stall_report *r)
{
    const struct client *c = r->client;
    struct log_fields fields = {.n = 0};

    fields_add_report(&fields, MESSAGE_STALL_ENDED, a, r);
    log_message_with(LOG_NOTICE, &fields,
                     "arena %s: client %" PRIu64 " (pid %d, tid %" PRIu32
                     ", uid %u, %s) held up grace period %" PRIu64 " for %" PRIu64 " ms, and does no longer",
                     a->name, c->id, (int)c->pid, r->tid, (unsigned)c->uid, text_quote(c->comm).text,
                     r->number, r->usec / 1000);
}

static void log_kill(const struct arena *a, const struct client *c, uint64_t number, int error)
{
    struct log_fields fields = {.n = 0};

    fields_add_client(&fields, error ? MESSAGE_STALL_NOT_KILLED : MESSAGE_STALL_KILLED, a, c, number);
    if (error) {
        log_fields_add(&fields, "ERRNO=%d", error);
        log_message_with(
            LOG_ERR, &fields,
            "arena %s: stall-action = kill, but client %" PRIu64 " (pid %d, uid %u, %s) cannot be killed: %s",
            a->name, c->id, (int)c->pid, (unsigned)c->uid, text_quote(c->comm).text, strerror(error));
        return;
    }
    log_message_with(LOG_WARNING, &fields,
                     "arena %s: killed client %" PRIu64 " (pid %d, uid %u, %s), as stall-action says",
                     a->name, c->id, (int)c->pid, (unsigned)c->uid, text_quote(c->comm).text);
}

/* ---- To the client ---- */

/* Numbers begin with the clock: after a restart of the daemon they are others than before it. */
static uint64_t report_next(struct client *c, uint64_t now)
{
    c->stall_reports = c->stall_reports ? c->stall_reports + 1 : now;
    return c->stall_reports;
}

static void tell_client(const struct stall_report *r, bool ended, uint64_t now)
{
    struct abi_stall *s = &r->lane->lane.shared->stall;
    uint64_t number = report_next(r->client, now);

    store_relaxed(&s->sequence, number * 2 - 1);
    release_fence(); /* the odd number before what follows; pairs with the acquire fence in stall_read() */
    store_relaxed(&s->gp, r->number);
    store_relaxed(&s->usec, r->usec);
    store_relaxed(&s->objects, r->objects);
    store_relaxed(&s->bytes, r->bytes);
    store_relaxed(&s->waiters, r->waiters);
    store_relaxed(&s->tid, r->tid);
    store_relaxed(&s->ended, (uint32_t)ended);
    store_release(&s->sequence, number * 2); /* after all of it; pairs with the acquire in stall_read() */
    /* after the report; pairs with the acquire in watch_main() */
    store_release(&r->client->channel->stalls, (uint32_t)number);
    r->client->stall_untold = true;
}

void stall_report_wake(struct client *c)
{
    if (!c->stall_untold)
        return;
    c->stall_untold = false;
    /* one: the library has one thread there, and who had thousands wait would have us wake them all */
    (void)syscall(SYS_futex, &c->channel->stalls, FUTEX_WAKE, 1, NULL, NULL, 0);
}

/* ---- To all ---- */

void stall_report(struct arena *a, const struct stall_report *r, bool log)
{
    if (log)
        log_stall(a, r);
    trace_stall(a, r);
    tell_client(r, false, now_usec());
}

void stall_report_ended(struct arena *a, const struct stall_report *r, bool log)
{
    if (log)
        log_ended(a, r);
    trace_stall_ended(a, r);
    tell_client(r, true, now_usec());
}

void stall_report_kill(struct arena *a, const struct client *c, uint64_t number, int error, bool log)
{
    if (log)
        log_kill(a, c, number, error);
    trace_stall_kill(a, c, error);
}
