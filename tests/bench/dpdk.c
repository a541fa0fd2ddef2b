/* SPDX-License-Identifier: MIT */
/* Starting DPDK's environment in a worker process. */
#include "dpdk.h"

#include <errno.h>
#include <stdlib.h>

#include "words.h"

static int environment_init(const char *directory)
{
    char *arguments[] = {
        (char *)"reclaim-scale",  (char *)"--no-huge", (char *)"--no-pci",          (char *)"--no-shconf",
        (char *)"--no-telemetry", (char *)"-m256",     (char *)"--log-level=error", NULL};
    cpu_set_t cpus;
    int r;

    (void)setenv("RUNTIME_DIRECTORY", directory, 1); /* else it leaves folders in /run */
    (void)sched_getaffinity(0, sizeof(cpus), &cpus);
    r = rte_eal_init((int)(sizeof(arguments) / sizeof(*arguments)) - 1, arguments);
    (void)sched_setaffinity(0, sizeof(cpus), &cpus); /* it pins its main thread; no other backend is pinned */
    if (r < 0)
        return words_set(-EIO, "DPDK's environment does not start: rte_eal_init: %s",
                         rte_strerror(rte_errno));
    return 0;
}

int dpdk_init(const char *directory, unsigned n_threads, struct rte_rcu_qsbr **ret)
{
    struct rte_rcu_qsbr *v;
    size_t bytes;
    int r = environment_init(directory);

    if (r < 0)
        return r;
    bytes = rte_rcu_qsbr_get_memsize(n_threads);
    v = aligned_alloc(RTE_CACHE_LINE_SIZE,
                      (bytes + RTE_CACHE_LINE_SIZE - 1) & ~(size_t)(RTE_CACHE_LINE_SIZE - 1));
    if (!v || rte_rcu_qsbr_init(v, n_threads) != 0)
        return words_set(-ENOMEM, "no memory for DPDK's QSBR variable");
    *ret = v;
    return 0;
}

int dpdk_thread_init(struct rte_rcu_qsbr *v, unsigned thread)
{
    if (rte_rcu_qsbr_thread_register(v, thread) != 0)
        return words_set(-EINVAL, "DPDK does not register thread %u", thread);
    rte_rcu_qsbr_thread_online(v, thread);
    return 0;
}
