/* SPDX-License-Identifier: MIT */
/*
 * A load for scripts/demo: writer, reader and waiter processes over one arena, and a line of figures a
 * second.
 *
 * The shared structure is a table of slots. Writers replace what a slot points to and defer the freeing of
 * the old object; readers look at random slots and check that what they see does not change under them;
 * waiters call reclaim_synchronize() again and again and time it. The processes share nothing else but the
 * figures they count.
 *
 * Columns: second, objects replaced a second, objects read a second, objects that changed under a reader
 * (must be 0), median microseconds of a synchronize, objects waiting to be freed (mean), MiB free but still
 * backed (mean).
 */
#include <getopt.h>
#include <reclaim/reclaim.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define N_SLOTS 4096
#define N_PROCESSES_MAX 64
#define N_TIMES_MAX 4096       /* synchronize calls remembered in a second, a process */
#define SAMPLE_NS 20000000     /* how often the waiting objects are looked at */
#define READS_A_SECTION 8      /* a few, so that a section is worth its name */
#define EXTENT_BYTES (1 << 18) /* a large object: pages handed out whole */

struct object {
    uint64_t slot;
    uint64_t version;
    uint64_t check; /* follows from the two above */
};

/* What one process has counted so far. Written by it, read by the parent; a stale figure only shifts to the
 * next line. */
struct figures {
    uint64_t n_writes, n_reads, n_torn, n_times;
    uint32_t times_us[N_TIMES_MAX];
};

struct shared {
    int go, stop; /* parent: the table is there; the end has come */
    struct figures figures[N_PROCESSES_MAX];
};

struct options {
    const char *arena;
    int n_writers, n_readers, n_waiters, seconds;
    int rate;        /* objects a second and writer; 0: as many as it can */
    int extent_each; /* every so manyth object is large; 0: none */
    uint64_t arena_bytes;
};

/* A process's view of the arena. */
struct place {
    struct reclaim *arena;
    struct reclaim_lane *lane;
    void **root;
    void **table; /* N_SLOTS words */
};

static struct shared *shared;
static struct options options = {.n_writers = 1, .n_readers = 1, .seconds = 10, .arena_bytes = 1ull << 30};

static int is_set(const int *flag)
{
    return __atomic_load_n(flag, __ATOMIC_ACQUIRE); /* pairs with flag_set() */
}

static void flag_set(int *flag)
{
    __atomic_store_n(flag, 1, __ATOMIC_RELEASE); /* what came before is there; pairs with is_set() */
}

static void figure_add(uint64_t *figure, uint64_t n)
{
    __atomic_store_n(figure, *figure + n,
                     __ATOMIC_RELAXED); /* one writer; staleness is harmless, see struct figures */
}

static uint64_t figure_read(const uint64_t *figure)
{
    return __atomic_load_n(figure, __ATOMIC_RELAXED); /* as in figure_add() */
}

static void sleep_ns(long ns)
{
    struct timespec pause = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};

    (void)nanosleep(&pause, NULL);
}

