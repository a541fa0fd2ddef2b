/* SPDX-License-Identifier: MIT */
/*
 * read: the cost of one read section: lock, one dereference and a load through it, unlock. As with kfree,
 * each backend is a file that includes read-loop.h around its own inline functions.
 */
#pragma once

#include "run.h"

struct read_object {
    uint64_t word;
};

struct read_job {
    struct bench_run *run;
    uint64_t n_pairs;
};

struct read_backend {
    const char *name;
    struct team_ops ops;
};

extern const struct read_backend read_reclaim, read_urcu_memb, read_ck_epoch;
#if HAVE_DPDK
extern const struct read_backend read_dpdk_qsbr;
#endif

extern const struct bench_test test_read;
