/* SPDX-License-Identifier: MIT */
/* Readers that hold up a grace period for stall-timeout: told at that time, at three times it, then ever more
 * seldom. */
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "basic/macro.h"
#include "basic/ordering.h"
#include "grace-internal.h"
#include "log.h"
#include "trace-events.h"

#define REPORTED_MAX 8u /* readers of one report */

static void stall_kill(struct arena *a, const struct client *c)
{
    if (syscall(SYS_pidfd_send_signal, c->pidfd, SIGKILL, NULL, 0) == 0)
        log_warning("arena %s: killed client %llu (pid %d), as stall-action says", a->name,
                    (unsigned long long)c->id, (int)c->pid);
    else
        log_error("arena %s: stall-action = kill, but client %llu (pid %d) cannot be killed: %m", a->name,
                  (unsigned long long)c->id, (int)c->pid);
}

static void stall_report(struct arena *a, const struct arena_parameters *p, uint64_t now)
{
    struct gp *gp = &a->gp;
    struct arena_figures f;

    arena_published(a, &f);
    if (gp->n_stragglers > REPORTED_MAX)
        log_warning("arena %s: %u readers hold up grace period %llu; the first %u are:", a->name,
                    gp->n_stragglers, (unsigned long long)gp->started, REPORTED_MAX);
    for (uint32_t i = 0; i < MIN(gp->n_stragglers, REPORTED_MAX); i++) {
        const struct client *c = gp->stragglers[i].client;
        const struct client_lane *cl = client_lane_at(c, gp->stragglers[i].lane);

        log_warning(
            "arena %s: client %llu (pid %d, tid %u, uid %u, %s) holds up grace period %llu for %llu ms; "
            "%llu objects (%llu bytes) wait",
            a->name, (unsigned long long)c->id, (int)c->pid,
            cl ? load_relaxed(&cl->lane.shared->owner[0]) & ABI_OWNER_TID : 0, (unsigned)c->uid, c->comm,
            (unsigned long long)gp->started, (unsigned long long)((now - gp->begun_usec) / 1000),
            (unsigned long long)f.pending_objects, (unsigned long long)f.pending_bytes);
        trace_stall(a, c->id, now - gp->begun_usec);
    }
    for (uint32_t i = 0; p->stall_action == STALL_ACTION_KILL && i < gp->n_stragglers; i++)
        stall_kill(a, gp->stragglers[i].client);
}

void grace_stall(struct arena *a, const struct arena_parameters *p, uint64_t now)
{
    struct gp *gp = &a->gp;
    uint64_t waited = now - gp->begun_usec;

    /* for display: whoever was found first has been in a section since before this one began */
    if (gp->n_stragglers > 0) {
        store_relaxed(&gp->oldest_client, gp->stragglers[0].client->id);
        store_relaxed(&gp->oldest_lane, gp->stragglers[0].lane);
        store_relaxed(&gp->oldest_since_usec, gp->begun_usec);
    }
    if (p->stall_timeout_usec == PARAMETER_OFF || waited < p->stall_timeout_usec)
        return;
    /* a stall-action that changes acts at once, on those that were reported already */
    if (now < gp->stall_usec && (p->stall_action != STALL_ACTION_KILL || gp->stall_killed))
        return;
    gp->stall_killed = p->stall_action == STALL_ACTION_KILL;
    stall_report(a, p, now);
    store_relaxed(&gp->n_stalls, gp->n_stalls + 1); /* read for display */
    gp->stall_usec = gp->begun_usec + waited * 3;
}

void grace_stall_ended(struct arena *a, uint64_t now)
{
    log_notice("arena %s: grace period %llu is over after %llu ms", a->name,
               (unsigned long long)a->gp.started, (unsigned long long)((now - a->gp.begun_usec) / 1000));
}
