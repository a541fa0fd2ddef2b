/* SPDX-License-Identifier: MIT */
/* What is asked of the daemon by name or number: root words and statistics. */
#include "handle.h"

#include <stdio.h>
#include <string.h>

#include "basic/ordering.h"

/* The daemon says an offset, which it may not make us believe: it must be a word of the arena. */
int reclaim_root(struct reclaim *r, const char *name, void ***ret_word)
{
    struct abi_request request = talk_request(ABI_OP_ROOT);
    struct abi_reply reply;
    int error;

    error = handle_check(r);
    if (error < 0)
        return error;
    if (!name_is_valid(name) || !ret_word)
        return -EINVAL;
    (void)snprintf(request.name, sizeof(request.name), "%s", name);
    error = talk_ask(r, &request, &reply);
    if (error < 0)
        return error;
    if (reply.offset < ARENA_FIRST_BYTES || reply.offset > r->arena_bytes - sizeof(void *) ||
        reply.offset % sizeof(void *))
        return -EPROTO;
    *ret_word = (void **)(void *)(r->base + reply.offset);
    return 0;
}

int reclaim_stats(struct reclaim *r, struct reclaim_stats *ret)
{
    struct abi_request request = talk_request(ABI_OP_STATS);
    struct reclaim_stats stats = {0};
    struct abi_reply reply;
    size_t size;
    int error = handle_check(r);

    if (error < 0)
        return error;
    if (!ret || ret->size < offsetof(struct reclaim_stats, in_use_bytes))
        return -EINVAL;
    size = ret->size;
    error = talk_ask(r, &request, &reply);
    if (error < 0)
        return error;
    stats = (struct reclaim_stats){
        .size = size,
        .arena_bytes = r->arena_bytes,
        .in_use_bytes = reply.stats.in_use_bytes,
        .pending_objects = reply.stats.pending_objects,
        .pending_bytes = reply.stats.pending_bytes,
        .lazy_bytes = reply.stats.lazy_bytes,
        .backed_bytes = reply.stats.backed_bytes,
        .gp_started = load_relaxed(&r->domain->started), /* figures for people: age does not matter */
        .gp_completed = load_relaxed(&r->domain->completed),
        .freed_objects = reply.stats.freed_objects,
        .refused_records = reply.stats.refused_records,
    };
    memcpy(ret, &stats, MIN(size, sizeof(stats)));
    if (size > sizeof(stats))
        /* a later header's figures: we have none */
        memset((char *)ret + sizeof(stats), 0, size - sizeof(stats));
    return 0;
}
