/* SPDX-License-Identifier: MIT */
/* What a run says: a line a second, a table at its end. */
#include <inttypes.h>
#include <stdio.h>

#include "basic/parse.h"
#include "bench/words.h"
#include "run.h"

static void add_up(const struct world *w, struct thread_count *sum)
{
    *sum = (struct thread_count){0};
    for (unsigned place = 0; place < THREADS_MAX; place++) {
        const struct thread_count *count = &w->counts[place];
        const uint64_t *from = (const uint64_t *)(const void *)count;
        uint64_t *to = (uint64_t *)(void *)sum;

        for (size_t i = 0; i < sizeof(*count) / sizeof(uint64_t); i++)
            to[i] += load_relaxed(&from[i]); /* figures: a moment late is harmless */
    }
}

void run_tell(struct torture_run *run, uint64_t now_ns)
{
    struct reclaim_stats stats = {.size = sizeof(stats)};
    char in_use[FORMAT_BYTES], backed[FORMAT_BYTES];
    struct thread_count sum;

    add_up(run->world, &sum);
    (void)reclaim_stats(run->reclaim, &stats); /* zeroes, if it fails: the run notices elsewhere */
    printf("%5.0f s: %" PRIu64 " sections, %" PRIu64 " in handlers, %" PRIu64 " replaced, %" PRIu64
           " freed, %" PRIu64 " pending, %s in use, %s backed, %" PRIu64 " grace periods, %" PRIu64
           " threads, %" PRIu64 " kills\n",
           (double)(now_ns - run->start_ns) / 1e9, sum.sections, sum.handler_sections, sum.replaced,
           stats.freed_objects, stats.pending_objects, format_bytes_human(stats.in_use_bytes, in_use),
           format_bytes_human(stats.backed_bytes, backed), stats.gp_completed, sum.threads, run->crew.kills);
    (void)fflush(stdout);
}

static void print_histogram(const char *name, const uint64_t *numbers, unsigned n)
{
    printf("%s:", name);
    for (unsigned i = 0; i < n; i++)
        printf(" %" PRIu64, numbers[i]);
    printf("\n");
}

void run_tell_end(const struct torture_run *run)
{
    struct thread_count sum;

    add_up(run->world, &sum);
    print_histogram("Reader Pipe", sum.pipe, PIPE_FREE + 1);
    print_histogram("Reader Batch", sum.batch, BATCHES_MAX_SEEN + 1);
    printf("Circulation: %" PRIu64 " objects made, %" PRIu64
           " of them where another had been; the pipe moved on %" PRIu64 " times\n",
           sum.made, sum.reused, run->pipe.advanced);
    printf("Writers: %" PRIu64 " replaced, %" PRIu64 " deferred, %" PRIu64 " freed unpublished, %" PRIu64
           " waits, %" PRIu64 " given up, %" PRIu64 " bursts, arena full %" PRIu64
           " times, ring full %" PRIu64 " times\n",
           sum.replaced, sum.deferred, sum.unpublished, sum.waits, sum.timeouts, sum.bursts, sum.full,
           sum.again);
    printf("Processes: %" PRIu64 " started, %" PRIu64 " killed, %u times an observer, %" PRIu64
           " lives of threads\n",
           run->crew.incarnations, run->crew.kills, run->world->n_observer, sum.threads);
    if (run->options->tune)
        printf("Parameters: %" PRIu64 " changes of %u, each at least %" PRIu64 " times; %" PRIu64
               " processes were killed by the daemon for stalling, %" PRIu64
               " opens and lanes refused by a limit\n",
               run->tuning.n_changes, run->tuning.n, tuning_least(&run->tuning), run->crew.killed_by_others,
               sum.refused + load_relaxed(&run->world->n_refused));
}
