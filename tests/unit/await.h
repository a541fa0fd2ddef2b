/* SPDX-License-Identifier: MIT */
/* Waiting for what other threads do: no test asserts how long that takes. */
#ifndef RECLAIMD_TESTS_AWAIT_H
#define RECLAIMD_TESTS_AWAIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

#include "clock.h"

#define PATIENCE_USEC 30000000u /* what has not happened by then never will */

#define await(condition)                                                                                     \
    do {                                                                                                     \
        uint64_t until = now_usec() + PATIENCE_USEC;                                                         \
                                                                                                             \
        while (!(condition)) {                                                                               \
            if (now_usec() > until)                                                                          \
                fail_msg("it never came: %s", #condition);                                                   \
            (void)usleep(200);                                                                               \
        }                                                                                                    \
    } while (0)

#endif
