/* SPDX-License-Identifier: MIT */
/*
 * A Varlink server on libevent and json-c. It knows the protocol and org.varlink.service; what an interface
 * means is its owner's business, who registers a table of methods.
 *
 * Everything runs in the thread of the event base, and nothing blocks. What a peer can make us hold is
 * bounded: the length of a message, its depth and number of values, connections a uid and in all, and the
 * bytes that all connections of a uid have queued in either direction. Who breaks the protocol or does not
 * read loses his own connection and nothing else.
 *
 * The calls of one connection are handled and answered one after the other. A handler that cannot answer at
 * once takes a reference and answers later; the connection may be gone by then, and that is no error.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct event_base;
struct json_object;
struct varlink_call;
struct varlink_server;

/* The errors that every Varlink service has; each names what its text in org.varlink.service says. */
#define VARLINK_ERROR_INTERFACE_NOT_FOUND "org.varlink.service.InterfaceNotFound"
#define VARLINK_ERROR_METHOD_NOT_FOUND "org.varlink.service.MethodNotFound"
#define VARLINK_ERROR_METHOD_NOT_IMPLEMENTED "org.varlink.service.MethodNotImplemented"
#define VARLINK_ERROR_INVALID_PARAMETER "org.varlink.service.InvalidParameter"
#define VARLINK_ERROR_PERMISSION_DENIED "org.varlink.service.PermissionDenied"
#define VARLINK_ERROR_EXPECTED_MORE "org.varlink.service.ExpectedMore"

/* Who is at the other end, as the kernel noted it when he connected. */
struct varlink_peer {
    pid_t pid; /* 0: in a pid namespace that we cannot see; for display only, never an identity */
    uid_t uid;
    gid_t gid;
    gid_t *groups; /* supplementary ones */
    size_t n_groups;
};

/*
 * Decoding. A JSON object is turned into a struct by a table that ends with a field without a name. Fields
 * that are absent or null leave the struct alone, so it begins zeroed. Strings, objects and arrays are
 * borrowed from the JSON, which lives as long as the call.
 */
enum varlink_type {
    VARLINK_BOOLEAN,
    VARLINK_INTEGER,
    VARLINK_STRING,
    VARLINK_ARRAY,
    VARLINK_OBJECT,
    _VARLINK_TYPE_MAX,
    _VARLINK_TYPE_INVALID = -1,
};

/* Stores a value of the field's type; a negative errno refuses it. */
typedef int (*varlink_setter)(struct json_object *value, void *destination);

struct varlink_field {
    const char *name;
    enum varlink_type type;
    varlink_setter set;
    size_t offset; /* of the destination in the struct */
    bool required;
};

/* A number that may be absent. */
struct varlink_optional {
    bool present;
    uint64_t value;
};

int varlink_set_boolean(struct json_object *value, void *bool_destination);
int varlink_set_optional(struct json_object *value, void *optional_destination); /* as unsigned */
int varlink_set_unsigned(struct json_object *value, void *uint64_destination);   /* 0..2^63-1 */
int varlink_set_string(struct json_object *value, void *const_char_destination); /* no NUL inside */
int varlink_set_json(struct json_object *value, void *json_object_destination);  /* a borrowed pointer */

/* 0, or -EINVAL and the name of the field that is unknown, missing, of the wrong type or refused. */
int varlink_decode(struct json_object *object, const struct varlink_field *fields, void *ret,
                   const char **ret_field);

/*
 * Whether a text is JSON by the letter and within our limits of depth and number: 0; -EBADMSG: it is not;
 * -EINVAL and the (cleaned, cut) name: a key stands twice in one object, or is written with escapes.
 */
enum {
    VARLINK_KEY_BYTES = 64,
    VARLINK_DEPTH_MAX = 16,     /* our deepest call has 3 */
    VARLINK_VALUES_MAX = 16384, /* in one message: a megabyte of "[]," must not become a hundred of objects */
    VARLINK_KEYS_MAX = 128,     /* in one object: there are a third as many parameters to set */
};

int varlink_json_check(const char *text, size_t length, char ret_key[static VARLINK_KEY_BYTES]);

/* A method; a table of them ends with one without a name. */
struct varlink_method {
    const char *name;
    const struct varlink_field *fields; /* NULL: it takes no parameters */
    size_t parameters_bytes;            /* size of the struct that the fields fill */
    bool needs_more;                    /* it streams: called without `more` it is ExpectedMore */
    /*
     * NULL: the description has it, we do not (MethodNotImplemented). The parameters live as long as the
     * call. It answers exactly once, or takes a reference and answers later.
     */
    void (*handle)(struct varlink_call *call, const void *parameters, void *userdata);
};

struct varlink_interface {
    const char *name;
    const char *description; /* the text of the .varlink file */
    const struct varlink_method *methods;
};

/* Zero in a field: the default. */
struct varlink_limits {
    size_t connections_max; /* root and our own user may have more */
    size_t connections_per_uid_max;
    size_t bytes_per_uid_max;    /* queued, both directions */
    uint64_t write_timeout_usec; /* a peer that takes nothing for so long is cut off */
};

struct varlink_service {
    const char *vendor, *product, *version, *url;
    struct varlink_limits limits;
};

/* The strings of the service, and interfaces with their userdata, must outlive the server. */
int varlink_server_new(struct event_base *base, const struct varlink_service *service,
                       struct varlink_server **ret);

/* Drops all connections and listeners. Not from inside a handler. */
struct varlink_server *varlink_server_free(struct varlink_server *s);

/* -EEXIST: there is one of that name; -E2BIG: no room for more. */
int varlink_server_add_interface(struct varlink_server *s, const struct varlink_interface *interface,
                                 void *userdata);

/* Takes connections from a listening socket, which is the server's from then on unless this fails. */
int varlink_server_listen(struct varlink_server *s, int fd);

/*
 * Serves a connected socket, which is the server's from then on unless this fails. `peer` NULL: asks the
 * kernel. -EMFILE: too many connections of that uid; -ENFILE: too many in all.
 */
int varlink_server_accept(struct varlink_server *s, int fd, const struct varlink_peer *peer);

size_t varlink_server_n_connections(const struct varlink_server *s);

/* The call, to be answered now or later. Dropping the last reference unanswered drops the connection. */
struct varlink_call *varlink_call_ref(struct varlink_call *call);
struct varlink_call *varlink_call_unref(struct varlink_call *call);

/* Valid as long as the call, whatever becomes of the connection. */
const struct varlink_peer *varlink_call_peer(const struct varlink_call *call);
bool varlink_call_wants_more(const struct varlink_call *call);

/* What its connection has queued and the peer has not taken yet; 0 when there is no connection any more. */
size_t varlink_call_unsent_bytes(const struct varlink_call *call);

/* `gone` is called once, if the connection goes away before the answer; the call is still the holder's to
 * drop. */
void varlink_call_set_gone(struct varlink_call *call, void (*gone)(struct varlink_call *call, void *data),
                           void *data);

/*
 * Answers. They take `parameters` (NULL: empty), also on failure. -ENOTCONN: nobody is there any more, which
 * a holder may ignore; -EMSGSIZE: it would be too long, nothing was sent and the call is still open.
 */
int varlink_call_reply(struct varlink_call *call, struct json_object *parameters);

/* One of several replies; a final one or an error follows. Only where more is wanted. */
int varlink_call_notify(struct varlink_call *call, struct json_object *parameters);

int varlink_call_error(struct varlink_call *call, const char *error, struct json_object *parameters);

/* InvalidParameter with the field's name. */
int varlink_call_invalid(struct varlink_call *call, const char *field);
