/* SPDX-License-Identifier: MIT */
/* The worker's part of lanes: collect, fill, answer, give, doom, bury. See arena-work.h. */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "arena-work.h"
#include "basic/macro.h"
#include "basic/ordering.h"
#include "basic/testpoint.h"
#include "connection.h"
#include "log.h"
#include "manager.h"
#include "ticket.h"

#define RECORDS_A_LOOK ABI_RING_RECORDS
#define CHAIN_A_LOOK 4096u                   /* objects of a chain: each is a cache miss or two */
#define LOOK_A_PASS (16u * ABI_RING_RECORDS) /* of all lanes together: then other arenas get their turn */
#define IDLE_LOOKS 64u /* a lane with nothing for so many looks is looked at only when all are */
/*
 * What lies in rings and in magazines is nobody's to use: for all active lanes together so much of each, as far as that
 * is not too little for one.
 */
#define RINGS_BYTES (6u << 20)
#define MAGAZINES_BYTES (3u << 20) /* of a class */
#define RING_RECORDS_MIN 256u
#define MAGAZINE_BYTES_MAX (512u << 10)
#define EXTENT_RUN_BYTES_MAX (256u << 10)
#define MAGAZINE_ARENA_SHARE 16u /* all lanes' magazines of a class together: this part of the arena */
#define ASK_WAIT_USEC 10000000u  /* as long as a defer waits for room: a reader may stay for ever */
#define REFUSED_LOG_USEC 10000000u
#define REFUSED_LOG_BURST 3u

/* ---- Life ---- */

static int lanes_append(struct arena *a, struct client_lane *cl)
{
    if (a->n_lanes == a->n_lanes_room) {
        uint32_t room = a->n_lanes_room ? a->n_lanes_room * 2 : 16;
        struct client_lane **bigger = realloc(a->lanes, room * sizeof(*bigger));

        if (!bigger)
            return -ENOMEM;
        a->lanes = bigger;
        a->n_lanes_room = room;
    }
    cl->arena_slot = a->n_lanes;
    a->lanes[a->n_lanes++] = cl;
    return 0;
}

static void lanes_remove(struct arena *a, struct client_lane *cl)
{
    struct client_lane *last = a->lanes[--a->n_lanes];

    a->lanes[cl->arena_slot] = last;
    last->arena_slot = cl->arena_slot;
}

/* A lane of the state segment: one that was used before, else the next. */
static int state_take(struct arena *a, uint32_t *ret)
{
    if (a->n_free_states > 0) {
        *ret = a->free_states[--a->n_free_states];
        return 0;
    }
    if (a->next_state == STATE_LANES_MAX)
        return -ENOSPC;
    if (a->next_state % 64 == 0) { /* room to give all of them back: so that giving back cannot fail */
        uint32_t *bigger = realloc(a->free_states, (a->next_state + 64) * sizeof(*bigger));

        if (!bigger)
            return -ENOMEM;
        a->free_states = bigger;
    }
    *ret = a->next_state++;
    return 0;
}

static struct client_lane *client_lane_make(struct client *c, uint32_t number)
{
    struct client_lane *cl = client_lane_at(c, number);

    if (cl)
        return cl;
    cl = calloc(1, sizeof(*cl));
    if (!cl)
        return NULL;
    cl->client = c;
    cl->number = number;
    tickets_init(cl);
    cl->lane.shared = client_shared_lane(c, number);
    cl->lane.slot = client_slot(c, number);
    store_release(&c->lanes[number], cl); /* pairs with client_lane_at() */
    return cl;
}

/* The lowest number that is free. -EMFILE: none; -EAGAIN: one will be after a grace period. */
static int client_free_lane(struct arena *a, struct client *c, uint32_t *ret)
{
    bool soon = false;

    for (uint32_t i = 0; i < c->n_lanes; i++) {
        struct client_lane *cl = client_lane_at(c, i);

        if (!cl || cl->life == LANE_FREE) {
            *ret = i;
            return 0;
        }
        if (cl->life == LANE_LIVE && lane_is_dead(&cl->lane))
            arena_doom_lane(a, cl);
        soon |= cl->life != LANE_LIVE;
    }
    return soon ? -EAGAIN : -EMFILE;
}

