/* SPDX-License-Identifier: MIT */
/* Entries, rounds, and one process for each run. */
#include "compare.h"

#include <errno.h>
#include <ftw.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "basic/cleanup.h"
#include "clock.h"
#include "words.h"

enum {
    LEFTOVER_TRIES = 2000, /* of 5 ms: a daemon whose run was killed gets SIGTERM from the kernel, and ends */
    BAR_CELLS = 30,
};

static volatile sig_atomic_t interrupted; /* by SIGINT or SIGTERM */

static void note_signal(int number)
{
    interrupted = number;
}

/* Not every backend has something to measure in every test. */
static bool test_has_backend(const struct bench_test *test, const char *name)
{
    for (size_t i = 0; test->backends[i]; i++)
        if (strcmp(test->backends[i], name) == 0)
            return true;
    return false;
}

static int refuse_backend(const struct comparison *c, const char *name, char *message, size_t size)
{
    size_t used = (size_t)snprintf(message, size, "%s: test %s has no such backend; one of", name,
                                   test_to_string(c->options->test));

    for (size_t i = 0; c->test->backends[i] && used < size; i++)
        used += (size_t)snprintf(message + used, size - used, "%s %s", i ? "," : "", c->test->backends[i]);
    return -EINVAL;
}

/* The label is what tells it from the others: the backend, the setting, or both when both vary. */
static int add_entry(struct comparison *c, const char *backend, const char *setting, char *message,
                     size_t size)
{
    struct entry *e = &c->entries[c->n_entries];

    if (c->n_entries == ENTRIES_MAX) {
        (void)snprintf(message, size, "more than %d backends and settings to compare", ENTRIES_MAX);
        return -EINVAL;
    }
    if (snprintf(e->setting, sizeof(e->setting), "%s", setting) >= (int)sizeof(e->setting)) {
        (void)snprintf(message, size, "--compare-set: a value is too long");
        return -EINVAL;
    }
    (void)snprintf(e->backend, sizeof(e->backend), "%s", backend);
    (void)snprintf(e->label, sizeof(e->label), "%s", !*setting ? backend : setting);
    if (*setting && c->options->compare)
        (void)snprintf(e->label, sizeof(e->label), "%s %s", backend, setting);
    c->n_entries++;
    return 0;
}

/* One backend: with each setting if it is the daemon's, once if it is not. */
static int add_backend(struct comparison *c, const char *backend, char *message, size_t size)
{
    const char *set = run_uses_daemon(backend) ? c->options->compare_set : NULL;
    _cleanup_free_ char *values = set ? strdup(strchr(set, '=') + 1) : NULL;
    char *rest = values, *value;

    if (!test_has_backend(c->test, backend))
        return refuse_backend(c, backend, message, size);
    if (!set)
        return add_entry(c, backend, "", message, size);
    while ((value = strsep(&rest, ","))) {
        char setting[sizeof(c->entries[0].setting)];
        int r;

        if (!*value) {
            (void)snprintf(message, size, "--compare-set %s: an empty value", set);
            return -EINVAL;
        }
        (void)snprintf(setting, sizeof(setting), "%.*s%s", (int)(strchr(set, '=') + 1 - set), set, value);
        r = add_entry(c, backend, setting, message, size);
        if (r < 0)
            return r;
    }
    return 0;
}

/* In the order typed: the first is what the others are compared with. */
static int add_all(struct comparison *c, char *message, size_t size)
{
    _cleanup_free_ char *names = strdup(c->options->compare   ? c->options->compare
                                        : c->options->backend ? c->options->backend
                                                              : c->test->backends[0]);
    char *rest = names, *name;

    if (!names)
        return -ENOMEM;
    while ((name = strsep(&rest, ","))) {
        int r = add_backend(c, name, message, size);

        if (r < 0)
            return r;
    }
    return 0;
}

int comparison_init(struct comparison *c, const struct bench_options *options, const struct bench_test *test,
                    char *message, size_t size)
{
    int r;

    *c = (struct comparison){.options = options, .test = test, .n_runs = options->n_runs};
    r = add_all(c, message, size);
    for (size_t i = 0; r >= 0 && i < c->n_entries; i++) {
        c->entries[i].runs = calloc(c->n_runs, sizeof(struct figures));
        if (!c->entries[i].runs) {
            (void)snprintf(message, size, "no memory for the figures of %zu runs", c->n_runs);
            r = -ENOMEM;
        }
    }
    if (r < 0)
        comparison_deinit(c);
    return r;
}

void comparison_deinit(struct comparison *c)
{
    for (size_t i = 0; i < c->n_entries; i++) {
        free(c->entries[i].runs);
        c->entries[i].runs = NULL;
    }
    c->n_entries = 0;
}

size_t entry_settings(const struct comparison *c, const struct entry *e,
                      const char *ret[static SETTINGS_MAX + 1])
{
    size_t n = 0;

    if (!run_uses_daemon(e->backend))
        return 0;
    for (; n < c->options->n_settings; n++)
        ret[n] = c->options->settings[n];
    if (*e->setting)
        ret[n++] = e->setting;
    return n;
}

/* A private one unless a folder was said, none for a backend that works within its process. */
static int start_service(const struct comparison *c, const struct entry *e, struct bench_run *run)
{
    const char *settings[SETTINGS_MAX + 1];
    size_t n_settings = entry_settings(c, e, settings);

    if (!run_uses_daemon(e->backend))
        return 0;
    if (c->options->runtime_directory)
        return service_find(&run->service, c->options->runtime_directory);
    return service_start(&run->service, run->directory, settings, n_settings);
}

