/* SPDX-License-Identifier: MIT */
/*
 * The one description of what the daemon and its clients share: the words in memory and the messages at attach.
 *
 * Rules that hold for every word here
 *  W1 It has one writer, named beside it: "daemon" or "client" (a lane's owner word is also the kernel's).
 *  W2 Client-written and daemon-written words never share a cache line.
 *  W3 What the client writes is hostile: the daemon loads it once into a local, checks bounds, then the
 *     truth, then acts.
 *  W4 Nothing in shared memory is an address: blocks, indices and masks only.
 *  W5 A minor version only appends in reserved room; all else is a new major version, and other majors are
 *     refused.
 *
 * Segments (all sealed memfds): domain (one an arena, clients map it read-only), channel (one a client, that
 * client and the daemon), arena (the objects, nothing else). The daemon's own truth is in a fourth that no
 * client ever maps.
 */
#ifndef RECLAIM_ABI_H
#define RECLAIM_ABI_H

#include <stddef.h>
#include <stdint.h>

#define ABI_MAJOR 1u
#define ABI_MINOR 0u
#define ABI_MAGIC_DOMAIN 0x31646d6c636572ffull  /* "\xffreclmd1" */
#define ABI_MAGIC_CHANNEL 0x3168636c636572ffull /* "\xffreclch1" */
#define ABI_MAGIC_MESSAGE 0x6d6c6372u           /* "rclm" */

/* ---- Geometry ---- */

#define ABI_GRANULE_BYTES 16u  /* every object starts on one */
#define ABI_BLOCK_BYTES 512u   /* 32 granules: what one record or truth word speaks of */
#define ABI_PAGE_BYTES 4096u   /* extents are whole pages */
#define ABI_CHUNK_BYTES 65536u /* a span is one chunk; small extents share one, large ones take several */
#define ABI_BLOCKS_PER_CHUNK (ABI_CHUNK_BYTES / ABI_BLOCK_BYTES)
#define ABI_BLOCKS_PER_PAGE (ABI_PAGE_BYTES / ABI_BLOCK_BYTES)
#define ABI_PAGES_PER_CHUNK (ABI_CHUNK_BYTES / ABI_PAGE_BYTES)
#define ABI_ARENA_BYTES_MIN (1ull << 20)
#define ABI_ARENA_BYTES_MAX (1ull << 41) /* 2^32 blocks */
#define ABI_CACHE_LINE 64
#define ABI_NAME_MAX 48 /* of an arena or a root, without the NUL */

/* Chunk 0 holds no objects, so a zero word is no record. */
#define ABI_FIRST_BLOCK ABI_BLOCKS_PER_CHUNK

/*
 * A record, a magazine word and `cur` are one word: block << 32 | mask, a bit for each granule where an
 * object starts. So up to 32 neighbours travel, and are checked and freed, together.
 */
static inline uint64_t abi_word(uint32_t block, uint32_t mask)
{
    return (uint64_t)block << 32 | mask;
}

static inline uint32_t abi_word_block(uint64_t word)
{
    return (uint32_t)(word >> 32);
}

static inline uint32_t abi_word_mask(uint64_t word)
{
    return (uint32_t)word;
}

/*
 * Size classes: 16..128 by 16, then four a doubling up to 3584. Larger objects are extents: whole pages,
 * aligned to them.
 */
#define ABI_CLASS_EXTENT 27u /* the pseudo class of extents */
#define ABI_CLASSES 28u

static inline unsigned abi_class_of(size_t bytes)
{
    size_t last = bytes - 1;
    unsigned msb;

    if (bytes <= 128)
        return (unsigned)(last / 16); /* 0 bytes: refused by the caller */
    if (bytes > 3584)
        return ABI_CLASS_EXTENT;
    msb = 63u - (unsigned)__builtin_clzll(last);
    return 8u + (msb - 7u) * 4u + (unsigned)((last >> (msb - 2u)) & 3u);
}

static inline uint32_t abi_class_bytes(unsigned class_index)
{
    unsigned step = class_index - 8u;

    if (class_index < 8u)
        return (class_index + 1u) * 16u;
    return (5u + (step & 3u)) << (5u + (step >> 2)); /* 160, 192, 224, 256, 320, .. */
}

