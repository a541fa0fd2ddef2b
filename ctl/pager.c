/* SPDX-License-Identifier: MIT */
/*
 * The pager: only for a person at a terminal. $RECLAIMD_PAGER, else $PAGER, else less; empty or "cat" means
 * none.
 *
 * The pager is started before the verb runs and reads what it prints through a pipe, so a verb knows nothing of
 * it. A reader who leaves early ends the output, not the program: it goes on to its exit status.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "basic/cleanup.h"
#include "ctl.h"

/* Quit if it fits on a screen, leave it there, chop long lines, let nobody start a shell in it. */
static const char less_options[] = "FRSX";

/* An empty variable is a wish too: no pager. */
static const char *pager_command(void)
{
    const char *command = getenv("RECLAIMD_PAGER") ?: getenv("PAGER") ?: "less";

    return *command && strcmp(command, "cat") != 0 ? command : NULL;
}

/* The child: becomes the pager or, without it, passes on what comes. */
static void pager_run(int from, const char *command)
{
    char buffer[4096];
    ssize_t n;

    if (dup2(from, STDIN_FILENO) < 0)
        _exit(CTL_FAILED);
    (void)setenv("LESS", less_options, 0);
    (void)execlp("sh", "sh", "-c", command, NULL);
    while ((n = read(STDIN_FILENO, buffer, sizeof(buffer))) > 0)
        if (write(STDOUT_FILENO, buffer, (size_t)n) != n)
            break;
    _exit(CTL_DONE);
}

/*
 * Every way of failing here leaves the output where it was: a pager is a comfort. JSON is for machines,
 * which may have a terminal by accident.
 */
void ctl_pager_begin(struct ctl *ctl)
{
    const char *command = pager_command();
    int fds[2];

    if (ctl->no_pager || ctl->json != CTL_JSON_OFF || !command || !isatty(STDOUT_FILENO) ||
        !isatty(STDIN_FILENO))
        return;
    if (pipe2(fds, O_CLOEXEC) < 0)
        return;
    ctl->pager_pid = fork();
    if (ctl->pager_pid == 0) {
        (void)close(fds[1]);
        pager_run(fds[0], command);
    }
    (void)close(fds[0]);
    if (ctl->pager_pid > 0)
        ctl->out = fdopen(fds[1], "we") ?: stdout;
    else
        (void)close(fds[1]);
    (void)signal(SIGPIPE, SIG_IGN); /* the pager was left early: no error of ours */
    (void)signal(SIGINT, SIG_IGN);  /* it is for the pager */
}

/* Waits until the reader has left the pager: the shell's prompt belongs behind it. */
void ctl_pager_end(struct ctl *ctl)
{
    if (ctl->pager_pid <= 0)
        return;
    if (ctl->out != stdout)
        (void)fclose(ctl->out);
    ctl->out = stdout;
    (void)waitpid(ctl->pager_pid, NULL, 0);
    ctl->pager_pid = 0;
}
