/* SPDX-License-Identifier: MIT */
/* read, backend urcu-memb: liburcu's membarrier flavour, inlined. */
#include "urcu-inline.h"

#include "read.h"

static struct read_object object = {1}, *root = &object;

#define READ_NAME(name) urcu_##name
#define READ_LOCALS(t)
#define READ_ROOT root
#define READ_LOCK() urcu_memb_read_lock()
#define READ_UNLOCK() urcu_memb_read_unlock()
#define READ_DEREFERENCE(p) rcu_dereference(p)
#include "read-loop.h"

static int urcu_thread_init(struct team_thread *t)
{
    urcu_memb_register_thread();
    return 0;
}

static void urcu_thread_deinit(struct team_thread *t)
{
    urcu_memb_unregister_thread();
}

const struct read_backend read_urcu_memb = {
    .name = "urcu-memb",
    .ops = {.thread_init = urcu_thread_init, .thread_run = urcu_run, .thread_deinit = urcu_thread_deinit},
};
