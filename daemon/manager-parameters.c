/* SPDX-License-Identifier: MIT */
/* How parameters reach those who go by them: at once, on armed timers too. */
#include <errno.h>
#include <grp.h>
#include <string.h>
#include <unistd.h>

#include "abi.h"
#include "basic/macro.h"
#include "basic/parse.h"
#include "log.h"
#include "manager-internal.h"
#include "memory.h"

/* The group is looked up when the parameter changes: a later change of the group database needs a reload. */
static gid_t group_find(const char *name)
{
    struct group *g = name[0] ? getgrnam(name) : NULL;

    return g ? g->gr_gid : (gid_t)-1;
}

void manager_apply_parameters(struct manager *m)
{
    struct arena_parameters p;

    parameters_effective_daemon(m->settings->store, &m->parameters);
    m->admin_gid = group_find(m->parameters.admin_group);
    memory_set_reserve(m->parameters.memory_reserve_percent);
    reclaimer_set_callback_limit(m->reclaimer, m->parameters.callback_limit);
    pressure_set(m->pressure, m->parameters.memory_pressure == MEMORY_PRESSURE_AUTO);
    manager_update_users(m);
    for (struct arena *a = m->arenas; a; a = a->next_arena) {
        parameters_effective_arena(m->settings->store, a->name, &p);
        if (arena_set_parameters(a, &p) < 0)
            log_error("arena %s: no memory for its parameters; it keeps the old ones", a->name);
    }
}

/* Made by whoever runs the service, for its users: a private one is made by its owner. */
static int arena_make(struct manager *m, const struct config_arena *configured, struct error_line *why)
{
    struct arena_request request = {
        .name = configured->name,
        .bytes = configured->size_bytes,
        .owner = geteuid(),
        .group = getegid(),
        .mode = 0666,
    };
    struct error_line line = {""};
    int r = manager_arena_create(m, &request, 0, NULL, &line);

    return r < 0
               ? error_line_set(why, r, "arena %s: %.*s", configured->name, ERROR_LINE_BYTES - 64, line.text)
               : 0;
}

/*
 * Tells of an arena as of a value: its size, from nothing if it was just made; kept if it is there with
 * another size, which cannot change.
 */
static int size_tell(const char *name, uint64_t old_bytes, uint64_t new_bytes, control_change_fn visit,
                     void *data)
{
    char old_text[FORMAT_BYTES] = "", new_text[FORMAT_BYTES];

    (void)format_bytes(new_bytes, new_text);
    if (old_bytes > 0)
        log_notice("arena %s: stays %s, the files say %s", name, format_bytes(old_bytes, old_text), new_text);
    return visit ? visit(data, &(struct control_change){"size", name, old_text, new_text, old_bytes > 0}) : 0;
}

int manager_make_configured_arenas(struct manager *m, control_change_fn visit, void *data,
                                   struct error_line *why)
{
    const struct config_arenas *arenas = &m->settings->arenas;
    int r = 0;

    for (size_t i = 0; i < arenas->n && r == 0; i++) {
        const struct config_arena *configured = &arenas->items[i];
        struct arena *there = manager_arena_find(m, configured->name);
        uint64_t old_bytes = there ? there->bytes : 0;

        if (old_bytes == ALIGN_UP(configured->size_bytes, ABI_CHUNK_BYTES))
            continue;
        r = there ? 0 : arena_make(m, configured, why);
        if (r == 0)
            r = size_tell(configured->name, old_bytes, configured->size_bytes, visit, data);
    }
    return r;
}

int manager_visit_changes(const struct parameter_changes *changes, bool applied, control_change_fn visit,
                          void *data)
{
    int r = 0;

    for (size_t i = 0; i < changes->n && r == 0; i++) {
        const struct parameter_change *c = &changes->items[i];
        const char *arena = c->arena[0] ? c->arena : NULL;

        if (applied && !c->kept && strcmp(c->before, c->after) != 0)
            log_info("%s%s%s: %s -> %s", arena ? arena : "", arena ? ": " : "", c->parameter->name, c->before,
                     c->after);
        r = visit ? visit(data,
                          &(struct control_change){
                              .name = c->parameter->name,
                              .arena = arena,
                              .old_value = c->before,
                              .new_value = c->after,
                              .kept = c->kept,
                          })
                  : 0;
    }
    return r;
}

int manager_reload(struct manager *m, control_change_fn visit, void *data, struct error_line *why)
{
    struct config_errors errors = {0};
    struct parameter_changes changes = {0};
    int r = settings_reload(m->settings, m->options, &changes, &errors);

    if (r < 0) {
        (void)error_line_set(why, -EINVAL, "%s%s", errors.n > 0 ? errors.lines[0] : strerror(-r),
                             errors.n + errors.n_more > 1 ? " (and more; reclaimd --check-config lists all)"
                                                          : "");
        log_error("reload failed, nothing changed: %s", why->text);
        config_errors_deinit(&errors);
        return -EINVAL;
    }
    manager_apply_parameters(m);
    r = manager_visit_changes(&changes, true, visit, data);
    if (r == 0)
        r = manager_make_configured_arenas(m, visit, data, why);
    if (r < 0)
        log_error("configuration read again, but not all of it is done: %s",
                  why->text[0] ? why->text : strerror(-r));
    else
        log_info("configuration read again, %zu value%s changed or kept", changes.n,
                 changes.n == 1 ? "" : "s");
    parameter_changes_deinit(&changes);
    config_errors_deinit(&errors);
    return r;
}
