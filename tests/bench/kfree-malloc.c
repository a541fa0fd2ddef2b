/* SPDX-License-Identifier: MIT */
/* kfree, backend malloc: malloc and free at once, without any grace period. What all others are compared
 * with. */
#include <stdlib.h>

#define KFREE_NAME(name) malloc_##name
#define KFREE_CONTEXT void
#define KFREE_ALLOC(c, bytes) malloc(bytes)
#define KFREE_DEFER(c, t, p) (free(p), 0)
#include "kfree-loop.h"

const struct kfree_backend kfree_malloc = {
    .name = "malloc",
    .ops = {.thread_init = malloc_fill, .thread_run = malloc_run, .thread_deinit = malloc_empty},
};
