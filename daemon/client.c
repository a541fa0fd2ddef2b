/* SPDX-License-Identifier: MIT */
/* One attachment; see client.h. */
#include "client.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>

#include "arena.h"
#include "basic/cleanup.h"
#include "basic/macro.h"
#include "basic/ordering.h"
#include "clock.h"
#include "segment.h"
#include "ticket.h"

struct client_lane *client_lane_at(const struct client *c, uint32_t lane)
{
    return load_acquire(&c->lanes[lane]); /* whole before it stands there; pairs with arena_give_lane() */
}

/* Header, slots, lanes: each part on pages of its own. */
static void channel_layout(uint32_t n_lanes, struct abi_channel *ret)
{
    uint64_t slots = ALIGN_UP((uint64_t)n_lanes * sizeof(struct abi_slot), ABI_PAGE_BYTES);

    *ret = (struct abi_channel){
        .magic = ABI_MAGIC_CHANNEL,
        .major = ABI_MAJOR,
        .minor = ABI_MINOR,
        .fingerprint = ABI_FINGERPRINT,
        .slot_offset = ABI_PAGE_BYTES,
        .lane_offset = ABI_PAGE_BYTES + slots,
        .lane_stride = sizeof(struct abi_lane),
        .n_lanes = n_lanes,
    };
    ret->bytes = ret->lane_offset + (uint64_t)n_lanes * sizeof(struct abi_lane);
}

static int client_open_channel(struct client *c)
{
    struct abi_channel layout;
    void *channel;
    int r;

    channel_layout(c->n_lanes, &layout);
    r = segment_new("reclaimd:channel", layout.bytes, &c->channel_fd);
    if (r < 0)
        return r;
    r = segment_map(c->channel_fd, layout.bytes, NULL, true, &channel);
    if (r < 0)
        return r;
    (void)madvise(channel, layout.bytes, MADV_DONTDUMP);
    c->channel = channel;
    c->channel_bytes = layout.bytes;
    c->slot_offset = layout.slot_offset;
    c->lane_offset = layout.lane_offset;
    *c->channel = layout;
    c->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return c->event_fd < 0 ? -errno : 0;
}

/* What the process calls itself: for people, never for identity. */
static void client_read_comm(struct client *c)
{
    char path[64];
    _cleanup_fclose_ FILE *f = NULL;

    (void)snprintf(path, sizeof(path), "/proc/%d/comm", (int)c->pid);
    f = c->pid > 0 ? fopen(path, "re") : NULL;
    if (!f || !fgets(c->comm, sizeof(c->comm), f))
        (void)snprintf(c->comm, sizeof(c->comm), "?");
    c->comm[strcspn(c->comm, "\n")] = '\0';
}

static void client_lane_free(struct client_lane *cl)
{
    if (!cl)
        return;
    tickets_deinit(cl);
    free(cl);
}

static void client_free(struct client *c)
{
    for (uint32_t i = 0; c->lanes && i < c->n_lanes; i++)
        client_lane_free(c->lanes[i]);
    free(c->lanes);
    segment_unmap(c->channel, c->channel_bytes);
    (void)fd_close(c->channel_fd);
    (void)fd_close(c->event_fd);
    (void)fd_close(c->pidfd);
    free(c);
}

static void client_free_rcu(struct rcu_head *head)
{
    client_free(container_of(head, struct client, rcu));
}

static void client_release_account(struct account *account)
{
    client_unref(container_of(account, struct client, account));
}

int client_new(struct arena *a, const struct client_identity *identity, uint32_t n_lanes, bool observer,
               struct client **ret)
{
    struct client *c = calloc(1, sizeof(*c));
    int r = -ENOMEM;

    if (!c)
        return -ENOMEM;
    c->refs = 1;
    c->id = identity->id;
    c->pid = identity->pid;
    c->uid = identity->uid;
    c->gid = identity->gid;
    c->since_usec = clock_usec(CLOCK_REALTIME);
    c->n_lanes = n_lanes;
    c->observer = observer;
    c->pidfd = c->channel_fd = c->event_fd = -EBADF;
    c->account.release = client_release_account;
    c->lanes = calloc(n_lanes, sizeof(struct client_lane *));
    if (c->lanes)
        r = client_open_channel(c);
    if (r == 0) {
        c->pidfd = fcntl(identity->pidfd, F_DUPFD_CLOEXEC, 0);
        r = c->pidfd < 0 ? -errno : 0;
    }
    if (r < 0) {
        client_free(c);
        return r;
    }
    client_read_comm(c);
    c->arena = a;
    c->manager = a->manager;
    arena_ref(a);
    *ret = c;
    return 0;
}

void client_ref(struct client *c)
{
    (void)fetch_add_relaxed(&c->refs, 1);
}

bool client_ref_if_any(struct client *c)
{
    uint32_t n = load_relaxed(&c->refs);

    while (n > 0)
        if (compare_exchange_relaxed(&c->refs, &n, n + 1))
            return true;
    return false;
}

void client_unref(struct client *c)
{
    struct arena *a = c->arena;

    if (fetch_sub_acq_rel(&c->refs, 1) > 1) /* the last one sees all that the others did */
        return;
    urcu_memb_call_rcu(&c->rcu, client_free_rcu); /* grace_handle_bell() may hold it without a reference */
    arena_unref(a);
}

bool client_process_is_dead(const struct client *c)
{
    struct pollfd p = {.fd = c->pidfd, .events = POLLIN};

    return poll(&p, 1, 0) == 1;
}

/* "NSpid:" ends with the number in the innermost namespace, the one that the thread itself knows. */
static bool task_is(int tasks_fd, const char *name, uint32_t tid)
{
    char path[64], line[256];
    _cleanup_fclose_ FILE *f = NULL;
    int fd;

    (void)snprintf(path, sizeof(path), "%.32s/status", name);
    fd = openat(tasks_fd, path, O_RDONLY | O_CLOEXEC);
    f = fd >= 0 ? fdopen(fd, "re") : NULL;
    if (!f) {
        (void)fd_close(fd);
        return false;
    }
    while (fgets(line, sizeof(line), f)) {
        char *last;

        if (strncmp(line, "NSpid:", 6) != 0)
            continue;
        last = strrchr(line, '\t');
        return last && (uint32_t)strtoul(last + 1, NULL, 10) == tid;
    }
    return false;
}

bool client_has_thread(const struct client *c, uint32_t tid)
{
    char path[64];
    _cleanup_closedir_ DIR *tasks = NULL;
    struct dirent *entry;

    /* not visible from here: the pidfd and the owner word must do */
    if (c->pid <= 0)
        return true;
    (void)snprintf(path, sizeof(path), "/proc/%d/task", (int)c->pid);
    tasks = opendir(path);
    if (!tasks)
        return true;
    while ((entry = readdir(tasks)))
        if (entry->d_name[0] != '.' && task_is(dirfd(tasks), entry->d_name, tid))
            return true;
    return client_process_is_dead(c); /* then its number may be another process's by now: the pidfd tells */
}
