/* SPDX-License-Identifier: MIT */
/* The coordinator's part of an entry's way. See world.h. */
#include "pipe.h"

#include <errno.h>
#include <stdlib.h>

#include "bench/words.h"

int pipe_init(struct torture_pipe *p, struct board *board)
{
    *p =
        (struct torture_pipe){.board = board, .cookies = calloc(MAX(board->n_entries, 1u), sizeof(uint64_t))};
    return p->cookies ? 0 : words_set(-ENOMEM, "no memory for %u cookies", board->n_entries);
}

void pipe_deinit(struct torture_pipe *p)
{
    free(p->cookies);
}

/*
 * One grace period further. The cookie for the next one is taken in the look after this, by a call that comes
 * after the count was seen or stored, so that it covers whoever might still see the object.
 */
static int entry_advance(struct torture_pipe *p, struct reclaim *r, uint32_t i)
{
    struct entry *e = &p->board->entries[i];
    int over = reclaim_gp_poll(r, p->cookies[i]);

    if (over <= 0)
        return over;
    /* release: our look at the entry is over; pairs with entry_take() */
    store_release(&e->pipe, e->pipe + 1);
    p->cookies[i] = 0;
    p->advanced++;
    return 0;
}

int pipe_advance(struct torture_pipe *p, struct reclaim *r, struct reclaim_lane *l)
{
    uint64_t cookie = 0;

    for (uint32_t i = 0; i < p->board->n_entries; i++) {
        uint32_t count = load_acquire(&p->board->entries[i].pipe); /* pairs with cell_exchange() */
        int error = 0;

        if (count == 0 || count == PIPE_FREE)
            continue;
        if (p->cookies[i])
            error = entry_advance(p, r, i);
        /* for each anew: one for the whole look would be taken too early for entries that come later in it */
        if (error == 0 && !p->cookies[i] && p->board->entries[i].pipe != PIPE_FREE)
            error = reclaim_gp_start(l, &cookie);
        if (error < 0)
            return words_set(error, "the pipe's grace periods: %s", reclaim_strerror(error));
        if (!p->cookies[i] && p->board->entries[i].pipe != PIPE_FREE)
            p->cookies[i] = cookie;
    }
    return 0;
}
