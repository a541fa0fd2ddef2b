/* SPDX-License-Identifier: MIT */
/* The workers and their queue; see reclaimer.h. */
#include "reclaimer.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <urcu/urcu-memb.h>

#include "basic/macro.h"
#include "basic/ordering.h"
#include "clock.h"
#include "thread.h"

#define WORKERS_MAX 16u
#define CALLBACKS_TURN_USEC                                                                                  \
    2000u /* ten entries at the FIFO are microseconds, a batch hundreds or thousands */

struct reclaimer {
    pthread_mutex_t lock; /* queue, armed list, states, flags */
    pthread_cond_t wake;  /* work came */
    pthread_cond_t done;  /* a run ended, for reclaimer_remove() */
    unsigned n_removers;
    struct runnable *first, **last;
    struct runnable armed; /* list head; few arenas, so it is not sorted */
    /* an idle worker waits until then; the others without a time, unless theirs is nearer */
    uint64_t kept_usec;
    bool callbacks_busy; /* one worker at a time runs the FIFO */
    bool stop;
    unsigned n_workers, n_idle;
    pthread_t threads[WORKERS_MAX];
    struct callbacks *callbacks;
    struct callbacks direct;
    uint64_t callback_limit;
};

void runnable_init(struct runnable *runnable, uint64_t (*run)(struct runnable *r))
{
    *runnable = (struct runnable){.deadline_usec = RUN_NEVER, .run = run};
}

static void disarm(struct runnable *r)
{
    if (r->deadline_usec == RUN_NEVER)
        return;
    r->armed_prev->armed_next = r->armed_next;
    r->armed_next->armed_prev = r->armed_prev;
    r->deadline_usec = RUN_NEVER;
}

static void arm(struct reclaimer *r, struct runnable *runnable, uint64_t deadline_usec)
{
    if (deadline_usec == RUN_NEVER)
        return;
    runnable->deadline_usec = deadline_usec;
    runnable->armed_next = r->armed.armed_next;
    runnable->armed_prev = &r->armed;
    runnable->armed_next->armed_prev = runnable;
    r->armed.armed_next = runnable;
}

static void enqueue(struct reclaimer *r, struct runnable *runnable)
{
    disarm(runnable);
    runnable->state = RUNNABLE_QUEUED;
    runnable->next = NULL;
    *r->last = runnable;
    r->last = &runnable->next;
}

static void wake_one(struct reclaimer *r)
{
    if (r->n_idle > 0)
        (void)pthread_cond_signal(&r->wake);
}

void reclaimer_kick(struct reclaimer *r, struct runnable *runnable)
{
    (void)pthread_mutex_lock(&r->lock);
    if (runnable->state == RUNNABLE_IDLE) {
        enqueue(r, runnable);
        wake_one(r);
    } else if (runnable->state == RUNNABLE_RUNNING) {
        runnable->state = RUNNABLE_AGAIN;
    }
    (void)pthread_mutex_unlock(&r->lock);
}

void reclaimer_kick_callbacks(struct reclaimer *r)
{
    (void)pthread_mutex_lock(&r->lock);
    if (!r->callbacks_busy)
        wake_one(r);
    (void)pthread_mutex_unlock(&r->lock);
}

void reclaimer_push_direct(struct reclaimer *r, struct callback *callback,
                           void (*run)(struct callback *callback))
{
    callbacks_push(&r->direct, callback, run);
    reclaimer_kick_callbacks(r);
}

void reclaimer_set_callback_limit(struct reclaimer *r, uint64_t limit)
{
    store_relaxed(&r->callback_limit, limit); /* the next turn goes by it */
}

/* Queues what is due; returns the nearest deadline of the rest. */
static uint64_t queue_due(struct reclaimer *r)
{
    uint64_t nearest = RUN_NEVER, now = 0;
    struct runnable *next;

    for (struct runnable *a = r->armed.armed_next; a != &r->armed; a = next) {
        next = a->armed_next;
        if (now == 0)
            now = now_usec();
        if (a->deadline_usec <= now)
            enqueue(r, a);
        else
            nearest = MIN(nearest, a->deadline_usec);
    }
    return nearest;
}

static bool callbacks_wait(struct reclaimer *r)
{
    return !r->callbacks_busy && (!callbacks_is_empty(&r->direct) || !callbacks_is_empty(r->callbacks));
}

/* One turn at the FIFO: unlocked while entries run. Each of the two gets on by one entry, whatever the other takes. */
static void run_callbacks(struct reclaimer *r)
{
    uint64_t until;

    r->callbacks_busy = true;
    (void)pthread_mutex_unlock(&r->lock);
    until = now_usec() + CALLBACKS_TURN_USEC;
    /* those that come meanwhile: next turn */
    (void)callbacks_run(&r->direct, callbacks_length(&r->direct), until);
    (void)callbacks_run(r->callbacks, load_relaxed(&r->callback_limit), until);
    (void)pthread_mutex_lock(&r->lock);
    r->callbacks_busy = false;
}

static void run_first(struct reclaimer *r)
{
    struct runnable *runnable = r->first;
    uint64_t deadline;

    r->first = runnable->next;
    if (!r->first)
        r->last = &r->first;
    else
        wake_one(r); /* R3: the others need not wait for us */
    runnable->state = RUNNABLE_RUNNING;
    (void)pthread_mutex_unlock(&r->lock);
    deadline = runnable->run(runnable);
    (void)pthread_mutex_lock(&r->lock);
    if (!runnable->leaving && (runnable->state == RUNNABLE_AGAIN || deadline == RUN_AGAIN)) {
        enqueue(r, runnable); /* R2 */
        if (r->n_removers > 0)
            (void)pthread_cond_broadcast(&r->done);
        return;
    }
    runnable->state = RUNNABLE_IDLE;
    if (!runnable->leaving)
        arm(r, runnable, deadline);
    if (r->n_removers > 0)
        (void)pthread_cond_broadcast(&r->done);
}

