/* SPDX-License-Identifier: MIT */
/*
 * The measured loop of read, compiled once for each includer, which defines before (all are undefined at the
 * end):
 *
 *     READ_NAME(name)          pastes a prefix of its own to a function's name
 *     READ_CONTEXT             type of the thread's data
 *     READ_ROOT(c)             an lvalue: the published struct read_object *
 *     READ_LOCK(c), READ_UNLOCK(c)
 *     READ_DEREFERENCE(p)      loads such a pointer
 *
 * and gets READ_NAME(run) for team_ops.
 */
#include "read.h"

static int READ_NAME(run)(struct team_thread *t)
{
    const struct read_job *job = t->job;
    uint64_t n_pairs = job->n_pairs;
    READ_CONTEXT *c = t->data;

    (void)c; /* liburcu finds its own */
    for (uint64_t i = 0; i < n_pairs; i++) {
        uint64_t word;

        READ_LOCK(c);
        word = READ_DEREFERENCE(READ_ROOT(c))->word;
        __asm__ volatile("" : : "r"(word)); /* used, as far as the compiler knows, inside the section */
        READ_UNLOCK(c);
    }
    t->n_done = n_pairs;
    return 0;
}

#undef READ_NAME
#undef READ_CONTEXT
#undef READ_ROOT
#undef READ_LOCK
#undef READ_UNLOCK
#undef READ_DEREFERENCE
