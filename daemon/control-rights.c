/* SPDX-License-Identifier: MIT */
/*
 * Who may do what through the control interface. The first three functions are pure: a peer and an arena in,
 * a decision out.
 */
#include <errno.h>
#include <unistd.h>

#include "control-internal.h"

/* By the groups that the process had when it connected; what it was given since does not count. */
bool control_peer_in_group(const struct varlink_peer *peer, gid_t gid)
{
    if (peer->gid == gid)
        return true;
    for (size_t i = 0; i < peer->n_groups; i++)
        if (peer->groups[i] == gid)
            return true;
    return false;
}

/* The daemon's user is as mighty as the daemon: he could trace it. */
bool control_peer_is_admin(const struct varlink_peer *peer, uid_t daemon_uid, gid_t admin_gid)
{
    if (peer->uid == 0 || peer->uid == daemon_uid)
        return true;
    return admin_gid != (gid_t)-1 && control_peer_in_group(peer, admin_gid);
}

/* As with a file: the first of owner, group and others that he belongs to decides what he may read. */
static bool peer_may_read(const struct varlink_peer *peer, const struct control_arena_info *arena)
{
    if (peer->uid == arena->owner)
        return true; /* he can change the mode, so it does not hide the arena from him */
    if (control_peer_in_group(peer, arena->group))
        return arena->mode & 0040;
    return arena->mode & 0004;
}

/*
 * Tuning is for owner and administrators alone. A group that may write to the arena's memory may not
 * decide how it is run.
 */
bool control_peer_may(const struct varlink_peer *peer, bool is_admin, enum control_right right,
                      const struct control_arena_info *arena)
{
    if (is_admin || peer->uid == arena->owner)
        return true;
    return right == CONTROL_SEE && peer_may_read(peer, arena);
}

/* Asked anew for each call: the group is a parameter and may change. */
bool control_call_is_admin(const struct control *c, const struct varlink_call *call)
{
    return control_peer_is_admin(varlink_call_peer(call), geteuid(), c->ops->admin_gid(c->userdata));
}

/* One walk over arenas, with what it takes to decide about each. */
struct walk {
    const struct varlink_peer *peer;
    bool is_admin;
    enum control_right right;
    bool seen; /* one that he may see, whatever other right he lacks */
    bool allowed;
    control_arena_fn visit;
    void *data;
};

/* Two answers from one walk: is there anything the caller may see, and is there what he asks to do. */
static int walk_visit(void *data, const struct control_arena_info *info)
{
    struct walk *w = data;

    w->seen |= control_peer_may(w->peer, w->is_admin, CONTROL_SEE, info);
    if (!control_peer_may(w->peer, w->is_admin, w->right, info))
        return 0;
    w->allowed = true;
    return w->visit ? w->visit(w->data, info) : 0;
}

/* Who asks, and for what. */
static struct walk walk_of(const struct control *c, const struct varlink_call *call, enum control_right right)
{
    return (struct walk){
        .peer = varlink_call_peer(call),
        .is_admin = control_call_is_admin(c, call),
        .right = right,
    };
}

/*
 * What the caller has no right to is passed over in silence; who names one arena asks
 * control_call_check_arena() before.
 */
int control_call_visit_arenas(struct control *c, const struct varlink_call *call, const char *name,
                              enum control_right right, control_arena_fn visit, void *data)
{
    struct walk w = walk_of(c, call, right);

    w.visit = visit;
    w.data = data;
    return c->ops->arenas(c->userdata, name, walk_visit, &w);
}

/*
 * Not there and not visible are one answer, word by word. Visible but not tunable is another: the caller
 * knows then whom to ask.
 */
int control_call_check_arena(struct control *c, struct varlink_call *call, const char *arena,
                             enum control_right right)
{
    struct walk w = walk_of(c, call, right);
    int r = c->ops->arenas(c->userdata, arena, walk_visit, &w);

    if (r == -ENOENT || (r >= 0 && !w.seen)) {
        control_fail_with(call, -ENOENT, "no arena '%s'; list-arenas shows those that you may see",
                          text_quote(arena).text);
        return -ENOENT;
    }
    if (r < 0) {
        control_fail(call, r, NULL);
        return r;
    }
    if (w.allowed)
        return 0;
    control_fail_with(call, -EACCES,
                      "arena '%s' belongs to somebody else; only its owner, root, the daemon's user and the "
                      "admin group may do that",
                      text_quote(arena).text);
    return -EACCES;
}

/* `what` begins the sentence: "a reload". */
int control_call_check_admin(struct control *c, struct varlink_call *call, const char *what)
{
    if (control_call_is_admin(c, call))
        return 0;
    control_fail_with(call, -EACCES, "%s is for root, the daemon's user and the members of the admin group",
                      what);
    return -EACCES;
}
