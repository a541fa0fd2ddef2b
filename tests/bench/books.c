/* SPDX-License-Identifier: MIT */
/* One call of org.reclaimd.Control.ListArenas, and the numbers in its answer. */
#include "books.h"

#include <errno.h>
#include <json-c/json.h>
#include <string.h>

#include "basic/cleanup.h"
#include "basic/varlink-frame.h"
#include "words.h"

enum {
    ANSWER_USEC = 10000000, /* a busy daemon on a busy machine may take its time */
};

static void json_freep(struct json_object **object)
{
    json_object_put(*object);
}

static const struct {
    const char *name;
    size_t offset;
} number_table[] = {
    {"gracePeriodsStarted", offsetof(struct books, grace_periods)},
    {"batches", offsetof(struct books, batches)},
    {"purgesQueued", offsetof(struct books, purges_queued)},
    {"holes", offsetof(struct books, holes)},
    {"frees", offsetof(struct books, freed_objects)},
    {"pendingObjects", offsetof(struct books, pending_objects)},
    {"refusedRecords", offsetof(struct books, refused_records)},
    {"backedBytes", offsetof(struct books, backed_bytes)},
};

/* A daemon that lacks one of them is another version than this bench: said, not guessed. */
static int take_figures(struct json_object *figures, struct books *ret)
{
    struct json_object *value, *drains;
    struct books books = {0};

    for (size_t i = 0; i < ARRAY_SIZE(number_table); i++) {
        if (!json_object_object_get_ex(figures, number_table[i].name, &value))
            return words_set(-EPROTO, "the daemon's ListArenas has no '%s'", number_table[i].name);
        *(uint64_t *)((char *)&books + number_table[i].offset) = json_object_get_uint64(value);
    }
    if (!json_object_object_get_ex(figures, "drains", &drains) ||
        !json_object_object_get_ex(figures, "objectsPerPage", &value))
        return words_set(-EPROTO, "the daemon's ListArenas has no 'drains' or no 'objectsPerPage'");
    books.objects_per_page = json_object_get_double(value);
    json_object_object_foreach(drains, cause, n)
    {
        (void)cause;
        books.drains += json_object_get_uint64(n);
    }
    *ret = books;
    return 0;
}

/* Calls a method and returns its parameters, as part of *ret_answer, which the caller puts. */
static int call(struct varlink_client *client, const char *message, struct json_object **ret_answer,
                struct json_object **ret_parameters)
{
    struct json_object *answer, *parameters;
    const char *text = "";
    int r = varlink_client_send(client, message);

    if (r >= 0)
        r = varlink_client_receive(client, ANSWER_USEC, &text);
    if (r < 0)
        return words_set(r, "the daemon's control socket: %s", strerror(-r));
    answer = json_tokener_parse(text);
    if (json_object_object_get_ex(answer, "error", NULL) ||
        !json_object_object_get_ex(answer, "parameters", &parameters)) {
        json_object_put(answer);
        return words_set(-EREMOTEIO, "the daemon does not answer %.80s: %.200s", message, text);
    }
    *ret_answer = answer;
    *ret_parameters = parameters;
    return 0;
}

int books_connect(const char *control, struct varlink_client **ret)
{
    int r = varlink_client_connect(control, ret);

    return r < 0 ? words_set(r, "cannot connect to %s: %s", control, strerror(-r)) : 0;
}

int books_read(const char *control, const char *arena, struct books *ret)
{
    _cleanup_(varlink_client_freep) struct varlink_client *client = NULL;
    _cleanup_(json_freep) struct json_object *answer = NULL;
    struct json_object *parameters, *arenas, *figures;
    char message[256];
    int r = books_connect(control, &client);

    if (r < 0)
        return r;
    (void)snprintf(message, sizeof(message),
                   "{\"method\":\"org.reclaimd.Control.ListArenas\",\"parameters\":{\"arena\":\"%s\"}}",
                   arena);
    r = call(client, message, &answer, &parameters);
    if (r < 0)
        return r;
    if (!json_object_object_get_ex(parameters, "arenas", &arenas) ||
        !json_object_object_get_ex(json_object_array_get_idx(arenas, 0), "figures", &figures))
        return words_set(-EPROTO, "the daemon's answer to ListArenas has no arena with figures");
    return take_figures(figures, ret);
}

int books_read_callbacks(struct varlink_client *client, uint64_t *ret_waiting, uint64_t *ret_freed_objects)
{
    _cleanup_(json_freep) struct json_object *answer = NULL;
    struct json_object *parameters, *status, *waiting, *figures, *frees;
    int r = call(client, "{\"method\":\"org.reclaimd.Control.GetStatus\"}", &answer, &parameters);

    if (r < 0)
        return r;
    if (!json_object_object_get_ex(parameters, "status", &status) ||
        !json_object_object_get_ex(status, "callbacksWaiting", &waiting) ||
        !json_object_object_get_ex(status, "figures", &figures) ||
        !json_object_object_get_ex(figures, "frees", &frees))
        return words_set(-EPROTO, "the daemon's GetStatus has no 'callbacksWaiting' or no 'frees'");
    *ret_waiting = json_object_get_uint64(waiting);
    *ret_freed_objects = json_object_get_uint64(frees);
    return 0;
}
