/* SPDX-License-Identifier: MIT */
/*
 * Opening and closing an arena: check what the caller wants, register for the daemon's membarrier, connect,
 * ask, map what comes. Every refusal leaves one line for a person in the caller's message, and nothing else
 * behind.
 */
#include "handle.h"

#include <inttypes.h>
#include <linux/membarrier.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "basic/runtime.h"

#define MEMBARRIER_GET_REGISTRATIONS (1 << 9) /* Linux 6.3; not in older headers */

/* The daemon's membarrier reaches only who registered. False: we must fence by ourselves. */
static bool membarrier_register(void)
{
    long registered;

    if (syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) < 0)
        return false;
    registered = syscall(SYS_membarrier, MEMBARRIER_GET_REGISTRATIONS, 0, 0);
    /* below 0: cannot be asked */
    return registered < 0 || (registered & MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED);
}

/* A caller built against a later header may pass options that we do not know, as long as they are off. */
static int options_copy(const struct reclaim_open_options *opt, struct reclaim_open_options *ret)
{
    const char *bytes = (const char *)opt;

    memset(ret, 0, sizeof(*ret));
    if (!opt)
        return 0;
    if (opt->size < offsetof(struct reclaim_open_options, flags) + sizeof(opt->flags))
        return -EINVAL;
    memcpy(ret, opt, MIN(opt->size, sizeof(*ret)));
    for (size_t i = sizeof(*ret); i < opt->size; i++)
        if (bytes[i])
            return complain((struct complaint){ret->message, ret->message_size}, -EINVAL,
                            "an option that this version of libreclaim does not know is set");
    return 0;
}

/* What the daemon would refuse as well, said before it is asked. */
static int options_check(const char *name, const struct reclaim_open_options *opt, struct complaint complaint)
{
    const unsigned known = RECLAIM_CREATE | RECLAIM_EXCL | RECLAIM_READ_ONLY | RECLAIM_RELOCATED |
                           RECLAIM_TRANSIENT | RECLAIM_REPORT_EXIT;

    if (!name_is_valid(name))
        return complain(complaint, -EINVAL, "not an arena's name: use 1 to %d of A-Z a-z 0-9 . _ -",
                        ABI_NAME_MAX);
    if (opt->flags & ~known)
        return complain(complaint, -EINVAL, "unknown flags 0x%x", opt->flags & ~known);
    if (!(opt->flags & RECLAIM_CREATE)) {
        if (opt->flags & (RECLAIM_EXCL | RECLAIM_TRANSIENT))
            return complain(complaint, -EINVAL, "RECLAIM_EXCL and RECLAIM_TRANSIENT need RECLAIM_CREATE");
        return 0;
    }
    if (opt->mode & ~(mode_t)0777)
        return complain(complaint, -EINVAL, "mode 0%o is not one: use 0 to 0777", (unsigned)opt->mode);
    if (opt->arena_bytes < ABI_ARENA_BYTES_MIN || opt->arena_bytes > ABI_ARENA_BYTES_MAX)
        return complain(complaint, -EINVAL, "an arena of %" PRIu64 " bytes: use %llu (1 MiB) to %llu (2 TiB)",
                        opt->arena_bytes, ABI_ARENA_BYTES_MIN, ABI_ARENA_BYTES_MAX);
    return 0;
}

/* The public flags and the wire's are two lists, so that each can grow. */
static struct abi_request open_request(const char *name, const struct reclaim_open_options *opt, bool fence)
{
    struct abi_request request = talk_request(ABI_OP_OPEN);

    request.flags = (opt->flags & RECLAIM_CREATE ? ABI_OPEN_CREATE : 0) |
                    (opt->flags & RECLAIM_EXCL ? ABI_OPEN_EXCL : 0) |
                    (opt->flags & RECLAIM_READ_ONLY ? ABI_OPEN_READ_ONLY : 0) |
                    (opt->flags & RECLAIM_TRANSIENT ? ABI_OPEN_TRANSIENT : 0) |
                    (fence ? ABI_OPEN_MUST_FENCE : 0);
    if (opt->flags & RECLAIM_CREATE) {
        request.mode = opt->mode ? (uint32_t)opt->mode : 0600;
        request.arena_bytes = ALIGN_UP(opt->arena_bytes, (uint64_t)ABI_CHUNK_BYTES);
    }
    (void)snprintf(request.name, sizeof(request.name), "%s", name);
    return request;
}

/* Nobody listens: whatever the reason, for the caller there is no daemon. */
static int handle_connect(struct reclaim *r, const char *directory, struct complaint complaint)
{
    struct runtime_paths paths;
    struct error_line line;
    int error = runtime_paths_find(directory, &paths);

    if (error < 0) {
        runtime_error_describe(error, &line);
        return complain(complaint, error == -ENXIO ? -ECONNREFUSED : error, "%s", line.text);
    }
    error = talk_connect(r, paths.client);
    if (error == -ENOENT || error == -ENOTDIR || error == -ECONNREFUSED)
        return complain(complaint, -ECONNREFUSED,
                        "no daemon answers at %s; start reclaimd, or name its runtime directory",
                        paths.client);
    if (error < 0)
        return complain(complaint, error == -EAGAIN ? -ETIMEDOUT : error, "cannot connect to %s: %s",
                        paths.client, strerror(-error));
    return 0;
}

