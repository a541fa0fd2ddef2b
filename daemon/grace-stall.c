/* SPDX-License-Identifier: MIT */
/*
 * Readers that hold up a grace period for stall-timeout: when they are told of is engine/stall.h's, how is
 * stall-report.h's. Here are the books: which readers stall now, since when, how many there were.
 *
 * A reader stalls from its first report until it is no longer waited for, because it left its section or is
 * gone; each end is told too. Every one of them is in the books, reported to its client and to those who trace;
 * only the log has a limit, and what it leaves out is counted there.
 */
#include <errno.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "basic/macro.h"
#include "basic/ordering.h"
#include "engine/stall.h"
#include "grace-internal.h"
#include "log.h"
#include "stall-report.h"

#define LINES_MAX 8u /* in the log, of one report or of the ends in one grace period */

assert_cc(STALL_NEVER == PARAMETER_OFF);

/* ---- The books; all of it is for display elsewhere, so relaxed ---- */

static void reader_begin(struct gp *gp, struct client *c, struct client_lane *cl)
{
    store_relaxed(&cl->stall_tid, stall_tid(cl));
    store_relaxed(&cl->stall_since_usec, gp->begun_usec);
    store_relaxed(&cl->stall_gp, gp->started);
    store_relaxed(&c->n_stalled, c->n_stalled + 1);
    store_relaxed(&gp->n_stalled, gp->n_stalled + 1);
    store_relaxed(&gp->n_stalls, gp->n_stalls + 1);
}

static void reader_end(struct gp *gp, struct client *c, struct client_lane *cl)
{
    store_relaxed(&cl->stall_gp, UINT64_C(0));
    store_relaxed(&c->n_stalled, c->n_stalled - 1);
    store_relaxed(&gp->n_stalled, gp->n_stalled - 1);
}

/* ---- Reports ---- */

/* But for the reader. What waits is told as of the last pass of the arena's worker. */
static void report_begin(struct arena *a, uint64_t now, struct stall_report *ret)
{
    struct arena_figures f;

    arena_published(a, &f);
    *ret = (struct stall_report){
        .number = a->gp.started,
        .usec = now - a->gp.begun_usec,
        .objects = f.pending_objects,
        .bytes = f.pending_bytes,
        .waiters = sync_load_waiters(load_relaxed(&a->gp.load)), /* a figure */
    };
}

static void report_reader(struct stall_report *r, const struct straggler *s, struct client_lane *cl)
{
    r->client = s->client;
    r->lane = cl;
    r->tid = cl->stall_tid;
}

/* all: it is time for those that were told of, too; else only for who was not noticed before. */
static void stall_tell(struct arena *a, bool all, uint64_t now)
{
    struct gp *gp = &a->gp;
    struct stall_report r;
    uint32_t n = 0;

    report_begin(a, now, &r);
    for (uint32_t i = 0; i < gp->n_stragglers; i++) {
        const struct straggler *s = &gp->stragglers[i];
        struct client_lane *cl = client_lane_at(s->client, s->lane);

        if (!cl || (cl->stall_gp && !all))
            continue;
        if (!cl->stall_gp)
            reader_begin(gp, s->client, cl);
        report_reader(&r, s, cl);
        stall_report(a, &r, n++ < LINES_MAX);
    }
    for (uint32_t i = 0; i < gp->n_stragglers; i++)
        stall_report_wake(gp->stragglers[i].client);
    if (n > LINES_MAX)
        log_warning("arena %s: and %u more readers hold up grace period %llu", a->name, n - LINES_MAX,
                    (unsigned long long)gp->started);
}

/* By pidfd, so never somebody who got its number. One signal for all readers of a process. */
static void stall_kill(struct arena *a, uint64_t now)
{
    struct gp *gp = &a->gp;
    uint32_t n = 0;

    for (uint32_t i = 0; i < gp->n_stragglers; i++) {
        struct client *c = gp->stragglers[i].client;
        int error;

        if (c->stall_kill_usec == now)
            continue;
        c->stall_kill_usec = now;
        error = syscall(SYS_pidfd_send_signal, c->pidfd, SIGKILL, NULL, 0) < 0 ? errno : 0;
        stall_report_kill(a, c, gp->started, error, n++ < LINES_MAX);
    }
    if (n > LINES_MAX)
        log_warning("arena %s: and %u more clients, as stall-action = kill says", a->name, n - LINES_MAX);
}

/* ---- At each look ---- */

void grace_stall(struct arena *a, const struct arena_parameters *p, uint64_t now)
{
    struct gp *gp = &a->gp;
    struct stall_decision d = stall_decide(&(struct stall_input){
        .timeout_usec = p->stall_timeout_usec,
        .waited_usec = now - gp->begun_usec,
        .told_usec = gp->stall_told_usec,
        .kill = p->stall_action == STALL_ACTION_KILL,
        .killed = gp->stall_killed,
    });

    /* for display: whoever was found first has been in a section since before this one began */
    if (gp->n_stragglers > 0) {
        store_relaxed(&gp->oldest_client, gp->stragglers[0].client->id);
        store_relaxed(&gp->oldest_lane, gp->stragglers[0].lane);
        store_relaxed(&gp->oldest_since_usec, gp->begun_usec);
    }
    if (d.tell || gp->n_stalled < gp->n_stragglers)
        if (d.tell || gp->stall_told_usec > 0)
            stall_tell(a, d.tell, now);
    if (d.tell)
        gp->stall_told_usec = now - gp->begun_usec;
    if (d.kill)
        stall_kill(a, now);
    gp->stall_killed |= d.kill;
    if (d.next_usec != STALL_NEVER)
        gp->check_usec = MIN(gp->check_usec, gp->begun_usec + d.next_usec);
}

void grace_stall_end(struct arena *a, const struct straggler *s, uint64_t now)
{
    struct gp *gp = &a->gp;
    struct client_lane *cl = client_lane_at(s->client, s->lane);
    struct stall_report r;

    if (!cl || !cl->stall_gp)
        return;
    report_begin(a, now, &r);
    report_reader(&r, s, cl);
    reader_end(gp, s->client, cl);
    stall_report_ended(a, &r, gp->n_stall_ends++ < LINES_MAX);
}

/*
 * Readers that left while there was no memory to remember them: they were dropped from the list of those who
 * are waited for (gp->rescan) and are on no other, so they are looked for.
 */
static void end_forgotten(struct arena *a, uint64_t now)
{
    (void)pthread_mutex_lock(&a->clients_lock);
    for (uint32_t i = 0; i < a->n_clients; i++) {
        struct client *c = a->clients[i];
        uint32_t marks = load_acquire(&c->n_marked); /* pairs with arena_give_lane() */

        for (uint32_t lane = 0; c->n_stalled > 0 && lane < marks; lane++)
            grace_stall_end(a, &(struct straggler){c, lane}, now);
        stall_report_wake(c);
    }
    (void)pthread_mutex_unlock(&a->clients_lock);
    store_relaxed(&a->gp.n_stalled, UINT64_C(0)); /* with those of clients that are gone */
}

void grace_stall_over(struct arena *a, uint64_t now)
{
    struct gp *gp = &a->gp;

    if (gp->n_stalled > 0)
        end_forgotten(a, now);
    if (gp->n_stall_ends > LINES_MAX)
        log_notice("arena %s: and %u more readers that held up grace period %llu do no longer", a->name,
                   gp->n_stall_ends - LINES_MAX, (unsigned long long)gp->started);
    gp->n_stall_ends = 0;
    gp->stall_told_usec = 0;
    gp->stall_killed = false;
}
