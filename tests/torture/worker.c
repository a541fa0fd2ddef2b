/* SPDX-License-Identifier: MIT */
/*
 * A worker process. Its threads come and go: a life of some hundred milliseconds, then the lane is put back,
 * kept, or left to the thread's exit. Every few seconds the process closes the arena, also while threads
 * still have lanes of it, and opens it again.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "basic/cleanup.h"
#include "bench/clock.h"
#include "bench/words.h"
#include "thread.h"

enum {
    LIFE_MIN_MS = 5,
    LIFE_MAX_MS = 400,
    OPEN_MIN_MS = 200,
    OPEN_MAX_MS = 3000,
    LIVES_MAX = 4, /* of one thread */
    LOOK_MS = 2,
};

struct worker {
    struct world *world;
    unsigned process;
    struct torture_random random;
    struct reclaim *reclaim;
    struct board *board;
    bool observer;
    uint32_t pause;    /* threads end their lives and gather */
    uint32_t n_parked; /* those that wait for the close, with a lane or without */
    uint32_t closed;   /* they may go */
};

struct place {
    struct worker *worker;
    struct torture_thread thread;
    pthread_t handle;
    bool runs;
    uint32_t ended; /* nothing but its exit is left */
};

/* ---- Threads ---- */

static int life_begin(struct torture_thread *t)
{
    int r = reclaim_lane_get(t->reclaim, &t->lane);

    if (r == -EMFILE && t->world->options.tune) { /* lanes-max of when the arena was opened */
        t->count->refused++;
        clock_sleep_ms(LOOK_MS);
        return r;
    }
    if (r < 0)
        return world_call_failed(t->world, r, "reclaim_lane_get");
    t->end_ns = clock_now_ns() + random_between(&t->random, LIFE_MIN_MS, LIFE_MAX_MS) * UINT64_C(1000000);
    t->count->threads++;
    handler_set_lane(t);
    return 0;
}

static void life_live(struct torture_thread *t)
{
    if (thread_is_writer(t))
        writer_live(t);
    else
        reader_live(t);
}

/* With the lane or without it, until the arena is closed over it. */
static void thread_park(struct place *p)
{
    if (random_one_in(&p->thread.random, 2))
        reclaim_lane_put(p->thread.lane);
    (void)fetch_add_relaxed(&p->worker->n_parked, 1); /* only a count; the close has locks of its own */
    while (!load_relaxed(&p->worker->closed))         /* a moment late is harmless */
        clock_sleep_ms(LOOK_MS);
}

static void thread_lives(struct place *p)
{
    struct torture_thread *t = &p->thread;

    for (uint32_t n = random_between(&t->random, 1, LIVES_MAX); n > 0 && !thread_stops(t); n--) {
        if (life_begin(t) < 0)
            return;
        if (t->world->options.signals && handler_start(t) < 0) {
            store_relaxed(&t->world->failed, 1u); /* the words are there */
            return;
        }
        life_live(t);
        handler_stop();
        handler_set_lane(NULL);
        if (load_relaxed(t->pause)) { /* a moment late: it parks with the others at the next life */
            thread_park(p);
            return;
        }
        if (random_one_in(&t->random, 2))
            reclaim_lane_put(t->lane); /* else it is kept, or goes with the thread */
    }
}

static void *thread_main(void *userdata)
{
    struct place *p = userdata;

    thread_lives(p);
    handler_stop();
    store_relaxed(&p->ended, 1u); /* pthread_join() orders the rest */
    return NULL;
}

static int place_start(struct place *p, unsigned number, uint64_t life)
{
    struct worker *w = p->worker;
    int r;

    p->thread = (struct torture_thread){
        .world = w->world,
        .reclaim = w->reclaim,
        .board = w->board,
        .count = &w->world->counts[number],
        .random = random_make(w->world->options.seed, life << 8 | number),
        .place = number,
        .pause = &w->pause,
    };
    p->thread.next = random_below(&p->thread.random, ENTRIES_A_WRITER);
    p->ended = 0;
    r = pthread_create(&p->handle, NULL, thread_main, p);
    if (r != 0)
        return words_set(-r, "cannot start a thread");
    p->runs = true;
    return 0;
}

