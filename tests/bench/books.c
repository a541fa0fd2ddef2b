/* SPDX-License-Identifier: MIT */
/* Calls of org.reclaimd.Control, and the numbers in their answers. */
#include "books.h"

#include <errno.h>
#include <json-c/json.h>
#include <stdio.h>
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

struct number {
    const char *name;
    size_t offset;
};

static const struct number arena_numbers[] = {
    {"gracePeriodsStarted", offsetof(struct books, grace_periods)},
    {"gracePeriodLastUSec", offsetof(struct books, gp_last_usec)},
    {"batches", offsetof(struct books, batches)},
    {"purgesQueued", offsetof(struct books, purges_queued)},
    {"holes", offsetof(struct books, holes)},
    {"frees", offsetof(struct books, freed_objects)},
    {"pendingObjects", offsetof(struct books, pending_objects)},
    {"refusedRecords", offsetof(struct books, refused_records)},
    {"backedBytes", offsetof(struct books, backed_bytes)},
    {"synchronizes", offsetof(struct books, synchronizes)},
    {"callbacksAhead", offsetof(struct books, callbacks_ahead)},
    {"directWakes", offsetof(struct books, direct_wakes)},
    {"workerWakes", offsetof(struct books, worker_wakes)},
    {"fifoWakes", offsetof(struct books, fifo_wakes)},
    {"maxDirectWakes", offsetof(struct books, max_direct_wakes)},
};

static const struct number daemon_numbers[] = {
    {"callbacksWaiting", offsetof(struct daemon_books, callbacks_waiting)},
    {"callbacks", offsetof(struct daemon_books, n_callbacks)},
    {"membarriers", offsetof(struct daemon_books, n_membarriers)},
};

/* A daemon that lacks one of them is another version than this bench: said, not guessed. */
static int take_numbers(struct json_object *from, const struct number *numbers, size_t n, void *ret)
{
    for (size_t i = 0; i < n; i++) {
        struct json_object *value;

        if (!json_object_object_get_ex(from, numbers[i].name, &value))
            return words_set(-EPROTO, "the daemon does not tell '%s'", numbers[i].name);
        *(uint64_t *)((char *)ret + numbers[i].offset) = json_object_get_uint64(value);
    }
    return 0;
}

static int take_figures(struct json_object *figures, struct books *ret)
{
    struct json_object *value, *drains;
    struct books books = {0};
    int r = take_numbers(figures, arena_numbers, ARRAY_SIZE(arena_numbers), &books);

    if (r < 0)
        return r;
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

int books_read(struct varlink_client *client, const char *arena, struct books *ret)
{
    _cleanup_(json_freep) struct json_object *answer = NULL;
    struct json_object *parameters, *arenas, *figures;
    char message[256];
    int r;

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

int books_read_daemon(struct varlink_client *client, struct daemon_books *ret)
{
    _cleanup_(json_freep) struct json_object *answer = NULL;
    struct json_object *parameters, *status;
    struct daemon_books books;
    int r = call(client, "{\"method\":\"org.reclaimd.Control.GetStatus\"}", &answer, &parameters);

    if (r < 0)
        return r;
    if (!json_object_object_get_ex(parameters, "status", &status))
        return words_set(-EPROTO, "the daemon's GetStatus has no 'status'");
    r = take_numbers(status, daemon_numbers, ARRAY_SIZE(daemon_numbers), &books);
    if (r >= 0)
        *ret = books;
    return r;
}

int books_set_parameter(struct varlink_client *client, const char *arena, const char *name, const char *value)
{
    _cleanup_(json_freep) struct json_object *answer = NULL;
    struct json_object *parameters;
    char message[512];

    (void)snprintf(message, sizeof(message),
                   "{\"method\":\"org.reclaimd.Control.SetParameters\","
                   "\"parameters\":{\"arena\":\"%s\",\"values\":{\"%s\":\"%s\"}}}",
                   arena, name, value);
    return call(client, message, &answer, &parameters);
}
