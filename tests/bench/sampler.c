/* SPDX-License-Identifier: MIT */
/* Watching memory: every 10 ms, as the interface says, and once more at the end. */
#include "sampler.h"

#include <string.h>

#include "basic/macro.h"
#include "basic/ordering.h"
#include "futex.h"
#include "words.h"

enum {
    SAMPLE_MS = 10,
};

static uint64_t anonymous_bytes(const struct sampler *s)
{
    uint64_t bytes = 0;

    if (s->daemon)
        return procfs_anonymous_bytes(s->daemon);
    for (unsigned i = 0; i < s->n_pids; i++)
        bytes += procfs_anonymous_bytes(s->pids[i]);
    return bytes;
}

static void sampler_look(struct sampler *s)
{
    uint64_t bytes = anonymous_bytes(s);

    bytes -= MIN(bytes, s->start_bytes);
    if (s->daemon) {
        procfs_memfds(s->daemon, &s->others, &s->now);
        bytes += s->now.bytes;
        s->others_peak_bytes = MAX(s->others_peak_bytes, s->others.bytes);
    }
    s->peak_bytes = MAX(s->peak_bytes, bytes);
}

static void *sampler_main(void *userdata)
{
    struct sampler *s = userdata;

    while (!load_relaxed(&s->stop)) { /* joined afterwards, so nothing needs its order */
        sampler_look(s);
        futex_wait(&s->stop, 0, SAMPLE_MS);
    }
    sampler_look(s);
    return NULL;
}

void sampler_mark_start(struct sampler *s)
{
    s->start_bytes = anonymous_bytes(s);
    s->peak_bytes = 0;
    if (s->daemon)
        procfs_memfds(s->daemon, NULL, &s->others);
}

int sampler_start(struct sampler *s)
{
    int r = pthread_create(&s->thread, NULL, sampler_main, s);

    if (r != 0)
        return words_set(-r, "cannot start the thread that watches memory: %s", strerror(r));
    s->running = true;
    return 0;
}

uint64_t sampler_stop(struct sampler *s)
{
    if (s->running) {
        store_relaxed(&s->stop, 1);
        futex_wake(&s->stop, 1);
        (void)pthread_join(s->thread, NULL);
        s->running = false;
    }
    return s->peak_bytes;
}