static uint64_t now_ns(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t random_next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static uint64_t object_check(uint64_t slot, uint64_t version)
{
    return (slot + 1) * 0x9e3779b97f4a7c15u ^ version;
}

static int complain(const char *what, int error)
{
    fprintf(stderr, "demo-load: %s: %s\n", what, reclaim_strerror(error));
    return error;
}

static int place_open(struct place *ret)
{
    char why[200] = "";
    struct reclaim_open_options open_options = {
        .size = sizeof(open_options),
        .flags = RECLAIM_CREATE | RECLAIM_TRANSIENT,
        .arena_bytes = options.arena_bytes,
        .message = why,
        .message_size = sizeof(why),
    };
    struct place place = {0};
    int r = reclaim_open(options.arena, &open_options, &place.arena);

    if (r < 0)
        return complain(*why ? why : "cannot open the arena", r);
    r = reclaim_lane_get(place.arena, &place.lane);
    if (r >= 0)
        r = reclaim_root(place.arena, "table", &place.root);
    if (r < 0) {
        reclaim_close(place.arena);
        return complain("cannot enter the arena", r);
    }
    *ret = place;
    return 0;
}

/* The parent makes the table, before any child looks. */
static int table_make(struct place *place)
{
    void **table = reclaim_alloc(place->lane, N_SLOTS * sizeof(*table));

    if (!table)
        return complain("no memory for the table", -errno);
    memset(table, 0, N_SLOTS * sizeof(*table));
    reclaim_assign_pointer(place->lane, *place->root, (void *)table);
    return 0;
}

/* Replaces what one slot points to. 0, or what alloc or defer said. */
static int slot_replace(struct place *place, uint64_t slot, uint64_t version)
{
    int large = options.extent_each && version % (uint64_t)options.extent_each == 0;
    struct object *object = reclaim_alloc(place->lane, large ? EXTENT_BYTES : sizeof(*object)), *old;
    int r;

    if (!object)
        return -errno;
    *object = (struct object){slot, version, object_check(slot, version)};
    old =
        __atomic_exchange_n(&place->table[slot], object, __ATOMIC_ACQ_REL); /* pairs with object_is_whole() */
    do
        r = reclaim_defer_free(place->lane, old);
    while (r == -EAGAIN && !is_set(&shared->stop));
    return r;
}

static int write_on(struct place *place, struct figures *figures, uint64_t seed)
{
    uint64_t version = 0, random = seed, start = now_ns();
    int r;

    while (!is_set(&shared->stop)) {
        r = slot_replace(place, random_next(&random) % N_SLOTS, ++version);
        if (r == -ENOMEM)
            sleep_ns(1000000); /* full for now; what is deferred will come back */
        else if (r < 0)
            return complain("a writer stops", r);
        else
            figure_add(&figures->n_writes, 1);
        if (options.rate && version * 1000000000u / (uint64_t)options.rate > now_ns() - start)
            sleep_ns(1000000000 / options.rate);
    }
    return 0;
}

/* Looks at one object twice with some time between. The caller is in a section, so nothing may have changed.
 */
static int object_is_whole(void **slot)
{
    const volatile struct object *object =
        reclaim_dereference(*slot); /* pairs with the exchange in slot_replace() */
    uint64_t version;

    if (!object)
        return 1;
    version = object->version;
    for (volatile int i = 0; i < 50; i++)
        ;
    return object->version == version && object->check == object_check(object->slot, version);
}

static int read_on(struct place *place, struct figures *figures, uint64_t seed)
{
    uint64_t random = seed;
    int r;

    while (!is_set(&shared->stop)) {
        r = reclaim_read_lock(place->lane);
        if (r < 0)
            return complain("a reader stops", r);
        for (int i = 0; i < READS_A_SECTION; i++)
            if (!object_is_whole(&place->table[random_next(&random) % N_SLOTS]))
                figure_add(&figures->n_torn, 1);
        reclaim_read_unlock(place->lane);
        figure_add(&figures->n_reads, READS_A_SECTION);
    }
    return 0;
}

static int wait_on(struct place *place, struct figures *figures, uint64_t seed)
{
    const struct timespec patience = {.tv_sec = 30};
    uint64_t start;
    int r;

    (void)seed;
    while (!is_set(&shared->stop)) {
        start = now_ns();
        r = reclaim_synchronize(place->lane, 0, &patience);
        if (r < 0)
            return complain("a waiter stops", r);
        figures->times_us[figures->n_times % N_TIMES_MAX] = (uint32_t)((now_ns() - start) / 1000);
        __atomic_store_n(&figures->n_times, figures->n_times + 1,
                         __ATOMIC_RELEASE); /* pairs with times_collect() */
        sleep_ns(2000000);
    }
    return 0;
}

/* A child: waits for the table, opens the arena anew (nothing of it survives a fork), works, leaves. Never
 * returns. */
static void child_run(int index, int (*work)(struct place *, struct figures *, uint64_t))
{
    struct place place;
    int r;

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (!is_set(&shared->go) && !is_set(&shared->stop))
        sleep_ns(1000000);
    if (is_set(&shared->stop))
        _exit(0);
    r = place_open(&place);
    if (r < 0)
        _exit(1);
    place.table = reclaim_dereference(*place.root); /* pairs with table_make() */
    r = work(&place, &shared->figures[index], 0x2545f4914f6cdd1du * (uint64_t)(index + 1));
    reclaim_close(place.arena);
    _exit(r < 0);
}

static int children_start(void)
{
    int (*const works[])(struct place *, struct figures *, uint64_t) = {write_on, read_on, wait_on};
    const int counts[] = {options.n_writers, options.n_readers, options.n_waiters};
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

    flag_set(&shared->stop);
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
        const struct figures *figures = &shared->figures[i];
        uint64_t until = __atomic_load_n(&figures->n_times, __ATOMIC_ACQUIRE); /* pairs with wait_on() */

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
        sum.n_writes += figure_read(&shared->figures[i].n_writes);
        sum.n_reads += figure_read(&shared->figures[i].n_reads);
        sum.n_torn += figure_read(&shared->figures[i].n_torn);
    }
    return sum;
}

