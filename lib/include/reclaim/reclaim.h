/* SPDX-License-Identifier: MIT */
/*
 * libreclaim: lock-free readers and deferred frees in memory that several processes share.
 *
 * A process opens an arena, each of its threads gets a lane of it, and then
 *
 *     reader:  reclaim_read_lock(l);  p = reclaim_dereference(*root);  ... *p ...  reclaim_read_unlock(l);
 *     writer:  n = reclaim_alloc(l, sizeof(*n));  fill *n;  reclaim_assign_pointer(l, *root, n);
 *              reclaim_defer_free(l, old);            the daemon frees it once no reader can see it
 *
 * Every function that can fail returns a negative errno and leaves its outputs alone. Nothing here aborts,
 * logs or installs a signal handler. A lane belongs to one thread. In the child of a fork every call says
 * -ESTALE until the child opens the arena itself. NULL for a handle, a lane or an output is -EINVAL; only
 * read_lock, read_unlock, alloc and defer_free do not look: their lane must be one.
 *
 * "May block" below: may sleep until the daemon answers. "Section": between read_lock and read_unlock. What
 * may block also says -ESHUTDOWN when the daemon has closed the connection. A daemon that dies may leave it
 * open for its successor: then calls wait for that, or, with RECLAIM_REPORT_EXIT, say -EOWNERDEAD within a
 * fifth of a second, as long as the daemon that they opened the arena with is dead.
 */
#ifndef RECLAIM_RECLAIM_H
#define RECLAIM_RECLAIM_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#if UINTPTR_MAX != 0xffffffffffffffffu
#error "libreclaim needs a 64-bit machine"
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define RECLAIM_PUBLIC __attribute__((visibility("default")))

struct reclaim;

/*
 * The part of a handle, and below of a lane, that the inline functions use. In the child of a fork both are zero.
 */
struct reclaim_front {
    const uint64_t *completed; /* the arena's newest grace period that is over */
};

/*
 * The part of a lane that the inline functions below use; the library's own part follows it. Not for use by
 * name, and part of the library's binary interface. Private to the thread; what it points to is shared with
 * the daemon. In the child of a fork the kernel wipes it (MADV_WIPEONFORK), so slot is NULL and all limits
 * are zero there.
 */
struct reclaim_lane {
    uint64_t *slot;          /* this thread's reader slot: grace-period number << 16 | nesting */
    const uint64_t *started; /* the arena's newest grace period */
    uint64_t first;          /* address of the first granule (16 bytes) that can be an object's */
    uint64_t n_granules;     /* from there on; 0: the library has to look at each defer */
    /* the latest record: block of 32 granules << 32 | a bit for each granule deferred */
    uint64_t open;
    uint64_t *record;     /* where the daemon reads it */
    const uint32_t *want; /* which ring of the bell the daemon waits for */
    uint32_t bell;        /* which one this lane rang last */
    uint32_t fence;       /* membarrier cannot reach us: fence in read_lock */
    uint64_t *take;       /* for each size class a pair of words; the first is a record of free objects */
    /* the largest object that take is for; 0: the library has to look at each alloc */
    size_t small_bytes;
    uint32_t last; /* size class of the latest allocation */
    uint32_t reserved;
};

/* reclaim_open() flags */
#define RECLAIM_CREATE (1u << 0)    /* make the arena if it is not there */
#define RECLAIM_EXCL (1u << 1)      /* with CREATE: -EEXIST if it is there */
#define RECLAIM_READ_ONLY (1u << 2) /* an observer: reads, never allocates or frees */
/* take another address if the arena's own is in use here; use offsets then */
#define RECLAIM_RELOCATED (1u << 3)
#define RECLAIM_TRANSIENT (1u << 4) /* with CREATE: the arena goes with its last client */
/* waits do not wait for the successor of a daemon that died: -EOWNERDEAD */
#define RECLAIM_REPORT_EXIT (1u << 5)

struct reclaim_open_options {
    size_t size;          /* sizeof(struct reclaim_open_options): later versions append */
    unsigned flags;       /* RECLAIM_CREATE .. */
    mode_t mode;          /* with CREATE: who may open it, as chmod writes it; 0: 0600 */
    uint64_t arena_bytes; /* with CREATE: 1 MiB .. 2 TiB, rounded up to 64 KiB */
    /* where the daemon's sockets are; NULL: RECLAIMD_RUNTIME_DIRECTORY, then the default */
    const char *runtime_directory;
    char *message; /* on failure one line in words is put here; may be NULL */
    size_t message_size;
};

