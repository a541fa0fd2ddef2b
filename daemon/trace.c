/* SPDX-License-Identifier: MIT */
/*
 * The ring of trace.h: bounded, many producers, one consumer, a turn number in each slot.
 *
 * Slot i serves the places i, i + SIZE, i + 2 SIZE, .., one a lap. Its turn says who may touch it:
 *
 *     2 lap        free: the producer that claims this lap's place writes the record
 *     2 lap + 1    full: the consumer reads it
 *     2 lap + 2    free for the next lap
 *
 * A producer claims a place by moving `tail`; that alone gives it the slot, and publishes nothing, so it is
 * relaxed. What is ordered is the slot: each change of turn is a release after the record was touched, each
 * look at it an acquire before. A zeroed ring is an empty one, so it lives in memory that nobody pays for
 * until it is used.
 *
 * T4: the claim of an event that happened later reads `tail` after the earlier one moved it, by coherence,
 * so its place is behind it; and the consumer takes the places in order.
 */
#include "trace.h"

#include <string.h>

#include "clock.h"

struct slot {
    uint64_t turn;
    struct trace_record record;
} __attribute__((aligned(CACHE_LINE_BYTES)));

assert_cc(sizeof(struct slot) == 3 * CACHE_LINE_BYTES);
assert_cc(IS_POWER_OF_TWO(TRACE_RING_SIZE));
assert_cc(TRACE_EVENT_MAX < 32);

uint32_t trace_wanted;

static struct slot slots[TRACE_RING_SIZE];
static uint64_t tail __attribute__((aligned(CACHE_LINE_BYTES))); /* producers: the next place to claim */
static uint64_t n_dropped;                                       /* producers */
static uint64_t head __attribute__((aligned(CACHE_LINE_BYTES))); /* the consumer's: the next place to take */

struct event_row {
    const char *name;
    const char *values[TRACE_VALUES];
};

#define STALL_VALUES "client", "pid", "tid", "number", "durationUSec", "objects", "bytes", "waiters"

static const struct event_row rows[TRACE_EVENT_MAX] = {
    [TRACE_BULK_FREE] = {"bulk_free", {"objects", "bytes"}},
    [TRACE_GP_START] = {"gp_start", {"number"}},
    [TRACE_GP_END] = {"gp_end", {"number", "durationUSec"}},
    [TRACE_SYNC_REQUEST] = {"sync_request", {"client"}},
    [TRACE_SYNC_COMPLETE] = {"sync_complete", {"client"}},
    [TRACE_DRAIN] = {"drain", {"cause", "objects", "bytes", "pages"}},
    [TRACE_PURGE] = {"purge", {"holes", "bytes"}},
    [TRACE_STALL] = {"stall", {STALL_VALUES}},
    [TRACE_STALL_ENDED] = {"stall_ended", {STALL_VALUES}},
    [TRACE_STALL_KILL] = {"stall_kill", {"client", "pid", "errno"}},
    [TRACE_ATTACH] = {"attach", {"client", "pid"}},
    [TRACE_DETACH] = {"detach", {"client", "pid"}},
};

const char *trace_event_to_string(enum trace_event event)
{
    return event >= 0 && event < TRACE_EVENT_MAX ? rows[event].name : NULL;
}

enum trace_event trace_event_from_string(const char *name)
{
    for (int i = 0; i < TRACE_EVENT_MAX; i++)
        if (strcmp(rows[i].name, name) == 0)
            return (enum trace_event)i;
    return TRACE_EVENT_INVALID;
}

const char *trace_value_name(enum trace_event event, unsigned i)
{
    return event >= 0 && event < TRACE_EVENT_MAX && i < TRACE_VALUES ? rows[event].values[i] : NULL;
}

static struct slot *slot_at(uint64_t place)
{
    return &slots[place % TRACE_RING_SIZE];
}

static uint64_t turn_free(uint64_t place)
{
    return place / TRACE_RING_SIZE * 2;
}

/*
 * A place of one's own, or NULL: the ring is full. Whoever reads a `tail` that is behind sees a turn that
 * is ahead, and tries the next one. The turn itself may be seen late, as full though just taken: then one
 * event is dropped, and counted, that would have had room by an instant.
 */
static struct slot *slot_claim(uint64_t *ret_place)
{
    uint64_t place = load_relaxed(&tail);

    for (;;) {
        struct slot *s = slot_at(place);
        /* Acquire: the consumer has read what was in it; pairs with trace_take(). */
        int64_t ahead = (int64_t)(load_acquire(&s->turn) - turn_free(place));

        if (ahead < 0)
            return NULL;
        if (ahead > 0) {
            place = load_relaxed(&tail);
        } else if (compare_exchange_relaxed(&tail, &place, place + 1)) { /* publishes nothing */
            *ret_place = place;
            return s;
        }
    }
}

void trace_push(enum trace_event event, const struct trace_origin *origin,
                const uint64_t values[static TRACE_VALUES])
{
    struct trace_record record = {.usec = now_usec(), .origin = *origin, .event = event};
    uint64_t place;
    struct slot *s = slot_claim(&place);

    if (!s) {
        (void)fetch_add_relaxed(&n_dropped, 1); /* a figure */
        return;
    }
    memcpy(record.values, values, sizeof(record.values));
    s->record = record;
    store_release(&s->turn, turn_free(place) + 1); /* the record is before it; pairs with trace_take() */
}

bool trace_take(struct trace_record *ret)
{
    struct slot *s = slot_at(head);

    /* Acquire: the whole record, not half of it; pairs with trace_push(). */
    if (load_acquire(&s->turn) != turn_free(head) + 1)
        return false;
    *ret = s->record;
    /* Release: it has been read before the next one writes it; pairs with slot_claim(). */
    store_release(&s->turn, turn_free(head) + 2);
    head++;
    return true;
}

void trace_want(uint32_t events)
{
    struct trace_record left;

    if (load_relaxed(&trace_wanted) == 0 && events != 0)
        for (unsigned i = 0; i < TRACE_RING_SIZE && trace_take(&left); i++)
            ;
    store_relaxed(&trace_wanted, events); /* late is harmless: see trace_wants() */
}

uint64_t trace_n_dropped(void)
{
    return load_relaxed(&n_dropped); /* a figure */
}