/* A second passes: the means of what waits and what is kept, asked of the daemon now and then. */
static int second_sample(struct place *place, double *ret_waiting, double *ret_lazy_mib)
{
    uint64_t end = now_ns() + 1000000000;
    double waiting = 0, lazy = 0;
    int n = 0, r;

    do {
        struct reclaim_stats stats = {.size = sizeof(stats)};

        r = reclaim_stats(place->arena, &stats);
        if (r < 0)
            return complain("no figures from the daemon", r);
        waiting += (double)stats.pending_objects;
        lazy += (double)stats.lazy_bytes / (1 << 20);
        n++;
        sleep_ns(SAMPLE_NS);
    } while (now_ns() < end);
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
    for (int second = 1; second <= options.seconds && !is_set(&shared->stop); second++) {
        r = second_sample(place, &waiting, &lazy_mib);
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
        torn = place_open(&place);
    if (torn >= 0) {
        torn = table_make(&place);
        if (torn >= 0) {
            flag_set(&shared->go);
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
    flag_set(&shared->stop);
}

static int usage(void)
{
    fprintf(stderr,
            "Usage: demo-load ARENA [--writers N] [--readers N] [--waiters N] [--rate OBJECTS-A-SECOND]\n"
            "                 [--extent-each N] [--arena-bytes N] [--seconds N]\n");
    return 2;
}

static int options_parse(int argc, char *argv[])
{
    static const struct option names[] = {
        {"writers", 1, NULL, 'w'},     {"readers", 1, NULL, 'r'},
        {"waiters", 1, NULL, 'y'},     {"rate", 1, NULL, 'o'},
        {"extent-each", 1, NULL, 'x'}, {"arena-bytes", 1, NULL, 'b'},
        {"seconds", 1, NULL, 's'},     {NULL, 0, NULL, 0},
    };
    int *const targets[] = {
        ['w'] = &options.n_writers, ['r'] = &options.n_readers,   ['y'] = &options.n_waiters,
        ['o'] = &options.rate,      ['x'] = &options.extent_each, ['s'] = &options.seconds};
    int c;

    while ((c = getopt_long(argc, argv, "", names, NULL)) != -1) {
        long long value = optarg ? atoll(optarg) : -1;

        if (c == '?' || value < 0 || (c != 'b' && value > 1000000000))
            return -EINVAL;
        if (c == 'b')
            options.arena_bytes = (uint64_t)value;
        else
            *targets[c] = (int)value;
    }
    if (optind != argc - 1 || options.n_writers + options.n_readers + options.n_waiters > N_PROCESSES_MAX)
        return -EINVAL;
    options.arena = argv[optind];
    return 0;
}

int main(int argc, char *argv[])
{
    if (options_parse(argc, argv) < 0)
        return usage();
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return complain("no memory", -errno) != 0;
    (void)signal(SIGINT, on_signal);
    (void)signal(SIGTERM, on_signal);
    return run();
}