/*
 * Opens (or makes) an arena. name: 1..48 of [A-Za-z0-9._-]. opt may be NULL. -ENOENT no such arena; -EACCES
 * not yours; -EEXIST; -ECONNREFUSED no daemon; -EPROTO an incompatible daemon; -EADDRINUSE the arena's
 * address is taken in this process, perhaps by its being open already; -EMFILE, -ENOSPC a limit of the
 * daemon's, named in message. May block. Not in a section, not in a signal handler.
 */
RECLAIM_PUBLIC int reclaim_open(const char *name, const struct reclaim_open_options *opt,
                                struct reclaim **ret);

/* Gives back all lanes of this handle and unmaps. Nobody may use r, its lanes or its memory any more; NULL is
   fine. Other threads need not have put their lanes: theirs say -ESTALE from now on. */
RECLAIM_PUBLIC void reclaim_close(struct reclaim *r);

/*
 * This thread's lane of r: made at the first call, the same one after that; given back at thread exit.
 * -EMFILE: lanes-max; -ESHUTDOWN: evicted or the daemon is gone. The first call may block and must not be in
 * a signal handler.
 */
RECLAIM_PUBLIC int reclaim_lane_get(struct reclaim *r, struct reclaim_lane **ret);
RECLAIM_PUBLIC void reclaim_lane_put(struct reclaim_lane *l);

/*
 * Begins a read section; sections nest. 0, -EOVERFLOW (65,535 deep) or -ESTALE (child of a fork).
 * Never blocks, no system call; allowed in signal handlers that interrupt anything in this library.
 */
static inline int reclaim_read_lock(struct reclaim_lane *l)
{
    uint64_t *slot = l->slot, v, n;

    if (__builtin_expect(!slot, 0))
        return -ESTALE;
    /* only this thread and its handlers write it, and a handler restores it */
    v = __atomic_load_n(slot, __ATOMIC_RELAXED);
    if (__builtin_expect((v & 0xffff) == 0xffff, 0))
        return -EOVERFLOW;
    /* acquire: a reader that takes number k sees all that was unlinked before k began; pairs with
       grace_start() */
    n = v ? v + 1 : __atomic_load_n(l->started, __ATOMIC_ACQUIRE) << 16 | 1;
    /* pairs with grace_scan(): the daemon's acquire load of the slot */
    __atomic_store_n(slot, n, __ATOMIC_RELEASE);
    /* the daemon's membarrier makes this a full fence when it matters */
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    if (__builtin_expect(l->fence, 0))
        /* where membarrier cannot; pairs with the fence in grace_start() */
        __atomic_thread_fence(__ATOMIC_SEQ_CST);
    return 0;
}

/*
 * ThreadSanitizer cannot see that a grace period, which another process waits for, lies between this section
 * and the next use of what it read; the library is told likewise when it hands out memory.
 */
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define RECLAIM_SANITIZE_THREAD 1
#endif
#elif defined(__SANITIZE_THREAD__)
#define RECLAIM_SANITIZE_THREAD 1
#endif
#ifdef RECLAIM_SANITIZE_THREAD
void __tsan_release(void *address);
#define RECLAIM_SANITIZER_RELEASE(l) __tsan_release((void *)(uintptr_t)(l)->started)
#else
#define RECLAIM_SANITIZER_RELEASE(l) ((void)(l))
#endif

/* Ends the innermost read section. Same contexts. A call without a section does nothing. */
static inline void reclaim_read_unlock(struct reclaim_lane *l)
{
    uint64_t *slot = l->slot, v;

    if (__builtin_expect(!slot, 0))
        return;
    v = __atomic_load_n(slot, __ATOMIC_RELAXED); /* as in read_lock */
    RECLAIM_SANITIZER_RELEASE(l);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    /* release: all that the section read is done before the slot says so; pairs with grace_scan() */
    __atomic_store_n(slot, (v & 0xffff) <= 1 ? 0 : v - 1, __ATOMIC_RELEASE);
}

/* Loads a pointer that a writer publishes. In a section. Pairs with reclaim_assign_pointer(). */
#define reclaim_dereference(p) __atomic_load_n(&(p), __ATOMIC_ACQUIRE)

/* Publishes v in p: who sees v sees what v points to. Pairs with reclaim_dereference(). l: this thread's
   lane. */
#define reclaim_assign_pointer(l, p, v) ((void)(l), __atomic_store_n(&(p), (v), __ATOMIC_RELEASE))

