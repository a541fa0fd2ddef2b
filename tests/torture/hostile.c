/* SPDX-License-Identifier: MIT */
/* A client that writes all over its channel. */
#include "hostile.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "abi.h"
#include "basic/cleanup.h"
#include "bench/clock.h"
#include "bench/words.h"
#include "random.h"

enum {
    NOBODY = 65534,
    ARENA_BYTES = 8 << 20,
    LANES = 4, /* that it writes to: more only take memory */
    OBJECTS = 256,
    LIFE_S = 4, /* whoever waits for an arena that he has wedged himself */
    ROUNDS_MAX = 400,
    WORDS_A_ROUND = 64,
};

struct channel {
    struct abi_channel *header;
    struct abi_slot *slots;
    struct abi_lane *lanes;
    size_t bytes; /* up to the last lane that is written to */
    char *base;   /* of the arena, which somebody else may have made smaller than we would */
    uint32_t n_granules;
    int eventfd;
    uint64_t objects[OBJECTS]; /* records of what it had */
    unsigned n_objects;
};

int hostile_become(void)
{
    (void)alarm(LIFE_S);
    if (getuid() != 0)
        return 0; /* nothing but ourselves is left to be */
    if (setgroups(0, NULL) < 0 || setresgid(NOBODY, NOBODY, NOBODY) < 0 ||
        setresuid(NOBODY, NOBODY, NOBODY) < 0)
        return words_set(-errno, "cannot become another user: %s", strerror(errno));
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* forgotten with the user */
    return 1;
}

/* What an honest arena of mode 0600 must say to a stranger. */
static int check_refused(struct world *w)
{
    struct reclaim_open_options options = {.size = sizeof(options), .runtime_directory = w->directory};
    struct reclaim *r;
    int error = reclaim_open(w->arena, &options, &r);

    if (error == 0)
        return world_fail(w, "another user could open the arena %s of mode 0600", w->arena);
    return error == -EACCES || error == -ENOENT || (error == -EMFILE && w->options.tune)
               ? 0
               : words_set(error, "opening a forbidden arena: %s", reclaim_strerror(error));
}

/* Where the kernel says that the library has mapped it. */
static bool channel_find_memory(struct channel *c)
{
    _cleanup_fclose_ FILE *f = fopen("/proc/self/maps", "re");
    char line[400];

    while (f && fgets(line, sizeof(line), f)) {
        uint64_t start, end;

        if (!strstr(line, "memfd:reclaimd:channel") ||
            sscanf(line, "%" SCNx64 "-%" SCNx64, &start, &end) != 2)
            continue;
        c->header = (struct abi_channel *)(uintptr_t)start;
        c->slots = (struct abi_slot *)(uintptr_t)(start + c->header->slot_offset);
        c->lanes = (struct abi_lane *)(uintptr_t)(start + c->header->lane_offset);
        c->bytes = c->header->lane_offset + LANES * sizeof(struct abi_lane);
        return c->bytes <= end - start;
    }
    return false;
}

