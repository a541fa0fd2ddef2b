/* SPDX-License-Identifier: MIT */
/* Starting, watching and ending the processes of a run. */
#include "crew.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/clock.h"
#include "bench/words.h"

enum {
    FINISH_TRIES = 6000, /* of 10 ms: a minute, for sanitizers on a busy machine */
    FINISH_MS = 10,
};

static int member_start(struct crew *c, struct member *m)
{
    pid_t parent = getpid();

    c->incarnations++;
    m->killed = false;
    m->pid = fork();
    if (m->pid < 0)
        return words_set(-errno, "cannot fork: %s", strerror(errno));
    if (m->pid > 0)
        return 0;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(0); /* it is too late for the signal */
    _exit(m->main(c->world, m->number, c->incarnations));
}

int crew_add(struct crew *c, const char *kind, crew_main_fn main, unsigned number, bool reckless)
{
    struct member *m = &c->members[c->n++];

    *m = (struct member){.kind = kind, .main = main, .number = number, .reckless = reckless};
    return member_start(c, m);
}

static void member_lost(struct crew *c, const struct member *m)
{
    if (c->lost && !m->reckless)
        c->lost(c, m);
}

/* What it means that a process ended so. */
static int member_judge(struct crew *c, const struct member *m, int status)
{
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && c->others_kill) {
        c->killed_by_others++;
        member_lost(c, m);
        return 0;
    }
    if (WIFSIGNALED(status) && !m->killed && !m->reckless)
        return world_fail(c->world, "%s process %u died of signal %d (%s)", m->kind, m->number,
                          WTERMSIG(status), strsignal(WTERMSIG(status)));
    if (WIFEXITED(status) && WEXITSTATUS(status) != 0)
        return world_fail(c->world, "%s process %u ended with status %d", m->kind, m->number,
                          WEXITSTATUS(status));
    if (WIFEXITED(status) && !m->reckless && !world_stops(c->world))
        return world_fail(c->world, "%s process %u ended too early", m->kind, m->number);
    return 0;
}

/* 1: it has ended, and that is as it should be; 0: it has not. */
static int member_look(struct crew *c, struct member *m)
{
    int status;

    if (m->pid <= 0)
        return 1;
    if (waitpid(m->pid, &status, WNOHANG) != m->pid)
        return 0;
    m->pid = 0;
    c->ends++;
    return member_judge(c, m, status) < 0 ? -EPROTO : 1;
}

int crew_look_after(struct crew *c)
{
    for (unsigned i = 0; i < c->n; i++) {
        int r = member_look(c, &c->members[i]);

        if (r > 0)
            r = member_start(c, &c->members[i]);
        if (r < 0)
            return r;
    }
    return 0;
}

void crew_kill(struct crew *c, struct member *m)
{
    if (m->pid <= 0)
        return;
    m->killed = true;
    (void)kill(m->pid, SIGKILL);
    (void)waitpid(m->pid, NULL, 0);
    m->pid = 0;
    c->kills++;
    member_lost(c, m);
}

int crew_finish(struct crew *c)
{
    unsigned left = c->n;
    int r = 0;

    store_relaxed(&c->world->stop, 1u); /* a moment late is harmless */
    for (unsigned i = 0; i < FINISH_TRIES && left > 0; i++) {
        left = 0;
        for (unsigned m = 0; m < c->n; m++) {
            int looked = member_look(c, &c->members[m]);

            r = looked < 0 ? looked : r;
            left += looked == 0;
        }
        if (left > 0)
            clock_sleep_ms(FINISH_MS);
    }
    if (left > 0)
        r = world_fail(c->world, "%u processes do not end", left);
    for (unsigned m = 0; m < c->n; m++)
        crew_kill(c, &c->members[m]);
    return r;
}
