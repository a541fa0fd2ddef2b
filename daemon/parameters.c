/* SPDX-License-Identifier: MIT */
/* The table of parameters, and finding one in it. What a value's text means is in parameter-value.c. */
#include "parameters.h"

#include <errno.h>
#include <string.h>

#include "basic/macro.h"
#include "basic/parse.h"

#define KIB(n) (UINT64_C(n) << 10)
#define MIB(n) (UINT64_C(n) << 20)
#define TIB(n) (UINT64_C(n) << 40)

/*
 * The table's columns. A macro a type keeps unit, range and field together, so that a row reads as one
 * sentence and cannot name a range in the wrong unit.
 */
#define ARENA(field) .scope = PARAMETER_SCOPE_ARENA, .offset = offsetof(struct arena_parameters, field)
#define DAEMON(field) .scope = PARAMETER_SCOPE_DAEMON, .offset = offsetof(struct daemon_parameters, field)
#define TIME(from, to) .type = PARAMETER_TIME, .unit = "", .min = (from), .max = (to)
#define SIZE(from, to) .type = PARAMETER_SIZE, .unit = "", .min = (from), .max = (to)
#define COUNT(of, from, to) .type = PARAMETER_COUNT, .unit = (of), .min = (from), .max = (to)
#define PERCENT(of, from, to) .type = PARAMETER_PERCENT, .unit = (of), .min = (from), .max = (to)
#define SHARE(of, from, to) .type = PARAMETER_SHARE, .unit = (of), .min = (from), .max = (to)
#define BOOLEAN .type = PARAMETER_BOOLEAN, .unit = "", .min = 0, .max = 1
#define CHOICE(words) .type = PARAMETER_CHOICE, .unit = "", .max = ARRAY_SIZE(words) - 2, .choices = (words)
#define GROUP .type = PARAMETER_GROUP, .unit = ""

/* The words of each choice, in its enum's order; the assertions below catch one that was forgotten. */
static const char *const gp_wait_words[] = {"poll", "callback", NULL};
static const char *const wake_from_gp_words[] = {"no", "yes", "auto", NULL};
static const char *const stall_action_words[] = {"report", "kill", NULL};
static const char *const memory_pressure_words[] = {"auto", "off", NULL};

assert_cc(ARRAY_SIZE(gp_wait_words) == GP_WAIT_MAX + 1);
assert_cc(ARRAY_SIZE(wake_from_gp_words) == WAKE_FROM_GP_MAX + 1);
assert_cc(ARRAY_SIZE(stall_action_words) == STALL_ACTION_MAX + 1);
assert_cc(ARRAY_SIZE(memory_pressure_words) == MEMORY_PRESSURE_MAX + 1);

