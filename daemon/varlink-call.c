/* SPDX-License-Identifier: MIT */
/*
 * One Varlink call: from a message to its handler, and from the handler's answer to bytes.
 *
 * Who holds a call: varlink_call_dispatch() while the handler runs, and whoever has taken a reference. The
 * connection knows its unanswered call and the call its connection, both without a reference, and each is told
 * when the other goes:
 *
 *     answered          the call lets go of the connection, which goes on with its next call
 *     connection gone   the call lets go of it and says so to its holder; an answer goes nowhere
 *     last reference    without an answer: the connection is dropped, since nothing could follow in order
 *
 * Answers are JSON objects that are turned into text at once, so nothing of a handler's is kept.
 */
#include <assert.h>
#include <errno.h>
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>

#include "basic/macro.h"
#include "basic/text.h"
#include "varlink-internal.h"

enum {
    METHOD_NAME_MAX_BYTES = 255, /* longer than any interface and method name that anybody has */
};

/* The envelope of a call. */
struct envelope {
    const char *method;
    struct json_object *parameters;
    bool more;
    bool oneway;
    bool upgrade;
};

static const struct varlink_field envelope_fields[] = {
    {"method", VARLINK_STRING, varlink_set_string, offsetof(struct envelope, method), true},
    {"parameters", VARLINK_OBJECT, varlink_set_json, offsetof(struct envelope, parameters), false},
    {"more", VARLINK_BOOLEAN, varlink_set_boolean, offsetof(struct envelope, more), false},
    {"oneway", VARLINK_BOOLEAN, varlink_set_boolean, offsetof(struct envelope, oneway), false},
    {"upgrade", VARLINK_BOOLEAN, varlink_set_boolean, offsetof(struct envelope, upgrade), false},
    {},
};

/* Most errors have one parameter, which is text. */
struct json_object *varlink_object_with(const char *name, const char *text)
{
    struct json_object *o = json_object_new_object();

    if (o)
        (void)json_object_object_add(o, name, json_object_new_string(text));
    return o;
}

/*
 * Has its own copy of the peer, as the connection may go first. The connection knows its call without
 * holding it: the handler's side decides how long it lives.
 */
static struct varlink_call *call_new(struct varlink_connection *c)
{
    struct varlink_call *call = calloc(1, sizeof(*call));

    if (!call)
        return NULL;
    if (varlink_peer_copy(&call->peer, &c->peer) < 0) {
        free(call);
        return NULL;
    }
    call->n_refs = 1;
    call->connection = c;
    c->call = call;
    return call;
}

/* For a handler that will answer later. */
struct varlink_call *varlink_call_ref(struct varlink_call *call)
{
    call->n_refs++;
    return call;
}

/* A call that nobody will answer any more would block its connection for ever: so the connection goes. */
struct varlink_call *varlink_call_unref(struct varlink_call *call)
{
    if (!call || --call->n_refs > 0)
        return NULL;
    if (call->connection) {
        call->connection->call = NULL;
        varlink_connection_doom(call->connection);
    }
    (void)json_object_put(call->message);
    free(call->decoded);
    varlink_peer_deinit(&call->peer);
    free(call);
    return NULL;
}

/* The callback may drop the last reference. */
void varlink_call_detach(struct varlink_call *call)
{
    call->connection->call = NULL;
    call->connection = NULL;
    if (call->gone)
        call->gone(call, call->gone_data);
}

/* Whoever connected; a connection that is handed on does not change hands here. */
const struct varlink_peer *varlink_call_peer(const struct varlink_call *call)
{
    return &call->peer;
}

/* Whether notify is allowed. */
bool varlink_call_wants_more(const struct varlink_call *call)
{
    return call->more;
}

/* For streams: whoever sends without being asked each time leaves out what a slow peer has no room for. */
size_t varlink_call_unsent_bytes(const struct varlink_call *call)
{
    return call->connection ? varlink_frame_pending(&call->connection->output) : 0;
}

/* At most one; a second replaces the first. */
void varlink_call_set_gone(struct varlink_call *call, void (*gone)(struct varlink_call *call, void *data),
                           void *data)
{
    call->gone = gone;
    call->gone_data = data;
}