/*
 * Memory of the arena for bytes (1 .. the arena's size), aligned to 16, to 4096 from 4096 bytes up; its
 * contents are undefined. NULL and errno: ENOMEM (the arena is full, also after an urgent reclaim, which a
 * reader may hold up for 10 s at most, or the machine is short of memory), EINVAL, EROFS (observer), ESTALE,
 * ESHUTDOWN. Allowed in a section, where it does not wait for a grace period. May block when the magazine is
 * empty. Not in a signal handler.
 */
RECLAIM_PUBLIC void *reclaim_alloc(struct reclaim_lane *l, size_t bytes) __attribute__((malloc));

/* Frees what was allocated but never published. p may be NULL. Errors as reclaim_defer_free(). */
RECLAIM_PUBLIC int reclaim_free(struct reclaim_lane *l, void *p);

/*
 * Frees p after a grace period: call it once p can no longer be reached by new readers. NULL is fine. -EINVAL
 * not in this arena; -EAGAIN the daemon did not make room within 10 s; -EDEADLK the pending limit is reached and
 * this thread is in a section, so waiting could never end; -EROFS, -ESTALE, -ESHUTDOWN. A pointer that is not
 * a live object is refused by the daemon, counted and logged. May block when the ring is full; allowed in a
 * section; not in a signal handler.
 */
RECLAIM_PUBLIC int reclaim_defer_free(struct reclaim_lane *l, void *p);

/* Room in an object for reclaim_defer_free_head(); the daemon's alone once the object is deferred. */
struct reclaim_head {
    uint64_t next;
    uint32_t seq;
    uint32_t reserved;
} __attribute__((aligned(16)));

/*
 * The same, but never waits, whatever is full and whatever limit is reached: what does not fit in the ring is
 * chained through the objects. head_in_p: anywhere in *p, aligned to 16, in its first 256 MiB; it is
 * overwritten, so readers that may still see p must not look there. -EINVAL p or the head is not in this
 * arena, or the head lies below p; -EROFS, -ESTALE, -ESHUTDOWN. No system call but a write to an eventfd;
 * allowed in a section; not in a signal handler. An object that is deferred twice, or a head outside its
 * object, cuts the chain: what this thread chained before it, and the daemon has not taken yet, is lost.
 */
RECLAIM_PUBLIC int reclaim_defer_free_head(struct reclaim_lane *l, void *p, struct reclaim_head *head_in_p);

/*
 * Waiting. The calls below that wait sleep until a grace period is over. timeout: relative; NULL is for
 * ever, zero asks the daemon and does not wait. flags: RECLAIM_INTERRUPTIBLE or 0, synchronize's also
 * RECLAIM_EXPEDITED. They say -ETIMEDOUT; -EINTR (only where INTERRUPTIBLE is set); -EINVAL a flag or a
 * time that is none; -EDEADLK in a section of any arena, where it could never end; -ESHUTDOWN, -EOWNERDEAD,
 * -ESTALE. After -ETIMEDOUT or -EINTR the thread may wait anew at once, for the same or for something else.
 * Not in a signal handler.
 */
#define RECLAIM_EXPEDITED (1u << 0)     /* no sleep between checks */
#define RECLAIM_INTERRUPTIBLE (1u << 1) /* until a signal was handled */

/*
 * Grace periods by cookie. gp_start: a cookie that covers all that this thread unlinked before, and asks
 * for that grace period; allowed in a section. gp_poll: 1 over, 0 not yet; no system call, so it goes on
 * saying 0 when the daemon is gone: who polls for long uses gp_wait now and then, which says so. gp_wait:
 * until then; of a cookie that is over it says 0 at once, without a system call and in a section too.
 * -EINVAL (both) not a cookie of this arena. Cookies of one arena compare as numbers: a smaller one expires
 * first, whichever thread or process took it and whichever daemon served the arena then.
 */
RECLAIM_PUBLIC int reclaim_gp_start(struct reclaim_lane *l, uint64_t *ret_cookie);
RECLAIM_PUBLIC int reclaim_gp_poll(struct reclaim *r, uint64_t cookie);
RECLAIM_PUBLIC int reclaim_gp_wait(struct reclaim_lane *l, uint64_t cookie, const struct timespec *timeout);
RECLAIM_PUBLIC int reclaim_gp_wait_flags(struct reclaim_lane *l, uint64_t cookie, unsigned flags,
                                         const struct timespec *timeout);

/* Waits until all read sections that began before are over. */
RECLAIM_PUBLIC int reclaim_synchronize(struct reclaim_lane *l, unsigned flags,
                                       const struct timespec *timeout);