static const struct parameter table[] = {
    /* Deferred frees: when what has gathered is drained, and how its grace period is awaited. */
    {"drain-interval", TIME(USEC_PER_MSEC, USEC_PER_HOUR), ARENA(drain_interval_usec), .default_text = "1s",
     .source = "DRAIN", .doc = "How long the first pending object waits before a drain begins."},
    {"flood-objects", COUNT("objects", 1, UINT64_C(1) << 31), ARENA(flood_objects), .default_text = "512",
     .source = "DRAIN", .doc = "With so many objects pending, drains follow flood-interval."},
    {"flood-bytes", SIZE(KIB(4), TIB(1)), ARENA(flood_bytes), .default_text = "16M", .source = "DRAIN",
     .doc = "With so many bytes pending, drains follow flood-interval; who floods may wait for a grace "
            "period to begin."},
    {"flood-interval", TIME(0, USEC_PER_SEC), ARENA(flood_interval_usec), .default_text = "1ms",
     .source = "DRAIN", .doc = "How long a drain waits once a flood is pending; 0 drains at once."},
    {"gp-wait", CHOICE(gp_wait_words), ARENA(gp_wait), .default_text = "poll", .source = "POLL",
     .doc = "Whether a batch polls its grace period or waits behind other callbacks (to compare)."},
    {"batches", COUNT("batches", 1, 64), ARENA(batches), .default_text = "2", .source = "POLL",
     .doc = "How many batches of an arena may wait for their grace periods at once."},
    {"batching", BOOLEAN, ARENA(batching), .default_text = "yes", .source = "SCALE",
     .doc = "Whether objects are freed in batches; no: a callback for each object (to compare)."},
    {"callback-limit", COUNT("entries", 1, 10000), DAEMON(callback_limit), .default_text = "10",
     .source = "SYNC", .doc = "How many callbacks a pass runs before other work has its turn."},

    /* Grace periods and those who wait for them. */
    {"wake-from-gp", CHOICE(wake_from_gp_words), ARENA(wake_from_gp), .default_text = "no", .source = "SYNC",
     .doc = "Whether synchronize is woken by the grace-period thread itself; auto: except in a flood."},
    {"wake-direct", COUNT("waiters", 0, 1000), ARENA(wake_direct), .default_text = "5", .source = "SYNC",
     .doc = "How many waiters the grace-period thread wakes before a worker does the rest."},
    {"wake-flood", COUNT("waiters", 0, 1000), ARENA(wake_flood), .default_text = "64", .source = "SYNC",
     .doc = "With so many waiters, wake-from-gp=auto turns to callbacks until all are served."},
    {"gp-first-check", TIME(0, USEC_PER_SEC), ARENA(gp_first_check_usec), .default_text = "50us",
     .source = "", .doc = "How long a grace period waits for its readers before it looks again."},
    {"gp-next-check", TIME(0, USEC_PER_SEC), ARENA(gp_next_check_usec), .default_text = "1ms", .source = "",
     .doc = "How long it waits between later looks."},
    {"expedited", BOOLEAN, ARENA(expedited), .default_text = "no", .source = "",
     .doc = "Whether every grace period is expedited: shortest wait, most processor time."},
    {"stall-timeout", TIME(100 * USEC_PER_MSEC, USEC_PER_HOUR), ARENA(stall_timeout_usec),
     .special = PARAMETER_MAY_BE_OFF, .default_text = "21s", .source = "",
     .doc = "How long one reader may delay a grace period before stall-action is taken."},
    {"stall-action", CHOICE(stall_action_words), ARENA(stall_action), .default_text = "report", .source = "",
     .doc = "Whether a client that stalls a grace period is only reported or killed."},

    /* Free pages that are still backed by memory. */
    {"purge-threshold", SIZE(0, TIB(2)), ARENA(purge_threshold_bytes), .special = PARAMETER_MAY_BE_AUTO,
     .default_text = "auto", .source = "PURGE",
     .doc = "With so many free bytes backed and not used again at once, a purge takes half; auto: 32M for "
            "each bit of the CPU count. In an arena that is smaller only purge-delay works."},
    {"purge-delay", TIME(0, USEC_PER_HOUR), ARENA(purge_delay_usec), .special = PARAMETER_MAY_BE_OFF,
     .default_text = "10s", .source = "PURGE",
     .doc = "How long free pages stay backed before a purge takes them, few as they may be."},
    {"purge-while-purging", BOOLEAN, ARENA(purge_while_purging), .default_text = "no", .source = "PURGE",
     .doc = "Whether a purge is queued although one runs: the old behaviour (to compare)."},

    /* Memory of the whole machine. */
    {"memory-pressure", CHOICE(memory_pressure_words), DAEMON(memory_pressure), .default_text = "auto",
     .source = "", .doc = "Whether shortage of memory is watched, to drain and purge at once."},
    {"memory-reserve", PERCENT("of memory", 0, 50), DAEMON(memory_reserve_percent), .default_text = "5%",
     .source = "", .doc = "The part of memory that is left alone: an allocation into it is refused."},

    /* Limits: what one client or user can take. */
    {"client-pending-max", SHARE("of the arena", KIB(4), TIB(2)), ARENA(client_pending_max),
     .default_text = "25%", .source = "",
     .doc = "How much one client may have pending before its deferred frees wait."},
    {"zero-on-free", BOOLEAN, ARENA(zero_on_free), .default_text = "no", .source = "",
     .doc = "Whether freed objects are overwritten with zeros before they can be reused."},
    {"arenas-per-user-max", COUNT("arenas", 0, 65536), DAEMON(arenas_per_user_max), .default_text = "16",
     .source = "", .doc = "How many arenas one user may make; 0: only administrators make any."},
    {"arena-size-max", SIZE(MIB(1), TIB(2)), DAEMON(arena_size_max_bytes), .default_text = "64G",
     .source = "", .doc = "The largest arena that anybody may make."},
    {"user-bytes-max", SHARE("of memory", MIB(1), TIB(64)), DAEMON(user_bytes_max), .default_text = "50%",
     .source = "", .doc = "How many bytes one user's arenas may have backed, all together."},
    {"clients-max", COUNT("clients", 1, 65536), DAEMON(clients_max), .default_text = "1024", .source = "",
     .doc = "How many clients may be attached, all arenas together."},
    {"clients-per-user-max", COUNT("clients", 1, 65536), DAEMON(clients_per_user_max), .default_text = "512",
     .source = "", .doc = "How many of them one user may have, root and the daemon's own user excepted."},
    {"lanes-max", COUNT("lanes a client", 1, 4096), DAEMON(lanes_max), .default_text = "256", .source = "",
     .doc = "How many lanes, one a thread, a client may have."},
    {"admin-group", GROUP, DAEMON(admin_group), .special = PARAMETER_MAY_BE_OFF, .default_text = "reclaimd",
     .source = "", .doc = "The group whose members may do all that root may; off: there is none."},
};