static void state_give(struct arena *a, struct client_lane *cl, uint32_t index)
{
    struct state_lane *state = state_lane(a->state, index);

    lane_init(&cl->lane, client_shared_lane(cl->client, cl->number), client_slot(cl->client, cl->number),
              state, index, &cl->client->account);
    store_relaxed(&cl->lane.slot->word, 0); /* what the former owner left; nobody reads in it */
    state->lane = cl->number;
    state->generation = cl->lane.shared->generation + 1;
    compiler_fence(); /* for whoever finds us killed here; pairs with the restart, which goes by client_id */
    state->client_id = cl->client->id; /* last: from now on the lane is taken */
    RECLAIM_TEST_POINT("lane-given");
    cl->lane.shared->generation = state->generation; /* published by the answer on the socket */
}

int arena_give_lane(struct arena *a, struct client *c, uint32_t *ret_number, uint32_t *ret_generation)
{
    struct client_lane *cl;
    uint32_t number, index;
    int r = client_free_lane(a, c, &number);

    if (r < 0)
        return r;
    cl = client_lane_make(c, number);
    if (!cl)
        return -ENOMEM;
    r = lanes_append(a, cl);
    if (r < 0)
        return r;
    r = state_take(a, &index);
    if (r < 0) {
        lanes_remove(a, cl);
        return r;
    }
    state_give(a, cl, index);
    cl->grave_cookie = cl->ask_cookie = 0;
    store_relaxed(&cl->ends, 0u);
    store_relaxed(&cl->lost, 0); /* who gets it hears of it later, through its answer */
    cl->idle_looks = 0;
    cl->active = true;
    cl->life = LANE_LIVE;
    c->n_live++;
    /* before the answer; pairs with grace_scan() */
    if (number >= c->n_marked)
        store_release(&c->n_marked, number + 1);
    *ret_number = number;
    *ret_generation = cl->lane.shared->generation;
    return 0;
}

void arena_doom_lane(struct arena *a, struct client_lane *cl)
{
    if (cl->life != LANE_LIVE)
        return;
    cl->life = LANE_DOOMED;
    cl->active = true;
    arena_kick(a);
}

void arena_lose_lane(struct arena *a, struct client_lane *cl)
{
    store_release(&cl->lost, 1); /* pairs with straggler_is_gone() */
    arena_doom_lane(a, cl);
}

/* The grace-period thread has waited for it for long: is there such a thread? */
static void lane_check_suspect(struct arena *a, struct client_lane *cl)
{
    uint32_t tid =
        load_relaxed(&cl->lane.shared->owner[0]) & ABI_OWNER_TID; /* hostile: a number to look up */

    store_relaxed(&cl->suspect, 0); /* a mark that comes meanwhile brings a pass of its own */
    if (tid != 0 && !client_has_thread(cl->client, tid))
        arena_lose_lane(a, cl);
}

/* What the lane had is pending; once that grace period is over nothing of the old owner is left. */
static void lane_buried(struct pass *pass, struct client_lane *cl)
{
    struct arena *a = pass->arena;

    a->drain.urgent = DRAIN_DEATH;
    cl->grave_cookie = arena_close_pages(a);
    arena_want_cookie(a, cl->grave_cookie, false);
    cl->life = LANE_BURYING;
}

static void lane_end(struct pass *pass, struct client_lane *cl)
{
    struct arena *a = pass->arena;
    uint32_t index = cl->lane.index;

    store_relaxed(&cl->ends, 1u);
    full_fence(); /* then look: whoever completes a later one sees it, and kicks; pairs with ticket_complete() */
    if (!tickets_are_idle(cl))
        return;
    store_relaxed(&cl->lane.slot->word, 0); /* the owner is proven gone: the daemon clears it */
    cl->lane.state->client_id = 0;
    a->free_states[a->n_free_states++] = index;
    lanes_remove(a, cl);
    cl->life = LANE_FREE;
    cl->client->n_live--;
    pass->found = true;
    if (a->waiting_for_lane)
        connections_retry_lanes(a);
    /* may drop the arena's reference to it: the last thing here */
    if (cl->client->n_live == 0 && cl->client->on_free)
        cl->client->on_free(a, cl->client);
}

/* ---- Collect ---- */

