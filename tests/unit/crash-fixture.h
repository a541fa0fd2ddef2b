/* SPDX-License-Identifier: MIT */
/* A scene that ends with the daemon's death at a test point. For tests that bring the sources with the points. */
#ifndef RECLAIMD_TESTS_CRASH_FIXTURE_H
#define RECLAIMD_TESTS_CRASH_FIXTURE_H

#include "lane-fixture.h"

#include <signal.h>
#include <sys/wait.h>

#include "basic/testpoint.h"

/* In a child, that is killed at the n-th passage of the point. False: it was not passed so often. */
static inline bool crash_child(struct lane_fixture *l, const char *point, unsigned nth,
                               void (*scene)(struct lane_fixture *l))
{
    char variable[64];
    int status;
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        (void)snprintf(variable, sizeof(variable), "%s:kill@%u", point, nth);
        (void)setenv("RECLAIM_TEST_POINT", variable, 1);
        testpoint_reload();
        scene(l);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) ? WTERMSIG(status) == SIGKILL : WEXITSTATUS(status) == 0);
    return WIFSIGNALED(status);
}

#endif
