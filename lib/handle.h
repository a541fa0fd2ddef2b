/* SPDX-License-Identifier: MIT */
/*
 * What the files of libreclaim share and nobody else sees: handles, lanes, and who may touch them when.
 *
 * After a fork. Everything here that belongs to one process lies in mappings that the kernel wipes in a child
 * (MADV_WIPEONFORK), whichever way the child was made: handles, lanes and struct process read as zero there.
 * So `magic == 0` and `front.slot == NULL` are the tests for -ESTALE, and the child begins with nothing.
 * Three statics survive: where struct process is, the thread-exit key, and the list head of each thread,
 * whose lanes then read as zero. The segments themselves are not in the child at all (MADV_DONTFORK).
 *
 * Locks, in this order: a handle's `stall_lock` (a callback that ends; the callback itself does not take it),
 * its `talk` (one question to the daemon at a time), the process lock (both
 * lists of lanes, the list of handles and the descriptors in them). A fork() waits for the process lock, so
 * nobody waits for the daemon while holding it.
 */
#ifndef RECLAIM_HANDLE_H
#define RECLAIM_HANDLE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#ifndef RECLAIM_NO_INLINE
#define RECLAIM_NO_INLINE /* the library is where the functions themselves are */
#endif
#include <reclaim/reclaim.h>

#include "abi.h"
#include "basic/macro.h"

#define HANDLE_MAGIC 0x656c646e61686d6cull
#define ARENA_FIRST_BYTES ((uint64_t)ABI_FIRST_BLOCK * ABI_BLOCK_BYTES) /* no object lies below */
#define SMALL_BYTES_MAX 3584u                                           /* larger ones are extents */
#define TALK_TIMEOUT_NS (10 * 1000000000ull) /* for an answer: far above a restart of the daemon */
#define TURN_NS (100 * 1000000ull)           /* a sleeper looks so often whether the daemon is still there */
#define FOREVER_NS UINT64_MAX

/* Where words for the caller's `message` go; text may be NULL. */
struct complaint {
    char *text;
    size_t size;
};

struct lane;

/*
 * One open arena. While it is open only the locks and what they guard change: talk_lost and what follows it.
 * reclaim_open() sets the rest, front.completed and magic last; reclaim_close() takes those two back
 * first, then the descriptors and mappings.
 */
struct reclaim {
    struct reclaim_front front; /* first: the inline functions use it */
    uint64_t magic;             /* HANDLE_MAGIC; 0: the child of a fork */
    const struct abi_domain *domain;
    size_t domain_bytes;
    struct abi_channel *channel;
    size_t channel_bytes;
    char *base;
    uint64_t arena_bytes;
    int eventfd; /* -1: none; this, socket and peer appear and go under the process lock, as a fork notes them */
    bool read_only;
    bool fence; /* membarrier does not reach us, or the daemon cannot call it */
    int socket;
    int peer;             /* pidfd of the daemon, for who asked to be told of its end; else -1 */
    pthread_mutex_t talk; /* around a question and its answer */
    bool talk_lost;       /* an answer did not come in time; under talk */
    struct lane *lanes;   /* under the process lock */
    struct reclaim *next; /* under the process lock */
    pthread_mutex_t stall_lock;
    struct stall_watch *stalls; /* who hears of our readers' stalls; NULL: nobody; under stall_lock */
};

/* What a lane remembers of one size class, beside the shared `take`. */
struct lane_class {
    uint64_t origin;   /* the magazine word that `cur` came from, whole: what reclaim_free() may put back */
    uint32_t high;     /* the fullest that the magazine was since it last rang */
    uint32_t rang_for; /* the magazine's head when it last rang for being low */
};

/*
 * One thread's lane. Only that thread touches it, but reclaim_close() of another thread, which takes the slot
 * and the handle away under the process lock.
 */
struct lane {
    struct reclaim_lane front; /* first: the inline functions use it */
    struct abi_lane *shared;
    const struct abi_domain *domain;
    uint64_t n_granules;  /* that may be deferred; as in front, but also where that says 0 because we fence */
    uint32_t head;        /* ours of shared->head; the open record is the one before it */
    uint32_t tail;        /* the ring's, when last looked at */
    uint32_t queued;      /* objects in closed records since the daemon was last told of a flood */
    uint64_t chain_link;  /* ours of shared->chain_head; we never read what others could have written */
    uint32_t chain_count; /* ours of shared->chain_count */
    uint32_t overflow_head; /* where head was when the ring last was too full for a record of the chain's */
    int eventfd;
    uint32_t ticket_sequence; /* of the last ticket; at first of the former owner's last */
    uint16_t ask_sequence;
    uint32_t extent_pages; /* of the last question for extents, and so of all in their magazine */
    uint64_t cookie_asked; /* ours of shared->cookie_wanted */
    /* this thread's and its handlers': */
    uint32_t interrupted; /* reclaim_lane_interrupt() was called and no wait has said -EINTR for it yet */
    struct timespec turn; /* how long the sleep lasts that is about to begin */

    struct reclaim *r; /* NULL once another thread closed it; relaxed */
    uint32_t number;
    uint32_t generation;
    void *thread; /* thread_self() of the owner */
    struct lane *next_of_thread;
    struct lane *next_of_handle;
    struct lane_class classes[ABI_CLASSES];
};