/* Counted always, told at a bounded rate. */
static void client_count_refused(struct pass *pass, struct client *c)
{
    uint64_t n = c->account.refused - c->refused_seen;
    uint32_t held;

    if (n == 0)
        return;
    c->refused_seen = c->account.refused;
    c->refused_untold += n;
    pass->arena->figures.n_refused_records += n;
    if (!log_rate_pass(&c->refused_rate, pass->now, REFUSED_LOG_USEC, REFUSED_LOG_BURST, &held))
        return;
    log_warning(
        "arena %s: client %llu (pid %d, uid %u, %s) deferred %llu object%s not its to free, or free already; "
        "refused",
        pass->arena->name, (unsigned long long)c->id, (int)c->pid, (unsigned)c->uid, c->comm,
        (unsigned long long)c->refused_untold, c->refused_untold == 1 ? "" : "s");
    c->refused_untold = 0;
}

static void lane_quarantine(struct pass *pass, struct client_lane *cl)
{
    struct client *c = cl->client;

    if (!load_relaxed(&c->quarantined))
        log_warning("arena %s: client %llu (pid %d, uid %u, %s) wrote indices that make no sense; lane %u is "
                    "read no more",
                    pass->arena->name, (unsigned long long)c->id, (int)c->pid, (unsigned)c->uid, c->comm,
                    cl->number);
    store_relaxed(&c->quarantined, 1); /* for display */
}

/* client-pending-max: beyond it nothing is collected until some of it was freed; the ring fills, and the
 * client waits. */
static bool lane_is_over_limit(struct pass *pass, struct client_lane *cl)
{
    bool over = cl->client->account.pending_bytes >= pass->pending_max;

    if (over != (bool)cl->lane.shared->over_limit)
        /* the client looks at it after its full fence; lane_wait() */
        store_relaxed(&cl->lane.shared->over_limit, over);
    if (over)
        pass->arena->drain.urgent = DRAIN_FULL;
    return over;
}

static int lane_take(struct pass *pass, struct client_lane *cl)
{
    struct arena *a = pass->arena;
    struct lane_look look;
    int r = lane_collect(&cl->lane, a->heap, &a->pending, RECORDS_A_LOOK, &look);

    if (r == -EPROTO)
        lane_quarantine(pass, cl);
    if (look.n_objects > 0 || look.n_records > 0) {
        pass->found = true;
        cl->idle_looks = 0;
        cl->active = true;
    } else if (++cl->idle_looks > IDLE_LOOKS &&
               !load_relaxed(&cl->lane.shared->waiting)) { /* who waits has rung: a late view heals */
        cl->active = false;
    }
    pass->pace = MAX(pass->pace, look.n_records * 256u / a->domain->ring_records);
    pass->n_looked += look.n_records;
    client_count_refused(pass, cl->client);
    return r;
}

/* Its waiters go on with -ESHUTDOWN. */
static void lane_evict(struct client_lane *cl)
{
    if (cl->lane.shared->evicted)
        return;
    /* arena_wake_lanes() wakes who waits; pairs with lane_wait() */
    store_release(&cl->lane.shared->evicted, 1);
    cl->active = true;
}

/* The ring, then what did not fit in it. */
static int lane_take_all(struct pass *pass, struct client_lane *cl)
{
    struct arena *a = pass->arena;
    struct lane_look look = {0};
    int r = lane_take(pass, cl);

    if (r < 0 || !lane_has_chain(&cl->lane))
        return r;
    r = lane_chain_collect(&cl->lane, a->heap, &a->pending, a->base, CHAIN_A_LOOK, &look);
    a->figures.n_chain_objects += look.n_objects;
    pass->n_looked += look.n_objects;
    pass->found = true;
    cl->idle_looks = 0;
    client_count_refused(pass, cl->client);
    return r;
}

/* An observer's channel is writable like any other, but what it writes there is nobody's to believe. */
static bool lane_may_write(const struct client_lane *cl)
{
    return !cl->lane.quarantined && !cl->client->observer;
}

