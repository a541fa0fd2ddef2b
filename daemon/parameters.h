/* SPDX-License-Identifier: MIT */
/*
 * The parameters: one table says of each its name, type, range, default, scope, origin and meaning. Files,
 * --set, the control interface, help and the commented default configuration all read this table; what is not
 * in it does not exist. Values live in two plain structs, one for the daemon and one for an arena, which the
 * daemon publishes as immutable copies.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "basic/text.h"

/* Values of a time or size that may be "off" (never, no limit) or "auto" (the daemon decides). */
#define PARAMETER_OFF UINT64_MAX
#define PARAMETER_AUTO (UINT64_MAX - 1)

enum {
    N_PARAMETERS = 30,
    PARAMETER_WORD_BYTES = 33, /* a group's name: 32 characters, as useradd allows, and the NUL */
    PARAMETER_TEXT_BYTES = 64, /* any value as a user writes it */
    PARAMETER_RANGE_BYTES = 64,
};

/* How a pending batch learns that its grace period is over. */
enum gp_wait {
    GP_WAIT_POLL,     /* each page's cookie is looked at */
    GP_WAIT_CALLBACK, /* one entry in the callback FIFO frees the batch */
    GP_WAIT_MAX,
    GP_WAIT_INVALID = -1,
};

/* Who wakes those who wait in synchronize. */
enum wake_from_gp {
    WAKE_FROM_GP_NO,   /* the callback FIFO */
    WAKE_FROM_GP_YES,  /* the grace-period thread, then a worker */
    WAKE_FROM_GP_AUTO, /* yes until a flood of waiters, then no until they are served */
    WAKE_FROM_GP_MAX,
    WAKE_FROM_GP_INVALID = -1,
};

/* What is done to a client whose reader delays a grace period for stall-timeout. */
enum stall_action {
    STALL_ACTION_REPORT,
    STALL_ACTION_KILL,
    STALL_ACTION_MAX,
    STALL_ACTION_INVALID = -1,
};

/* Whether shortage of memory is watched. */
enum memory_pressure {
    MEMORY_PRESSURE_AUTO, /* by what systemd or the kernel offers */
    MEMORY_PRESSURE_OFF,
    MEMORY_PRESSURE_MAX,
    MEMORY_PRESSURE_INVALID = -1,
};

/* A part of something whose size is known later, or plain bytes. */
struct parameter_share {
    uint64_t value; /* percent or bytes */
    bool is_percent;
};

/* The bytes that a share comes to when the whole is known. */
uint64_t parameter_share_bytes(struct parameter_share share, uint64_t whole_bytes);

/* Scope A: every arena has its own, which starts as the daemon's. */
struct arena_parameters {
    uint64_t drain_interval_usec;
    uint64_t flood_objects;
    uint64_t flood_bytes;
    uint64_t flood_interval_usec;
    enum gp_wait gp_wait;
    uint64_t batches;
    bool batching;
    enum wake_from_gp wake_from_gp;
    uint64_t wake_direct;
    uint64_t wake_flood;
    uint64_t gp_first_check_usec;
    uint64_t gp_next_check_usec;
    bool expedited;
    uint64_t stall_timeout_usec; /* or PARAMETER_OFF */
    enum stall_action stall_action;
    uint64_t purge_threshold_bytes; /* or PARAMETER_AUTO */
    uint64_t purge_delay_usec;      /* or PARAMETER_OFF */
    bool purge_while_purging;
    struct parameter_share client_pending_max; /* of the arena */
    bool zero_on_free;
};

/* Scope D: one for the whole daemon. */
struct daemon_parameters {
    uint64_t callback_limit;
    enum memory_pressure memory_pressure;
    uint64_t memory_reserve_percent;
    uint64_t arenas_per_user_max;
    uint64_t arena_size_max_bytes;
    struct parameter_share user_bytes_max; /* of memory */
    uint64_t clients_max;
    uint64_t clients_per_user_max;
    uint64_t lanes_max;
    char admin_group[PARAMETER_WORD_BYTES]; /* empty: off */
};

