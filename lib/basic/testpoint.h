/* SPDX-License-Identifier: MIT */
/*
 * Named points at which a test can stop, kill or hold this very process, in order to prove that every state which
 * others can see at that moment is one that they survive. Built in only where RECLAIM_TEST_POINTS is defined;
 * elsewhere a point is no code at all. Libc only.
 *
 * The variable RECLAIM_TEST_POINT chooses one, read once at the first point that is passed:
 *     NAME:kill      raise(SIGKILL) at the first passage
 *     NAME:stop      raise(SIGSTOP) at the first passage; the test continues it with SIGCONT
 *     NAME:hold      this thread alone waits there: makes the empty file that RECLAIM_TEST_HOLD names, and
 *                    goes on when the test has taken it away
 *     NAME:kill@N    at the N-th passage (from 1) of the process, all threads together; so for the others
 * Anything else is ignored: a test that mistypes it will see that nothing was stopped.
 */
#pragma once

#include <stdbool.h>

#include "basic/macro.h"

enum testpoint_state {
    TESTPOINT_UNREAD, /* the variable has not been looked at */
    TESTPOINT_OFF,
    TESTPOINT_ARMED,
};

/* One relaxed load a passage while nothing is armed. */
extern _hidden_ int testpoint_state;

/* Reads the variable if nobody has, counts the passage, and acts when it is the one. */
_hidden_ void testpoint_pass(const char *name);

/* Reads the variable again and counts from 0: for a test's child after fork(). */
_hidden_ void testpoint_reload(void);

#ifdef RECLAIM_TEST_POINTS
#define RECLAIM_TEST_POINT(name)                                                                             \
    do {                                                                                                     \
        if (unlikely(__atomic_load_n(&testpoint_state, __ATOMIC_RELAXED) != TESTPOINT_OFF))                  \
            testpoint_pass(name);                                                                            \
    } while (0)
#else
#define RECLAIM_TEST_POINT(name) ((void)0)
#endif