static void lane_look_live(struct pass *pass, struct client_lane *cl, bool all)
{
    if (load_acquire(&cl->suspect)) /* pairs with grace_suspect() */
        lane_check_suspect(pass->arena, cl);
    /* only passes of ours write `lost` */
    if (cl->lost || (all && lane_is_dead(&cl->lane))) {
        arena_doom_lane(pass->arena, cl);
        return;
    }
    if (load_relaxed(&cl->client->evicted)) {
        lane_evict(cl);
        return;
    }
    if (!lane_may_write(cl) || lane_is_over_limit(pass, cl) || pass->holds_back)
        return;
    cl->client->account.most_bytes = pass->pending_max;
    (void)lane_take_all(pass, cl);
    cl->client->account.most_bytes = 0; /* whoever else collects takes all: a barrier, a burial */
    (void)lane_is_over_limit(pass, cl);
}

/* A gone owner's ring is emptied whatever its limit: nobody adds to it. */
static void lane_look_doomed(struct pass *pass, struct client_lane *cl)
{
    struct arena *a = pass->arena;

    pass->found = true;
    if (!lane_may_write(cl)) {
        lane_buried(pass, cl); /* its magazines are lost to the arena, or were never filled */
        return;
    }
    /* starved: after the sweep; or there is more than one look takes */
    if (lane_take_all(pass, cl) == -ENOBUFS || lane_has_records(&cl->lane) || lane_has_chain(&cl->lane))
        return;
    if (lane_bury(&cl->lane, a->heap, &a->pending) == 0)
        lane_buried(pass, cl);
}

static void lane_look(struct pass *pass, struct client_lane *cl, bool all)
{
    switch (cl->life) {
    case LANE_LIVE:
        lane_look_live(pass, cl, all);
        return;
    case LANE_DOOMED:
        lane_look_doomed(pass, cl);
        return;
    case LANE_BURYING:
        if (pass->completed >= cl->grave_cookie)
            lane_end(pass, cl);
        return;
    case LANE_FREE:
        return;
    }
}

/*
 * A round over the lanes, which takes several passes when they have much: each goes on where the one before
 * had to stop, so that a lane that always has more does not come before those that have waited.
 */
void arena_look_at_lanes(struct pass *pass, bool all)
{
    struct arena *a = pass->arena;
    uint32_t i = a->look_next > 0 ? MIN(a->look_next, a->n_lanes) : a->n_lanes;

    if (a->look_next == 0)
        a->looks_at_all = all;
    else if (all && !a->looks_at_all)
        store_relaxed(&a->look_at_all, 1); /* when this round is over; pairs with pass_looks_at_all() */
    for (; i > 0 && pass->n_looked < LOOK_A_PASS; i--) { /* backwards: lane_end() moves the last one here */
        struct client_lane *cl = a->lanes[i - 1];

        if (a->looks_at_all || cl->active || cl->life != LANE_LIVE)
            lane_look(pass, cl, a->looks_at_all);
    }
    a->look_next = i;
    pass->again |= i > 0;
}

/* All that it has now. Its own thread may add without end, so what the chain holds is bounded by its count of now. */
static void lane_take_to_the_end(struct pass *pass, struct client_lane *cl)
{
    uint32_t until = load_acquire(&cl->lane.shared->chain_count); /* pairs with reclaim_defer_free_head() */
    /* hostile counts may go back and forth: no honest chain has more objects than are out */
    uint64_t n_looks = pass->arena->figures.heap.out_objects / CHAIN_A_LOOK + 2;

    while (lane_take_all(pass, cl) == 0 && (int32_t)(until - cl->lane.state->chain_seen) > 0 &&
           lane_has_chain(&cl->lane) && n_looks-- > 0)
        ;
}

void arena_collect_everything(struct pass *pass)
{
    struct arena *a = pass->arena;

    for (uint32_t i = 0; i < a->n_lanes; i++) {
        struct client_lane *cl = a->lanes[i];

        if (cl->life != LANE_LIVE && cl->life != LANE_DOOMED)
            continue;
        if (lane_may_write(cl) && !load_relaxed(&cl->client->evicted))
            lane_take_to_the_end(pass, cl);
    }
}

/* ---- Fill and answer ---- */

static uint64_t magazine_bytes(const struct arena *a)
{
    uint64_t share =
        MIN(a->bytes / MAGAZINE_ARENA_SHARE / MAX(a->n_lanes, 1u), MAGAZINES_BYTES / MAX(a->n_active, 1u));

    return MIN((uint64_t)MAGAZINE_BYTES_MAX, share);
}