enum parameter_type {
    PARAMETER_TIME,    /* uint64_t, microseconds */
    PARAMETER_SIZE,    /* uint64_t, bytes */
    PARAMETER_COUNT,   /* uint64_t */
    PARAMETER_PERCENT, /* uint64_t */
    PARAMETER_SHARE,   /* struct parameter_share: 1..100 % or min..max bytes */
    PARAMETER_BOOLEAN, /* bool */
    PARAMETER_CHOICE,  /* an enum, whose words are in `choices` */
    PARAMETER_GROUP,   /* char[PARAMETER_WORD_BYTES] */
    PARAMETER_TYPE_MAX,
    PARAMETER_TYPE_INVALID = -1,
};

/* "time", "size", ...: for the control interface. */
const char *parameter_type_to_string(enum parameter_type type);

enum parameter_scope {
    PARAMETER_SCOPE_DAEMON, /* offset is into struct daemon_parameters */
    PARAMETER_SCOPE_ARENA,  /* offset is into struct arena_parameters */
};

/* Words that a parameter takes besides its type's values. */
enum parameter_special {
    PARAMETER_MAY_BE_OFF = 1 << 0,
    PARAMETER_MAY_BE_AUTO = 1 << 1,
};

/* One row of the table. Rows live as long as the program; their address is their identity. */
struct parameter {
    const char *name;
    const char *unit; /* what a bare number counts; "" where the value says it itself */
    enum parameter_type type;
    enum parameter_scope scope;
    unsigned special;
    uint64_t min, max;
    const char *const *choices; /* NULL-terminated, in the enum's order */
    const char *default_text;
    const char *source; /* the mechanism it belongs to (POLL, DRAIN, SCALE, SYNC, PURGE), or "" */
    const char *doc;    /* one sentence */
    size_t offset;
};

/* The i-th row, in the order of the documentation; NULL from N_PARAMETERS on. */
const struct parameter *parameter_get(size_t i);

/* The inverse of parameter_get(). */
size_t parameter_index(const struct parameter *parameter);

/* The row of that name, or -ENOKEY: "unknown parameter 'drain-intervall'; did you mean drain-interval?" */
int parameter_find(const char *name, const struct parameter **ret, struct error_line *ret_why);

/* "1ms..1h", "100ms..1h or off", "poll, callback", "1%..100% or 4K..2T". */
char *parameter_range_format(const struct parameter *parameter, char ret[static PARAMETER_RANGE_BYTES]);

/* Any one value, whatever its type: what layers store. */
struct parameter_value {
    uint64_t number; /* usec, bytes, count, percent, boolean, index of the choice, PARAMETER_OFF or _AUTO */
    bool is_percent;
    char word[PARAMETER_WORD_BYTES];
};

/* -EINVAL or -ERANGE: "drain-interval: '5us' is below 1ms; range 1ms..1h". */
int parameter_value_parse(const struct parameter *parameter, const char *text, struct parameter_value *ret,
                          struct error_line *ret_why);

/* As a user would write it; parameter_value_parse() reads it back. */
char *parameter_value_format(const struct parameter *parameter, const struct parameter_value *value,
                             char ret[static PARAMETER_TEXT_BYTES]);

/* Into or out of the struct that the parameter's scope names. */
void parameter_value_store(const struct parameter *parameter, const struct parameter_value *value,
                           void *target);
void parameter_value_load(const struct parameter *parameter, const void *from, struct parameter_value *ret);

/* Sets one field from text; the struct is as before on failure. */
int parameter_set(const struct parameter *parameter, const char *text, void *target,
                  struct error_line *ret_why);

/* One field as text. */
char *parameter_format(const struct parameter *parameter, const void *from,
                       char ret[static PARAMETER_TEXT_BYTES]);

/* The built-in values. */
void daemon_parameters_init(struct daemon_parameters *ret);
void arena_parameters_init(struct arena_parameters *ret);
