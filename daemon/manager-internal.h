/* SPDX-License-Identifier: MIT */
/* What the manager's files share. */
#ifndef RECLAIMD_MANAGER_INTERNAL_H
#define RECLAIMD_MANAGER_INTERNAL_H

#include "connection.h"
#include "control.h"
#include "manager.h"
#include "pressure.h"
#include "purger.h"
#include "sockets.h"
#include "user.h"

struct event;

#define MANAGER_SIGNALS 3

struct manager {
    const struct options *options;
    struct settings *settings;
    struct daemon_parameters parameters; /* effective */
    struct event_base *base;
    struct mainqueue *mainqueue;
    struct callbacks *callbacks; /* aligned */
    struct reclaimer *reclaimer;
    struct grace *grace;
    struct purger *purger;
    struct pressure *pressure;
    struct control *control;
    struct connections *connections;
    struct sockets sockets;
    struct event *signals[MANAGER_SIGNALS];
    struct event *watchdog;
    struct arena *arenas; /* in the order of their making; each a reference */
    struct user *users;
    unsigned n_cpus;
    gid_t admin_gid;
    uint64_t started_usec, begun_usec;
    uint64_t memory_bytes;
    bool stopping;
};

/* manager-control.c */
extern const struct control_ops manager_control_ops;

/* manager-stall.c */
void manager_client_stall(const struct client *c, struct control_client_info *info);
int manager_visit_stalls(void *userdata, control_stall_fn visit, void *data);

/* manager-parameters.c: what changed acts at once. */
void manager_apply_parameters(struct manager *m);
int manager_reload(struct manager *m, control_change_fn visit, void *data, struct error_line *why);
/* Tells of each change: to the log if it was applied, and to visit (may be NULL), whose value other than 0 ends the walk. */
int manager_visit_changes(const struct parameter_changes *changes, bool applied, control_change_fn visit,
                          void *data);
/* Makes those that are not there. visit (may be NULL) gets those, and those that are there with another size. */
int manager_make_configured_arenas(struct manager *m, control_change_fn visit, void *data,
                                   struct error_line *why);

/* manager-arena.c */
void manager_update_users(struct manager *m);

#endif
