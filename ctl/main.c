/* SPDX-License-Identifier: MIT */
/*
 * reclaimctl: the table of verbs. --help, the shell completion and reclaimctl(1) follow it.
 */
#include <limits.h>

#include "ctl.h"

#define ANY INT_MAX

static const struct ctl_verb verbs[] = {
    {"status", "", 0, 0, 0, verb_status, "the service and its arenas on one screen"},
    {"list-arenas", "", 0, 0, CTL_PAGER, verb_list_arenas, "a line an arena: whose it is and what it holds"},
    {"show", "ARENA", 1, 1, CTL_PAGER, verb_show, "all figures of an arena"},
    {"list-clients", "[ARENA]", 0, 1, CTL_PAGER, verb_list_clients, "the attached processes"},
    {"list-parameters", "[ARENA]", 0, 1, CTL_ARENA | CTL_PAGER, verb_list_parameters,
     "what can be set, and how it is set"},
    {"get", "NAME...", 1, ANY, CTL_ARENA, verb_get, "the values of parameters"},
    {"set", "NAME=VALUE...", 1, ANY, CTL_ARENA | CTL_DRY_RUN | CTL_PERSIST, verb_set,
     "all of them, or none if one is wrong"},
    {"reset", "NAME...", 1, ANY, CTL_ARENA | CTL_DRY_RUN | CTL_PERSIST, verb_reset,
     "back to what the files said when they were read"},
    {"create-arena", "NAME --size SIZE", 1, 1, CTL_SIZE | CTL_OWNER | CTL_GROUP | CTL_MODE | CTL_TRANSIENT,
     verb_create_arena, "of your own, unless --owner says whose"},
    {"remove-arena", "NAME", 1, 1, CTL_FORCE, verb_remove_arena,
     "refused while it has clients, unless --force"},
    {"drain", "[ARENA]", 0, 1, 0, verb_drain, "free what is pending now"},
    {"purge", "[ARENA]", 0, 1, 0, verb_purge, "give free pages back to the operating system"},
    {"synchronize", "[ARENA]", 0, 1, 0, verb_synchronize, "wait for a grace period"},
    {"barrier", "[ARENA]", 0, 1, 0, verb_barrier, "wait until all frees so far are done"},
    {"audit", "[ARENA]", 0, 1, 0, verb_audit, "check every invariant; exit 1 if one fails"},
    {"monitor", "[ARENA]", 0, 1, CTL_INTERVAL | CTL_COUNT, verb_monitor,
     "a line an interval, until interrupted"},
    {"trace", "[ARENA]", 0, 1, CTL_EVENTS, verb_trace, "a line an event, until interrupted"},
    {"evict", "CLIENT", 1, 1, CTL_KILL, verb_evict, "take a client's rights; --kill ends it"},
    {"reload", "", 0, 0, 0, verb_reload, "read the configuration files again"},
    {"introspect", "", 0, 0, CTL_PAGER, verb_introspect, "the Varlink description of the interface"},
    {"version", "", 0, 0, 0, verb_version, "of this program and of the daemon"},
    {},
};

/* Alone in this file with the table: the tests link everything else. */
int main(int argc, char **argv)
{
    return ctl_main(argc, argv, verbs);
}
