/* SPDX-License-Identifier: MIT */
/*
 * A load for scripts/demo: writer, reader and waiter processes over one arena, and figures every second.
 *
 * The processes share one table of slots (see demo-work.c), and nothing else but the figures that they count.
 *
 * Columns: second, objects replaced a second, objects read a second, objects that changed under a reader
 * (must be 0), median microseconds of a synchronize, objects deferred and not yet freed (mean), MiB free but
 * still backed (mean).
 */
#include "demo-load.h"

#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define SAMPLE_NS 20000000 /* how often the waiting objects are looked at */

struct shared *demo_shared;
struct options demo_options = {
    .n_writers = 1, .n_readers = 1, .seconds = 10, .n_slots = 4096, .arena_bytes = 1ull << 30};

static uint64_t figure_read(const uint64_t *figure)
{
    return __atomic_load_n(figure, __ATOMIC_RELAXED); /* as in figure_add() */
}

/* A child waits for the table, opens the arena (nothing of it survives a fork), works and leaves. */
static _Noreturn void child_run(int index, demo_work_fn *work)
{
    struct place place;
    int r;

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (!demo_flag_is_set(&demo_shared->go) && !demo_flag_is_set(&demo_shared->stop))
        demo_sleep_ns(1000000);
    if (demo_flag_is_set(&demo_shared->stop))
        _exit(0);
    r = demo_place_open(&place);
    if (r < 0)
        _exit(1);
    place.table = reclaim_dereference(*place.root); /* pairs with demo_table_make() */
    r = work(&place, &demo_shared->figures[index], 0x2545f4914f6cdd1du * (uint64_t)(index + 1));
    reclaim_close(place.arena);
    _exit(r < 0);
}

static int children_start(void)
{
    demo_work_fn *const works[] = {demo_write, demo_read, demo_wait};
    const int counts[] = {demo_options.n_writers, demo_options.n_readers, demo_options.n_waiters};
    int n = 0;

    for (int kind = 0; kind < 3; kind++)
        for (int i = 0; i < counts[kind] && n < N_PROCESSES_MAX; i++, n++) {
            pid_t pid = fork();

            if (pid < 0)
                return -errno;
            if (pid == 0)
                child_run(n, works[kind]);
        }
    return n;
}

/* Ends the children and waits for all. 0 when each left in peace. */
static int children_stop(void)
{
    int status, failed = 0;

    demo_flag_set(&demo_shared->stop);
    while (wait(&status) > 0)
        failed |= status;
    return failed ? -ECHILD : 0;
}

