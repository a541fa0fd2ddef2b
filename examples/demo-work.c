/* SPDX-License-Identifier: MIT */
/*
 * What the processes of demo-load do. Writers replace what a slot of the table points to and defer the
 * freeing of the old object, in bursts if asked; readers look at random slots and check that what they see
 * does not change under them; waiters call reclaim_synchronize() again and again and time it.
 */
#include "demo-load.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define READS_A_SECTION 8      /* a few, so that a section is worth its name */
#define EXTENT_BYTES (1 << 18) /* a large object: pages handed out whole */

struct object {
    uint64_t slot;
    uint64_t version;
    uint64_t check; /* follows from the two above */
};

int demo_flag_is_set(const int *flag)
{
    return __atomic_load_n(flag, __ATOMIC_ACQUIRE); /* pairs with demo_flag_set() */
}

void demo_flag_set(int *flag)
{
    __atomic_store_n(flag, 1, __ATOMIC_RELEASE); /* pairs with demo_flag_is_set() */
}

static void figure_add(uint64_t *figure, uint64_t n)
{
    __atomic_store_n(figure, *figure + n, __ATOMIC_RELAXED); /* stale is harmless: struct figures */
}

void demo_sleep_ns(long ns)
{
    struct timespec pause = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};

    (void)nanosleep(&pause, NULL);
}

uint64_t demo_now_ns(void)
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

int demo_complain(const char *what, int error)
{
    fprintf(stderr, "demo-load: %s: %s\n", what, reclaim_strerror(error));
    return error;
}

int demo_place_open(struct place *ret)
{
    char why[200] = "";
    struct reclaim_open_options open_options = {
        .size = sizeof(open_options),
        .flags = RECLAIM_CREATE | RECLAIM_TRANSIENT,
        .arena_bytes = demo_options.arena_bytes,
        .message = why,
        .message_size = sizeof(why),
    };
    struct place place = {0};
    int r = reclaim_open(demo_options.arena, &open_options, &place.arena);

    if (r < 0)
        return demo_complain(*why ? why : "cannot open the arena", r);
    r = reclaim_lane_get(place.arena, &place.lane);
    if (r >= 0)
        r = reclaim_root(place.arena, "table", &place.root);
    if (r < 0) {
        reclaim_close(place.arena);
        return demo_complain("cannot enter the arena", r);
    }
    *ret = place;
    return 0;
}

/* The parent makes the table, before any child looks. */
int demo_table_make(struct place *place)
{
    void **table = reclaim_alloc(place->lane, (size_t)demo_options.n_slots * sizeof(*table));

    if (!table)
        return demo_complain("no memory for the table", -errno);
    memset(table, 0, (size_t)demo_options.n_slots * sizeof(*table));
    reclaim_assign_pointer(place->lane, *place->root, (void *)table);
    return 0;
}

/* Replaces what one slot points to. 0, or what alloc or defer said. */
static int slot_replace(struct place *place, struct figures *figures, uint64_t slot, uint64_t version)
{
    int large = demo_options.extent_each && version % (uint64_t)demo_options.extent_each == 0;
    struct object *object = reclaim_alloc(place->lane, large ? EXTENT_BYTES : sizeof(*object)), *old;
    int r;

    if (!object)
        return -errno;
    *object = (struct object){slot, version, object_check(slot, version)};
    /* Publishes the new and takes away the old, which is whole for us: pairs with object_is_whole() */
    old = __atomic_exchange_n(&place->table[slot], object, __ATOMIC_ACQ_REL);
    if (!old)
        return 0;
    figure_add(&figures->n_deferred, 1);
    do
        r = reclaim_defer_free(place->lane, old);
    while (r == -EAGAIN && !demo_flag_is_set(&demo_shared->stop));
    return r;
}

/* After each burst: until all that was deferred is freed. 0 or what barrier said. */
static int burst_end(struct place *place, uint64_t version)
{
    const struct timespec patience = {.tv_sec = 30};

    if (!demo_options.burst || version % (uint64_t)demo_options.burst != 0)
        return 0;
    return reclaim_barrier(place->lane, &patience);
}

int demo_write(struct place *place, struct figures *figures, uint64_t seed)
{
    uint64_t version = 0, random = seed, start = demo_now_ns();
    int r;

    while (!demo_flag_is_set(&demo_shared->stop)) {
        r = slot_replace(place, figures, random_next(&random) % (uint64_t)demo_options.n_slots, ++version);
        if (r == -ENOMEM)
            demo_sleep_ns(1000000); /* full for now; what is deferred will come back */
        else if (r < 0)
            return demo_complain("a writer stops", r);
        else
            figure_add(&figures->n_writes, 1);
        r = burst_end(place, version);
        if (r < 0)
            return demo_complain("a writer stops", r);
        if (demo_options.rate && version * 1000000000u / (uint64_t)demo_options.rate > demo_now_ns() - start)
            demo_sleep_ns(1000000000 / demo_options.rate);
    }
    return 0;
}

/* Looks at one object twice with some time between. In a section, so it must stay what the slot promised. */
static int object_is_whole(void **table, uint64_t slot)
{
    const volatile struct object *object;
    uint64_t version;

    object = reclaim_dereference(table[slot]); /* pairs with the exchange in slot_replace() */
    if (!object)
        return 1;
    version = object->version;
    for (volatile int i = 0; i < 50; i++)
        ;
    return object->slot == slot && object->version == version && object->check == object_check(slot, version);
}

int demo_read(struct place *place, struct figures *figures, uint64_t seed)
{
    uint64_t random = seed;
    int r;

    while (!demo_flag_is_set(&demo_shared->stop)) {
        r = reclaim_read_lock(place->lane);
        if (r < 0)
            return demo_complain("a reader stops", r);
        for (int i = 0; i < READS_A_SECTION; i++)
            if (!object_is_whole(place->table, random_next(&random) % (uint64_t)demo_options.n_slots))
                figure_add(&figures->n_torn, 1);
        reclaim_read_unlock(place->lane);
        figure_add(&figures->n_reads, READS_A_SECTION);
        if (demo_options.pause_usec)
            demo_sleep_ns(demo_options.pause_usec * 1000L);
    }
    return 0;
}

int demo_wait(struct place *place, struct figures *figures, uint64_t seed)
{
    const struct timespec patience = {.tv_sec = 30};
    uint64_t start;
    int r;

    (void)seed;
    while (!demo_flag_is_set(&demo_shared->stop)) {
        start = demo_now_ns();
        r = reclaim_synchronize(place->lane, 0, &patience);
        if (r < 0)
            return demo_complain("a waiter stops", r);
        figures->times_us[figures->n_times % N_TIMES_MAX] = (uint32_t)((demo_now_ns() - start) / 1000);
        /* after the time itself; pairs with times_collect() */
        __atomic_store_n(&figures->n_times, figures->n_times + 1, __ATOMIC_RELEASE);
        demo_sleep_ns(2000000);
    }
    return 0;
}