static int give_extent(struct arena *a, struct client_lane *cl, uint32_t pages)
{
    uint64_t word;
    int r = heap_extent_reserve(a->heap, pages, &word);

    if (r < 0)
        return r;
    /* before the hand-out, whose release publishes it */
    store_relaxed(&a->domain->extent_block, heap_extent_block(a->heap));
    lane_refill(&cl->lane, a->state, a->heap, ABI_CLASS_EXTENT, &word, 1);
    return 0;
}

/* What may lie in a lane for later: what the arena has little of is for who needs it now. */
static uint64_t extent_run_bytes(const struct arena *a)
{
    uint64_t out_bytes = a->figures.heap.out_bytes; /* at the last pass */

    return MIN(MIN(magazine_bytes(a), EXTENT_RUN_BYTES_MAX), (a->bytes - MIN(a->bytes, out_bytes)) / 8);
}

/* One, and some more of the kind for who asks for it again and again: a question costs 20 us, an extent one. */
static int ask_extent(struct arena *a, struct client_lane *cl, uint32_t pages)
{
    uint32_t most = lane_extent_run(&cl->lane, pages, extent_run_bytes(a)), n = 0;
    int r = 0;

    /* no honest lane asks for more than it takes */
    if (lane_magazine_room(&cl->lane, ABI_CLASS_EXTENT) < most)
        return -EINVAL;
    while (n < most && (r = give_extent(a, cl, pages)) == 0)
        n++;
    lane_extents_given(&cl->lane, pages, n);
    return n > 0 ? 0 : r;
}

static int ask_class(struct arena *a, struct client_lane *cl, unsigned class_index, struct pass *pass)
{
    int error = 0;

    lane_use_class(&cl->lane, class_index);
    (void)lane_fill(&cl->lane, a->state, a->heap, magazine_bytes(a), &error, &pass->pace);
    return lane_magazine_level(&cl->lane, class_index) > 0 ? 0 : error < 0 ? error : -ENOSPC;
}

/* Nothing there. Outside a section one urgent round comes first: drain, grace period, purge; then one more
 * try. */
static bool ask_waits(struct pass *pass, struct client_lane *cl, unsigned flags)
{
    struct arena *a = pass->arena;

    if (flags & ABI_ASK_IN_SECTION)
        return false;
    if (cl->ask_cookie == 0) {
        arena_collect_everything(pass);
        a->drain.urgent = DRAIN_FULL;
        (void)purge_ask(&a->purge);
        cl->ask_turn = 0;
        cl->ask_cookie = arena_close_pages(a);
        cl->ask_usec = pass->now;
        arena_want_cookie(a, cl->ask_cookie, false);
        return true;
    }
    if (pass->now - cl->ask_usec >= ASK_WAIT_USEC)
        return false;
    pass_by(pass, cl->ask_usec + ASK_WAIT_USEC);
    if (cl->ask_cookie > pass->completed || arena_oldest_cookie(a) <= cl->ask_cookie)
        return true;
    if (cl->ask_turn == 0) { /* what that has freed is given back too, not only what was free before */
        cl->ask_turn = purge_ask(&a->purge);
        pass->again = true; /* there may be nothing: then no purge's end wakes us */
    }
    return !purge_is_over(&a->purge, cl->ask_turn);
}

static void lane_serve_ask(struct pass *pass, struct client_lane *cl)
{
    struct arena *a = pass->arena;
    unsigned class_index, flags;
    uint16_t sequence;
    uint32_t pages;
    int r;

    if (!lane_ask(&cl->lane, &class_index, &pages, &flags, &sequence))
        return;
    r = class_index == ABI_CLASS_EXTENT ? ask_extent(a, cl, pages) : ask_class(a, cl, class_index, pass);
    if (r < 0 && r != -EINVAL && ask_waits(pass, cl, flags))
        return;
    pass->found = true;
    if (r < 0)
        a->figures.n_refused_allocations++;
    cl->ask_cookie = 0;
    lane_answer(&cl->lane, sequence, r == -ENOSPC ? -ENOMEM : r);
}

