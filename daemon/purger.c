/* SPDX-License-Identifier: MIT */
/* The purge thread; see purger.h. */
#include "purger.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>
#include <urcu/urcu-memb.h>

#include "arena.h"
#include "arena-work.h"
#include "log.h"
#include "thread.h"

struct purger {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    struct purge_work *first, **last;
    bool stop;
};

/* A hole that could not be punched stays backed; the books say unbacked, and audit or age find it. */
static void work_punch(const struct purge_work *work)
{
    for (unsigned i = 0; i < work->n_holes; i++) {
        const struct heap_hole *hole = &work->holes[i];

        while (fallocate(work->arena->arena_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                         (off_t)hole->offset, (off_t)hole->bytes) < 0) {
            if (errno == EINTR)
                continue;
            log_error("arena %s: cannot give %llu bytes back: %m", work->arena->name,
                      (unsigned long long)hole->bytes);
            break;
        }
    }
}

/* Where memory is, by the file's own account: nothing is read, so no hole is filled. */
static void work_find_data(struct purge_work *work)
{
    uint64_t end = work->arena->bytes;

    work->n_holes = 0;
    while (work->from < end && work->n_holes < SWEEP_RANGES) {
        off_t data = lseek(work->arena->arena_fd, (off_t)work->from, SEEK_DATA), hole;

        hole = data < 0 ? -1 : lseek(work->arena->arena_fd, data, SEEK_HOLE);
        if (hole < 0) { /* ENXIO: no more data */
            work->from = end;
            return;
        }
        hole = MIN(hole, data + (off_t)SWEEP_RANGE_BYTES);
        work->holes[work->n_holes++] =
            (struct heap_hole){.offset = (uint64_t)data, .bytes = (uint64_t)(hole - data)};
        work->from = (uint64_t)hole;
    }
}

static void work_do(struct purge_work *work)
{
    if (work->kind == PURGE_SWEEP) {
        work_find_data(work);
        arena_sweep_found(work->arena, work);
        return;
    }
    arena_purge_begin(work->arena, work);
    work_punch(work);
    arena_purge_done(work->arena, work);
}

static void *purger_main(void *userdata)
{
    struct purger *p = userdata;

    thread_begin("purger");
    urcu_memb_register_thread(); /* arena_purge_done() may drop the last reference */
    (void)pthread_mutex_lock(&p->lock);
    while (p->first || !p->stop) {
        struct purge_work *work = p->first;

        if (!work) {
            (void)pthread_cond_wait(&p->wake, &p->lock);
            continue;
        }
        p->first = work->next;
        if (!p->first)
            p->last = &p->first;
        (void)pthread_mutex_unlock(&p->lock);
        work_do(work);
        (void)pthread_mutex_lock(&p->lock);
    }
    (void)pthread_mutex_unlock(&p->lock);
    urcu_memb_unregister_thread();
    return NULL;
}

int purger_new(struct purger **ret)
{
    struct purger *p = calloc(1, sizeof(*p));
    int r;

    if (!p)
        return -ENOMEM;
    p->last = &p->first;
    (void)pthread_mutex_init(&p->lock, NULL);
    (void)pthread_cond_init(&p->wake, NULL);
    r = -pthread_create(&p->thread, NULL, purger_main, p);
    if (r < 0) {
        free(p);
        return r;
    }
    *ret = p;
    return 0;
}

struct purger *purger_free(struct purger *p)
{
    if (!p)
        return NULL;
    (void)pthread_mutex_lock(&p->lock);
    p->stop = true;
    (void)pthread_cond_signal(&p->wake);
    (void)pthread_mutex_unlock(&p->lock);
    (void)pthread_join(p->thread, NULL);
    (void)pthread_cond_destroy(&p->wake);
    (void)pthread_mutex_destroy(&p->lock);
    free(p);
    return NULL;
}

void purger_queue(struct purger *p, struct purge_work *work)
{
    work->next = NULL;
    (void)pthread_mutex_lock(&p->lock);
    *p->last = work;
    p->last = &work->next;
    (void)pthread_cond_signal(&p->wake);
    (void)pthread_mutex_unlock(&p->lock);
}
