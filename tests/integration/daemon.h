/* SPDX-License-Identifier: MIT */
/*
 * A real daemon for one test program: RECLAIMD run on a fresh runtime directory, ended by its process id. Anything
 * that can wait has a bound far above what it takes; none of the tests asserts a time.
 */
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include <reclaim/reclaim.h>

struct daemon {
    char directory[64];
    pid_t pid;
};

/* A place to be cancelled; not sanitized, see read_until_told() in test-client.c. */
__attribute__((no_sanitize_address)) static inline void sleep_ms(long ms)
{
    const struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};

    (void)nanosleep(&pause, NULL);
}

/* Is somebody listening? Tried until it is so, for half a minute at most. */
static inline bool daemon_wait(const struct daemon *d)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    snprintf(address.sun_path, sizeof(address.sun_path), "%s/client", d->directory);
    for (int i = 0; i < 3000; i++) {
        int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        int r = connect(fd, (struct sockaddr *)&address, sizeof(address));

        close(fd);
        if (r == 0)
            return true;
        sleep_ms(10);
    }
    return false;
}

/* arguments: further ones, NULL at the end; may be NULL. The daemon does not outlive us. */
static inline void daemon_start(struct daemon *d, const char *const *arguments)
{
    const char *argv[16] = {getenv("RECLAIMD"), "--runtime-directory", d->directory};
    pid_t parent = getpid();
    int n = 3;

    while (arguments && *arguments && n < 15)
        argv[n++] = *arguments++;
    d->pid = fork();
    assert_true(d->pid >= 0);
    if (d->pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() == parent)
            execv(argv[0], (char *const *)argv);
        _exit(127);
    }
    assert_true(daemon_wait(d));
}

static inline void daemon_directory_make(struct daemon *d)
{
    strcpy(d->directory, "/tmp/reclaim-test-XXXXXX");
    assert_non_null(mkdtemp(d->directory));
    assert_int_equal(chmod(d->directory, 0755), 0);
}

static inline void daemon_end(struct daemon *d, int signal)
{
    if (d->pid <= 0)
        return;
    (void)kill(d->pid, signal);
    (void)waitpid(d->pid, NULL, 0);
    d->pid = 0;
}

static inline void daemon_directory_remove(struct daemon *d)
{
    static const char *const names[] = {"client", "control"};
    char path[128];

    for (unsigned i = 0; i < 2; i++) {
        snprintf(path, sizeof(path), "%s/%s", d->directory, names[i]);
        (void)unlink(path);
    }
    (void)rmdir(d->directory);
}

/* Exit status of a child, or 256 + the signal that ended it. */
static inline int child_status(pid_t child)
{
    int status;

    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 256 + WTERMSIG(status);
}

/* A test of whole programs cannot run without the program. */
static inline void daemon_or_skip(void)
{
    const char *program = getenv("RECLAIMD");

    if (program && access(program, X_OK) == 0)
        return;
    puts("there is no daemon to test against: set RECLAIMD");
    exit(77);
}