static int compare_u32(const void *a, const void *b)
{
    const uint32_t *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

/* The median of what all waiters measured since the last call; 0 when nothing came. */
static uint32_t times_collect(int n_children, uint64_t seen[])
{
    static uint32_t times[N_PROCESSES_MAX * N_TIMES_MAX];
    size_t n = 0;

    for (int i = 0; i < n_children; i++) {
        const struct figures *figures = &demo_shared->figures[i];
        uint64_t until = __atomic_load_n(&figures->n_times, __ATOMIC_ACQUIRE); /* pairs with demo_wait() */

        for (; seen[i] < until; seen[i]++)
            times[n++] = figures->times_us[seen[i] % N_TIMES_MAX];
    }
    qsort(times, n, sizeof(times[0]), compare_u32);
    return n ? times[n / 2] : 0;
}

static struct figures figures_sum(int n_children)
{
    struct figures sum = {0};

    for (int i = 0; i < n_children; i++) {
        sum.n_writes += figure_read(&demo_shared->figures[i].n_writes);
        sum.n_deferred += figure_read(&demo_shared->figures[i].n_deferred);
        sum.n_reads += figure_read(&demo_shared->figures[i].n_reads);
        sum.n_torn += figure_read(&demo_shared->figures[i].n_torn);
    }
    return sum;
}

/* Deferred and not yet freed. The daemon also frees what ended processes held, so its count may be ahead. */
static double objects_waiting(const struct reclaim_stats *stats, int n_children)
{
    uint64_t n_deferred = figures_sum(n_children).n_deferred;

    return n_deferred > stats->freed_objects ? (double)(n_deferred - stats->freed_objects) : 0;
}

/* A second passes: the means of what waits and what is kept. */
static int second_sample(struct place *place, int n_children, double *ret_waiting, double *ret_lazy_mib)
{
    uint64_t end = demo_now_ns() + 1000000000;
    double waiting = 0, lazy = 0;
    int n = 0, r;

    do {
        struct reclaim_stats stats = {.size = sizeof(stats)};

        r = reclaim_stats(place->arena, &stats);
        if (r < 0)
            return demo_complain("no figures from the daemon", r);
        waiting += objects_waiting(&stats, n_children);
        lazy += (double)stats.lazy_bytes / (1 << 20);
        n++;
        demo_sleep_ns(SAMPLE_NS);
    } while (demo_now_ns() < end);
    *ret_waiting = waiting / n;
    *ret_lazy_mib = lazy / n;
    return 0;
}

/* One line a second until the time is over. The number of torn objects, or what went wrong. */
static int64_t monitor(struct place *place, int n_children)
{
    static uint64_t seen[N_PROCESSES_MAX];
    struct figures before = {0}, now = {0};
    double waiting = 0, lazy_mib = 0;
    int r;

    printf("%6s %12s %12s %6s %10s %10s %9s\n", "second", "writes/s", "reads/s", "torn", "sync-us", "waiting",
           "lazy-MiB");
    for (int second = 1; second <= demo_options.seconds && !demo_flag_is_set(&demo_shared->stop); second++) {
        r = second_sample(place, n_children, &waiting, &lazy_mib);
        if (r < 0)
            return r;
        now = figures_sum(n_children);
        printf("%6d %12llu %12llu %6llu %10u %10.0f %9.1f\n", second,
               (unsigned long long)(now.n_writes - before.n_writes),
               (unsigned long long)(now.n_reads - before.n_reads), (unsigned long long)now.n_torn,
               times_collect(n_children, seen), waiting, lazy_mib);
        (void)fflush(stdout);
        before = now;
    }
    return (int64_t)now.n_torn;
}

static int run(void)
{
    struct place place;
    int n_children = children_start();
    int64_t torn = n_children;
    int r;

    if (torn >= 0)
        torn = demo_place_open(&place);
    if (torn >= 0) {
        torn = demo_table_make(&place);
        if (torn >= 0) {
            demo_flag_set(&demo_shared->go);
            torn = monitor(&place, n_children);
        }
    }
    r = children_stop();
    if (torn > 0)
        fprintf(stderr, "demo-load: %lld objects changed under a reader\n", (long long)torn);
    return torn == 0 && r == 0 ? 0 : 1;
}

static void on_signal(int signal)
{
    (void)signal;
    demo_flag_set(&demo_shared->stop);
}

static int usage(void)
{
    fprintf(stderr,
            "Usage: demo-load ARENA [--writers N] [--readers N] [--waiters N] [--rate OBJECTS-A-SECOND]\n"
            "                 [--burst N] [--slots N] [--pause-usec N] [--extent-each N] [--arena-bytes N]\n"
            "                 [--seconds N]\n");
    return 2;
}

static int options_parse(int argc, char *argv[])
{
    static const struct option names[] = {
        {"writers", 1, NULL, 'w'},
        {"readers", 1, NULL, 'r'},
        {"waiters", 1, NULL, 'y'},
        {"rate", 1, NULL, 'o'},
        {"slots", 1, NULL, 't'},
        {"pause-usec", 1, NULL, 'p'},
        {"extent-each", 1, NULL, 'x'},
        {"arena-bytes", 1, NULL, 'b'},
        {"seconds", 1, NULL, 's'},
        {"burst", 1, NULL, 'u'},
        {NULL, 0, NULL, 0},
    };
    int *const targets[] = {
        ['w'] = &demo_options.n_writers,   ['r'] = &demo_options.n_readers, ['y'] = &demo_options.n_waiters,
        ['o'] = &demo_options.rate,        ['t'] = &demo_options.n_slots,   ['p'] = &demo_options.pause_usec,
        ['x'] = &demo_options.extent_each, ['s'] = &demo_options.seconds,   ['u'] = &demo_options.burst};
    int c;

    while ((c = getopt_long(argc, argv, "", names, NULL)) != -1) {
        long long value = optarg ? atoll(optarg) : -1;

        if (c == '?' || value < 0 || (c != 'b' && value > 100000000))
            return -EINVAL;
        if (c == 'b')
            demo_options.arena_bytes = (uint64_t)value;
        else
            *targets[c] = (int)value;
    }
    if (optind != argc - 1 || demo_options.n_slots < 1 ||
        demo_options.n_writers + demo_options.n_readers + demo_options.n_waiters > N_PROCESSES_MAX)
        return -EINVAL;
    demo_options.arena = argv[optind];
    return 0;
}

int main(int argc, char *argv[])
{
    if (options_parse(argc, argv) < 0)
        return usage();
    demo_shared = mmap(NULL, sizeof(*demo_shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (demo_shared == MAP_FAILED)
        return demo_complain("no memory", -errno) != 0;
    (void)signal(SIGINT, on_signal);
    (void)signal(SIGTERM, on_signal);
    return run();
}