static int channel_find_eventfd(void)
{
    for (int fd = 3; fd < 64; fd++) {
        char path[40], target[40] = "";

        (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        if (readlink(path, target, sizeof(target) - 1) > 0 && strstr(target, "[eventfd]"))
            return fd;
    }
    return -1;
}

/* Objects of its own, half of them deferred: records that are right once are wrong the second time. */
static void channel_use(struct channel *c, struct reclaim *r, struct reclaim_lane *l,
                        struct torture_random *random)
{
    for (c->n_objects = 0; c->n_objects < OBJECTS; c->n_objects++) {
        char *p = reclaim_alloc(l, random_between(random, 1, random_one_in(random, 20) ? 20000 : 2000));
        uint64_t offset = p ? (uint64_t)(p - (char *)reclaim_base(r)) : 0;

        if (!p)
            return;
        c->objects[c->n_objects] = abi_word((uint32_t)(offset / ABI_BLOCK_BYTES),
                                            1u << offset % ABI_BLOCK_BYTES / ABI_GRANULE_BYTES);
        if (random_one_in(random, 2))
            (void)reclaim_defer_free(l, p);
    }
}

static int channel_open(struct world *w, unsigned number, struct torture_random *random, struct channel *ret)
{
    struct reclaim_open_options options = {
        .size = sizeof(options),
        .flags = RECLAIM_CREATE,
        .mode = 0666,
        .arena_bytes = ARENA_BYTES,
        .runtime_directory = w->directory,
    };
    struct reclaim_lane *l;
    struct reclaim *r;
    char name[64];
    int error;

    (void)snprintf(name, sizeof(name), "hostile-%u", number);
    error = reclaim_open(name, &options, &r);
    if (error < 0)
        return error;
    error = reclaim_lane_get(r, &l);
    if (error < 0)
        return error;
    ret->base = reclaim_base(r);
    ret->n_granules = (uint32_t)(reclaim_size(r) / ABI_GRANULE_BYTES);
    channel_use(ret, r, l, random);
    ret->eventfd = channel_find_eventfd();
    return channel_find_memory(ret) && ret->eventfd >= 0 ? 0 : -ENOENT;
}

/* ---- Words ---- */

/* Small, near a limit, or anything. */
static uint64_t bad_number(struct torture_random *random)
{
    static const uint64_t limits[] = {0,          UINT64_MAX,       UINT32_MAX,
                                      1ull << 63, ABI_RING_RECORDS, ABI_MAGAZINE_WORDS,
                                      0x40000000, 0x80000000,       1ull << 32};

    switch (random_below(random, 3)) {
    case 0:
        return random_below(random, 5000);
    case 1:
        return limits[random_below(random, ARRAY_SIZE(limits))] + random_below(random, 3) - 1;
    default:
        return random_next(random);
    }
}

/* A record that was right once, one that could be right, or none at all. */
static uint64_t bad_record(const struct channel *c, struct torture_random *random)
{
    if (c->n_objects > 0 && random_one_in(random, 2))
        return c->objects[random_below(random, c->n_objects)];
    if (random_one_in(random, 2))
        return abi_word(random_below(random, ARENA_BYTES / ABI_BLOCK_BYTES), (uint32_t)random_next(random));
    return random_next(random);
}

static void scribble_records(const struct channel *c, struct abi_lane *lane, struct torture_random *random)
{
    uint32_t n = random_below(random, ABI_RING_RECORDS), head = load_relaxed(&lane->head);

    for (uint32_t i = 0; i < n; i++)
        store_relaxed(&lane->ring[(head + i) % ABI_RING_RECORDS], bad_record(c, random));
    store_release(&lane->head, head + n); /* pairs with lane_collect(): right, for records that are wrong */
}

static void scribble_take(const struct channel *c, struct abi_lane *lane, struct torture_random *random)
{
    struct abi_take *take = &lane->take[random_below(random, ABI_CLASSES)];

    store_relaxed(&take->cur, bad_record(c, random));
    store_relaxed(&take->tail, (uint32_t)bad_number(random));
}

static uint64_t bad_link(const struct channel *c, struct torture_random *random)
{
    uint64_t record = bad_record(c, random);
    uint32_t mask = abi_word_mask(record);
    uint64_t granule = (uint64_t)abi_word_block(record) * 32 + (mask ? (unsigned)__builtin_ctz(mask) : 0);

    return random_one_in(random, 4) ? random_next(random) : abi_chain_link(granule, random_below(random, 8));
}

/* Heads that lead to one another, round and round or out of everything, with numbers that fit or do not. */
static void scribble_chain(const struct channel *c, struct abi_lane *lane, struct torture_random *random)
{
    uint32_t count = load_relaxed(&lane->chain_count), n = random_below(random, 20);

    for (uint32_t i = 0; i < n; i++) {
        uint64_t at = random_below(random, c->n_granules) * (uint64_t)ABI_GRANULE_BYTES;
        struct abi_chain_head *head = (struct abi_chain_head *)(void *)(c->base + at);

        store_relaxed(&head->next, bad_link(c, random));
        store_relaxed(&head->seq, random_one_in(random, 2) ? count + i : (uint32_t)bad_number(random));
    }
    store_relaxed(&lane->chain_head, bad_link(c, random));
    /* pairs with lane_chain_collect() */
    store_release(&lane->chain_count, count + (random_one_in(random, 2) ? n : (uint32_t)bad_number(random)));
}

/* One word or group of words, each in the way that its own reader might believe. */
static void scribble_lane(const struct channel *c, struct torture_random *random)
{
    unsigned i = random_below(random, LANES);
    struct abi_lane *lane = &c->lanes[i];

    switch (random_below(random, 11)) {
    case 0:
    case 1:
        return scribble_records(c, lane, random);
    case 2:
        return scribble_take(c, lane, random);
    case 3:
        return store_relaxed(&lane->head, (uint32_t)bad_number(random));
    case 4:
        return store_relaxed(&lane->ask, abi_ask((uint16_t)random_next(random), random_below(random, 3),
                                                 random_below(random, 40), (uint32_t)bad_number(random)));
    case 5:
        store_relaxed(&lane->ticket_cookie, bad_number(random));
        return store_release(&lane->ticket, random_next(random) << 32 |
                                                random_below(random, 7)); /* pairs with ticket_look() */
    case 6:
        return store_relaxed(&lane->owner[0], (uint32_t)bad_number(random));
    case 7:
        return store_relaxed(&lane->phase,
                             random_one_in(random, 2) ? lane->generation : (uint32_t)bad_number(random));
    case 8:
        return scribble_chain(c, lane, random);
    case 9:
        return store_relaxed(&c->slots[i].word, bad_number(random));
    default:
        store_relaxed(&lane->waiting, (uint32_t)random_below(random, 2));
        return store_relaxed(&lane->bell,
                             random_one_in(random, 2) ? lane->want : (uint32_t)bad_number(random));
    }
}

/* Any word, the daemon's own ones, too. */
static void scribble_anywhere(const struct channel *c, struct torture_random *random)
{
    uint64_t *words = (uint64_t *)(void *)c->header;

    store_relaxed(&words[random_below(random, (uint32_t)(c->bytes / sizeof(*words)))], bad_number(random));
}

/* Now and then so often that its counter is full, and that a reader would block. */
static void ring(const struct channel *c, struct torture_random *random)
{
    uint64_t n = random_one_in(random, 8) ? UINT64_MAX - 1 : 1;

    if (random_one_in(random, 50))
        (void)fcntl(c->eventfd, F_SETFL, random_one_in(random, 2) ? 0 : O_NONBLOCK);
    if (!(fcntl(c->eventfd, F_GETFL) & O_NONBLOCK))
        n = 1; /* a full one would hold us for ever */
    (void)!write(c->eventfd, &n, sizeof(n));
}

int hostile_scribble(struct world *w, unsigned number, uint64_t incarnation)
{
    struct torture_random random = random_make(w->options.seed, incarnation << 8 | 0xf0);
    uint32_t rounds = random_between(&random, 1, ROUNDS_MAX);
    bool anywhere = random_one_in(&random, 3);
    struct channel c;
    int r = hostile_become();

    if (r > 0)
        r = check_refused(w);
    if (r < 0)
        return 1;
    if (channel_open(w, number, &random, &c) < 0) {
        clock_sleep_ms(10); /* the daemon may have had enough of us */
        return 0;
    }
    while (rounds-- > 0 && !world_stops(w)) {
        for (unsigned i = 0; i < WORDS_A_ROUND; i++) {
            if (anywhere)
                scribble_anywhere(&c, &random);
            else
                scribble_lane(&c, &random);
        }
        ring(&c, &random);
        if (random_one_in(&random, 4))
            clock_sleep_ms(random_below(&random, 4));
    }
    return 0; /* without a word to the daemon */
}
