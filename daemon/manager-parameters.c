/* SPDX-License-Identifier: MIT */
/* How parameters reach those who go by them: at once, on armed timers too. */
#include <errno.h>
#include <grp.h>
#include <string.h>
#include <unistd.h>

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

int manager_make_configured_arenas(struct manager *m)
{
    const struct config_arenas *arenas = &m->settings->arenas;

    for (size_t i = 0; i < arenas->n; i++) {
        struct error_line why = {""};
        struct arena_request request = {
            .name = arenas->items[i].name,
            .bytes = arenas->items[i].size_bytes,
            .owner = geteuid(),
            .group = getegid(),
            .mode = 0666, /* made by whoever runs the service, for its users: a private one is made by its
                             owner */
        };
        int r;

        if (manager_arena_find(m, request.name))
            continue;
        r = manager_arena_create(m, &request, 0, NULL, &why);
        if (r < 0) {
            log_error("arena %s: %s", request.name, why.text);
            return r;
        }
    }
    return 0;
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
    r = manager_make_configured_arenas(m);
    if (r == 0)
        r = manager_visit_changes(&changes, true, visit, data);
    log_info("configuration read again, %zu values changed or kept", changes.n);
    parameter_changes_deinit(&changes);
    config_errors_deinit(&errors);
    return r;
}