/* What the public header takes for granted: programs have these places compiled into them. */
assert_cc(offsetof(struct reclaim, front) == 0);
assert_cc(offsetof(struct reclaim_lane, slot) == 0);
assert_cc(offsetof(struct reclaim_lane, started) == 8);
assert_cc(offsetof(struct reclaim_lane, first) == 16);
assert_cc(offsetof(struct reclaim_lane, n_granules) == 24);
assert_cc(offsetof(struct reclaim_lane, open) == 32);
assert_cc(offsetof(struct reclaim_lane, record) == 40);
assert_cc(offsetof(struct reclaim_lane, want) == 48);
assert_cc(offsetof(struct reclaim_lane, bell) == 56);
assert_cc(offsetof(struct reclaim_lane, fence) == 60);
assert_cc(offsetof(struct reclaim_lane, take) == 64);
assert_cc(offsetof(struct reclaim_lane, small_bytes) == 72);
assert_cc(offsetof(struct reclaim_lane, last) == 80);
assert_cc(offsetof(struct reclaim_lane, reserved) == 84);
assert_cc(sizeof(struct reclaim_lane) == 88 && offsetof(struct lane, front) == 0);
assert_cc(offsetof(struct abi_take, cur) == 0 && sizeof(struct abi_take) == 2 * sizeof(uint64_t));
assert_cc(ARENA_FIRST_BYTES == 65536 && ABI_FIRST_BLOCK == 128 && ABI_BLOCK_BYTES == 512 &&
          ABI_GRANULE_BYTES == 16);
assert_cc(sizeof(struct lane) <= ABI_PAGE_BYTES);

static inline struct lane *lane_of(struct reclaim_lane *l)
{
    return (struct lane *)l;
}

static inline bool lane_is_stale(const struct lane *l)
{
    return !l->front.slot;
}

static inline bool handle_is_stale(const struct reclaim *r)
{
    return r->magic != HANDLE_MAGIC;
}

/* What callers gave us. */
static inline int lane_check(const struct lane *l)
{
    if (!l)
        return -EINVAL;
    return lane_is_stale(l) ? -ESTALE : 0;
}

static inline int handle_check(const struct reclaim *r)
{
    if (!r)
        return -EINVAL;
    return handle_is_stale(r) ? -ESTALE : 0;
}

/* message.c: words for the caller; the error is returned */
int complain(struct complaint complaint, int error, const char *format, ...) _printf_(3, 4);
bool name_is_valid(const char *name);

/* process.c: what there is once a process or a thread */
int process_init(void);
void process_lock(void);
void process_unlock(void);
void process_handle_add(struct reclaim *r);
void process_handle_remove(struct reclaim *r); /* and closes what it has */
/* zeroed memory that the child of a fork finds zeroed again; NULL: no memory */
void *wiped_new(size_t bytes);
void *wiped_free(void *memory, size_t bytes);
void *thread_self(void);
int thread_lane_add(struct lane *l);
void thread_lane_remove(struct lane *l);
struct lane *thread_lane_find(const struct reclaim *r);
bool thread_in_section(void); /* of any arena */
int thread_cancel_disable(void);
void thread_cancel_restore(int state);

/* message.c: questions to the daemon */
int talk_connect(struct reclaim *r, const char *path);
int talk_watch(struct reclaim *r); /* from now on talk_check() sees the daemon's end as well */
/* 0; -ESHUTDOWN: it has closed the connection; -EOWNERDEAD: it has not, and is dead */
int talk_check(const struct reclaim *r);
struct abi_request talk_request(enum abi_op op);
int talk_attach(struct reclaim *r, const struct abi_request *request);
int talk_attached(struct reclaim *r, struct abi_reply *ret_reply, int ret_fds[static ABI_OPEN_FDS]);
int talk_ask(struct reclaim *r, const struct abi_request *request, struct abi_reply *ret_reply);
void talk_tell(struct reclaim *r, const struct abi_request *request);

/* segment.c: what the daemon sent, checked and mapped */
int segments_map(struct reclaim *r, const struct abi_reply *reply, const int fds[static ABI_OPEN_FDS],
                 bool relocated, struct complaint complaint);
void segments_unmap(struct reclaim *r);
struct abi_lane *segment_lane(const struct reclaim *r, uint32_t number);
struct abi_slot *segment_slot(const struct reclaim *r, uint32_t number);

/* lane.c */
void lane_release(struct lane *l); /* by its thread: gives it back, unlinks and frees it */
void handle_lanes_release(struct reclaim *r);

/* stall.c */
void stall_watch_end(struct reclaim *r);
bool stall_calls_back(const struct reclaim *r); /* this is its callback's thread */

/* defer.c: into the ring, where waiting is allowed; below what only rings */
int defer_append(struct lane *l, uint64_t word);
int defer_put(struct lane *l, uint64_t word);
int defer_flood(struct lane *l);

/* wait.c: bells and sleeping */
enum lane_waits {
    LANE_WAITS_WAKE,             /* for room or memory: `waiting` and `wake` */
    LANE_WAITS_TICKET,           /* for a grace period: `ticket_waiting` and `ticket_done` */
    LANE_WAITS_TICKET_OR_SIGNAL, /* the same, until a signal was handled */
};
uint64_t clock_ns(void);
void lane_fence(const struct lane *l);
void lane_bell(struct lane *l);
int lane_ring_new(struct lane *l, uint32_t want);
void lane_ring_dozing(struct lane *l);
int lane_wait(struct lane *l, enum lane_waits waits, bool (*ready)(struct lane *l, unsigned what),
              unsigned what, uint64_t deadline_ns);

#endif
