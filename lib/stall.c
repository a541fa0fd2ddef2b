/* SPDX-License-Identifier: MIT */
/*
 * Stalls of one's own readers, told by a callback.
 *
 * The daemon writes what it has to say of a lane's reader into the lane (struct abi_stall) and then changes
 * one word of the channel. A thread of ours sleeps on that word; it is there only while a callback is
 * registered, and nothing else of the library knows of it.
 *
 * Guarantees
 *  T1 What is told is one report, whole: a record that is being written is left for the next wake-up.
 *  T2 No report is lost for good. The word is loaded before the records are looked at, and the kernel compares
 *     it once more before it puts us to sleep; the daemon changes it after each record. Of several reports of
 *     one lane that come faster than the callback returns the last is told.
 *  T3 A stall that was told is followed by its end, also when a new one has overwritten that; then with the
 *     figures of the last report of it.
 *  T4 When reclaim_set_stall_callback() or reclaim_close() returns, the callback before does not run and will
 *     not run again.
 *  T5 In the child of a fork there is neither thread nor callback: what the thread goes by reads as zero there.
 *
 * Together              set_stall_callback   the callback   read_lock .. of other threads
 * set_stall_callback    one after another    waits for it   yes
 */
#include "handle.h"

#include <linux/futex.h>
#include <limits.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "basic/ordering.h"

#define STOP_TURN_NS 10000000l /* a wake-up can be lost only once in a while: see watch_stop() */

/* What was told of one lane last. */
struct stall_seen {
    uint64_t sequence;
    bool open; /* its end is still to come */
    struct abi_stall report;
};

/* The thread's. Wiped in a child. */
struct stall_watch {
    struct reclaim *r; /* NULL: the child of a fork */
    reclaim_stall_callback *callback;
    void *userdata;
    pthread_t thread;
    uint32_t stop;    /* by who ends it */
    uint32_t stopped; /* futex: by the thread, last of all */
    uint32_t n_lanes;
    size_t bytes;
    struct stall_seen seen[];
};

static __thread struct stall_watch *this_thread; /* NULL but in a thread of ours */