/* ---- Domain: read by all clients of an arena, written by the daemon ---- */

enum abi_sleeps {
    ABI_AWAKE = 0,  /* the daemon will look by itself soon */
    ABI_ASLEEP = 1, /* it looks when somebody rings: each lane's first defer since `want` moved does */
    ABI_DOZING = 2, /* it looks when its drain timer is due; ring only for a flood, a low magazine, an extent,
                       a wait */
};

struct abi_domain {
    uint64_t magic;
    uint32_t major;
    uint32_t minor;
    uint64_t fingerprint;
    uint64_t base;        /* where the arena is mapped in every process */
    uint64_t arena_bytes; /* a multiple of the chunk */
    uint32_t page_bytes;
    /* the daemon cannot call membarrier; fixed before the first attach is answered */
    uint32_t readers_must_fence;
    uint8_t reserved0[ABI_CACHE_LINE - 48];

    /* The newest grace period begun. Daemon: store-release in grace_start(); pairs with reclaim_read_lock(). */
    uint64_t started __attribute__((aligned(ABI_CACHE_LINE)));
    /* The newest one over. Daemon: store-release in grace_complete(); pairs with reclaim_gp_poll(). */
    uint64_t completed __attribute__((aligned(ABI_CACHE_LINE)));
    /* enum abi_sleeps. Daemon: before its membarrier, then it looks again; pairs with lane_ring(). */
    uint32_t sleeps __attribute__((aligned(ABI_CACHE_LINE)));
    uint32_t flood_objects; /* a lane that queued so many rings although the daemon dozes; a parameter */
    /* how far a lane's ring may fill outside a section: all rings together bind so much memory and no more */
    uint32_t ring_records;
    uint32_t extent_block; /* no block below is an extent's: a record from there on rings although it dozes */
    uint32_t reserved1[12];
};

/* ---- Channel: one client and the daemon ---- */

#define ABI_RING_RECORDS                                                                                     \
    4096u /* a lane's ring: what a daemon that naps 50 us finds half full; a power of two */
#define ABI_MAGAZINE_WORDS 1024u /* a lane's magazine of one class; a power of two */

/* One thread's reader slot, alone on its line. Client: read_lock/unlock; the daemon clears it once the owner
   is gone. */
struct abi_slot {
    uint64_t word;
    uint8_t reserved[ABI_CACHE_LINE - 8];
} __attribute__((aligned(ABI_CACHE_LINE)));

/* The client's place in a magazine. */
struct abi_take {
    uint64_t cur;  /* what is left of the word being used. Client: `cur` = the word, then tail + 1 */
    uint32_t tail; /* free-running index of the next word */
    uint32_t reserved;
};

/*
 * `ask`: what a lane that cannot go on needs. sequence << 48 | flags << 40 | class << 32 | pages (extents
 * only). The daemon answers in `answer`: sequence << 48 | errno (0: the magazine of that class has something
 * now).
 */
#define ABI_ASK_IN_SECTION                                                                                   \
    1u /* the thread is in a read section: never wait for a grace period on its behalf */

static inline uint64_t abi_ask(uint16_t sequence, unsigned flags, unsigned class_index, uint32_t pages)
{
    return (uint64_t)sequence << 48 | (uint64_t)(flags & 0xff) << 40 | (uint64_t)(class_index & 0xff) << 32 |
           pages;
}

/*
 * The chain: deferred frees that never wait, threaded through the objects when the ring is full. A link names an
 * object and where in it the next link stands: granule of the object << 24 | granules from there to its head.
 * The client writes head.next = old chain_head, head.seq = chain_count + 1, then chain_head, then chain_count.
 * Spin: tests/model/chain.pml.
 */
struct abi_chain_head {
    uint64_t next; /* link, or 0 */
    uint32_t seq;
    uint32_t reserved;
};

static inline uint64_t abi_chain_link(uint64_t object_granule, uint64_t head_granules)
{
    return object_granule << 24 | head_granules;
}