assert_cc(ARRAY_SIZE(table) == N_PARAMETERS);

const struct parameter *parameter_get(size_t i)
{
    return i < N_PARAMETERS ? &table[i] : NULL;
}

/* Only rows of the table are ever handed out, so the difference is one. */
size_t parameter_index(const struct parameter *parameter)
{
    return (size_t)(parameter - table);
}

static const char *name_get(size_t i)
{
    return i < N_PARAMETERS ? table[i].name : NULL;
}

/* Linear: a table of thirty is searched faster than anything else could be set up. */
int parameter_find(const char *name, const struct parameter **ret, struct error_line *ret_why)
{
    const char *near;

    for (size_t i = 0; i < N_PARAMETERS; i++)
        if (strcmp(table[i].name, name) == 0) {
            *ret = &table[i];
            return 0;
        }
    near = text_nearest(name, name_get);
    if (near)
        return error_line_set(ret_why, -ENOKEY, "unknown parameter '%s'; did you mean %s?",
                              text_quote(name).text, near);
    return error_line_set(ret_why, -ENOKEY, "unknown parameter '%s'; 'reclaimctl list-parameters' shows them",
                          text_quote(name).text);
}

const char *parameter_type_to_string(enum parameter_type type)
{
    static const char *const words[PARAMETER_TYPE_MAX] = {
        [PARAMETER_TIME] = "time",          [PARAMETER_SIZE] = "size",   [PARAMETER_COUNT] = "count",
        [PARAMETER_PERCENT] = "percentage", [PARAMETER_SHARE] = "share", [PARAMETER_BOOLEAN] = "boolean",
        [PARAMETER_CHOICE] = "choice",      [PARAMETER_GROUP] = "group",
    };

    return type >= 0 && type < PARAMETER_TYPE_MAX ? words[type] : NULL;
}

/* The built-in texts are checked by a test, so they cannot fail here. */
static void defaults_store(enum parameter_scope scope, void *target)
{
    for (size_t i = 0; i < N_PARAMETERS; i++)
        if (table[i].scope == scope)
            (void)parameter_set(&table[i], table[i].default_text, target, NULL);
}

void daemon_parameters_init(struct daemon_parameters *ret)
{
    memset(ret, 0, sizeof(*ret));
    defaults_store(PARAMETER_SCOPE_DAEMON, ret);
}

void arena_parameters_init(struct arena_parameters *ret)
{
    memset(ret, 0, sizeof(*ret));
    defaults_store(PARAMETER_SCOPE_ARENA, ret);
}