static void futex_wake(uint32_t *word)
{
    (void)syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* timeout: NULL is for ever. Any reason to return is one to look again. */
static void futex_wait(uint32_t *word, uint32_t seen, const struct timespec *timeout)
{
    (void)syscall(SYS_futex, word, FUTEX_WAIT, seen, timeout, NULL, 0);
}

/* ---- Reports ---- */

/* T1. False: it is being written, and the channel's word changes after that. */
static bool stall_read(const struct abi_stall *s, struct abi_stall *ret)
{
    uint64_t sequence = load_acquire(&s->sequence); /* before the rest; pairs with tell_client() */

    *ret = (struct abi_stall){
        .sequence = sequence,
        .gp = load_relaxed(&s->gp), /* between two looks at the sequence */
        .usec = load_relaxed(&s->usec),
        .objects = load_relaxed(&s->objects),
        .bytes = load_relaxed(&s->bytes),
        .waiters = load_relaxed(&s->waiters),
        .tid = load_relaxed(&s->tid),
        .ended = load_relaxed(&s->ended),
    };
    acquire_fence(); /* the second look after the rest; pairs with the release fence in tell_client() */
    return !(sequence & 1) && load_relaxed(&s->sequence) == sequence;
}

/* To compare with: by the time that the callback looks its thread may have given it back. */
static const struct reclaim_lane *lane_find(struct reclaim *r, uint32_t number)
{
    const struct reclaim_lane *found = NULL;

    process_lock();
    for (const struct lane *l = r->lanes; l && !found; l = l->next_of_handle)
        if (l->number == number)
            found = &l->front;
    process_unlock();
    return found;
}

static void watch_call(const struct stall_watch *w, uint32_t number, const struct abi_stall *report,
                       bool ended)
{
    const struct reclaim_stall stall = {
        .size = sizeof(stall),
        .r = w->r,
        .lane = lane_find(w->r, number),
        .tid = (pid_t)report->tid,
        .ended = ended,
        .grace_period = report->gp,
        .usec = report->usec,
        .objects = report->objects,
        .bytes = report->bytes,
        .waiters = report->waiters,
    };

    w->callback(&stall, w->userdata);
}

/* It is to end, or the callback made a child, and this is it. */
static bool watch_is_over(const struct stall_watch *w)
{
    return load_acquire(&w->stop) || !w->r; /* pairs with watch_stop() */
}

/* T3. old: what was over before we came is not told. */
static void watch_look_at(struct stall_watch *w, uint32_t number, bool old)
{
    struct stall_seen *seen = &w->seen[number];
    struct abi_stall report;

    if (!stall_read(&segment_lane(w->r, number)->stall, &report) || report.sequence == seen->sequence)
        return;
    if (seen->open && seen->report.gp != report.gp) {
        seen->open = false;
        watch_call(w, number, &seen->report, true);
        if (watch_is_over(w))
            return;
    }
    seen->sequence = report.sequence;
    seen->report = report;
    seen->open = !report.ended;
    if (!old || !report.ended)
        watch_call(w, number, &report, report.ended);
}

/* However the thread ends: the callback may call pthread_exit(). */
static void watch_ended(void *data)
{
    struct stall_watch *w = data;

    store_release(&w->stopped, 1u); /* all that it did; pairs with watch_stop() */
    futex_wake(&w->stopped);
}

static void *watch_main(void *data)
{
    struct stall_watch *w = data;
    uint32_t *word = &w->r->channel->stalls;

    (void)prctl(PR_SET_NAME, "reclaim-stall");
    this_thread = w;
    pthread_cleanup_push(watch_ended, w);
    for (bool old = true; !watch_is_over(w); old = false) {
        uint32_t seen = load_acquire(word); /* T2: before the records; pairs with tell_client() */

        for (uint32_t i = 0; i < w->n_lanes && !watch_is_over(w); i++)
            watch_look_at(w, i, old);
        if (!watch_is_over(w))
            futex_wait(word, seen, NULL);
    }
    pthread_cleanup_pop(1);
    return NULL;
}

/* ---- The thread ---- */

/* Signals are for the threads of the program. */
static int watch_start(struct stall_watch *w)
{
    sigset_t all, before;
    int error;

    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    error = -pthread_create(&w->thread, NULL, watch_main, w);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

static int watch_new(struct reclaim *r, reclaim_stall_callback *callback, void *userdata,
                     struct stall_watch **ret)
{
    uint32_t n_lanes = r->channel->n_lanes;
    size_t bytes = sizeof(struct stall_watch) + n_lanes * sizeof(struct stall_seen);
    struct stall_watch *w = wiped_new(bytes);
    int error;

    if (!w)
        return -ENOMEM;
    w->r = r;
    w->callback = callback;
    w->userdata = userdata;
    w->n_lanes = n_lanes;
    w->bytes = bytes;
    error = watch_start(w);
    if (error < 0) {
        (void)wiped_free(w, bytes);
        return error;
    }
    *ret = w;
    return 0;
}

/*
 * T4. Only the daemon writes the word that the thread sleeps on, so we cannot change it: a wake-up that comes
 * between the thread's last look at `stop` and its sleep is lost, and another follows.
 */
static struct stall_watch *watch_stop(struct stall_watch *w)
{
    const struct timespec turn = {.tv_nsec = STOP_TURN_NS};

    if (!w)
        return NULL;
    store_release(&w->stop, 1u);         /* pairs with watch_is_over() */
    while (!load_acquire(&w->stopped)) { /* pairs with watch_ended() */
        futex_wake(&w->r->channel->stalls);
        futex_wait(&w->stopped, 0, &turn);
    }
    (void)pthread_join(w->thread, NULL);
    return wiped_free(w, w->bytes);
}

bool stall_calls_back(const struct reclaim *r)
{
    return this_thread && this_thread->r == r;
}

void stall_watch_end(struct reclaim *r)
{
    r->stalls = watch_stop(r->stalls);
}

int reclaim_set_stall_callback(struct reclaim *r, reclaim_stall_callback *callback, void *userdata)
{
    int error = handle_check(r), state;

    if (error < 0)
        return error;
    if (stall_calls_back(r)) /* it would wait for itself */
        return -EDEADLK;
    state = thread_cancel_disable();
    (void)pthread_mutex_lock(&r->stall_lock);
    stall_watch_end(r);
    if (callback)
        error = watch_new(r, callback, userdata, &r->stalls);
    (void)pthread_mutex_unlock(&r->stall_lock);
    thread_cancel_restore(state);
    return error;
}