enum abi_ticket_kind {
    ABI_TICKET_NONE = 0,
    ABI_TICKET_SYNCHRONIZE,           /* done when a grace period that began after it is over */
    ABI_TICKET_SYNCHRONIZE_EXPEDITED, /* the same, the daemon does not sleep between its checks */
    ABI_TICKET_GP_WAIT,               /* done when completed >= ticket_cookie */
    ABI_TICKET_BARRIER,               /* done when all frees deferred before it are done */
    ABI_TICKET_KIND_MAX,
};

/*
 * What the lane's reader holds up: the latest report, daemon's alone to write and the client's to read, for
 * who registered a callback. `sequence` is odd while it is written, and another number for each report.
 */
struct abi_stall {
    uint64_t sequence; /* 0: there was none; release after the rest; pairs with stall_read() */
    uint64_t gp;       /* number of the grace period */
    uint64_t usec;     /* for how long so far or, when it ended, in all */
    uint64_t objects;  /* of the arena: deferred and waiting */
    uint64_t bytes;
    uint64_t waiters; /* for a grace period */
    uint32_t tid;     /* of the reader, in its own pid namespace */
    uint32_t ended;
    uint64_t reserved;
};

#define ABI_OWNER_TID 0x3fffffffu /* the owner word's bits, as the kernel defines them for robust futexes */
#define ABI_OWNER_DIED 0x40000000u

/*
 * A lane, from free to free:
 *
 *   FREE    --LANE_GET--> GIVEN        daemon: generation + 1, rings and magazines empty
 *   GIVEN   --> LIVE                   client: the thread locks `owner`, then phase = generation
 *   LIVE    --> BURYING                LANE_PUT, or the owner word says dead or unlocked; daemon: collects the
 *                                      ring, returns cur and magazines as pending
 *   BURYING --a grace period--> FREE   daemon
 */
struct abi_lane {
    /* -- client's line -- */
    uint32_t head;    /* records ever begun; store-release after the record; pairs with lane_collect() */
    uint32_t bell;    /* the last `want` that this lane rang for; pairs with arena_sleep() */
    uint32_t phase;   /* = generation once `owner` is locked; pairs with lane_is_dead() */
    uint32_t waiting; /* this thread waits on `wake`; full fence after it; pairs with lane_wake() */
    uint64_t ask;     /* see above */
    uint64_t ticket_cookie;  /* for GP_WAIT; written before ticket */
    uint64_t ticket;         /* sequence << 32 | enum abi_ticket_kind; store-release, then the eventfd */
    uint32_t ticket_waiting; /* this thread waits on ticket_done; full fence after it; pairs with
                                ticket_complete() */
    uint32_t chain_count;    /* objects ever put on the chain; release, after chain_head; pairs with
                                lane_chain_collect() */
    uint64_t chain_head;     /* the newest of them; release; pairs with lane_chain_collect() */
    /* newest cookie that it asked for: only grows; release, then the eventfd; pairs with
       ticket_look_cookie() */
    uint64_t cookie_wanted;

    /* -- daemon's line -- */
    /* records taken; never passes the open (last) one; release; pairs with reclaim_defer_free() */
    uint32_t tail __attribute__((aligned(ABI_CACHE_LINE)));
    uint32_t want; /* ring when it differs from bell; pairs with lane_ring() */
    uint32_t wake; /* futex: + 1 whenever `waiting` was seen set after progress; pairs with lane_wait() */
    uint32_t generation; /* + 1 each time the lane is given */
    uint64_t answer;     /* see ask; release; pairs with lane_wait() */
    uint32_t over_limit; /* client-pending-max is reached: a full ring now waits for a grace period */
    uint32_t evicted;    /* no more allocations and frees: -ESHUTDOWN */
    /* futex: sequence of the newest ticket once that is over; release; pairs with ticket_is_done() */
    uint32_t ticket_done;
    int32_t ticket_error; /* 0 or negative errno; written before ticket_done */
    uint32_t reserved1[6];

    /* -- kernel's and client's: a process-shared robust pthread_mutex_t held for the thread's life; word 0 is
       its futex -- */
    uint32_t owner[16] __attribute__((aligned(ABI_CACHE_LINE)));