/* Waits until all frees deferred before it, by any client of the arena, are done. */
RECLAIM_PUBLIC int reclaim_barrier(struct reclaim_lane *l, const struct timespec *timeout);
RECLAIM_PUBLIC int reclaim_barrier_flags(struct reclaim_lane *l, unsigned flags,
                                         const struct timespec *timeout);

/*
 * For a signal handler of the lane's own thread: the interruptible wait that it is in says -EINTR, or, if
 * it is in none, the next one that is not over at once. Without this call a handler that runs while the
 * thread sleeps ends the wait too, SA_RESTART or not; but one that runs just before the thread goes to
 * sleep does not. With it no signal is lost, wherever the thread is. Allowed in handlers that interrupt
 * anything in this library; no system call.
 */
RECLAIM_PUBLIC int reclaim_lane_interrupt(struct reclaim_lane *l);

/*
 * The pointer-sized word called name (1..48 of [A-Za-z0-9._-]), made (NULL) on first use; it lives as long as
 * the arena. -ENOENT for an observer where it is not there; -ENOSPC. May block.
 */
RECLAIM_PUBLIC int reclaim_root(struct reclaim *r, const char *name, void ***ret_word);

struct reclaim_stats {
    size_t size;              /* in: sizeof(struct reclaim_stats); later versions append */
    uint64_t arena_bytes;     /* as made */
    uint64_t in_use_bytes;    /* handed out, pending ones and those idle in magazines included */
    uint64_t pending_objects; /* deferred, waiting for a grace period */
    uint64_t pending_bytes;
    uint64_t lazy_bytes;   /* free, still backed by memory */
    uint64_t backed_bytes; /* backed by memory in all */
    uint64_t gp_started, gp_completed;
    uint64_t freed_objects;   /* since the arena was made */
    uint64_t refused_records; /* of this client: bad pointers, double frees */
};

/* Asks the daemon. May block. */
RECLAIM_PUBLIC int reclaim_stats(struct reclaim *r, struct reclaim_stats *ret);

/* A reader of this process that holds up a grace period, for the callback below; valid during the call. */
struct reclaim_stall {
    size_t size; /* sizeof(struct reclaim_stall) in the library: later versions append */
    struct reclaim *r;
    const struct reclaim_lane *lane; /* whose; to compare with only; NULL: it is given back */
    pid_t tid;                       /* the thread that has, or had, the lane; 0: not known */
    int ended;                       /* 1: it holds up nothing any more */
    uint64_t grace_period;           /* its number */
    uint64_t usec;                   /* how long it has waited, or had waited when it ended */
    /* what waits in the arena: objects deferred and not free yet, callers of synchronize and the like */
    uint64_t objects, bytes, waiters;
};

typedef void reclaim_stall_callback(const struct reclaim_stall *stall, void *userdata);

/*
 * Has callback called when a reader of this process, not of others, has held up a grace period of r for the
 * daemon's stall-timeout; again at three times that and so on, ever more seldom; and when it ended. A stall
 * under way is told at once. It runs in a thread of the library, which exists only as long as a callback is
 * registered and in which all signals are blocked; one call at a time. It may call this library, with a lane
 * of its own, but not reclaim_close(r), which does nothing there, or this function: -EDEADLK. callback NULL:
 * no more. Returns, as reclaim_close() does, only when the callback before has, so do not wait for the caller
 * in it. Gone in the child of a fork. -ESTALE; -ENOMEM, -EAGAIN no thread (nothing is registered then). May
 * block. Not in a signal handler.
 */
RECLAIM_PUBLIC int reclaim_set_stall_callback(struct reclaim *r, reclaim_stall_callback *callback,
                                              void *userdata);

/* Where the arena is mapped, and its size. The same in every process unless RECLAIM_RELOCATED moved it. */
RECLAIM_PUBLIC void *reclaim_base(const struct reclaim *r);
RECLAIM_PUBLIC uint64_t reclaim_size(const struct reclaim *r);

/* In words, for a negative errno that a call here returned. Never NULL. */
RECLAIM_PUBLIC const char *reclaim_strerror(int error);

/* Inlined or called, never a copy of its own: what is not inlined is the library's. */
#define RECLAIM_INLINE extern inline __attribute__((gnu_inline))
#define RECLAIM_INLINE_ALWAYS extern inline __attribute__((gnu_inline, always_inline))

