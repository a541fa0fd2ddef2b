/* SPDX-License-Identifier: MIT */
/*
 * sync --callbacks: before each call the waiter defers objects, each a callback of its own (batching=no),
 * until as many entries as asked for wait in the daemon's FIFO; what a waiter behind them goes through is the
 * source's complaint. The FIFO is short-lived, so the same thread looks and calls: nothing lies between the
 * two but the answer's way.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "basic/varlink-frame.h"
#include "lane.h"
#include "sync.h"
#include "words.h"

enum {
    /*
     * Deferred and not freed, at most: twice those wanted, as some still wait for their grace period, and
     * what makes a flood of few (flood-objects is 512), else they would wait for the drain-interval.
     */
    IN_FLIGHT_FACTOR = 2,
    IN_FLIGHT_MORE = 1024,
    LOOKS_MAX = 100000, /* some ten seconds: then the FIFO does not fill */
    OBJECT_BYTES = 32,
};

struct sync_flood {
    const struct sync_job *job;
    struct varlink_client *control;
    uint64_t n_deferred; /* by this waiter */
};

int sync_flood_new(const struct sync_job *job, struct sync_flood **ret)
{
    struct sync_flood *f = calloc(1, sizeof(*f));
    int r;

    if (!f)
        return words_set(-ENOMEM, "no memory for a waiter");
    f->job = job;
    r = books_connect(job->run->service.paths.control, &f->control);
    if (r < 0) {
        (void)sync_flood_free(f);
        return r;
    }
    *ret = f;
    return 0;
}

struct sync_flood *sync_flood_free(struct sync_flood *f)
{
    if (f)
        (void)varlink_client_free(f->control);
    free(f);
    return NULL;
}

/* No room in the ring (-EAGAIN) is no failure: there is plenty in flight then. */
static int defer_some(struct sync_flood *f, struct reclaim_lane *lane)
{
    for (uint64_t i = 0; i < f->job->n_callbacks; i++) {
        void *p = reclaim_alloc(lane, OBJECT_BYTES);
        int r = p ? reclaim_defer_free(lane, p) : -errno;

        if (r == -EAGAIN)
            return reclaim_free(lane, p);
        if (r < 0)
            return run_library_failed(r, "reclaim_alloc or reclaim_defer_free");
        f->n_deferred++;
    }
    return 0;
}

int sync_flood_fill(struct sync_flood *f, struct reclaim_lane *lane, uint64_t *ret_ahead,
                    uint64_t *ret_asked_ns)
{
    for (unsigned i = 0; i < LOOKS_MAX; i++) {
        uint64_t n_waiting, n_freed, asked_ns = clock_now_ns();
        int r = books_read_callbacks(f->control, &n_waiting, &n_freed);

        if (r >= 0 && n_waiting >= f->job->n_callbacks) {
            *ret_ahead = n_waiting;
            *ret_asked_ns = asked_ns;
            return 0;
        }
        if (r >= 0 && f->n_deferred < n_freed + f->job->n_callbacks * IN_FLIGHT_FACTOR + IN_FLIGHT_MORE)
            r = defer_some(f, lane);
        if (r < 0)
            return r;
    }
    return words_set(-ETIMEDOUT,
                     "the callback FIFO never holds %" PRIu64 " entries: is batching=no in force?",
                     f->job->n_callbacks);
}
