/* SPDX-License-Identifier: MIT */
/*
 * Calls to the daemon, and what is said when they fail.
 *
 * Three kinds of failure, each with its own words. Nobody is there: say where we looked and what would start
 * the daemon. The connection breaks, or what comes is no answer: say so, as it is not the user's doing. The
 * daemon refuses: its errors carry a text that was written for people, which is passed on as it is; those of
 * org.varlink.service have none and get one here.
 *
 * Calls block, without a time limit: `synchronize` may rightly take as long as the slowest reader. Who is tired
 * of waiting interrupts the program, and the daemon notices that he has gone.
 */
#include <errno.h>
#include <string.h>

#include "basic/text.h"
#include "basic/varlink-frame.h"
#include "ctl.h"

/*
 * The first call connects; verbs that fail before they call anything never need a daemon, so that a wrong
 * command line is told as such although none runs.
 */
static int connect_once(struct ctl *ctl)
{
    int r;

    if (ctl->client)
        return CTL_DONE;
    r = varlink_client_connect(ctl->control_path, &ctl->client);
    if (r >= 0)
        return CTL_DONE;
    return ctl_fail("no daemon at %s: %s; is reclaimd.service running? else say where it is with "
                    "--runtime-directory",
                    ctl->control_path, strerror(-r));
}

/*
 * The connection broke in the middle. The daemon cuts off who breaks the protocol or exceeds his budget,
 * and says why in its own log only.
 */
static int fail_lost(const struct ctl *ctl, int r)
{
    if (r == -ECONNRESET || r == -EPIPE)
        return ctl_fail("the daemon at %s hung up; its log says why, else try again", ctl->control_path);
    return ctl_fail("cannot talk to the daemon at %s: %s", ctl->control_path, strerror(-r));
}

/* The name of an error without its interface. */
static const char *error_name(const char *error)
{
    const char *dot = strrchr(error, '.');

    return dot ? dot + 1 : error;
}

/* Our own errors bring their words; those of every Varlink service need some. */
static int fail_reply(struct json_object *reply, const char *error)
{
    const char *text = ctl_text(reply, "parameters/text"), *name = error_name(error);

    if (*text)
        return ctl_fail("%s", text);
    if (strcmp(name, "InvalidParameter") == 0)
        return ctl_fail("the daemon refuses '%s'; is it of another version than reclaimctl?",
                        text_quote(ctl_text(reply, "parameters/parameter")).text);
    if (strcmp(name, "MethodNotFound") == 0 || strcmp(name, "MethodNotImplemented") == 0 ||
        strcmp(name, "InterfaceNotFound") == 0)
        return ctl_fail("the daemon does not know how; is it older than reclaimctl?");
    return ctl_fail("the daemon says %s", text_quote(error).text);
}

/*
 * Takes the parameters. All calls of one run share one connection and are sent one after the other: a
 * verb needs the answer to know what to do next.
 */
static int send_call(struct ctl *ctl, const char *method, struct json_object *parameters, bool more)
{
    struct json_object *call = ctl_object("method", method);
    int status = connect_once(ctl), r;

    if (parameters)
        (void)json_object_object_add(call, "parameters", parameters);
    if (more)
        (void)json_object_object_add(call, "more", json_object_new_boolean(true));
    if (status == CTL_DONE) {
        r = varlink_client_send(ctl->client, json_object_to_json_string_ext(call, JSON_C_TO_STRING_PLAIN));
        status = r < 0 ? fail_lost(ctl, r) : CTL_DONE;
    }
    (void)json_object_put(call);
    return status;
}

/* The parameters of the next reply, which the caller puts. */
static int receive_reply(struct ctl *ctl, struct json_object **ret_parameters, bool *ret_continues)
{
    struct json_object *reply, *parameters;
    const char *text, *error;
    int r = varlink_client_receive(ctl->client, UINT64_MAX, &text), status = CTL_DONE;

    if (r < 0)
        return fail_lost(ctl, r);
    reply = json_tokener_parse(text);
    if (!json_object_is_type(reply, json_type_object)) {
        (void)json_object_put(reply);
        return ctl_fail("what answers at %s is not reclaimd", ctl->control_path);
    }
    error = ctl_text(reply, "error");
    if (*error) {
        status = fail_reply(reply, error);
    } else {
        parameters = ctl_at(reply, "parameters");
        *ret_parameters = parameters ? json_object_get(parameters) : json_object_new_object();
        *ret_continues = ctl_boolean(reply, "continues");
    }
    (void)json_object_put(reply);
    return status;
}

/*
 * One question, one answer. A daemon that streams although nobody asked for more is not ours, and is
 * found out by what its answer lacks.
 */
int ctl_call(struct ctl *ctl, const char *method, struct json_object *parameters, struct json_object **ret)
{
    bool continues;
    int status = send_call(ctl, method, parameters, false);

    return status == CTL_DONE ? receive_reply(ctl, ret, &continues) : status;
}

/*
 * The end of the stream is the daemon's to say, by a reply that does not continue, or the caller's, by a
 * status that is not CTL_DONE; the connection then goes with the process.
 */
int ctl_call_more(struct ctl *ctl, const char *method, struct json_object *parameters, ctl_reply_fn each,
                  void *data)
{
    struct json_object *reply;
    bool continues = true;
    int status = send_call(ctl, method, parameters, true);

    while (status == CTL_DONE && continues) {
        status = receive_reply(ctl, &reply, &continues);
        if (status != CTL_DONE)
            return status;
        status = each(ctl, reply, data);
        (void)json_object_put(reply);
    }
    return status;
}

struct gathering {
    const char *name;
    struct json_object *list;
};

/* Entries move from the reply to the list one by one, as json-c cannot join two arrays. */
static int gather(struct ctl *ctl, struct json_object *parameters, void *data)
{
    struct gathering *g = data;
    struct json_object *part = ctl_at(parameters, g->name);

    if (!json_object_is_type(part, json_type_array))
        return ctl_fail("the daemon's answer has no %s; is it of another version than reclaimctl?", g->name);
    for (size_t i = 0; i < json_object_array_length(part); i++)
        (void)json_object_array_add(g->list, json_object_get(json_object_array_get_idx(part, i)));
    return CTL_DONE;
}

/*
 * Asks for more, so that the daemon may answer in as many pieces as it likes: the number of arenas and
 * clients is not bounded by what one message may hold.
 */
int ctl_call_list(struct ctl *ctl, const char *method, struct json_object *parameters, const char *name,
                  struct json_object **ret)
{
    struct gathering g = {.name = name, .list = json_object_new_array()};
    int status = ctl_call_more(ctl, method, parameters, gather, &g);

    if (status == CTL_DONE)
        *ret = g.list;
    else
        (void)json_object_put(g.list);
    return status;
}