/* A record stands for a block at most. */
static void arena_share_rings(struct arena *a)
{
    uint32_t records = RINGS_BYTES / ABI_BLOCK_BYTES / MAX(a->n_active, 1u);

    records = MIN(MAX(records, RING_RECORDS_MIN), ABI_RING_RECORDS);
    if (a->domain->ring_records != records)
        store_relaxed(&a->domain->ring_records,
                      records); /* a hint: late is harmless; pairs with ring_limit() */
}

void arena_fill_lanes(struct pass *pass)
{
    struct arena *a = pass->arena;
    uint64_t max_bytes = magazine_bytes(a);
    uint32_t n_active = 0;
    int error;

    for (uint32_t i = 0; i < a->n_lanes; i++) {
        struct client_lane *cl = a->lanes[i];

        if (cl->life != LANE_LIVE || !cl->active || load_relaxed(&cl->client->evicted) ||
            cl->client->observer)
            continue;
        n_active++;
        if (lane_fill(&cl->lane, a->state, a->heap, max_bytes, &error, &pass->pace) > 0) {
            pass->found = true;
            cl->idle_looks = 0;
        }
        lane_serve_ask(pass, cl);
    }
    a->n_active = n_active;
    arena_share_rings(a);
}

/* ---- Wake, sleep ---- */

/* Spin: tests/model/wait.pml. */
static bool lane_wake(struct lane *l)
{
    if (!load_relaxed(
            &l->shared->waiting)) /* after the fence in arena_wake_lanes(); pairs with lane_wait() */
        return false;
    /* all progress of this pass is before it; pairs with lane_wait() */
    store_release(&l->shared->wake, l->shared->wake + 1);
    (void)syscall(SYS_futex, &l->shared->wake, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
    return true;
}

void arena_wake_lanes(struct pass *pass)
{
    struct arena *a = pass->arena;

    full_fence(); /* between the stores of this pass and the loads of waiting; pairs with lane_wait()'s */
    for (uint32_t i = 0; i < a->n_lanes; i++)
        /* it had to wait for us: look more often */
        if (a->lanes[i]->active && lane_wake(&a->lanes[i]->lane))
            pass->pace = 256;
}

/* After `sleeps` was stored and the membarrier: whatever a client did before that is seen here, and whatever
   it does after, it sees that we sleep. Spin: tests/model/lane.pml, doze.pml. */
static bool lane_wants_more(const struct client_lane *cl, bool asleep)
{
    unsigned class_index, flags;
    uint16_t sequence;
    uint32_t pages;

    if (cl->life != LANE_LIVE)
        return false;
    if (!lane_may_write(cl) || load_relaxed(&cl->client->evicted) || cl->lane.shared->over_limit)
        return false;
    return lane_has_records(&cl->lane) || lane_has_chain(&cl->lane) || (asleep && lane_has_rung(&cl->lane)) ||
           lane_is_low(&cl->lane) ||
           (cl->ask_cookie == 0 && lane_ask(&cl->lane, &class_index, &pages, &flags, &sequence));
}

bool arena_lanes_want_more(struct arena *a, bool asleep)
{
    for (uint32_t i = 0; i < a->n_lanes; i++)
        if (lane_wants_more(a->lanes[i], asleep))
            return true;
    return false;
}

/* ---- Roots ---- */

static int root_find(const struct state *s, const char *name)
{
    for (unsigned i = 0; i < STATE_ROOTS_MAX; i++)
        if (strcmp(s->roots[i].name, name) == 0)
            return (int)i;
    return -ENOENT;
}

int arena_root(struct arena *a, const char *name, bool may_make, uint64_t *ret_offset)
{
    uint64_t page;
    int i = root_find(a->state, name), r;

    if (i < 0 && !may_make)
        return -ENOENT;
    r = heap_roots(a->heap, &page);
    if (r < 0)
        return r;
    if (i < 0) {
        i = root_find(a->state, "");
        if (i < 0)
            return -ENOSPC;
        store_relaxed((uint64_t *)((char *)a->base + page) + i, 0); /* the name publishes it */
        (void)strncpy(a->state->roots[i].name + 1, name + 1, sizeof(a->state->roots[i].name) - 2);
        compiler_fence(); /* the first letter makes it a name; pairs with root_find() after a restart */
        a->state->roots[i].name[0] = name[0];
    }
    *ret_offset = page + (uint64_t)i * sizeof(uint64_t);
    return 0;
}
