/* SPDX-License-Identifier: MIT */
/*
 * Arena: the segments, the engine on top of them, the clients, and the grace-period numbers of one arena.
 *
 * Who owns what
 *   main thread          name, rights, descriptors, life
 *   the worker in it     heap, pending, batches, drain timer, lanes (arena->lock is held during a pass)
 *   grace-period thread  gp (its own part), reads clients under clients_lock
 */
#ifndef RECLAIMD_ARENA_H
#define RECLAIMD_ARENA_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <urcu/urcu-memb.h>
#include <urcu/wfcqueue.h>

#include "client.h"
#include "control.h"
#include "engine/batch.h"
#include "engine/drain.h"
#include "engine/purge.h"
#include "grace.h"
#include "mainqueue.h"
#include "memory.h"
#include "parameters.h"
#include "reclaimer.h"

struct manager;
struct purger;
struct user;

/* The arena's values of the parameters: immutable, replaced as a whole, read under RCU or within a pass. */
struct arena_snapshot {
    struct rcu_head rcu;
    struct arena_parameters p;
};

/* What the worker counts; a copy is published at the end of each pass. */
struct arena_figures {
    struct heap_figures heap;
    uint64_t pending_objects, pending_bytes;
    uint64_t cached_objects, cached_bytes; /* in magazines, as far as the daemon sees */
    uint64_t n_clients, n_lanes;
    uint64_t n_drains[DRAIN_CAUSE_MAX];
    uint64_t n_pages, n_page_objects, page_histogram[PENDING_HISTOGRAM];
    uint64_t oldest_usec; /* when the oldest pending object was first seen, or before; 0: none is pending */
    uint64_t n_chain_objects, n_sweeps, n_kept_objects;
    uint64_t batches_running, n_batches;
    uint64_t n_frees, freed_bytes;
    uint64_t n_refused_records, n_refused_allocations;
    uint64_t n_passes, n_wakeups;
    uint64_t n_purges_queued, n_purges_run, n_holes, punched_bytes;
};

/* A control operation under way in this arena (arena-operation.c). */
struct operation {
    struct job job;
    struct main_post post;
    struct gp_waiter waiter;
    struct arena *arena; /* a reference */
    struct operation *next;
    enum control_operation kind;
    bool begun;
    struct barrier barrier;
    uint64_t turn, comparison; /* of a purge: what it waits for */
    uint64_t begun_usec, usec;
    uint64_t objects_before, bytes_before, n_objects, bytes;
    int error;
    char **complaints;
    size_t n_complaints;
    void (*done)(struct operation *op); /* main thread; frees it with operation_free() */
    void *userdata;
};

/* gp-wait = callback: a batch's entry in the callback FIFO. */
struct arena_batch_callback {
    struct callback callback;
    struct arena *arena; /* a reference, while queued */
    struct batch *batch;
    bool zero;
};

struct arena {
    struct arena *next_arena; /* manager's list; main thread */
    struct rcu_head rcu;
    uint32_t refs;
    struct manager *manager;
    struct runnable runnable;
    struct main_post free_post;

    /* fixed */
    char name[ABI_NAME_MAX + 1];
    uid_t owner;
    gid_t group;
    mode_t mode;
    bool transient;
    uint64_t bytes, created_usec;
    int domain_fd, domain_ro_fd, arena_fd, arena_ro_fd, state_fd;
    struct abi_domain *domain;
    struct state *state;
    void *base;
    struct user *user; /* whose bytes count */

    struct arena_snapshot *snapshot; /* RCU */
    struct gp gp;

    pthread_mutex_t clients_lock; /* list of clients: main and worker write, grace-period thread reads */
    struct client **clients;
    uint32_t n_clients, n_clients_room;

    struct __cds_wfcq_head jobs_head __attribute__((aligned(64)));
    struct cds_wfcq_tail jobs_tail __attribute__((aligned(64)));
    /* clients who rang, each with a reference: their lanes are looked at in the next pass */
    struct __cds_wfs_stack rung;
    uint32_t look_at_all;   /* any thread: something is wrong with some lane: look at every one */
    uint64_t charged_bytes; /* of this arena in user->backed_bytes; with the lock */
    uint32_t relieve;       /* main: memory is short */
    uint64_t relief_cookie; /* worker: purge once what was pending then is free; 0: no need */
    uint32_t removing;      /* main */

