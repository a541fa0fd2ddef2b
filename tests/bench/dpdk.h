/* SPDX-License-Identifier: MIT */
/*
 * DPDK: its headers, and its environment made as small as it goes: no huge pages, devices or files. To be
 * included before ours, as both define likely() and unlikely(), alike.
 */
#pragma once

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_rcu_qsbr.h>

#undef likely
#undef unlikely

/* Once a process, and a QSBR variable for that many threads. directory: for what it keeps. -errno, with
 * words_set(). */
int dpdk_init(const char *directory, unsigned n_threads, struct rte_rcu_qsbr **ret);

/* Registers and brings online this thread. */
int dpdk_thread_init(struct rte_rcu_qsbr *v, unsigned thread);