/* Sleeps until there is work. Who has the nearest deadline waits for it, and looks after all others. */
static void worker_wait(struct reclaimer *r, uint64_t nearest)
{
    struct timespec until = {.tv_sec = (time_t)(nearest / 1000000u),
                             .tv_nsec = (long)(nearest % 1000000u) * 1000};

    r->n_idle++;
    if (nearest < r->kept_usec) {
        r->kept_usec = nearest;
        (void)pthread_cond_timedwait(&r->wake, &r->lock, &until);
        if (r->kept_usec == nearest)
            r->kept_usec = RUN_NEVER;
    } else {
        (void)pthread_cond_wait(&r->wake, &r->lock);
    }
    r->n_idle--;
}

/*
 * While we are at work somebody else keeps the time. But not for a turn at the FIFO which is over, but for an entry
 * that takes long, and looks at the time again, before the nearest deadline: who waits in the FIFO would pay for
 * that worker's wake-up.
 */
static void hand_over_time(struct reclaimer *r, uint64_t nearest)
{
    if (nearest >= r->kept_usec)
        return;
    if (r->first || (callbacks_wait(r) && nearest < now_usec() + CALLBACKS_TURN_USEC))
        wake_one(r);
}

static void *worker_main(void *userdata)
{
    struct reclaimer *r = userdata;

    thread_begin_prompt("reclaimer");
    urcu_memb_register_thread();
    (void)pthread_mutex_lock(&r->lock);
    while (!r->stop) {
        uint64_t nearest = queue_due(r);

        hand_over_time(r, nearest);
        if (callbacks_wait(r))
            run_callbacks(r);
        if (r->first)
            run_first(r);
        else if (!callbacks_wait(r) && !r->stop)
            worker_wait(r, nearest);
    }
    (void)pthread_mutex_unlock(&r->lock);
    urcu_memb_unregister_thread();
    return NULL;
}

static int reclaimer_init_locks(struct reclaimer *r)
{
    pthread_condattr_t attr;

    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&r->wake, &attr);
    (void)pthread_cond_init(&r->done, &attr);
    (void)pthread_condattr_destroy(&attr);
    return -pthread_mutex_init(&r->lock, NULL);
}

int reclaimer_new(unsigned n_workers, struct callbacks *callbacks, struct reclaimer **ret)
{
    struct reclaimer *r = calloc(1, sizeof(*r));
    int error;

    if (!r)
        return -ENOMEM;
    r->last = &r->first;
    r->kept_usec = RUN_NEVER;
    r->armed.armed_next = r->armed.armed_prev = &r->armed;
    r->callbacks = callbacks;
    r->callback_limit = 10;
    callbacks_init(&r->direct);
    error = reclaimer_init_locks(r);
    for (; error == 0 && r->n_workers < MIN(n_workers, WORKERS_MAX); r->n_workers++)
        error = -pthread_create(&r->threads[r->n_workers], NULL, worker_main, r);
    if (error < 0) {
        r->n_workers = r->n_workers > 0 ? r->n_workers - 1 : 0; /* the one that did not start */
        reclaimer_stop(r);
        (void)reclaimer_free(r);
        return error;
    }
    *ret = r;
    return 0;
}

void reclaimer_stop(struct reclaimer *r)
{
    (void)pthread_mutex_lock(&r->lock);
    r->stop = true;
    (void)pthread_cond_broadcast(&r->wake);
    (void)pthread_mutex_unlock(&r->lock);
    for (unsigned i = 0; i < r->n_workers; i++)
        (void)pthread_join(r->threads[i], NULL);
    r->n_workers = 0;
}

void reclaimer_flush(struct reclaimer *r)
{
    (void)callbacks_run(&r->direct, UINT64_MAX, UINT64_MAX);
    (void)callbacks_run(r->callbacks, UINT64_MAX, UINT64_MAX);
}

struct reclaimer *reclaimer_free(struct reclaimer *r)
{
    if (!r)
        return NULL;
    (void)pthread_cond_destroy(&r->wake);
    (void)pthread_cond_destroy(&r->done);
    (void)pthread_mutex_destroy(&r->lock);
    free(r);
    return NULL;
}

static void unqueue(struct reclaimer *r, struct runnable *runnable)
{
    struct runnable **p = &r->first;

    while (*p && *p != runnable)
        p = &(*p)->next;
    if (!*p)
        return;
    *p = runnable->next;
    if (!*p)
        r->last = p;
}

void reclaimer_remove(struct reclaimer *r, struct runnable *runnable)
{
    (void)pthread_mutex_lock(&r->lock);
    r->n_removers++;
    runnable->leaving = true; /* or one that always wants to go on would be found running each time */
    while (runnable->state == RUNNABLE_RUNNING || runnable->state == RUNNABLE_AGAIN)
        (void)pthread_cond_wait(&r->done, &r->lock);
    r->n_removers--;
    runnable->leaving = false;
    disarm(runnable);
    if (runnable->state == RUNNABLE_QUEUED)
        unqueue(r, runnable);
    runnable->state = RUNNABLE_IDLE;
    (void)pthread_mutex_unlock(&r->lock);
}
