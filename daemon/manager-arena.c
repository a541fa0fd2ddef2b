/* SPDX-License-Identifier: MIT */
/* The manager's arenas and users: limits, making, removing. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "abi.h"
#include "basic/macro.h"
#include "basic/ordering.h"
#include "basic/parse.h"
#include "log.h"
#include "manager-internal.h"

struct arena *manager_arena_find(struct manager *m, const char *name)
{
    for (struct arena *a = m->arenas; a; a = a->next_arena)
        if (strcmp(a->name, name) == 0)
            return a;
    return NULL;
}

static struct user *user_find_or_make(struct manager *m, uid_t uid)
{
    struct user *u;

    for (u = m->users; u; u = u->next)
        if (u->uid == uid)
            return u;
    u = calloc(1, sizeof(*u));
    if (!u)
        return NULL;
    u->uid = uid;
    u->next = m->users;
    m->users = u;
    manager_update_users(m);
    return u;
}

void manager_update_users(struct manager *m)
{
    uint64_t limit = parameter_share_bytes(m->parameters.user_bytes_max, m->memory_bytes);

    for (struct user *u = m->users; u; u = u->next)
        /* the next page backed goes by it */
        store_relaxed(&u->limit_bytes, u->uid == 0 ? UINT64_MAX : limit);
}

static int check_size(struct manager *m, uint64_t bytes, struct error_line *why)
{
    char text[FORMAT_BYTES], most[FORMAT_BYTES];

    (void)format_bytes_human(bytes, text);
    if (bytes < ABI_ARENA_BYTES_MIN)
        return error_line_set(why, -EINVAL, "an arena of %s is too small: 1M is the least", text);
    if (bytes > ABI_ARENA_BYTES_MAX)
        return error_line_set(why, -EINVAL, "an arena of %s is too large: 2T is the most", text);
    if (bytes <= m->parameters.arena_size_max_bytes)
        return 0;
    (void)format_bytes_human(m->parameters.arena_size_max_bytes, most);
    return error_line_set(why, -ENOSPC, "an arena of %s is more than arena-size-max = %s allows", text, most);
}

static int check_limits(struct manager *m, const struct arena_request *request, const struct user *user,
                        uid_t asked_by, struct error_line *why)
{
    if (!arena_name_is_valid(request->name))
        return error_line_set(why, -EINVAL, "bad arena name: 1..%d of A-Z a-z 0-9 . _ - are right",
                              ABI_NAME_MAX);
    if (manager_arena_find(m, request->name))
        return error_line_set(why, -EEXIST, "arena %s is there already", request->name);
    if (asked_by != 0 && user->n_arenas >= m->parameters.arenas_per_user_max)
        return error_line_set(why, -EMFILE, "uid %u has %u arenas, as many as arenas-per-user-max allows",
                              (unsigned)asked_by, user->n_arenas);
    return check_size(m, request->bytes, why);
}

int manager_arena_create(struct manager *m, const struct arena_request *request, uid_t asked_by,
                         struct arena **ret, struct error_line *why)
{
    struct user *user = user_find_or_make(m, request->owner);
    struct arena_request rounded = *request;
    struct arena_parameters p;
    struct arena *a, **end = &m->arenas;
    int r;

    if (!user)
        return error_line_set(why, -ENOMEM, "no memory");
    r = check_limits(m, request, user, asked_by, why);
    if (r < 0)
        return r;
    rounded.bytes = ALIGN_UP(request->bytes, ABI_CHUNK_BYTES);
    parameters_effective_arena(m->settings->store, request->name, &p);
    r = arena_new(m, &rounded, &p, user, &a);
    if (r == -EEXIST || r == -EFBIG)
        return error_line_set(why, -ENOSPC, "no room for %llu bytes in the address window",
                              (unsigned long long)rounded.bytes);
    if (r < 0)
        return error_line_set(why, r, "cannot make arena %s: %s", request->name, strerror(-r));
    user->n_arenas++;
    while (*end)
        end = &(*end)->next_arena;
    *end = a;
    log_info("arena %s: made, %llu bytes at %p, uid %u, mode %04o", a->name, (unsigned long long)a->bytes,
             a->base, (unsigned)a->owner, (unsigned)a->mode);
    if (ret)
        *ret = a;
    return 0;
}

void manager_arena_remove(struct manager *m, struct arena *a)
{
    struct arena **p = &m->arenas;

    while (*p && *p != a)
        p = &(*p)->next_arena;
    if (!*p)
        return;
    *p = a->next_arena;
    a->removing = 1;
    a->user->n_arenas--;
    parameter_store_forget_arena(m->settings->store, a->name);
    log_info("arena %s: removed", a->name);
    connections_drop_arena(m->connections, a);
    arena_unref(a);
}

void manager_arena_gone(struct manager *m, struct arena *a)
{
    (void)m;
    log_debug("arena %s: its memory is gone", a->name);
}
