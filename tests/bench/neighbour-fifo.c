/* SPDX-License-Identifier: MIT */
/*
 * The neighbour that keeps about N entries in the daemon's callback FIFO: an arena of its own with batching=no,
 * so that each object that it defers becomes an entry once its grace period is over. An entry takes the daemon
 * some 70 ns, so a FIFO that is filled once is empty again before anybody can queue behind it. Hence one thread
 * does nothing but keep a number of objects on their way, in the FIFO or before it; the other looks at the FIFO's
 * length, regulates that number by it, and measures what an entry takes.
 */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "basic/ordering.h"
#include "basic/varlink-frame.h"
#include "clock.h"
#include "neighbour.h"
#include "run.h"
#include "words.h"

enum {
    OBJECT_BYTES = 32,
    ARENA_BYTES = 256 << 20,
    LONG_FIFO = 20000, /* from here on a grace period a millisecond brings few of them, and N is the least */
    NAP_USEC = 50,     /* between two looks at how many have come through */
    LOOK_MS = 1,       /* between two at the FIFO's length */
    GAIN = 16,         /* a sixteenth of what is missing, each look */
    LOOKS_MAX = 2000,  /* some three seconds, to fill it */
    FILLED_LOOKS = 50,
};

struct fifo {
    struct neighbour_shared *shared;
    uint64_t wanted;    /* entries */
    uint64_t in_flight; /* objects to keep on their way; this thread writes, fifo_thread() reads */
    char arena[ARENA_NAME_BYTES + 8];
    struct reclaim *reclaim;
    struct varlink_client *control;
    pthread_t thread;
};

static int fifo_open(struct fifo *f, const struct bench_run *run)
{
    const char *interval = f->wanted < LONG_FIFO ? "100us" : "1ms";
    int r;

    (void)snprintf(f->arena, sizeof(f->arena), "%s.fifo", run->arena);
    r = run_open_arena_named(run, f->arena, RECLAIM_CREATE | RECLAIM_EXCL | RECLAIM_TRANSIENT, ARENA_BYTES,
                             &f->reclaim);
    if (r >= 0)
        r = books_connect(run->service.paths.control, &f->control);
    if (r >= 0)
        r = books_set_parameter(f->control, f->arena, "batching", "no");
    return r < 0 ? r : books_set_parameter(f->control, f->arena, "flood-interval", interval);
}

/* No room in the ring (-EAGAIN) is no failure: there is plenty on its way then. */
static int defer_some(struct reclaim_lane *lane, uint64_t n, uint64_t *n_deferred)
{
    for (; n > 0; n--) {
        void *p = reclaim_alloc(lane, OBJECT_BYTES);
        int r = p ? reclaim_defer_free(lane, p) : -errno;

        if (r == -EAGAIN)
            return reclaim_free(lane, p);
        if (r < 0)
            return r;
        ++*n_deferred;
    }
    return 0;
}

/* As many as have come through since the last look. */
static int top_up(struct fifo *f, struct reclaim_lane *lane, uint64_t *n_deferred)
{
    struct reclaim_stats stats = {.size = sizeof(stats)};
    uint64_t wanted = load_relaxed(&f->in_flight), on_way; /* one number, sooner or later */
    int r = reclaim_stats(f->reclaim, &stats);

    if (r < 0)
        return r;
    on_way = *n_deferred - stats.freed_objects;
    return on_way < wanted ? defer_some(lane, wanted - on_way, n_deferred) : 0;
}

static void *fifo_thread(void *userdata)
{
    struct fifo *f = userdata;
    struct reclaim_lane *lane;
    uint64_t n_deferred = 0;
    int r = reclaim_lane_get(f->reclaim, &lane);

    (void)prctl(PR_SET_TIMERSLACK, 1);
    while (r >= 0 && neighbour_goes_on(f->shared)) {
        r = top_up(f, lane, &n_deferred);
        (void)usleep(NAP_USEC); /* leaves the processors to those who are measured */
    }
    if (r < 0)
        (void)run_library_failed(r, "the neighbour's reclaim_alloc or reclaim_defer_free");
    return NULL;
}

/*
 * What an entry takes: only from stretches in which no more ran than waited at their beginning, so that the FIFO
 * was never empty and its worker never idle.
 */
static int note_pace(struct fifo *f, const struct daemon_books *before)
{
    uint64_t begin_ns = clock_now_ns(), n;
    struct daemon_books after;
    int r = books_read_daemon(f->control, &after);

    if (r < 0)
        return r;
    n = after.n_callbacks - before->n_callbacks;
    if (n > 0 && n <= before->callbacks_waiting) {
        f->shared->n_run += n;
        f->shared->run_ns += clock_now_ns() - begin_ns;
    }
    f->shared->n_waiting += before->callbacks_waiting;
    f->shared->n_looks++;
    return 0;
}

/*
 * A look at the FIFO's length, and a little more or less on the way by what is missing, so that in the mean none
 * is: it comes in bursts, one a grace period. Only what follows once the neighbour is ready goes into figures.
 */
static int regulate(struct fifo *f, uint64_t *ret_waiting)
{
    uint64_t least = f->wanted / 4, most = f->wanted * 4 + 65536; /* it does not fill: no use in ever more */
    struct daemon_books now;
    int64_t next;
    int r = books_read_daemon(f->control, &now);

    if (r < 0)
        return r;
    *ret_waiting = now.callbacks_waiting;
    next = (int64_t)f->in_flight + ((int64_t)f->wanted - (int64_t)now.callbacks_waiting) / GAIN;
    store_relaxed(&f->in_flight,
                  (uint64_t)MIN(MAX(next, (int64_t)least), (int64_t)most)); /* as in top_up() */
    r = f->shared->ready ? note_pace(f, &now) : 0;
    clock_sleep_ms(LOOK_MS);
    return r;
}

/* Until it was seen filled a few times; once is enough where the machine has other things to do. */
static int fill(struct fifo *f)
{
    unsigned n_filled = 0;

    for (unsigned i = 0; i < LOOKS_MAX && n_filled < FILLED_LOOKS; i++) {
        uint64_t waiting;
        int r = regulate(f, &waiting);

        if (r < 0)
            return r;
        n_filled += waiting >= f->wanted;
    }
    return n_filled ? 0
                    : words_set(-ETIMEDOUT, "the callback FIFO never holds %" PRIu64 " entries", f->wanted);
}

int neighbour_fifo_main(const struct bench_run *run, struct neighbour_shared *s)
{
    uint64_t n = run->options->n_callbacks, waiting;
    struct fifo f = {.shared = s, .wanted = n < LONG_FIFO ? n : n + n / 8, .in_flight = n};
    int r = fifo_open(&f, run);

    if (r < 0)
        return r;
    r = -pthread_create(&f.thread, NULL, fifo_thread, &f);
    if (r < 0)
        return words_set(r, "cannot start a thread: %s", strerror(-r));
    r = fill(&f);
    if (r >= 0)
        neighbour_is_ready(s);
    while (r >= 0 && neighbour_goes_on(s))
        r = regulate(&f, &waiting);
    return r; /* the process ends, and with it the thread */
}
