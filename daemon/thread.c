/* SPDX-License-Identifier: MIT */
/* The daemon's threads and the scheduler; see thread.h. */
#include "thread.h"

#include <linux/sched/types.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SLICE_NS 100000u /* the shortest that the kernel grants */

void thread_begin(const char *name)
{
    (void)prctl(PR_SET_NAME, name);
}

/* Policy and niceness stay as whoever started us chose them. Refused (a filter, another policy): as it was. */
static void thread_wish_short_slices(void)
{
    struct sched_attr attr = {0};

    if (syscall(SYS_sched_getattr, 0, &attr, sizeof(attr), 0) < 0)
        return;
    attr.sched_runtime = SLICE_NS;
    (void)syscall(SYS_sched_setattr, 0, &attr, 0);
}

void thread_begin_prompt(const char *name)
{
    thread_begin(name);
    (void)prctl(PR_SET_TIMERSLACK, 1);
    thread_wish_short_slices();
}
