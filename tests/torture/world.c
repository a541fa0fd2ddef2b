/* SPDX-License-Identifier: MIT */
/* Making and finding what the processes of a run share. */
#include "world.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "abi.h"
#include "bench/words.h"

static void *share(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    return p == MAP_FAILED ? NULL : p;
}

struct world *world_new(const struct torture_options *options)
{
    struct world *w = share(sizeof(*w));

    if (!w)
        return NULL;
    w->options = *options;
    w->n_granules = options->arena_bytes / ABI_GRANULE_BYTES;
    w->granules = share(DIV_ROUND_UP(w->n_granules, (uint64_t)8));
    return w->granules ? w : NULL;
}

int world_open(struct world *w, unsigned flags, struct reclaim **ret)
{
    char message[256] = "";
    struct reclaim_open_options options = {
        .size = sizeof(options),
        .flags = flags,
        .arena_bytes = w->options.arena_bytes,
        .runtime_directory = w->directory,
        .message = message,
        .message_size = sizeof(message),
    };
    int r = reclaim_open(w->arena, &options, ret);

    if (r == -EMFILE && w->options.tune)
        return r;
    if (r < 0)
        return words_set(r, "cannot open arena %s: %s", w->arena, *message ? message : reclaim_strerror(r));
    return 0;
}

int world_make_board(struct world *w, struct reclaim *r, struct reclaim_lane *l, struct board **ret)
{
    uint32_t n_entries = (uint32_t)w->options.n_writers * ENTRIES_A_WRITER;
    struct board *b = reclaim_alloc(l, sizeof(*b));
    struct entry *entries = reclaim_alloc(l, MAX(n_entries, 1u) * sizeof(*entries));
    void **root;
    int error;

    if (!b || !entries)
        return words_set(-errno, "no room in the arena for %u entries: %s", n_entries, strerror(errno));
    error = reclaim_root(r, "board", &root);
    if (error < 0)
        return words_set(error, "reclaim_root: %s", reclaim_strerror(error));
    *b = (struct board){.n_entries = n_entries, .n_cells = CELLS, .entries = entries};
    for (uint32_t i = 0; i < n_entries; i++)
        entries[i] = (struct entry){.id = i, .pipe = PIPE_FREE};
    reclaim_assign_pointer(l, *root, b); /* pairs with world_find_board() */
    *ret = b;
    return 0;
}

int world_find_board(struct reclaim *r, struct board **ret)
{
    void **root;
    int error = reclaim_root(r, "board", &root);

    if (error < 0)
        return error;
    *ret = reclaim_dereference(*root); /* pairs with world_make_board() */
    return *ret ? 0 : -ENOENT;
}

int world_fail(struct world *w, const char *format, ...)
{
    char line[WORDS_BYTES];
    va_list ap;

    va_start(ap, format);
    (void)vsnprintf(line, sizeof(line), format, ap);
    va_end(ap);
    (void)words_set(-EPROTO, "%s", line);
    store_relaxed(&w->failed, 1u); /* the words have their own order */
    return -EPROTO;
}

int world_call_failed(struct world *w, int r, const char *call)
{
    (void)world_fail(w, "%s: %s", call, reclaim_strerror(r));
    return r;
}