/*
 * The usual case of reclaim_alloc(), reclaim_defer_free() and reclaim_gp_poll(), which is shorter than a call of
 * a shared library; compile with RECLAIM_NO_INLINE to do without. The orders are those of lib/alloc.c,
 * lib/defer.c and lib/grace.c, whose guarantees they keep.
 */
/* whatever the quick one does not do */
RECLAIM_PUBLIC void *reclaim_alloc_slow(struct reclaim_lane *l, size_t bytes);
RECLAIM_PUBLIC int reclaim_defer_slow(struct reclaim_lane *l, void *p);

/* 16..128 by 16, then four a doubling; the same as the daemon's. */
RECLAIM_INLINE_ALWAYS unsigned reclaim_class_quick_(size_t bytes)
{
    size_t last = bytes - 1;
    unsigned top;

    if (bytes <= 128)
        return (unsigned)(last >> 4);
    top = 63u - (unsigned)__builtin_clzll(last);
    return top * 4u - 20u + (unsigned)((last >> (top - 2u)) & 3u);
}

RECLAIM_INLINE_ALWAYS void *reclaim_alloc_quick_(struct reclaim_lane *l, size_t bytes)
{
    uint64_t word, *take;
    unsigned c;

    if (__builtin_expect(bytes - 1 >= l->small_bytes, 0)) /* 0 bytes, too: it wraps */
        return reclaim_alloc_slow(l, bytes);
    c = reclaim_class_quick_(bytes);
    take = &l->take[c * 2];
    word = __atomic_load_n(take, __ATOMIC_RELAXED); /* this thread wrote it */
    if (__builtin_expect(!(uint32_t)word, 0))
        return reclaim_alloc_slow(l, bytes);
    l->last = c;
    /* ours: not for the daemon to return if we die */
    __atomic_store_n(take, word & (word - 1), __ATOMIC_RELAXED);
    __atomic_signal_fence(__ATOMIC_SEQ_CST); /* and so before we use it */
    return (void *)(uintptr_t)(l->first - 65536 + (word >> 32) * 512 + (unsigned)__builtin_ctzll(word) * 16);
}

RECLAIM_INLINE_ALWAYS int reclaim_defer_quick_(struct reclaim_lane *l, void *p)
{
    uint64_t distance = (uint64_t)(uintptr_t)p - l->first, open = l->open;
    /* outside the arena or not aligned: beyond n_granules */
    uint64_t granule = distance >> 4 | distance << 60;
    uint64_t word = ((granule >> 5) + 128) << 32 | (uint64_t)1 << (granule & 31);

    RECLAIM_SANITIZER_RELEASE(l);
    if (__builtin_expect(granule >= l->n_granules, 0) || (open ^ word) >> 32 || (uint32_t)(open & word))
        return reclaim_defer_slow(l, p);
    l->open = open | word;
    /* release: who sees the bit sees all that was done to *p and its unlinking before; pairs with
       lane_collect() */
    __atomic_store_n(l->record, open | word, __ATOMIC_RELEASE);
    /* the daemon's membarrier makes this a full fence; pairs with arena_sleep() */
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    /* stale: it has yet to look at us */
    if (__builtin_expect(__atomic_load_n(l->want, __ATOMIC_RELAXED) != l->bell, 0))
        /* defers nothing, and rings */
        return reclaim_defer_slow(l, NULL);
    return 0;
}

/* whatever is not simply over */
RECLAIM_PUBLIC int reclaim_gp_poll_slow(struct reclaim *r, uint64_t cookie);

RECLAIM_INLINE_ALWAYS int reclaim_gp_poll_quick_(struct reclaim *r, uint64_t cookie)
{
    const uint64_t *completed = r ? ((const struct reclaim_front *)(const void *)r)->completed : NULL;

    /* acquire: what sections read is read; pairs with grace_complete() */
    if (__builtin_expect(completed && __atomic_load_n(completed, __ATOMIC_ACQUIRE) >= cookie, 1))
        return 1;
    return reclaim_gp_poll_slow(r, cookie);
}

#ifndef RECLAIM_NO_INLINE
RECLAIM_INLINE int reclaim_gp_poll(struct reclaim *r, uint64_t cookie)
{
    return reclaim_gp_poll_quick_(r, cookie);
}

RECLAIM_INLINE void *reclaim_alloc(struct reclaim_lane *l, size_t bytes)
{
    return reclaim_alloc_quick_(l, bytes);
}

RECLAIM_INLINE int reclaim_defer_free(struct reclaim_lane *l, void *p)
{
    return reclaim_defer_quick_(l, p);
}
#endif

#ifdef __cplusplus
}
#endif

#endif