/* Text of a reply, which lives as long as the object. */
static const char *reply_text(struct json_object *reply, const char *error, struct json_object *parameters,
                              bool continues, size_t *ret_length)
{
    int r = 0;

    if (!reply || !parameters) {
        (void)json_object_put(parameters);
        return NULL;
    }
    if (error)
        r = json_object_object_add(reply, "error", json_object_new_string(error));
    r |= json_object_object_add(reply, "parameters", parameters);
    if (continues)
        r |= json_object_object_add(reply, "continues", json_object_new_boolean(true));
    if (r < 0)
        return NULL;
    return json_object_to_json_string_length(reply, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE,
                                             ret_length);
}

/* The length is checked in its final form: escapes can make a text six times as long. */
static int connection_put(struct varlink_connection *c, const char *error, struct json_object *parameters,
                          bool continues)
{
    struct json_object *reply = json_object_new_object();
    size_t length = 0;
    const char *text = reply_text(reply, error, parameters, continues, &length);
    int r;

    if (!text)
        r = -ENOMEM;
    else if (length > VARLINK_MESSAGE_MAX_BYTES)
        r = -EMSGSIZE;
    else
        r = varlink_connection_queue(c, text, length);
    (void)json_object_put(reply);
    return r;
}

/*
 * The one place where an answer leaves. Whether anybody hears it is nothing that a handler has to care
 * about: to nobody and to a one-way call it is dropped, and an answer that cannot be sent ends the
 * connection, since the peer would wait for ever.
 */
static int call_put(struct varlink_call *call, const char *error, struct json_object *parameters,
                    bool continues)
{
    struct varlink_connection *c = call->connection;
    int r = 0;

    assert(!call->answered);
    if (!parameters)
        parameters = json_object_new_object();
    if (!c || call->oneway)
        (void)json_object_put(parameters);
    else
        r = connection_put(c, error, parameters, continues);
    if (r == -EMSGSIZE || (continues && c))
        return r;
    call->answered = !continues;
    if (!c)
        return -ENOTCONN;
    if (r < 0)
        varlink_connection_doom(c);
    call->connection = NULL;
    varlink_connection_answered(c);
    return r;
}

/* The last one of the call. */
int varlink_call_reply(struct varlink_call *call, struct json_object *parameters)
{
    return call_put(call, NULL, parameters, false);
}

/* The call stays open. */
int varlink_call_notify(struct varlink_call *call, struct json_object *parameters)
{
    assert(call->more);
    return call_put(call, NULL, parameters, true);
}

/* The last one, too. */
int varlink_call_error(struct varlink_call *call, const char *error, struct json_object *parameters)
{
    return call_put(call, error, parameters, false);
}

/* Names the field as it came, cleaned and cut: it is the peer's own text. */
int varlink_call_invalid(struct varlink_call *call, const char *field)
{
    return varlink_call_error(call, VARLINK_ERROR_INVALID_PARAMETER,
                              varlink_object_with("parameter", text_quote(field).text));
}

/* Belongs to no call, so nothing becomes answered by it. */
void varlink_connection_complain(struct varlink_connection *c, const char *error, const char *parameter)
{
    (void)connection_put(c, error, varlink_object_with("parameter", parameter), false);
}

/* Tables are short. */
static const struct varlink_method *method_find(const struct varlink_interface *interface, const char *name)
{
    for (const struct varlink_method *m = interface->methods; m->name; m++)
        if (strcmp(m->name, name) == 0)
            return m;
    return NULL;
}

/* "org.example.Name.Method" belongs to the interface before its last dot. Answers the call if there is none.
 */
