/* SPDX-License-Identifier: MIT */
/* What the files about connections share. */
#ifndef RECLAIMD_CONNECTION_INTERNAL_H
#define RECLAIMD_CONNECTION_INTERNAL_H

#include "abi.h"
#include "arena.h"
#include "connection.h"

struct event;

#define PEER_GROUPS_MAX 256u /* more supplementary groups than that are not looked at */

struct connection {
    struct connection *prev, *next;
    struct connections *owner;
    int fd;
    struct event *event;       /* requests and EOF */
    struct event *death_event; /* pidfd */
    struct event *hangup_timer;
    struct client_identity identity; /* with a pidfd of our own */
    gid_t groups[PEER_GROUPS_MAX];
    unsigned n_groups;
    struct client *client; /* attached; a reference */
    bool counted;          /* towards clients-max: until its process is known to be gone */
    bool busy;             /* a request is with the worker */
    bool broken;  /* to be hung up by connection_event(), when nothing below it holds the connection */
    bool closed;  /* nobody is there to answer */
    bool leaving; /* the worker was told to bury all its lanes */
    bool gone;    /* .. and has */

    /* the request under way */
    struct job job;
    struct main_post post;
    struct connection *next_waiting; /* LANE_GET: the arena's list, until a lane is free */
    struct abi_request request;
    struct abi_reply reply;

    /* leaving, and checking after a hang-up */
    struct job leave_job, check_job;
    struct main_post gone_post, check_post;
    bool checking;
};

struct connections {
    struct manager *manager;
    struct event *listener;
    struct event *resume; /* accept again, after a moment without descriptors */
    int listen_fd;
    struct connection *first, *last;
    uint32_t n, n_clients;
    uint64_t next_id;
    struct log_rate refused_rate, accept_rate, turned_away_rate;
};

/* connection-attach.c */
int peer_identify(struct connection *c);
/* OPEN: fills in the reply, its descriptors on success. */
int connection_open(struct connection *c, int ret_fds[ABI_OPEN_FDS]);
int reply_words(struct abi_reply *reply, int error, const char *format, ...) _printf_(3, 4);

/* connection-leave.c */
void connection_attached(struct connection *c); /* watch its process from now on */
void connection_hung_up(struct connection *c);
void connection_leave(struct connection *c);
/* whoever died is found now, not when the loop comes to it */
void connections_sweep_dead(struct connections *cs);

/* connection.c */
void connection_unlink_and_free(struct connection *c);
void connection_uncount(struct connection *c);

/* Connections of one user: those that count as clients, or those that have yet to say what they want. */
uint32_t connections_of_user(const struct connections *cs, uid_t uid, bool counted);

#endif
