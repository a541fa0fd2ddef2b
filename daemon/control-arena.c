/* SPDX-License-Identifier: MIT */
/*
 * CreateArena, RemoveArena, EvictClient: what changes who is there.
 *
 * Anybody may make an arena, of his own and within the limits for a user: that is what the library does for him
 * too, and the control interface must not be the stricter or the laxer way.
 */
#include <errno.h>
#include <string.h>

#include "basic/parse.h"
#include "control-internal.h"

enum {
    ARENA_MODE_DEFAULT = 0600,
    ARENA_MODE_MAX = 0777,
    ID_MAX = UINT32_MAX - 1, /* (uid_t)-1 means "no one" to the kernel */
};

/* An id that is said, or the caller's own; false: it is no id at all. */
static bool id_choose(const struct varlink_optional *said, uint32_t own, uint32_t *ret)
{
    if (said->present && said->value > (uint64_t)(uint32_t)ID_MAX)
        return false;
    *ret = said->present ? (uint32_t)said->value : own;
    return true;
}

/* Fills in what was left out; answers the call if something makes no sense. */
static int request_complete(struct varlink_call *call, const struct control_create_parameters *p,
                            struct control_arena_request *ret)
{
    const struct varlink_peer *peer = varlink_call_peer(call);
    struct control_arena_request q = {
        .name = p->name,
        .size_bytes = p->size_bytes,
        .mode = ARENA_MODE_DEFAULT,
        .transient = p->transient,
        .asked_by = peer->uid,
    };
    const char *wrong = NULL;

    if (!id_choose(&p->owner, peer->uid, &q.owner))
        wrong = "owner";
    if (!id_choose(&p->group, peer->gid, &q.group))
        wrong = "group";
    if (p->mode.present && p->mode.value > ARENA_MODE_MAX)
        wrong = "mode";
    if (wrong) {
        (void)varlink_call_invalid(call, wrong);
        return -EINVAL;
    }
    if (p->mode.present)
        q.mode = (mode_t)p->mode.value;
    *ret = q;
    return 0;
}

/* Nobody makes an arena that counts as somebody else's, or hands one to a group that he is not in. */
static int request_check_rights(const struct control *c, struct varlink_call *call,
                                const struct control_arena_request *q)
{
    const struct varlink_peer *peer = varlink_call_peer(call);

    if (control_call_is_admin(c, call))
        return 0;
    if (q->owner != peer->uid)
        control_fail_with(call, -EPERM,
                          "only root, the daemon's user and the admin group make arenas for others");
    else if (!control_peer_in_group(peer, q->group))
        control_fail_with(call, -EPERM, "you are not in group %u, so you cannot give it an arena",
                          (unsigned)q->group);
    else
        return 0;
    return -EPERM;
}

/*
 * The name is checked here, so that a wrong one is the same error whoever makes the arena; size and
 * limits depend on parameters and are the operation's to check.
 */
void control_create_arena(struct varlink_call *call, const void *parameters, void *userdata)
{
    const struct control_create_parameters *p = parameters;
    struct control *c = userdata;
    struct control_arena_request q;
    struct error_line why = {};
    int r;

    if (!arena_name_is_valid(p->name)) {
        parse_error_describe(PARSE_ARENA_NAME, -EINVAL, p->name, &why);
        control_fail(call, -EINVAL, &why);
        return;
    }
    if (request_complete(call, p, &q) < 0 || request_check_rights(c, call, &q) < 0)
        return;
    r = c->ops->arena_create(c->userdata, &q, &why);
    if (r < 0)
        control_fail(call, r, &why);
    else
        (void)varlink_call_reply(call, NULL);
}

/* An arena's owner may remove it, as he could have made it transient. */
void control_remove_arena(struct varlink_call *call, const void *parameters, void *userdata)
{
    const struct control_remove_parameters *p = parameters;
    struct control *c = userdata;
    struct error_line why = {};
    int r;

    if (control_call_check_arena(c, call, p->arena, CONTROL_TUNE) < 0)
        return;
    r = c->ops->arena_remove(c->userdata, p->arena, p->force, &why);
    if (r < 0)
        control_fail(call, r, &why);
    else
        (void)varlink_call_reply(call, NULL);
}

/*
 * Names are bounded by their syntax; the copy is cut all the same, as the visitor cannot know who filled
 * the struct.
 */
static int visit_copy_arena_name(void *data, const struct control_client_info *info)
{
    char *name = data;

    (void)strncpy(name, info->arena, ARENA_NAME_MAX);
    name[ARENA_NAME_MAX] = '\0';
    return 0;
}

/* Only whether there is anything to visit. */
static int visit_nothing(void *data, const struct control_arena_info *info)
{
    *(bool *)data = true;
    return 0;
}

/* The number of a client in an arena that the caller may not see tells him nothing. */
void control_evict_client(struct varlink_call *call, const void *parameters, void *userdata)
{
    const struct control_evict_parameters *p = parameters;
    struct control *c = userdata;
    char arena[ARENA_NAME_BYTES] = "";
    struct error_line why = {};
    bool visible = false;
    int r = -ESRCH;

    if (p->client > 0)
        r = c->ops->clients(c->userdata, NULL, p->client, visit_copy_arena_name, arena);
    if (r >= 0)
        (void)control_call_visit_arenas(c, call, arena, CONTROL_SEE, visit_nothing, &visible);
    if (r >= 0 && !visible)
        r = -ESRCH;
    if (r == -ESRCH)
        control_fail_with(call, r, "no client %llu; list-clients shows their numbers",
                          (unsigned long long)p->client);
    else if (r < 0)
        control_fail(call, r, NULL);
    if (r < 0 || control_call_check_arena(c, call, arena, CONTROL_TUNE) < 0)
        return;
    r = c->ops->client_evict(c->userdata, p->client, p->kill, &why);
    if (r < 0)
        control_fail(call, r, &why);
    else
        (void)varlink_call_reply(call, NULL);
}
