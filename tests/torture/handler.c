/* SPDX-License-Identifier: MIT */
/*
 * A signal handler that reads: it interrupts readers, writers and the library at every instruction, its
 * sections nest in whatever it finds, and it ends waits.
 */
#include <errno.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "bench/words.h"
#include "thread.h"

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

/* 10,000 a second is all that a processor can do beside some work, so not every thread gets that. */
static const long periods_ns[] = {100000, 500000, 2000000, 10000000};

/* This thread's, for its handler alone. The lane is NULL while there is none to read with. */
static __thread struct torture_thread context;
static __thread struct reclaim_lane *volatile lane;
static __thread timer_t timer;
static __thread bool has_timer;

static void handle(int signal_number)
{
    int saved = errno;
    struct seen seen;

    (void)signal_number;
    if (lane && reclaim_read_lock(lane) == 0) {
        (void)reader_look(&context, &seen);
        context.count->handler_sections++;
        reclaim_read_unlock(lane);
        if (random_one_in(&context.random, 8))
            (void)reclaim_lane_interrupt(lane);
    }
    errno = saved;
}

int handler_install(void)
{
    struct sigaction action = {.sa_handler = handle}; /* no SA_RESTART: calls are interrupted */

    if (sigaction(SIGPROF, &action, NULL) < 0)
        return words_set(-errno, "cannot install a signal handler");
    return 0;
}

int handler_start(const struct torture_thread *t)
{
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGPROF};
    struct itimerspec period = {0};

    context = *t;
    context.random = random_make(t->world->options.seed, t->random.state);
    period.it_interval.tv_nsec = periods_ns[random_below(&context.random, ARRAY_SIZE(periods_ns))];
    period.it_value = period.it_interval;
    event.sigev_notify_thread_id = (pid_t)syscall(SYS_gettid);
    if (timer_create(CLOCK_MONOTONIC, &event, &timer) < 0)
        return words_set(-errno, "cannot make a timer for signals");
    has_timer = true;
    if (timer_settime(timer, 0, &period, NULL) < 0)
        return words_set(-errno, "cannot start a timer for signals");
    return 0;
}

void handler_stop(void)
{
    lane = NULL;
    if (has_timer)
        (void)timer_delete(timer);
    has_timer = false;
}

void handler_set_lane(const struct torture_thread *t)
{
    lane = NULL;
    compiler_fence(); /* the handler uses neither while they change; pairs with handle() */
    if (!t)
        return;
    context.lane = t->lane;
    context.board = t->board;
    compiler_fence(); /* pairs with handle() */
    lane = t->lane;
}
