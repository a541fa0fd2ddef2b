/* SPDX-License-Identifier: MIT */
/*
 * Client: one attachment of one process to one arena, and the lanes of its threads.
 *
 * Who owns what
 *   main thread        connection, pidfd, limits, life
 *   arena's worker     lanes[].life, account, and of lanes[].lane all but shared and slot, which never change
 *   grace-period thread lanes[].rings_seen; lanes[].tickets, but for those that it has handed to who
 *                      completes them
 * A client is freed when its last reference goes: the main thread's, the arena's list, each straggler, each
 * job.
 */
#ifndef RECLAIMD_CLIENT_H
#define RECLAIMD_CLIENT_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <urcu/rculfhash.h>
#include <urcu/urcu-memb.h>
#include <urcu/wfcqueue.h>

#include "engine/lane.h"
#include "grace.h"
#include "log.h"

struct arena;
struct client;
struct connection;
struct manager;

/* Something for an arena's worker to do; run() is called in a pass and may free it. */
struct job {
    struct cds_wfcq_node node;
    void (*run)(struct job *job, struct arena *a);
};

enum lane_life {
    LANE_FREE,    /* no thread has it */
    LANE_LIVE,    /* given to a thread */
    LANE_DOOMED,  /* its thread is gone: collect, then bury */
    LANE_BURYING, /* returned as pending: free once grave_cookie has expired */
};

/* All frees deferred before it: done when no page with a cookie up to this is left, and then so many
 * callbacks have run. */
struct barrier {
    bool begun;
    uint64_t cookie;
    uint64_t n_single; /* 0: pages are left, so it is not known yet; else one more than that */
};

/* In flight at once: what the lane's thread waits for, and three for which it waited until it gave up. */
#define TICKETS_A_LANE 4u

enum ticket_state {
    TICKET_IDLE,
    TICKET_SERVING,
};

/* Something that a lane's thread waits for, or gave up waiting for. */
struct ticket {
    struct gp_waiter waiter;
    struct job job; /* a barrier's way to the worker */
    struct client_lane *lane;
    uint32_t state; /* enum ticket_state; IDLE -> SERVING by the grace-period thread, back by who completes */
    uint32_t sequence;
    uint32_t kind;
    struct ticket *next; /* barriers: the worker's list */
    struct barrier barrier;
};

/* A lane's. See ticket.h. */
struct tickets {
    struct ticket all[TICKETS_A_LANE];
    pthread_mutex_t lock; /* around ticket_error and ticket_done: any of those who complete may write them */
    uint32_t newest;  /* sequence of the last one taken; grace-period thread, read by those who complete */
    uint32_t starved; /* one came when all were in flight; grace-period thread, read by those who complete */
    uint64_t cookie_seen; /* newest cookie_wanted that was asked for */
};

struct client_lane {
    struct lane lane;
    struct client *client;
    uint32_t number; /* in the channel */
    enum lane_life life;
    uint64_t grave_cookie;
    uint64_t ask_cookie; /* an allocation waits for it, urgent reclaim under way; 0: none */
    uint64_t ask_usec;   /* .. since then */
    uint64_t ask_turn;   /* .. and then for that turn of the purge; 0: not yet */
    uint32_t arena_slot; /* in the arena's array of lanes in use */
    /* the grace-period thread sets it, release, and the worker clears it: it delays one for long: is its thread
     * there? pairs with lane_look_live() */
    uint32_t suspect;
    /* worker: its thread is gone whatever the words in its lane say; release; pairs with straggler_is_gone() */
    uint32_t lost;
    /* grace-period thread; others load them for display */
    uint64_t stall_gp;         /* the grace period that its reader stalls; 0: it does not */
    uint64_t stall_since_usec; /* when that began */
    uint32_t stall_tid;        /* the thread then, as it says itself; 0: not known */
    bool active;               /* something was found at the last looks: look again in every pass */
    uint32_t idle_looks;
    struct tickets tickets;
    uint32_t ends; /* worker: its lane ends with its last ticket; pairs with ticket_complete() */
    uint32_t rings_seen;  /* grace-period thread: of the lane's rings */
    uint64_t called_usec; /* grace-period thread: when it last asked for a grace period */
};