/* In the run's process. The exit status says whether the figures are whole; why not is in the words. */
static void run_main(const struct comparison *c, const struct entry *e, struct figures *figures,
                     const char *directory)
{
    static struct bench_run run; /* large, and of this process only */
    int r;

    (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
    (void)signal(SIGINT, SIG_IGN); /* our parent hears it, and ends us */
    (void)signal(SIGTERM, SIG_DFL);
    run = (struct bench_run){
        .options = c->options, .backend = e->backend, .directory = directory, .figures = figures};
    (void)snprintf(run.arena, sizeof(run.arena), "reclaim-scale.%d", (int)getpid());
    r = start_service(c, e, &run);
    if (r >= 0)
        r = c->test->run(&run);
    if (r >= 0 && c->n_entries == 1 && c->n_runs == 1)
        c->test->print(&run);
    (void)fflush(stdout);
    service_stop(&run.service);
    if (r < 0)
        (void)words_set(r, "test %s, backend %s: %s", test_to_string(c->options->test), e->backend,
                        strerror(-r));
    _exit(r < 0 ? EXIT_FAILURE : EXIT_SUCCESS);
}

/* We adopt whatever a killed run leaves: the kernel ends it, and its folder must be unused before it goes. */
static void reap_leftovers(void)
{
    for (unsigned i = 0; i < LEFTOVER_TRIES; i++) {
        pid_t pid = waitpid(-1, NULL, WNOHANG);

        if (pid < 0)
            return;
        if (pid == 0)
            clock_sleep_ms(5);
    }
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *where)
{
    (void)remove(path);
    return 0;
}

/* The private folder and all in it: the daemon's sockets and log, whatever a peer keeps there. */
static void remove_directory(const char *directory)
{
    (void)nftw(directory, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
    if (access(directory, F_OK) == 0)
        (void)fprintf(stderr, "reclaim-scale: cannot remove %s\n", directory);
}

/* Ctrl-C is passed on once; then the run's process ends, and with it, by the kernel, all that it started. */
static int wait_run(pid_t pid)
{
    bool told = false;
    int status;

    while (waitpid(pid, &status, 0) < 0) {
        if (errno != EINTR)
            return words_set(-errno, "waiting for a run: %s", strerror(errno));
        if (interrupted && !told)
            told = kill(pid, SIGTERM) == 0;
    }
    reap_leftovers();
    if (interrupted)
        return words_set(-EINTR, "interrupted");
    if (WIFSIGNALED(status))
        return words_set(-ECHILD, "a run died of signal %d", WTERMSIG(status));
    return WEXITSTATUS(status) == EXIT_SUCCESS ? 0 : words_set(-ECANCELED, "a run failed");
}

/* A fresh folder, a fresh process: nothing of one run is there in the next. */
static int run_once(const struct comparison *c, const struct entry *e, struct figures *shared)
{
    const char *tmp = getenv("TMPDIR");
    char directory[128];
    pid_t pid;
    int r;

    (void)snprintf(directory, sizeof(directory), "%s/reclaim-scale-XXXXXX", tmp && *tmp ? tmp : "/tmp");
    if (!mkdtemp(directory))
        return words_set(-errno, "cannot make %s: %s", directory, strerror(errno));
    *shared = (struct figures){0};
    (void)fflush(NULL);
    pid = fork();
    if (pid == 0)
        run_main(c, e, shared, directory);
    r = pid < 0 ? words_set(-errno, "cannot fork: %s", strerror(errno)) : wait_run(pid);
    remove_directory(directory);
    return r;
}

/* On a terminal only, and gone when all is done. */
static void show_progress(size_t done, size_t all, const char *label)
{
    int filled = (int)(done * BAR_CELLS / all);

    if (!isatty(STDERR_FILENO) || all == 1)
        return;
    if (done == all)
        (void)fprintf(stderr, "\r\033[K");
    else
        (void)fprintf(stderr, "\r\033[K[%.*s%*s] %zu/%zu %.40s", filled, "##############################",
                      BAR_CELLS - filled, "", done, all, label);
    (void)fflush(stderr);
}

/* Round 0 of a comparison is the warm-up: the same runs, whose figures are dropped. */
static int run_rounds(struct comparison *c, struct figures *shared)
{
    size_t warm_up = c->n_entries > 1 || c->n_runs > 1, n_rounds = c->n_runs + warm_up, done = 0;

    for (size_t round = 0; round < n_rounds; round++) {
        for (size_t i = 0; i < c->n_entries; i++) {
            struct entry *e = &c->entries[i];
            int r;

            show_progress(done++, n_rounds * c->n_entries, e->label);
            r = run_once(c, e, shared);
            if (r < 0)
                return r;
            if (round >= warm_up)
                e->runs[round - warm_up] = *shared;
        }
    }
    show_progress(done, done, "");
    return 0;
}

int comparison_run(struct comparison *c)
{
    struct sigaction note = {.sa_handler = note_signal}; /* no SA_RESTART: waitpid() is to notice */
    struct figures *shared = team_share(sizeof(*shared));
    int r = words_init();

    if (r < 0 || !shared)
        return words_set(-ENOMEM, "no memory for the figures");
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
    (void)sigaction(SIGINT, &note, NULL);
    (void)sigaction(SIGTERM, &note, NULL);
    return run_rounds(c, shared);
}