    /* -- client's, a line of its own, as it moves seldom -- */
    /* times that it rang for more than a ticket or a cookie; release, before the eventfd; pairs with
     * client_wants_worker() */
    uint32_t rings __attribute__((aligned(ABI_CACHE_LINE)));
    uint32_t reserved3[15];

    /* -- client's -- */
    struct abi_take take[ABI_CLASSES] __attribute__((aligned(ABI_CACHE_LINE)));

    /* -- daemon's: free-running count of words put in; release; pairs with magazine_next() -- */
    uint32_t magazine_head[ABI_CLASSES] __attribute__((aligned(ABI_CACHE_LINE)));
    uint32_t reserved2[32 - ABI_CLASSES];

    struct abi_stall stall __attribute__((aligned(ABI_CACHE_LINE))); /* daemon's */

    uint64_t ring[ABI_RING_RECORDS] __attribute__((aligned(ABI_CACHE_LINE))); /* client's */
    /* -- daemon's -- */
    uint64_t magazine[ABI_CLASSES][ABI_MAGAZINE_WORDS] __attribute__((aligned(ABI_PAGE_BYTES)));
};

/* The channel begins with this page, written by the daemon before the client maps it; then slots, then lanes. */
struct abi_channel {
    uint64_t magic;
    uint32_t major;
    uint32_t minor;
    uint64_t fingerprint;
    uint64_t bytes;       /* of the whole channel */
    uint64_t slot_offset; /* of struct abi_slot[n_lanes] */
    uint64_t lane_offset; /* of the first struct abi_lane */
    uint64_t lane_stride;
    uint32_t n_lanes;
    uint32_t reserved;
    /* futex: another number after each report of any lane's `stall`; daemon; release; pairs with watch_main() */
    uint32_t stalls __attribute__((aligned(ABI_CACHE_LINE)));
    uint32_t reserved1[15];
};

/* The same sum on both sides, or no attach: sizes and places of what is shared. */
#define ABI_MIX(h, v) (((h) ^ (uint64_t)(v)) * 0x100000001b3ull)
#define ABI_FINGERPRINT                                                                                      \
    ABI_MIX(ABI_MIX(ABI_MIX(ABI_MIX(ABI_MIX(ABI_MIX(ABI_MIX(ABI_MIX(ABI_MIX(ABI_MIX(0xcbf29ce484222325ull,   \
                                                                                    ABI_MAJOR),              \
                                                                            sizeof(struct abi_domain)),      \
                                                                    offsetof(struct abi_domain, sleeps)),    \
                                                            sizeof(struct abi_channel)),                     \
                                                    sizeof(struct abi_lane)),                                \
                                            offsetof(struct abi_lane, owner)),                               \
                                    offsetof(struct abi_lane, take)),                                        \
                            offsetof(struct abi_lane, stall)),                                               \
                    offsetof(struct abi_lane, ring)),                                                        \
            ABI_CLASSES << 16 | ABI_BLOCK_BYTES)

_Static_assert(sizeof(struct abi_slot) == ABI_CACHE_LINE, "a slot is a line");
_Static_assert(offsetof(struct abi_domain, started) == 64, "domain layout");
_Static_assert(offsetof(struct abi_domain, completed) == 128, "domain layout");
_Static_assert(offsetof(struct abi_domain, sleeps) == 192, "domain layout");
_Static_assert(sizeof(struct abi_domain) == 256, "domain layout");
_Static_assert(offsetof(struct abi_lane, tail) == 64, "lane layout");
_Static_assert(offsetof(struct abi_lane, owner) == 128, "lane layout");
_Static_assert(offsetof(struct abi_lane, rings) == 192, "lane layout");
_Static_assert(offsetof(struct abi_lane, take) == 256, "lane layout");
_Static_assert(offsetof(struct abi_lane, magazine_head) == 704, "lane layout");
_Static_assert(offsetof(struct abi_lane, stall) == 832 && sizeof(struct abi_stall) == 64, "lane layout");
_Static_assert(offsetof(struct abi_channel, stalls) == 64 && sizeof(struct abi_channel) == 128,
               "channel layout");
_Static_assert(offsetof(struct abi_lane, ring) == 896, "lane layout");
_Static_assert(sizeof(struct abi_lane) % ABI_PAGE_BYTES == 0, "lanes keep page alignment");

