/* SPDX-License-Identifier: MIT */
/*
 * reclaimctl: what its verbs share. It renders what the interface org.reclaimd.Control returns and knows
 * nothing else of the daemon.
 *
 * A verb returns an exit status. Whatever fails says so itself, in one line on standard error, by ctl_fail()
 * or ctl_usage(), so that nothing is said twice and nothing fails in silence.
 */
#pragma once

#include <json-c/json.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "basic/macro.h"
#include "basic/parse.h"
#include "basic/runtime.h"

#define CTL_INTERFACE "org.reclaimd.Control"

enum ctl_status {
    CTL_DONE = 0,
    CTL_FAILED = 1,
    CTL_USAGE = 2, /* the command line makes no sense */
};

enum ctl_json {
    CTL_JSON_OFF,
    CTL_JSON_SHORT,  /* one line */
    CTL_JSON_PRETTY, /* indented */
};

/* Options that go with some verbs only; the others go with all. */
enum ctl_option {
    CTL_ARENA = 1 << 0,
    CTL_DRY_RUN = 1 << 1,
    CTL_PERSIST = 1 << 2,
    CTL_FORCE = 1 << 3,
    CTL_KILL = 1 << 4,
    CTL_SIZE = 1 << 5,
    CTL_OWNER = 1 << 6,
    CTL_GROUP = 1 << 7,
    CTL_MODE = 1 << 8,
    CTL_TRANSIENT = 1 << 9,
    CTL_INTERVAL = 1 << 10,
    CTL_COUNT = 1 << 11,
    CTL_EVENTS = 1 << 12,
    CTL_PAGER = 1 << 13, /* no option: the verb may print more than a screen */
};

struct varlink_client;

struct ctl {
    char control_path[RUNTIME_PATH_BYTES];
    struct varlink_client *client; /* connected by the first call */
    FILE *out;                     /* standard output or a pager */
    int pager_pid;
    enum ctl_json json;
    bool no_legend, no_pager;
    unsigned given; /* enum ctl_option */
    const char *arena, *size, *owner, *group, *mode, *interval, *count, *events;
};

struct ctl_verb {
    const char *name;
    const char *arguments; /* for the usage: "NAME=VALUE..." */
    int min, max;          /* number of arguments */
    unsigned options;
    int (*run)(struct ctl *ctl, int argc, char **argv); /* arguments without the verb, and a NULL */
    const char *help;
};

/* Everything but the table of verbs, which ends with one without a name. The exit status of the program. */
int ctl_main(int argc, char **argv, const struct ctl_verb *verbs);

/* "reclaimctl: ..." on standard error. They return CTL_FAILED and CTL_USAGE. */
int ctl_fail(const char *format, ...) _printf_(1, 2);
int ctl_usage(const char *format, ...) _printf_(1, 2);

/* A pager if there is a terminal and nobody objects; else nothing happens. */
void ctl_pager_begin(struct ctl *ctl);
void ctl_pager_end(struct ctl *ctl);

/* Calls (call.c). They take `parameters`, which may be NULL, and print what goes wrong. */

/* CTL_DONE and the parameters of the answer, which the caller puts. */
int ctl_call(struct ctl *ctl, const char *method, struct json_object *parameters, struct json_object **ret);

/* Several replies: each() gets the parameters of each; when it does not return CTL_DONE, that is the end. */
typedef int (*ctl_reply_fn)(struct ctl *ctl, struct json_object *parameters, void *data);
int ctl_call_more(struct ctl *ctl, const char *method, struct json_object *parameters, ctl_reply_fn each,
                  void *data);

/* A list that comes in one reply or several: the array under that name, which the caller puts. */
int ctl_call_list(struct ctl *ctl, const char *method, struct json_object *parameters, const char *name,
                  struct json_object **ret);

/* {} with one member; the value may be NULL, then it has none. */
struct json_object *ctl_object(const char *name, const char *value);

/* Reading replies: a path is members and indices, "figures/drains/full". What is not there is 0 or "". */
struct json_object *ctl_at(struct json_object *o, const char *path);
uint64_t ctl_number(struct json_object *o, const char *path);
const char *ctl_text(struct json_object *o, const char *path);
bool ctl_boolean(struct json_object *o, const char *path);

/* As JSON if that is asked for: true, and the verb has nothing more to print. */
bool ctl_print_json(struct ctl *ctl, struct json_object *o);

/* Words for figures (render.c) */

/* "1.5ms", "2min 5s": for reading, never more than two units. */
char *ctl_duration(uint64_t usec, char ret[static FORMAT_BYTES]);

/* "2024-05-04 12:00:00", local time; "-" for 0. */
char *ctl_time(uint64_t usec, char ret[static FORMAT_BYTES]);

/* The user's or group's name, or its number. */
char *ctl_user(uint64_t uid, char ret[static FORMAT_BYTES]);
char *ctl_group(uint64_t gid, char ret[static FORMAT_BYTES]);

/* "1 object", "2 objects" */
char *ctl_count(uint64_t n, const char *one, const char *many, char ret[static FORMAT_BYTES]);

/* Verbs, by file */
int verb_status(struct ctl *ctl, int argc, char **argv);
int verb_list_arenas(struct ctl *ctl, int argc, char **argv);
int verb_show(struct ctl *ctl, int argc, char **argv);
int verb_list_clients(struct ctl *ctl, int argc, char **argv);
int verb_list_parameters(struct ctl *ctl, int argc, char **argv);
int verb_get(struct ctl *ctl, int argc, char **argv);
int verb_set(struct ctl *ctl, int argc, char **argv);
int verb_reset(struct ctl *ctl, int argc, char **argv);
int verb_create_arena(struct ctl *ctl, int argc, char **argv);
int verb_remove_arena(struct ctl *ctl, int argc, char **argv);
int verb_drain(struct ctl *ctl, int argc, char **argv);
int verb_purge(struct ctl *ctl, int argc, char **argv);
int verb_synchronize(struct ctl *ctl, int argc, char **argv);
int verb_barrier(struct ctl *ctl, int argc, char **argv);
int verb_audit(struct ctl *ctl, int argc, char **argv);
int verb_monitor(struct ctl *ctl, int argc, char **argv);
int verb_trace(struct ctl *ctl, int argc, char **argv);
int verb_evict(struct ctl *ctl, int argc, char **argv);
int verb_reload(struct ctl *ctl, int argc, char **argv);
int verb_introspect(struct ctl *ctl, int argc, char **argv);
int verb_version(struct ctl *ctl, int argc, char **argv);
