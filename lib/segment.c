/* SPDX-License-Identifier: MIT */
/*
 * The three segments that the daemon sends at attach: each is checked (size, seals, magic, version, layout)
 * before anything in it is believed, mapped, and kept out of the children of a fork.
 */
#include "handle.h"

#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) /* so no access can ever fault for want of file */

/* What stands at the start of domain and channel alike. */
struct segment_head {
    uint64_t magic;
    uint32_t major;
    uint32_t minor;
    uint64_t fingerprint;
};

assert_cc(offsetof(struct abi_domain, fingerprint) == offsetof(struct segment_head, fingerprint));
assert_cc(offsetof(struct abi_channel, fingerprint) == offsetof(struct segment_head, fingerprint));

/* The size, once nobody can change it any more. */
static int segment_size(int fd, uint64_t *ret_bytes)
{
    struct stat st;
    int seals = fcntl(fd, F_GET_SEALS);

    if (seals < 0 || (seals & SEALS) != SEALS || fstat(fd, &st) < 0 || st.st_size <= 0)
        return -EPROTO;
    *ret_bytes = (uint64_t)st.st_size;
    return 0;
}

/* address: exactly there or not at all. NULL and errno. */
static void *segment_map(int fd, uint64_t bytes, int protection, void *address, int flags)
{
    void *memory = mmap(address, bytes, protection, MAP_SHARED | flags, fd, 0);

    if (memory == MAP_FAILED)
        return NULL;
    if (address && memory != address) { /* a kernel that takes MAP_FIXED_NOREPLACE for a hint */
        (void)munmap(memory, bytes);
        errno = EEXIST;
        return NULL;
    }
    if (madvise(memory, bytes, MADV_DONTFORK) < 0) {
        (void)munmap(memory, bytes);
        return NULL;
    }
    return memory;
}

/* A newer minor version is fine: it only uses what was reserved. */
static bool head_is_ours(const struct segment_head *head, uint64_t magic)
{
    return head->magic == magic && head->major == ABI_MAJOR && head->fingerprint == ABI_FINGERPRINT;
}

/* Read-only: many clients map the same one, and none may lie to the others. */
static int domain_map(struct reclaim *r, int fd)
{
    uint64_t bytes;

    if (segment_size(fd, &bytes) < 0 || bytes < sizeof(struct abi_domain))
        return -EPROTO;
    r->domain = segment_map(fd, bytes, PROT_READ, NULL, 0);
    if (!r->domain)
        return -errno;
    r->domain_bytes = bytes;
    return head_is_ours((const void *)r->domain, ABI_MAGIC_DOMAIN) ? 0 : -EPROTO;
}

/* Do the slots and lanes that the header speaks of lie inside, apart, and where their types want to be? */
static bool channel_is_sound(const struct abi_channel *c, uint64_t bytes)
{
    uint64_t lanes_bytes, end, slots_end;

    if (c->bytes != bytes || c->n_lanes == 0 || c->slot_offset < sizeof(*c) ||
        c->slot_offset % ABI_CACHE_LINE || c->lane_offset % ABI_PAGE_BYTES ||
        c->lane_stride % ABI_PAGE_BYTES || c->lane_stride < sizeof(struct abi_lane))
        return false;
    if (__builtin_mul_overflow(c->lane_stride, c->n_lanes, &lanes_bytes) ||
        __builtin_add_overflow(c->lane_offset, lanes_bytes, &end) ||
        __builtin_add_overflow(c->slot_offset, c->n_lanes * sizeof(struct abi_slot), &slots_end))
        return false;
    return end <= bytes && slots_end <= c->lane_offset;
}

static int channel_map(struct reclaim *r, int fd, uint64_t said_bytes)
{
    uint64_t bytes;

    if (segment_size(fd, &bytes) < 0 || bytes != said_bytes || bytes < sizeof(struct abi_channel))
        return -EPROTO;
    r->channel = segment_map(fd, bytes, PROT_READ | PROT_WRITE, NULL, 0);
    if (!r->channel)
        return -errno;
    r->channel_bytes = bytes;
    return head_is_ours((const void *)r->channel, ABI_MAGIC_CHANNEL) && channel_is_sound(r->channel, bytes)
               ? 0
               : -EPROTO;
}

/* At the address that it has in all processes, so that pointers in it work; elsewhere only if asked for. */
static int arena_map(struct reclaim *r, int fd, bool relocated, struct complaint complaint)
{
    const struct abi_domain *domain = r->domain;
    int protection = r->read_only ? PROT_READ : PROT_READ | PROT_WRITE;
    uint64_t bytes, end;
    void *base;

    if (segment_size(fd, &bytes) < 0 || bytes != domain->arena_bytes || bytes % ABI_CHUNK_BYTES ||
        bytes < ABI_ARENA_BYTES_MIN || bytes > ABI_ARENA_BYTES_MAX || domain->base == 0 ||
        domain->base % ABI_CHUNK_BYTES || __builtin_add_overflow(domain->base, bytes, &end))
        return -EPROTO;
    base = segment_map(fd, bytes, protection, (void *)(uintptr_t)domain->base, MAP_FIXED_NOREPLACE);
    if (!base && relocated)
        base = segment_map(fd, bytes, protection, NULL, 0);
    if (!base && errno == EEXIST)
        return complain(complaint, -EADDRINUSE,
                        "the arena's place, %" PRIu64 " bytes at 0x%" PRIx64 ", is in use in this process; "
                        "open it once and earlier, or with RECLAIM_RELOCATED",
                        bytes, domain->base);
    if (!base)
        return -errno;
    (void)madvise(base, bytes, MADV_DONTDUMP); /* only the size of a core depends on it */
    r->base = base;
    r->arena_bytes = bytes;
    return 0;
}

/* What was mapped before a failure is left to segments_unmap(). */
int segments_map(struct reclaim *r, const struct abi_reply *reply, const int fds[static ABI_OPEN_FDS],
                 bool relocated, struct complaint complaint)
{
    int error = domain_map(r, fds[0]);

    if (error == 0)
        error = channel_map(r, fds[1], reply->channel_bytes);
    if (error == 0 && (reply->base != r->domain->base || reply->arena_bytes != r->domain->arena_bytes))
        error = -EPROTO;
    if (error == 0)
        error = arena_map(r, fds[2], relocated, complaint);
    return error;
}

static void unmap(const void *memory, size_t bytes)
{
    if (memory)
        (void)munmap((void *)(uintptr_t)memory, bytes);
}

void segments_unmap(struct reclaim *r)
{
    unmap(r->base, r->arena_bytes);
    unmap(r->channel, r->channel_bytes);
    unmap(r->domain, r->domain_bytes);
    r->base = NULL;
    r->channel = NULL;
    r->domain = NULL;
}

struct abi_lane *segment_lane(const struct reclaim *r, uint32_t number)
{
    return (struct abi_lane *)((char *)r->channel + r->channel->lane_offset +
                               number * r->channel->lane_stride);
}

struct abi_slot *segment_slot(const struct reclaim *r, uint32_t number)
{
    return (struct abi_slot *)((char *)r->channel + r->channel->slot_offset) + number;
}