/* ---- Messages: fixed structs on a SOCK_SEQPACKET connection, one connection an attachment ---- */

enum abi_op {
    ABI_OP_OPEN =
        1, /* first, once. Reply carries 4 descriptors: domain (read-only), channel, arena, eventfd */
    ABI_OP_LANE_GET, /* reply: lane, generation */
    ABI_OP_LANE_PUT, /* lane; slot already 0 and owner unlocked. No reply */
    ABI_OP_ROOT,     /* name; reply: offset of the word in the arena */
    ABI_OP_STATS,    /* reply: stats */
    ABI_OP_MAX,
};

#define ABI_OPEN_CREATE 1u
#define ABI_OPEN_EXCL 2u
#define ABI_OPEN_READ_ONLY 4u
#define ABI_OPEN_TRANSIENT 8u
#define ABI_OPEN_MUST_FENCE 16u /* this client could not register for membarrier: it fences by itself */
#define ABI_OPEN_FLAGS 31u      /* all of them; others are refused */

struct abi_request {
    uint32_t magic;
    uint16_t major;
    uint16_t minor;
    uint64_t fingerprint;
    uint32_t op;
    uint32_t flags;       /* OPEN */
    uint32_t mode;        /* OPEN with CREATE */
    uint32_t lane;        /* LANE_PUT */
    uint64_t arena_bytes; /* OPEN with CREATE */
    uint32_t generation;  /* LANE_PUT: of the lane given back */
    uint32_t reserved;
    char name[56]; /* OPEN: arena; ROOT: root; NUL-terminated */
};

struct abi_stats {
    uint64_t in_use_bytes, pending_objects, pending_bytes, lazy_bytes, backed_bytes, freed_objects,
        refused_records;
    uint64_t reserved[9];
};

struct abi_reply {
    uint32_t magic;
    uint32_t op;         /* of the request */
    int32_t error;       /* 0 or negative errno */
    uint32_t lane;       /* LANE_GET */
    uint32_t generation; /* LANE_GET */
    uint32_t reserved;
    uint64_t offset;        /* ROOT */
    uint64_t base;          /* OPEN */
    uint64_t arena_bytes;   /* OPEN */
    uint64_t channel_bytes; /* OPEN */
    struct abi_stats stats; /* STATS */
    char message[200];      /* on failure, one line: what, why, what would be right */
};

#define ABI_OPEN_FDS 4

_Static_assert(sizeof(struct abi_request) == 104, "request layout");
_Static_assert(sizeof(struct abi_reply) == 384, "reply layout");

/*
 * Where arenas are mapped: the one window that plain, ASan, TSan, MSan and valgrind processes all leave free,
 * and a roomier one for arenas that do not fit. One pair a architecture.
 */
#if defined(__x86_64__)
#define ABI_WINDOW_START 0x550000000000ull
#define ABI_WINDOW_END 0x555500000000ull
#define ABI_WIDE_WINDOW_START 0x200000000000ull
#define ABI_WIDE_WINDOW_END 0x500000000000ull
#elif defined(__aarch64__)
#define ABI_WINDOW_START 0x500000000000ull
#define ABI_WINDOW_END 0x555500000000ull
#define ABI_WIDE_WINDOW_START 0x200000000000ull
#define ABI_WIDE_WINDOW_END 0x500000000000ull
#else
#define ABI_WINDOW_START 0x2000000000ull
#define ABI_WINDOW_END 0x3000000000ull
#define ABI_WIDE_WINDOW_START ABI_WINDOW_START
#define ABI_WIDE_WINDOW_END ABI_WINDOW_END
#endif
#define ABI_WINDOW_BYTES_MAX (256ull << 30) /* larger arenas go to the wide window */

/* Stores are multi-copy atomic here, so a cookie that a client takes itself may be started + 1; elsewhere
 * + 2. */
#if defined(__x86_64__) || defined(__aarch64__) || (defined(__riscv) && __riscv_xlen == 64)
#define ABI_CLIENT_COOKIE_AHEAD 1u
#else
#define ABI_CLIENT_COOKIE_AHEAD 2u
#endif

#endif
