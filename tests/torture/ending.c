/* SPDX-License-Identifier: MIT */
/* After the run: the survivor empties everything, and the daemon's books must agree. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "bench/clock.h"
#include "bench/words.h"
#include "object.h"
#include "run.h"

enum {
    SETTLE_TRIES =
        6000, /* of 10 ms: dead processes are noticed, their lanes cleared, a grace period passes */
    SETTLE_MS = 10,
    BOARD_BYTES_MAX = 16 << 20, /* more than the entries of the most writers take */
    MADE_ENOUGH = 50000,        /* objects after which some must have been where others were */
};

static int defer(struct torture_run *run, void *p)
{
    int r;

    while ((r = reclaim_defer_free(run->lane, p)) == -EAGAIN)
        ;
    return r < 0 ? words_set(r, "reclaim_defer_free by the survivor: %s", reclaim_strerror(r)) : 0;
}

static int empty_cells(struct torture_run *run)
{
    for (unsigned i = 0; i < CELLS; i++) {
        void *p = exchange_acq_rel(&run->board->cells[i], NULL); /* pairs with cell_exchange() */
        const char *wrong;
        int r;

        if (!p)
            continue;
        wrong = object_verify(run->board, p, object_id(p), &run->random);
        if (wrong)
            return words_set(-EPROTO, "object %p, the last in cell %u: %s", p, i, wrong);
        r = defer(run, p);
        if (r < 0)
            return r;
    }
    return 0;
}

static int free_board(struct torture_run *run)
{
    struct board *b = run->board;
    void **root;
    int r = reclaim_root(run->reclaim, "board", &root);

    if (r < 0)
        return words_set(r, "reclaim_root at the end: %s", reclaim_strerror(r));
    reclaim_assign_pointer(run->lane, *root, NULL); /* nobody looks any more */
    r = defer(run, b->entries);
    return r < 0 ? r : defer(run, b);
}

/* Until whoever died is cleared away. */
static int settle(struct torture_run *run, unsigned n_clients)
{
    struct control_figures *f = &run->end;

    for (unsigned i = 0; i < SETTLE_TRIES; i++) {
        int r = control_figures(run->service.paths.control, run->world->arena, f);

        if (r < 0)
            return r;
        if (f->clients == n_clients && f->lanes == 0 && f->pending_objects == 0)
            return 0;
        clock_sleep_ms(SETTLE_MS);
    }
    return words_set(-ETIMEDOUT,
                     "at the end %" PRIu64 " clients are attached, with %" PRIu64 " lanes and %" PRIu64
                     " objects pending; it should be %u, 0 and 0",
                     f->clients, f->lanes, f->pending_objects, n_clients);
}

int run_empty(struct torture_run *run, bool board, unsigned n_clients)
{
    int r = empty_cells(run);

    if (r >= 0 && board)
        r = free_board(run);
    if (r >= 0) {
        r = reclaim_barrier(run->lane, NULL);
        if (r < 0)
            return words_set(r, "reclaim_barrier at the end: %s", reclaim_strerror(r));
    }
    if (r < 0)
        return r;
    reclaim_lane_put(run->lane);
    run->lane = NULL;
    return settle(run, n_clients);
}

static int judge_circulation(const struct torture_run *run)
{
    uint64_t made = 0, reused = 0;

    for (unsigned i = 0; i < THREADS_MAX; i++) {
        made += run->world->counts[i].made;
        reused += run->world->counts[i].reused;
    }
    if (made >= MADE_ENOUGH && reused == 0)
        return words_set(-EPROTO, "%" PRIu64 " objects were made, none where one had been before", made);
    return 0;
}

static void print_lost(const struct torture_run *run)
{
    const struct control_figures *f = &run->end;

    printf("Not freed: %" PRIu64 " objects, %" PRIu64 " bytes; killed writers held at most %" PRIu64
           " objects, %" PRIu64 " bytes\n",
           f->in_use_objects, f->in_use_bytes, run->lost_objects, run->lost_bytes);
}

int run_judge(struct torture_run *run, unsigned n_kept)
{
    const struct control_figures *f = &run->end;
    uint64_t kept_bytes = n_kept * (uint64_t)BOARD_BYTES_MAX;
    int r = control_audit(run->service.paths.control, run->world->arena);

    if (r < 0)
        return r;
    if (n_kept == 0)
        print_lost(run);
    if (f->in_use_objects > run->lost_objects + n_kept || f->in_use_bytes > run->lost_bytes + kept_bytes)
        return words_set(-EPROTO, "more was lost than killed writers held");
    if (f->refused_records > 0)
        return words_set(-EPROTO, "the daemon refused %" PRIu64 " frees, and all were right",
                         f->refused_records);
    return judge_circulation(run);
}
