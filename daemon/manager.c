/* SPDX-License-Identifier: MIT */
/* The manager: makes the parts in order, runs the main thread, takes them apart in the reverse order. */
#include "manager.h"

#include <errno.h>
#include <event2/event.h>
#include <malloc.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <systemd/sd-daemon.h>

#include "basic/cleanup.h"
#include "basic/macro.h"
#include "clock.h"
#include "log.h"
#include "manager-internal.h"
#include "memory.h"

#define WORKERS_MOST                                                                                         \
    4u /* a nanosecond an object: more arenas than that seldom need the processor at once   \
                         */

struct reclaimer *manager_reclaimer(struct manager *m)
{
    return m->reclaimer;
}

struct grace *manager_grace(struct manager *m)
{
    return m->grace;
}

struct callbacks *manager_callbacks(struct manager *m)
{
    return m->callbacks;
}

struct mainqueue *manager_mainqueue(struct manager *m)
{
    return m->mainqueue;
}

struct purger *manager_purger(struct manager *m)
{
    return m->purger;
}

struct event_base *manager_event_base(struct manager *m)
{
    return m->base;
}

const struct daemon_parameters *manager_parameters(struct manager *m)
{
    return &m->parameters;
}

uint64_t manager_purge_threshold(struct manager *m)
{
    return purge_threshold_auto(m->n_cpus);
}

/* ---- Events ---- */

static void end_event(evutil_socket_t signal_number, short what, void *userdata)
{
    struct manager *m = userdata;

    (void)what;
    log_info("%s: stopping", sigabbrev_np((int)signal_number));
    m->stopping = true;
    (void)sd_notify(false, "STOPPING=1");
    (void)event_base_loopbreak(m->base);
}

static void reload_event(evutil_socket_t signal_number, short what, void *userdata)
{
    struct error_line why = {""};

    (void)signal_number;
    (void)what;
    (void)sd_notifyf(false, "RELOADING=1\nMONOTONIC_USEC=%llu", (unsigned long long)now_usec());
    (void)manager_reload(userdata, NULL, NULL, &why); /* it logs */
    (void)sd_notify(false, "READY=1");
}

static void watchdog_event(evutil_socket_t fd, short what, void *userdata)
{
    (void)fd;
    (void)what;
    (void)userdata;
    (void)sd_notify(false, "WATCHDOG=1");
}

/* Memory is short: every arena gives back what it can. */
static void pressure_act(void *userdata)
{
    struct manager *m = userdata;

    for (struct arena *a = m->arenas; a; a = a->next_arena)
        arena_relieve(a);
    (void)malloc_trim(0);
}

static int manager_watch_signals(struct manager *m)
{
    (void)signal(SIGPIPE, SIG_IGN); /* a peer that is gone is an error of its connection, no end of ours */
    m->signals[0] = evsignal_new(m->base, SIGTERM, end_event, m);
    m->signals[1] = evsignal_new(m->base, SIGINT, end_event, m);
    m->signals[2] = evsignal_new(m->base, SIGHUP, reload_event, m);
    for (int i = 0; i < MANAGER_SIGNALS; i++)
        if (!m->signals[i] || event_add(m->signals[i], NULL) < 0)
            return -ENOMEM;
    return 0;
}

/* One wake-up each half of WatchdogSec; none without. */
static int manager_start_watchdog(struct manager *m)
{
    struct timeval half;
    uint64_t usec;

    if (sd_watchdog_enabled(false, &usec) <= 0)
        return 0;
    half = (struct timeval){.tv_sec = (time_t)(usec / 2 / 1000000),
                            .tv_usec = (suseconds_t)(usec / 2 % 1000000)};
    m->watchdog = event_new(m->base, -1, EV_PERSIST, watchdog_event, m);
    return m->watchdog && event_add(m->watchdog, &half) == 0 ? 0 : -ENOMEM;
}

/* ---- Life ---- */

/* A worker for each processor that we may use, whoever limits them: taskset, CPUAffinity=, a container. */
static unsigned n_workers(const struct manager *m)
{
    unsigned n = m->n_cpus;
    cpu_set_t usable;

    if (sched_getaffinity(0, sizeof(usable), &usable) == 0)
        n = (unsigned)CPU_COUNT(&usable);
    return MIN(MAX(n, 1u), WORKERS_MOST);
}

static int manager_start_threads(struct manager *m)
{
    sigset_t all, before;
    int r;

    (void)sigfillset(&all); /* signals are the main thread's */
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    r = reclaimer_new(n_workers(m), m->callbacks, &m->reclaimer);
    if (r == 0)
        r = grace_new(m->reclaimer, m->callbacks, &m->grace);
    if (r == 0)
        r = purger_new(&m->purger);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return r;
}

