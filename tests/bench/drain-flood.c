/* SPDX-License-Identifier: MIT */
/*
 * drain --flood: an arena at rest is flooded until the first object is free again: how long does that take? The
 * drain of a flood waits for flood-interval and then for a grace period, so the answer should be about their sum.
 */
#include "drain.h"

#include <errno.h>

#include "basic/varlink-frame.h"
#include "clock.h"
#include "lane.h"
#include "statistics.h"
#include "words.h"

enum {
    OBJECT_BYTES = 32,
    CHUNK_OBJECTS = 128, /* deferred between two looks at what is free */
    REST_MS = 5,
    FLOOD_MAX_NS = 2000000000, /* nothing is freed: a failure, or settings that are not about floods */
};

/* A chunk of the flood, and how much has been freed since the arena was made. */
static int flood_step(struct team_thread *t, uint64_t *ret_freed)
{
    struct reclaim_stats stats = {.size = sizeof(stats)};
    int r = drain_free_some(t, CHUNK_OBJECTS);

    if (r < 0)
        return r;
    r = reclaim_stats(t->process_data, &stats);
    *ret_freed = stats.freed_objects;
    return r < 0 ? run_library_failed(r, "reclaim_stats") : 0;
}

/* From its first deferred free. All that came before is freed. */
static int flood_once(struct team_thread *t, uint64_t *ret_ns)
{
    uint64_t freed, start_ns = clock_now_ns(), before = t->n_done;

    do {
        int r = flood_step(t, &freed);

        if (r < 0)
            return r;
        *ret_ns = clock_now_ns() - start_ns;
        if (*ret_ns > FLOOD_MAX_NS)
            return words_set(-ETIMEDOUT, "nothing of a flood is freed after %d s", FLOOD_MAX_NS / 1000000000);
    } while (freed <= before);
    return 0;
}

/* One round: the flood, what its grace period took, then rest. */
static int flood_round(struct team_thread *t, const struct drain_job *job, struct varlink_client *control,
                       uint64_t round)
{
    struct books books;
    int r = flood_once(t, &job->first_ns[round]);

    if (r >= 0)
        r = books_read(control, job->run->arena, &books);
    if (r < 0)
        return r;
    job->gp_ns[round] = books.gp_last_usec * 1000;
    r = lane_process_barrier(t);
    clock_sleep_ms(REST_MS);
    return r;
}

int drain_flood_run(struct team_thread *t)
{
    const struct drain_job *job = t->job;
    uint64_t end = clock_now_ns() + job->run->options->duration_usec * 1000;
    struct varlink_client *control;
    int r = books_connect(job->run->service.paths.control, &control);

    if (r < 0)
        return r;
    while (r >= 0 && clock_now_ns() < end && *job->n_floods < DRAIN_FLOODS_MAX)
        r = flood_round(t, job, control, (*job->n_floods)++);
    (void)varlink_client_free(control);
    return r;
}

int drain_flood_prepare(struct drain_job *job)
{
    job->n_floods = team_share(sizeof(*job->n_floods));
    job->first_ns = team_share(DRAIN_FLOODS_MAX * sizeof(*job->first_ns));
    job->gp_ns = team_share(DRAIN_FLOODS_MAX * sizeof(*job->gp_ns));
    return job->n_floods && job->first_ns && job->gp_ns ? 0 : words_set(-ENOMEM, "no memory for the times");
}

int drain_flood_set_figures(const struct drain_job *job, struct figures *f)
{
    struct figures first = {0}, gp = {0};
    int r = statistics_latencies(job->first_ns, *job->n_floods, &first);

    if (r >= 0)
        r = statistics_latencies(job->gp_ns, *job->n_floods, &gp);
    if (r < 0)
        return words_set(r, "no memory for the times");
    figures_set(f, FIGURE_FIRST_FREE_NS, first.value[FIGURE_P50_NS]);
    figures_set(f, FIGURE_FIRST_FREE_P99_NS, first.value[FIGURE_P99_NS]);
    figures_set(f, FIGURE_GP_NS, gp.value[FIGURE_P50_NS]);
    figures_set(f, FIGURE_CALLS, (double)*job->n_floods);
    return 0;
}