    pthread_mutex_t lock __attribute__((aligned(64))); /* a pass, or one callback entry, is in the engine */
    struct heap *heap;
    struct pending pending;
    struct batches batches;
    struct arena_batch_callback batch_callbacks[BATCHES_MAX];
    uint64_t batch_first_usec[BATCHES_MAX]; /* drain.first_usec of what it took */
    struct drain_timer drain;
    struct drain_hold hold;
    struct purge_timer purge;
    bool ending;                /* nothing new is begun any more */
    bool sweep_due, sweeping;   /* compare the file with the books; under way */
    uint64_t n_comparisons;     /* that began */
    struct client_lane **lanes; /* in use, dense */
    uint32_t n_lanes, n_lanes_room;
    uint32_t n_active;  /* of them, at the last pass */
    uint32_t look_next; /* lanes below it are yet to be looked at in this round; 0: a new round begins */
    bool looks_at_all;  /* .. which is one over all of them */
    uint32_t *free_states, n_free_states, next_state; /* lanes of the state segment */
    struct connection *waiting_for_lane;
    struct ticket *barriers;
    struct operation *operations;
    uint64_t n_single_pushed, n_single_run; /* objects in the callback FIFO one by one (batching = no) */
    uint64_t n_single_wanted; /* the least n_single_run that a barrier waits for; UINT64_MAX: none */
    uint64_t nap_usec;
    uint64_t all_looked_usec;
    uint64_t gp_asked; /* newest cookie that the worker has requested */
    unsigned quiet_passes;
    struct arena_figures figures; /* the worker's */

    pthread_mutex_t published_lock;
    struct arena_figures published;
};

/* What is asked for, checked by the caller: bytes is a multiple of the chunk within the limits. */
struct arena_request {
    const char *name;
    uint64_t bytes;
    uid_t owner;
    gid_t group;
    mode_t mode;
    bool transient;
};

/* Makes the segments and the engine. Not in the manager's table yet. */
int arena_new(struct manager *m, const struct arena_request *request, const struct arena_parameters *p,
              struct user *user, struct arena **ret);
void arena_ref(struct arena *a);
void arena_unref(struct arena *a); /* any thread: the last one has the main thread free it */

/* Any thread. */
void arena_post(struct arena *a, struct job *job, void (*run)(struct job *job, struct arena *a));
void arena_kick(struct arena *a);                   /* something changed: run a pass */
void arena_kick_lanes(struct arena *a);             /* look at all lanes */
void arena_ring(struct arena *a, struct client *c); /* its bell: look at its lanes */
int arena_set_parameters(struct arena *a, const struct arena_parameters *p);
void arena_published(struct arena *a, struct arena_figures *ret);

/* A copy of the parameters of the moment. Registered threads (RCU). */
void arena_parameters_get(struct arena *a, struct arena_parameters *ret);

/* Worker: a client's barrier begins. */
void arena_barrier_begin(struct arena *a, struct ticket *t);

/* List of clients. add: before the attach is answered. */
int arena_add_client(struct arena *a, struct client *c);
void arena_remove_client(struct arena *a, struct client *c);

/* Memory is short: drain and purge now, drop caches. */
void arena_relieve(struct arena *a);

/* Main thread, when no worker runs any more: whoever still waits is told -ESHUTDOWN. */
void arena_abandon(struct arena *a);

/* .. and what is pending is dropped with its charges. */
void arena_drop_pages(struct arena *a);

/* The runnable of an arena: one pass (arena-pass.c). */
uint64_t arena_run(struct runnable *r);

/* Begins an operation: done() follows in the main thread. -ENOMEM. */
int arena_operate(struct arena *a, enum control_operation kind, void (*done)(struct operation *op),
                  void *userdata);
void operation_free(struct operation *op);

/* arena-lanes.c: the worker's part of lanes. */
int arena_give_lane(struct arena *a, struct client *c, uint32_t *ret_number, uint32_t *ret_generation);
void arena_doom_lane(struct arena *a, struct client_lane *cl);

/* .. whose thread is gone whatever the words in the lane say. */
void arena_lose_lane(struct arena *a, struct client_lane *cl);

/* Worker: the word of a root, made if may_make. Offset in the arena. -ENOENT, -ENOSPC, -ENOMEM. */
int arena_root(struct arena *a, const char *name, bool may_make, uint64_t *ret_offset);

#endif
