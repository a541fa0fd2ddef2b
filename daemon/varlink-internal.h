/* SPDX-License-Identifier: MIT */
/*
 * What the files of the Varlink server share: server (listeners, users, interfaces), connection (bytes and
 * states) and call (dispatch and answers).
 */
#pragma once

#include <event2/event.h>
#include <sys/queue.h>

#include "basic/varlink-frame.h"
#include "log.h"
#include "varlink.h"

enum {
    VARLINK_INTERFACES_MAX = 8,
    VARLINK_CALLS_A_TURN_MAX = 16, /* then other connections get their turn */
    VARLINK_INPUT_AHEAD_BYTES =
        64 * 1024, /* read while a call is unanswered: enough to see that he is there */
    VARLINK_OUTPUT_AHEAD_BYTES = 64 * 1024, /* more than that unsent: no further call is begun */
};

struct varlink_registration {
    const struct varlink_interface *interface;
    void *userdata;
};

/* Everything that one uid holds. Exists while he has a connection. */
struct varlink_user {
    LIST_ENTRY(varlink_user) users;
    uid_t uid;
    size_t n_connections;
    size_t bytes; /* sum of the charges of his connections */
};

struct varlink_listener {
    LIST_ENTRY(varlink_listener) listeners;
    struct varlink_server *server;
    int fd;
    struct event *readable;
    struct event *resume; /* after we ran out of descriptors */
};

struct varlink_server {
    struct event_base *base;
    struct varlink_service service;
    struct varlink_registration interfaces[VARLINK_INTERFACES_MAX];
    size_t n_interfaces;
    LIST_HEAD(, varlink_listener) listeners;
    LIST_HEAD(, varlink_connection) connections;
    LIST_HEAD(, varlink_user) users;
    size_t n_connections;
    struct log_rate budget_rate;
};

/*
 *               a call            its last answer
 *     READING ---------> CALLING ----------------> READING
 *        |                  |
 *        |  protocol error, |  end of input and all answered
 *        v                  v
 *     FLUSHING: takes no more calls; closed once all output has gone
 *
 *     DOOMED: from any state; closed at its next event, whatever is queued. Nobody closes a connection while
 * a handler may be running on it, so handlers never lose it under their hands.
 */
enum varlink_state {
    VARLINK_READING,
    VARLINK_CALLING,
    VARLINK_FLUSHING,
    VARLINK_DOOMED,
};

struct varlink_connection {
    LIST_ENTRY(varlink_connection) connections;
    struct varlink_server *server;
    struct varlink_user *user;
    struct varlink_peer peer;
    enum varlink_state state;
    bool input_ended;
    int fd;
    struct event *readable;
    struct event *writable;
    struct event *turn; /* a timer of 0: goes on with what is buffered, after the others */
    struct varlink_frame input;
    struct varlink_frame output;
    size_t charged_bytes;
    struct varlink_call *call; /* the one that is unanswered; not a reference */
};

struct varlink_call {
    unsigned n_refs;
    struct varlink_connection *connection; /* NULL: answered, or the connection is gone */
    const struct varlink_registration *registration;
    const struct varlink_method *method;
    struct varlink_peer peer;
    struct json_object *message;
    struct json_object *parameters; /* borrowed from the message, NULL: none */
    void *decoded;
    bool more;
    bool oneway;
    bool answered;
    void (*gone)(struct varlink_call *call, void *data);
    void *gone_data;
};

/* org.varlink.service; its userdata is the server. */
extern const struct varlink_interface varlink_service_interface;

const struct varlink_registration *varlink_server_find_interface(const struct varlink_server *s,
                                                                 const char *name, size_t length);

/* The user entry of that uid, charged with one connection more. -EMFILE, -ENFILE as varlink_server_accept().
 */
int varlink_user_join(struct varlink_server *s, uid_t uid, struct varlink_user **ret);
void varlink_user_leave(struct varlink_server *s, struct varlink_user *user);

int varlink_peer_init(struct varlink_peer *peer, int fd);
int varlink_peer_copy(struct varlink_peer *peer, const struct varlink_peer *from);
void varlink_peer_deinit(struct varlink_peer *peer);

/* The fd is the connection's from then on unless this fails. */
int varlink_connection_new(struct varlink_server *s, int fd, const struct varlink_peer *peer);
struct varlink_connection *varlink_connection_free(struct varlink_connection *c);

/* Queues a text and its NUL. -ENOTCONN: doomed, or doomed by this, as it goes beyond the user's budget. */
int varlink_connection_queue(struct varlink_connection *c, const char *text, size_t length);

/* The call has its answer: go on with the next one. */
void varlink_connection_answered(struct varlink_connection *c);

/* To be closed without another word. */
void varlink_connection_doom(struct varlink_connection *c);

/* Handles one message. Negative: it is not Varlink, and the connection is to be closed. */
int varlink_call_dispatch(struct varlink_connection *c, const char *text, size_t length);

/* The connection goes: its unanswered call, if there is one, stays with whoever holds it. */
void varlink_call_detach(struct varlink_call *call);

/* {name: text} */
struct json_object *varlink_object_with(const char *name, const char *text);

/* An error that belongs to no call: the message was too long to look at. */
void varlink_connection_complain(struct varlink_connection *c, const char *error, const char *parameter);
