/* SPDX-License-Identifier: MIT */
/* Starting, finding and ending the daemon. */
#include "service.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "basic/cleanup.h"
#include "clock.h"
#include "options.h"
#include "words.h"

enum {
    START_TRIES = 2000, /* of 5 ms: ten seconds, for a machine that is busy with other things */
    TRY_MS = 5,
    STOP_TRIES = 2000,
    PROGRAM_BYTES = 4096,
    ARGUMENTS_MAX = 4 + 2 * (SETTINGS_MAX + 1), /* --set as often as may be, and one of --compare-set */
};

/* $RECLAIMD, else the one of this build. false: look in PATH. */
static bool find_program(char path[static PROGRAM_BYTES])
{
    const char *said = getenv("RECLAIMD");
    char self[PROGRAM_BYTES - 64];
    ssize_t n;
    char *slash;

    if (said && *said) {
        (void)snprintf(path, PROGRAM_BYTES, "%s", said);
        return true;
    }
    n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (n <= 0)
        return false;
    self[n] = '\0';
    slash = strrchr(self, '/');
    *slash = '\0';
    (void)snprintf(path, PROGRAM_BYTES, "%s/../../daemon/reclaimd", self);
    return access(path, X_OK) == 0;
}

static void add_settings(const char *arguments[static ARGUMENTS_MAX], size_t n, const char *const *settings,
                         size_t n_settings)
{
    for (size_t i = 0; i < n_settings; i++) {
        arguments[n++] = "--set";
        arguments[n++] = settings[i];
    }
    arguments[n] = NULL;
}

_Noreturn static void exec_program(const char *const *arguments)
{
    char program[PROGRAM_BYTES];

    if (find_program(program))
        (void)execv(program, (char *const *)arguments);
    else
        (void)execvp("reclaimd", (char *const *)arguments);
    _exit(127);
}

/* In the child. Its log goes to a file, as a run's table should stay readable; -errno of exec is the exit
 * status. */
static void exec_daemon(const struct service *s, const char *const *settings, size_t n_settings)
{
    const char *arguments[ARGUMENTS_MAX] = {"reclaimd", "--runtime-directory", s->paths.directory};
    int fd = open(s->log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);

    add_settings(arguments, 3, settings, n_settings);
    if (fd < 0 || dup2(fd, STDOUT_FILENO) < 0 || dup2(fd, STDERR_FILENO) < 0)
        _exit(126);
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
    (void)signal(SIGINT, SIG_IGN); /* a terminal's Ctrl-C is for us; we end the daemon */
    exec_program(arguments);
}

/* Connects, for a moment. The pid of whoever listens, or -errno. */
static pid_t ask_pid(const char *path, int type)
{
    _cleanup_close_ int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    socklen_t size = sizeof(struct ucred);
    struct ucred peer;

    if (fd < 0)
        return -errno;
    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    if (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ||
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0)
        return -errno;
    return peer.pid;
}

/* The last line that the daemon wrote, without its newline; what its --help is for is no reason. */
static void last_line(FILE *f, char *line, size_t size)
{
    char next[300];

    line[0] = '\0';
    while (f && fgets(next, sizeof(next), f)) {
        next[strcspn(next, "\n")] = '\0';
        if (*next && strncmp(next, "Try ", 4) != 0)
            (void)snprintf(line, size, "%s", next);
    }
}

/* Why it ended: its own last line, if it has one. */
static int explain_end(struct service *s, int status)
{
    _cleanup_fclose_ FILE *f = fopen(s->log, "re");
    char line[300];

    s->pid = 0;
    last_line(f, line, sizeof(line));
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127 && !*line)
        return words_set(-ENOENT, "no reclaimd to start: set RECLAIMD to its path, or build daemon/reclaimd");
    return words_set(-ECHILD, "reclaimd ended as it started: %s", *line ? line : "it said nothing");
}

/* Until both sockets are there and somebody answers, or it has ended. */
static int wait_ready(struct service *s)
{
    for (unsigned i = 0; i < START_TRIES; i++) {
        int status;

        if (waitpid(s->pid, &status, WNOHANG) == s->pid)
            return explain_end(s, status);
        if (ask_pid(s->paths.client, SOCK_SEQPACKET) >= 0 && ask_pid(s->paths.control, SOCK_STREAM) >= 0)
            return 0;
        clock_sleep_ms(TRY_MS);
    }
    return words_set(-ETIMEDOUT, "reclaimd runs, but nobody answers on %s", s->paths.control);
}

/* The sockets are where daemon, control tool and library look for them. */
static int set_paths(struct service *s, const char *directory)
{
    struct error_line line;
    int r = runtime_paths_find(directory, &s->paths);

    if (r < 0) {
        runtime_error_describe(r, &line);
        return words_set(r, "%s: %s", directory, line.text);
    }
    (void)snprintf(s->log, sizeof(s->log), "%s/log", s->paths.directory);
    return 0;
}

int service_start(struct service *s, const char *directory, const char *const *settings, size_t n_settings)
{
    int r = set_paths(s, directory);

    if (r < 0)
        return r;
    s->ours = true;
    s->pid = fork();
    if (s->pid < 0)
        return words_set(-errno, "cannot fork for reclaimd: %s", strerror(errno));
    if (s->pid == 0)
        exec_daemon(s, settings, n_settings);
    r = wait_ready(s);
    if (r < 0)
        service_stop(s);
    return r;
}

int service_check_settings(const char *const *settings, size_t n_settings, char *message, size_t size)
{
    const char *arguments[ARGUMENTS_MAX] = {"reclaimd", "--check-config"};
    static const char prefix[] = "reclaimd: ";
    _cleanup_fclose_ FILE *said = tmpfile();
    char line[300];
    int status;
    pid_t pid;

    add_settings(arguments, 2, settings, n_settings);
    pid = said ? fork() : -1;
    if (pid == 0) {
        if (dup2(fileno(said), STDOUT_FILENO) < 0 || dup2(fileno(said), STDERR_FILENO) < 0)
            _exit(126);
        exec_program(arguments);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status) != 2)
        return 0;
    rewind(said);
    last_line(said, line, sizeof(line));
    (void)snprintf(message, size, "%s",
                   strncmp(line, prefix, sizeof(prefix) - 1) == 0 ? line + sizeof(prefix) - 1 : line);
    return -EINVAL;
}

int service_find(struct service *s, const char *directory)
{
    int r = set_paths(s, directory);

    if (r < 0)
        return r;
    s->ours = false;
    s->pid = ask_pid(s->paths.control, SOCK_STREAM);
    if (s->pid < 0)
        return words_set(s->pid, "no reclaimd answers on %s: %s", s->paths.control, strerror(-s->pid));
    return 0;
}

void service_stop(struct service *s)
{
    if (!s->ours || s->pid <= 0)
        return;
    (void)kill(s->pid, SIGTERM);
    for (unsigned i = 0; i < STOP_TRIES; i++) {
        if (waitpid(s->pid, NULL, WNOHANG) != 0) {
            s->pid = 0;
            return;
        }
        clock_sleep_ms(TRY_MS);
    }
    (void)words_set(-ETIMEDOUT, "reclaimd does not end on SIGTERM; killed");
    (void)kill(s->pid, SIGKILL);
    (void)waitpid(s->pid, NULL, 0);
    s->pid = 0;
}