static void place_end(struct place *p)
{
    if (p->runs)
        (void)pthread_join(p->handle, NULL);
    p->runs = false;
}

/* ---- The process ---- */

/* Which places are this process's: every n_processes-th. */
static unsigned worker_places(const struct worker *w, unsigned n, unsigned numbers[static THREADS_MAX])
{
    unsigned n_all = (unsigned)(w->world->options.n_readers + w->world->options.n_writers);

    for (unsigned i = w->process; i < n_all; i += (unsigned)w->world->options.n_processes)
        numbers[n++] = i;
    return n;
}

/* A process that only reads is an observer now and then. */
static int worker_open(struct worker *w, const unsigned *numbers, unsigned n)
{
    bool reads = n == 0 || numbers[n - 1] < w->world->options.n_readers;
    int r;

    w->observer = reads && random_one_in(&w->random, 3);
    r = world_open(w->world, w->observer ? RECLAIM_READ_ONLY : 0, &w->reclaim);
    if (r == -EMFILE) { /* clients-max */
        (void)fetch_add_relaxed(&w->world->n_refused, 1);
        clock_sleep_ms(LOOK_MS);
        return 0;
    }
    if (r < 0)
        return r;
    if (w->observer)
        (void)fetch_add_relaxed(&w->world->n_observer, 1);
    r = world_find_board(w->reclaim, &w->board);
    if (r < 0)
        return words_set(r, "the root of the board: %s", reclaim_strerror(r));
    return 0;
}

/* Starts the threads, and each that ended again, until it is time to close. */
static int worker_run_threads(struct worker *w, struct place *places, const unsigned *numbers, unsigned n)
{
    uint64_t end = clock_now_ns() + random_between(&w->random, OPEN_MIN_MS, OPEN_MAX_MS) * UINT64_C(1000000);
    int r = 0;

    while (r == 0 && !world_stops(w->world) && clock_now_ns() < end) {
        for (unsigned i = 0; i < n && r == 0; i++) {
            if (load_relaxed(&places[i].ended)) /* joined before anything of it is looked at */
                place_end(&places[i]);
            if (!places[i].runs)
                r = place_start(&places[i], numbers[i], random_next(&w->random) >> 8);
        }
        clock_sleep_ms(LOOK_MS);
    }
    return r;
}

static bool all_parked(struct worker *w, const struct place *places, unsigned n)
{
    unsigned n_going = 0;

    for (unsigned i = 0; i < n; i++)
        n_going += places[i].runs && !load_relaxed(&places[i].ended);
    return load_relaxed(&w->n_parked) >= n_going; /* both only grow towards it */
}

/* Closes over whoever still has a lane. */
static void worker_close(struct worker *w, struct place *places, unsigned n)
{
    store_relaxed(&w->pause, 1u);
    while (!all_parked(w, places, n))
        clock_sleep_ms(LOOK_MS);
    reclaim_close(w->reclaim);
    w->reclaim = NULL;
    store_relaxed(&w->closed, 1u);
    for (unsigned i = 0; i < n; i++)
        place_end(&places[i]);
    w->pause = w->closed = w->n_parked = 0;
}

int worker_main(struct world *world, unsigned process, uint64_t incarnation)
{
    struct worker w = {.world = world, .process = process};
    unsigned numbers[THREADS_MAX], n = worker_places(&w, 0, numbers);
    _cleanup_free_ struct place *places = calloc(MAX(n, 1u), sizeof(*places));
    int r = places ? 0 : words_set(-ENOMEM, "no memory");

    w.random = random_make(world->options.seed, incarnation << 8 | (THREADS_MAX + process));
    for (unsigned i = 0; i < n && r >= 0; i++) {
        places[i].worker = &w;
        world->counts[numbers[i]].held_objects = world->counts[numbers[i]].held_bytes =
            0; /* a killed one's */
    }
    if (r >= 0)
        r = handler_install();
    while (r >= 0 && !world_stops(world)) {
        r = worker_open(&w, numbers, n);
        if (w.reclaim)
            r = worker_run_threads(&w, places, numbers, n);
        if (w.reclaim)
            worker_close(&w, places, n);
    }
    return r < 0 || load_relaxed(&world->failed);
}