static int manager_open_sockets(struct manager *m, struct error_line *why)
{
    int r = sockets_open(m->options->runtime_directory, &m->sockets, why);

    if (r < 0)
        return r;
    r = control_listen(m->control, m->sockets.control_fd);
    if (r < 0)
        return r;
    (void)steal_fd(&m->sockets.control_fd);
    r = connections_listen(m->connections, m->sockets.client_fd);
    if (r < 0)
        return r;
    (void)steal_fd(&m->sockets.client_fd);
    return 0;
}

/* `why` stays as it is where an error has no words but its own. */
static int manager_init(struct manager *m, struct error_line *why)
{
    int r;

    m->base = event_base_new();
    m->callbacks = aligned_alloc(CACHE_LINE_BYTES, ALIGN_UP(sizeof(*m->callbacks), CACHE_LINE_BYTES));
    if (!m->base || !m->callbacks)
        return -ENOMEM;
    callbacks_init(m->callbacks);
    if (!grace_has_membarrier())
        log_warning("membarrier is not available: every reader fences, which costs it tens of nanoseconds");
    r = mainqueue_new(m->base, &m->mainqueue);
    if (r == 0)
        r = manager_start_threads(m);
    if (r == 0)
        r = pressure_new(m->base, pressure_act, m, &m->pressure);
    if (r == 0)
        r = control_new(m->base, &manager_control_ops, m, &m->control);
    if (r == 0)
        r = connections_new(m, &m->connections);
    if (r == 0)
        r = manager_watch_signals(m);
    if (r < 0)
        return r;
    manager_apply_parameters(m);
    r = manager_open_sockets(m, why);
    if (r == 0)
        r = manager_make_configured_arenas(m, NULL, NULL, why);
    return r;
}

int manager_new(const struct options *options, struct settings *settings, struct manager **ret)
{
    struct manager *m = calloc(1, sizeof(*m));
    struct error_line why = {""};
    int r;

    if (!m)
        return -ENOMEM;
    m->options = options;
    m->settings = settings;
    m->sockets = (struct sockets){.control_fd = -EBADF, .client_fd = -EBADF, .lock_fd = -EBADF};
    m->n_cpus = (unsigned)sysconf(_SC_NPROCESSORS_ONLN);
    m->memory_bytes = memory_total_bytes();
    m->started_usec = clock_usec(CLOCK_REALTIME);
    m->begun_usec = now_usec();
    urcu_memb_register_thread();
    r = manager_init(m, &why);
    if (r < 0) {
        log_error("cannot start: %s", why.text[0] ? why.text : strerror(-r));
        (void)manager_free(m);
        return r;
    }
    *ret = m;
    return 0;
}

int manager_run(struct manager *m)
{
    int r = manager_start_watchdog(m);

    if (r < 0)
        return r;
    log_info("version %s, serving %s", RECLAIMD_VERSION,
             m->sockets.made ? m->sockets.paths.directory : "the service manager's sockets");
    (void)sd_notify(false, "READY=1\nSTATUS=Serving");
    return event_base_dispatch(m->base) < 0 ? -EIO : 0;
}

static void manager_free_arenas(struct manager *m)
{
    struct arena *a;

    while ((a = m->arenas)) {
        m->arenas = a->next_arena;
        arena_drop_pages(a); /* they charge clients, who hold arenas */
        arena_unref(a);
    }
    urcu_memb_barrier(); /* clients freed by call_rcu drop their arenas */
    mainqueue_flush(m->mainqueue);
    urcu_memb_barrier();
}

struct manager *manager_free(struct manager *m)
{
    if (!m)
        return NULL;
    if (m->control)
        m->control = control_free(m->control);
    if (m->reclaimer)
        reclaimer_stop(m->reclaimer); /* workers ask the grace-period thread, so they go first */
    if (m->grace)
        grace_stop(m->grace);
    if (m->reclaimer)
        reclaimer_flush(m->reclaimer); /* .. and it leaves waiters to them */
    m->purger = purger_free(m->purger);
    m->pressure = pressure_free(m->pressure);
    for (struct arena *a = m->arenas; a; a = a->next_arena)
        arena_abandon(a);
    if (m->grace)
        grace_drop_looks(m->grace); /* before manager_free_arenas() waits for those who free clients */
    if (m->mainqueue)
        mainqueue_flush(m->mainqueue);
    m->connections = connections_free(m->connections);
    if (m->mainqueue)
        manager_free_arenas(m);
    m->grace = grace_free(m->grace);
    m->reclaimer = reclaimer_free(m->reclaimer);
    m->mainqueue = mainqueue_free(m->mainqueue);
    for (int i = 0; i < MANAGER_SIGNALS; i++)
        if (m->signals[i])
            event_free(m->signals[i]);
    if (m->watchdog)
        event_free(m->watchdog);
    sockets_close(&m->sockets);
    for (struct user *u = m->users, *next; u; u = next) {
        next = u->next;
        free(u);
    }
    free(m->callbacks);
    if (m->base)
        event_base_free(m->base);
    urcu_memb_unregister_thread();
    free(m);
    return NULL;
}
