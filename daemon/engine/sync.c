/* SPDX-License-Identifier: MIT */
/* Who wakes a waiter; see sync.h. */
#include "engine/sync.h"

#include "basic/macro.h"

#define FLOODED (1ull << 63) /* beside the count, which stays far below */

uint64_t sync_load_waiters(uint64_t load)
{
    return load & ~FLOODED;
}

/* With wake-flood = 0 a single one is a flood, as with 1; nobody at all never is. */
uint64_t sync_load_judge(uint64_t load, uint64_t wake_flood)
{
    return sync_load_waiters(load) >= MAX(wake_flood, 1u) ? load | FLOODED : load;
}

uint64_t sync_load_enter(uint64_t load, uint64_t wake_flood)
{
    return sync_load_judge(load + 1, wake_flood);
}

uint64_t sync_load_leave(uint64_t load)
{
    load--;
    return sync_load_waiters(load) == 0 ? 0 : load; /* S1 */
}

struct sync_end sync_end_begin(uint64_t load, const struct sync_rule *rule)
{
    return (struct sync_end){
        .fifo = rule->mode == SYNC_NO || (rule->mode == SYNC_AUTO && (load & FLOODED)),
        .direct_max = rule->wake_direct,
    };
}

enum sync_way sync_end_next(struct sync_end *e, bool expedited)
{
    enum sync_way way = SYNC_WORKER;

    if (e->fifo && !expedited)
        way = SYNC_FIFO;
    else if (e->n[SYNC_DIRECT] < e->direct_max)
        way = SYNC_DIRECT;
    e->n[way]++;
    return way;
}

/* A window that nobody looked at is over, too: then the one before was quiet. */
static void pace_roll(struct sync_pace *p, uint64_t now_usec)
{
    uint64_t age = now_usec - p->window_usec;

    if (age < SYNC_WINDOW_USEC)
        return;
    p->crowd = age < 2 * SYNC_WINDOW_USEC && p->n_fresh >= SYNC_CROWD;
    p->window_usec = now_usec;
    p->n_fresh = 0;
}

void sync_pace_call(struct sync_pace *p, uint64_t now_usec, uint64_t last_usec)
{
    pace_roll(p, now_usec);
    p->n_fresh += now_usec - last_usec >= SYNC_WINDOW_USEC;
}

void sync_pace_start(struct sync_pace *p, uint64_t now_usec)
{
    p->start_usec = now_usec;
}

uint64_t sync_pace_next(const struct sync_pace *p, uint64_t now_usec)
{
    struct sync_pace now = *p;

    pace_roll(&now, now_usec);
    return now.crowd || now.n_fresh >= SYNC_CROWD ? now.start_usec + SYNC_DISTANCE_USEC : 0;
}
