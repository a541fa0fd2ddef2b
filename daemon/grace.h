/* SPDX-License-Identifier: MIT */
/*
 * Grace periods of all arenas: one thread, one number line an arena.
 *
 *   grace_request(), grace_synchronize()   any thread: a number is wanted
 *   grace_start()      under the arena's mutex: waiters detached, then k = ++started; afterwards one
 *                      membarrier for all arenas that start
 *   grace_scan()       only now the list of clients, their marks, every slot: who is in a section older than k?
 *   grace_check()      until none of these is
 *   grace_complete()   completed = k, waiters are woken, the arena's worker is kicked
 *
 * Guarantees (spin: tests/model/gp.pml, sync.pml)
 *  G1 A cookie taken by grace_take_cookie() expires only after every section that began before it has
 *     ended.
 *  G2 Nothing that arrives after started = k is served by k.
 *  G3 A grace period never completes without its membarrier: a failing one is tried again.
 *  G4 Numbers never go back, and completed <= started.
 *  G5 A dead process's or thread's slot does not delay (its pidfd or owner word says so), a live one's
 *     always does.
 *  G6 Without requests the thread does not run.
 *
 * The thread also reads the clients' eventfds: a bell is handed to the arena's worker, a ticket is served
 * right here.
 */
#ifndef RECLAIMD_GRACE_H
#define RECLAIMD_GRACE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <urcu/wfstack.h>

#include "callbacks.h"
#include "engine/sync.h"

struct arena;
struct client;
struct grace;
struct reclaimer;

/* Somebody who waits for a grace period. Embedded; done() is called once, by the grace-period thread or a
 * worker. */
struct gp_waiter {
    struct cds_wfs_node node;
    struct gp_waiter *next;   /* on the list of those who wait for a cookie; the grace-period thread's */
    struct callback callback; /* when the FIFO completes it */
    struct gp *gp;            /* where it is counted */
    uint64_t cookie;          /* gp_wait: that number; else unused */
    bool expedited;
    int error; /* for done(): 0, or -ESHUTDOWN: no grace period is over */
    void (*done)(struct gp_waiter *w);
};

/* One reader that a grace period waits for. */
struct straggler {
    struct client *client; /* a reference */
    uint32_t lane;
};

/* A part of every arena. */
struct gp {
    pthread_mutex_t lock; /* started, needed, notify, flags; taken by those who ask, for a few instructions */
    uint64_t started, completed; /* mirrors of the domain's; completed is the thread's */
    uint64_t needed;             /* newest number that anybody asked for */
    uint64_t expedite;           /* up to this number somebody asked not to sleep between checks; atomic */
    bool listed;                 /* on the thread's list of arenas to serve */
    bool notify;                 /* kick the worker at completion */
    struct arena *next;          /* that list */

    /* Lock-free: waiters who came since the last start, and those over whom a worker is to wake. */
    struct __cds_wfs_stack curr, done;
    struct callback done_callback; /* queued while there is somebody on done */
    uint64_t load;                 /* waiters in flight, see engine/sync.h; any thread */

    /* the thread's own */
    bool active;
    struct sync_pace pace;
    struct arena *next_active;
    struct cds_wfs_head *wait;        /* detached at the start of the grace period under way */
    struct gp_waiter *cookie_waiters; /* any order */
    struct straggler *stragglers;
    uint32_t n_stragglers, n_room;
    bool rescan;                     /* no memory to remember stragglers: look at all again */
    uint64_t begun_usec, check_usec; /* when it began; when to look again */
    uint64_t stall_told_usec; /* how long it had waited when its readers were reported last; 0: never */
    bool stall_killed;        /* stall-action = kill was carried out */
    uint32_t n_stall_ends;    /* readers that were reported in it and are gone */
    uint64_t threads_usec;    /* when to ask next whether the threads are still there */

    /* figures: the thread adds, anybody reads */
    uint64_t last_usec, max_usec, n_synchronizes, n_mutes;
    uint64_t n_wakes[SYNC_WAY_MAX]; /* how they were woken: the sum is n_synchronizes */
    uint64_t n_callbacks_ahead;     /* FIFO entries at the end of their grace period, of all of them */
    uint64_t max_direct_wakes;      /* by the thread itself at the end of one */
    uint64_t n_stalled, n_stalls;   /* readers that stall now, and all that ever did */
    uint64_t oldest_client, oldest_lane, oldest_since_usec; /* a reader that is being waited for; 0: none */
};

/* Makes it and starts its thread. */
int grace_new(struct reclaimer *reclaimer, struct callbacks *callbacks, struct grace **ret);

/* Ends the thread; waiters are completed with -ESHUTDOWN. */
void grace_stop(struct grace *g);

/* Stopped before, and every ticket is over: their ends may have asked for a look, which keeps the client. */
void grace_drop_looks(struct grace *g);

/* Stopped before, looks dropped. */
struct grace *grace_free(struct grace *g);

/* This process can call membarrier(GLOBAL_EXPEDITED); else readers must fence. */
bool grace_has_membarrier(void);

/* A full fence in every registered thread, and here. Tries until it works. */
void grace_membarrier(void);

void gp_init(struct gp *gp, uint64_t started, uint64_t completed);
void gp_deinit(struct gp *gp);

/* Any thread. What is unlinked now may be freed once completed reaches this. */
uint64_t grace_take_cookie(struct arena *a);

/* Any thread: see to it that cookie expires. notify: kick the arena's worker then. */
void grace_request(struct grace *g, struct arena *a, uint64_t cookie, bool expedited, bool notify);

/* Any thread: w->done() after a grace period that begins from now on. */
void grace_synchronize(struct grace *g, struct arena *a, struct gp_waiter *w);

/* The grace-period thread: w->done() once completed >= cookie, which is cut to what may exist: started + 1.
 */
void grace_wait_cookie(struct grace *g, struct arena *a, struct gp_waiter *w, uint64_t cookie);

/* Any thread: have the tickets of this client looked at. */
void grace_look_at(struct grace *g, struct client *c);

/* Main thread. The client's eventfd is watched from now on / no more. */
int grace_watch(struct grace *g, struct client *c);
void grace_unwatch(struct grace *g, struct client *c);

/* membarrier calls so far. */
uint64_t grace_n_membarriers(void);

#endif