static int complain_answer(struct complaint complaint, int error)
{
    if (error == -ECONNRESET || error == -EOWNERDEAD)
        return complain(complaint, -ECONNRESET, "the daemon closed the connection; see its log");
    if (error == -EMFILE)
        return complain(complaint, error, "this process has no descriptor left: raise its limit (ulimit -n)");
    return complain(complaint, error, "the daemon's answer: %s", reclaim_strerror(error));
}

/*
 * What comes with the answer, mapped and noted. Under the process lock, so that the child of a fork() has
 * none of it. The daemon's own words for a refusal are better than ours: it knows the limit and its parameter.
 */
static int handle_take(struct reclaim *r, bool relocated, struct complaint complaint)
{
    int fds[ABI_OPEN_FDS], error;
    struct abi_reply reply;

    error = talk_attached(r, &reply, fds);
    if (error < 0)
        return complain_answer(complaint, error);
    if (reply.error < 0)
        return complain(complaint, reply.error, "%s",
                        reply.message[0] ? reply.message : reclaim_strerror(reply.error));
    r->eventfd = fds[3];
    error = segments_map(r, &reply, fds, relocated, complaint);
    for (int i = 0; i < 3; i++)
        (void)close(fds[i]);
    if (error == -EPROTO)
        return complain(complaint, error,
                        "the daemon sent segments that are not sound: is it of another version?");
    if (error < 0)
        return error == -EADDRINUSE
                   ? error
                   : complain(complaint, error, "cannot map the arena: %s", strerror(-error));
    return 0;
}

static int handle_attach(struct reclaim *r, const struct abi_request *request, bool relocated,
                         struct complaint complaint)
{
    int error = talk_attach(r, request);

    if (error < 0)
        return complain_answer(complaint, error);
    process_lock();
    error = handle_take(r, relocated, complaint);
    process_unlock();
    if (error < 0)
        return error;
    r->fence = (request->flags & ABI_OPEN_MUST_FENCE) || r->domain->readers_must_fence;
    return 0;
}

static struct reclaim *handle_new(void)
{
    struct reclaim *r = wiped_new(sizeof(*r));

    if (!r)
        return NULL;
    (void)pthread_mutex_init(&r->talk, NULL);
    (void)pthread_mutex_init(&r->stall_lock, NULL);
    r->socket = r->eventfd = r->peer = -1;
    process_handle_add(r);
    return r;
}

/* Also of one that is half made. */
static struct reclaim *handle_free(struct reclaim *r)
{
    process_handle_remove(r);
    segments_unmap(r);
    return wiped_free(r, sizeof(*r));
}

static int handle_watch(struct reclaim *r, struct complaint complaint)
{
    int error = talk_watch(r);

    if (error == -ENOTSUP)
        return complain(complaint, error,
                        "RECLAIM_REPORT_EXIT is not possible here: the kernel has no pidfds, or who made the "
                        "daemon's socket is another process");
    return error < 0 ? complain_answer(complaint, -ECONNRESET) : 0;
}

/* Registers before it asks: once attached, readers count, and the daemon's barrier must reach them. */
static int handle_open(const char *name, const struct reclaim_open_options *opt, struct complaint complaint,
                       struct reclaim **ret)
{
    bool fence = !membarrier_register();
    struct abi_request request = open_request(name, opt, fence);
    struct reclaim *r = handle_new();
    int error;

    if (!r)
        return complain(complaint, -ENOMEM, "no memory");
    r->read_only = opt->flags & RECLAIM_READ_ONLY;
    error = handle_connect(r, opt->runtime_directory, complaint);
    if (error == 0 && (opt->flags & RECLAIM_REPORT_EXIT))
        error = handle_watch(r, complaint);
    if (error == 0)
        error = handle_attach(r, &request, opt->flags & RECLAIM_RELOCATED, complaint);
    if (error < 0) {
        (void)handle_free(r);
        return error;
    }
    r->front.completed = &r->domain->completed;
    r->magic = HANDLE_MAGIC;
    *ret = r;
    return 0;
}

int reclaim_open(const char *name, const struct reclaim_open_options *opt, struct reclaim **ret)
{
    struct reclaim_open_options options;
    struct complaint complaint;
    int state, error;

    if (!ret)
        return -EINVAL;
    error = options_copy(opt, &options);
    if (error < 0)
        return error;
    complaint = (struct complaint){options.message, options.message_size};
    error = options_check(name, &options, complaint);
    if (error < 0)
        return error;
    error = process_init();
    if (error < 0)
        return complain(complaint, error, "%s", strerror(-error));
    if (thread_in_section())
        return complain(complaint, -EDEADLK, "this thread is in a read section");
    state = thread_cancel_disable();
    error = handle_open(name, &options, complaint, ret);
    thread_cancel_restore(state);
    return error;
}

void reclaim_close(struct reclaim *r)
{
    int state;

    if (handle_check(r) < 0)
        return; /* the child of a fork has nothing of it but the wiped page, which others may still look at */
    if (stall_calls_back(r))
        return; /* it would wait for itself, and then pull the ground away below the thread */
    state = thread_cancel_disable();
    stall_watch_end(r);      /* before what it looks at goes, and its lane if it has one */
    handle_lanes_release(r); /* before the connection goes: the daemon hears of each lane in order */
    r->front.completed = NULL;
    r->magic = 0;
    (void)handle_free(r);
    thread_cancel_restore(state);
}

void *reclaim_base(const struct reclaim *r)
{
    return handle_check(r) < 0 ? NULL : r->base;
}

uint64_t reclaim_size(const struct reclaim *r)
{
    return handle_check(r) < 0 ? 0 : r->arena_bytes;
}
