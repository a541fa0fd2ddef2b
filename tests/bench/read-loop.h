/* SPDX-License-Identifier: MIT */
/*
 * The measured loop of read, compiled once for each includer, which defines before (all are undefined at the
 * end):
 *
 *     READ_NAME(name)          pastes a prefix of its own to a function's name
 *     READ_LOCALS(t)           declares what the others use, from t->data: locals, as a program would keep
 * them READ_ROOT                an lvalue: the published struct read_object * READ_LOCK(), READ_UNLOCK()
 *     READ_DEREFERENCE(p)      loads such a pointer
 *
 * and gets READ_NAME(run) for team_ops.
 */
#include "read.h"

static int READ_NAME(run)(struct team_thread *t)
{
    const struct read_job *job = t->job;
    uint64_t n_pairs = job->n_pairs;
    READ_LOCALS(t)

    for (uint64_t i = 0; i < n_pairs; i++) {
        uint64_t word;

        READ_LOCK();
        word = READ_DEREFERENCE(READ_ROOT)->word;
        __asm__ volatile("" : : "r"(word)); /* used, as far as the compiler knows, inside the section */
        READ_UNLOCK();
    }
    t->n_done = n_pairs;
    return 0;
}

#undef READ_NAME
#undef READ_LOCALS
#undef READ_ROOT
#undef READ_LOCK
#undef READ_UNLOCK
#undef READ_DEREFERENCE