static int call_resolve(struct varlink_call *call, const char *name)
{
    const char *dot = strrchr(name, '.');
    char interface[METHOD_NAME_MAX_BYTES + 1] = "";

    if (strlen(name) > METHOD_NAME_MAX_BYTES || !dot || dot == name || !dot[1]) {
        (void)varlink_call_invalid(call, "method");
        return -EINVAL;
    }
    memcpy(interface, name, (size_t)(dot - name));
    call->registration =
        varlink_server_find_interface(call->connection->server, interface, strlen(interface));
    if (!call->registration) {
        (void)varlink_call_error(call, VARLINK_ERROR_INTERFACE_NOT_FOUND,
                                 varlink_object_with("interface", interface));
        return -ENOENT;
    }
    call->method = method_find(call->registration->interface, dot + 1);
    if (!call->method) {
        (void)varlink_call_error(call, VARLINK_ERROR_METHOD_NOT_FOUND, varlink_object_with("method", name));
        return -ENOENT;
    }
    return 0;
}

/* The method's own parameters, decoded; answers the call if they are wrong. */
static int call_decode(struct varlink_call *call)
{
    const char *field;
    struct json_object *none = NULL;
    int r;

    call->decoded = calloc(1, MAX(call->method->parameters_bytes, (size_t)1));
    if (!call->parameters)
        none = json_object_new_object();
    if (!call->decoded || !(call->parameters ?: none))
        r = -ENOMEM;
    else
        r = varlink_decode(call->parameters ?: none, call->method->fields, call->decoded, &field);
    if (r == -EINVAL)
        (void)varlink_call_invalid(call, field);
    (void)json_object_put(none);
    return r;
}

/* In the order in which a caller should hear of his mistakes: what, how, with which parameters. */
static void call_run(struct varlink_call *call, const char *name)
{
    if (call_resolve(call, name) < 0)
        return;
    if (!call->method->handle)
        (void)varlink_call_error(call, VARLINK_ERROR_METHOD_NOT_IMPLEMENTED,
                                 varlink_object_with("method", name));
    else if (call->method->needs_more && !call->more)
        (void)varlink_call_error(call, VARLINK_ERROR_EXPECTED_MORE, NULL);
    else if (call_decode(call) >= 0)
        call->method->handle(call, call->decoded, call->registration->userdata);
}

/* The text has passed varlink_json_check(): what is left to find here is wrong UTF-8. */
static struct json_object *message_parse(const char *text, size_t length)
{
    struct json_tokener *t = json_tokener_new_ex(VARLINK_DEPTH_MAX + 1);
    struct json_object *o = NULL;

    if (!t)
        return NULL;
    json_tokener_set_flags(t, JSON_TOKENER_VALIDATE_UTF8);
    o = json_tokener_parse_ex(t, text, (int)length);
    if (json_tokener_get_error(t) != json_tokener_success || !json_object_is_type(o, json_type_object)) {
        (void)json_object_put(o);
        o = NULL;
    }
    json_tokener_free(t);
    return o;
}

/* Decodes the envelope and runs the call, or answers what is wrong with it. `key` is one that stands twice.
 */
static int call_open(struct varlink_call *call, const char *key)
{
    struct envelope e = {};
    const char *field;
    int r = varlink_decode(call->message, envelope_fields, &e, &field);

    if (e.oneway && e.more)
        return -EBADMSG;
    call->more = e.more;
    call->oneway = e.oneway;
    call->parameters = e.parameters;
    if (key)
        (void)varlink_call_invalid(call, key);
    else if (r < 0)
        (void)varlink_call_invalid(call, field);
    else if (e.upgrade)
        (void)varlink_call_invalid(call, "upgrade");
    else
        call_run(call, e.method);
    return 0;
}

/*
 * The reference of this function ends with it: what a handler wants to keep, it must have taken. A call
 * that nobody has answered or kept is then dropped, and its connection with it.
 */
int varlink_call_dispatch(struct varlink_connection *c, const char *text, size_t length)
{
    char key[VARLINK_KEY_BYTES];
    struct varlink_call *call;
    int checked, r;

    checked = varlink_json_check(text, length, key);
    if (checked < 0 && checked != -EINVAL)
        return checked;
    call = call_new(c);
    if (!call)
        return -ENOMEM;
    call->message = message_parse(text, length);
    r = call->message ? call_open(call, checked < 0 ? key : NULL) : -EBADMSG;
    (void)varlink_call_unref(call);
    return r;
}
