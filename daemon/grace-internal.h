/* SPDX-License-Identifier: MIT */
/* What the files of the grace-period thread share. */
#ifndef RECLAIMD_GRACE_INTERNAL_H
#define RECLAIMD_GRACE_INTERNAL_H

#include "arena.h"
#include "grace.h"

struct grace {
    pthread_t thread;
    int epoll_fd, wake_fd;
    struct reclaimer *reclaimer;
    struct callbacks *callbacks;
    uint32_t stop;

    pthread_mutex_t list_lock; /* requested */
    struct arena *requested;   /* each with a reference */
    struct arena *postponed;   /* the thread's: to be started a little later, each with a reference */
    uint64_t postponed_usec;   /* when the first of them is due, or RUN_NEVER */
    struct arena *active;      /* the thread's: grace periods under way, each with a reference */

    struct __cds_wfcq_head looks_head; /* clients whose tickets want a look, each with a reference */
    struct cds_wfcq_tail looks_tail;

    pthread_mutex_t watch_lock; /* clients' eventfds in epoll_fd, client->watched */
    struct cds_lfht *watched;   /* by id, under RCU */
    struct client *muted;       /* the thread's, each with a reference */
};

/* grace-scan.c: the readers. */
void grace_scan(struct arena *a, uint64_t k);
bool grace_check(struct grace *g, struct arena *a, uint64_t k); /* true: nobody is left */
void grace_drop_stragglers(struct gp *gp);

/* grace-wake.c: waiters. */
void grace_waiter_enter(struct arena *a, struct gp_waiter *w); /* counts it; any thread */
void grace_wake_waiters(struct grace *g, struct arena *a, const struct arena_parameters *p);
void grace_fail_waiters(struct gp *gp, int error);

/* grace-watch.c: eventfds. */
void grace_handle_bell(struct grace *g, uint64_t client_id, uint64_t now);
void grace_handle_looks(struct grace *g);
uint64_t grace_unmute(struct grace *g, uint64_t now); /* returns when the next is due, or RUN_NEVER */

/* grace-stall.c: reports. */
void grace_stall(struct arena *a, const struct arena_parameters *p, uint64_t now);
/* it is waited for no more; stall_report_wake() follows */
void grace_stall_end(struct arena *a, const struct straggler *s, uint64_t now);
void grace_stall_over(struct arena *a, uint64_t now);                           /* the grace period is */

#endif