struct client {
    uint64_t id;
    uint32_t refs;
    struct rcu_head rcu;
    struct arena *arena; /* a reference */
    struct manager *manager;

    /* fixed at attach */
    int pidfd;
    pid_t pid; /* in our namespace; 0: not visible */
    uid_t uid;
    gid_t gid;
    char comm[16];
    uint64_t since_usec;
    bool observer;
    int event_fd, channel_fd;
    uint64_t channel_bytes;
    uint64_t slot_offset, lane_offset;
    struct abi_channel *channel;
    uint32_t n_lanes;

    /* flags: the writer is named; others load them relaxed or with acquire */
    uint32_t dead;        /* main: the process is gone; release; pairs with grace_check() */
    uint32_t evicted;     /* main */
    uint32_t muted;       /* grace-period thread: rings too often, its eventfd is not watched for a while */
    uint32_t quarantined; /* worker */
    uint32_t gone;        /* worker: all lanes are free again, nothing of it is left in the arena */
    uint32_t n_owned;     /* worker: lanes with a live owner, after a hang-up */
    struct connection *connection;                      /* main; workers hand it on */
    void (*on_free)(struct arena *a, struct client *c); /* worker: when its last lane is free */

    uint32_t n_marked; /* lanes ever given: only grows; worker, release; pairs with grace_scan() */
    uint32_t n_live;   /* lanes given now; worker */
    /* [n_lanes]; entries are set once; worker, release; pairs with client_lane_at() */
    struct client_lane **lanes;
    struct account account; /* worker; charged by pages */

    struct cds_wfs_node rung_node; /* arena_ring() */
    uint32_t rung;
    struct cds_wfcq_node look_node; /* grace_look_at() */
    uint32_t look_queued;
    uint32_t watched; /* under the watch lock of the grace-period thread */
    uint64_t muted_until_usec;
    struct client *next_muted;
    struct cds_lfht_node watch_node; /* grace's table, by id */
    uint64_t bell_window_usec;       /* grace-period thread: bells are counted by tenths of a second */
    uint32_t n_bells;
    uint32_t n_stalled;           /* grace-period thread: readers of its that stall now */
    uint64_t stall_reports;       /* grace-period thread: number of the last one in the channel; 0: none */
    bool stall_untold;            /* grace-period thread: reported, and who listens is yet to be woken */
    uint64_t stall_kill_usec;     /* grace-period thread: when stall-action = kill met it last */
    struct log_rate refused_rate; /* worker */
    uint64_t refused_seen, refused_untold; /* worker */
};

static inline struct abi_slot *client_slot(const struct client *c, uint32_t lane)
{
    return (struct abi_slot *)((char *)c->channel + c->slot_offset) + lane;
}

static inline struct abi_lane *client_shared_lane(const struct client *c, uint32_t lane)
{
    return (struct abi_lane *)((char *)c->channel + c->lane_offset +
                               (uint64_t)lane * sizeof(struct abi_lane));
}

/* NULL: never given. Any thread that holds a reference. */
struct client_lane *client_lane_at(const struct client *c, uint32_t lane);

/* Who connected: proven by SO_PEERPIDFD or a pidfd taken at once, and by the credentials of its first
 * message. */
struct client_identity {
    uint64_t id; /* unique for the daemon's life */
    int pidfd;   /* duplicated */
    pid_t pid;
    uid_t uid;
    gid_t gid;
};

/*
 * A client of an arena: channel and eventfd made; not on the arena's list yet. The geometry is the daemon's
 * own copy: a client that overwrites its channel's header hurts itself. Negative errno.
 */
int client_new(struct arena *a, const struct client_identity *identity, uint32_t n_lanes, bool observer,
               struct client **ret);

void client_ref(struct client *c);
bool client_ref_if_any(struct client *c); /* false: its last reference is gone; for lookups under RCU */
void client_unref(struct client *c);

/* The pidfd says that the process has ended (a zombie has, too). Any thread. */
bool client_process_is_dead(const struct client *c);

/* Whether that thread of the client's process is still there, by its number in the process's own pid
 * namespace. */
bool client_has_thread(const struct client *c, uint32_t tid);

#endif
