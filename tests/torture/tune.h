/* SPDX-License-Identifier: MIT */
/* Tune: every parameter that the daemon has, whatever they are, gets random values while a run goes on. */
#pragma once

#include <stdbool.h>

#include "random.h"

enum {
    TUNE_TEXT_BYTES = 80,
    TUNABLES_MAX = 64,
};

/* A parameter as the daemon describes it. */
struct tunable {
    char name[TUNE_TEXT_BYTES], type[TUNE_TEXT_BYTES], range[TUNE_TEXT_BYTES], standard[TUNE_TEXT_BYTES];
    bool of_arena; /* else one for the whole daemon */
    uint64_t n_changes;
};

struct tuning {
    struct tunable all[TUNABLES_MAX];
    unsigned n;
    unsigned order[TUNABLES_MAX]; /* each comes once, then they are shuffled anew */
    uint64_t n_changes;
};

/* Asks for the list. with_daemon: also what is not an arena's. -errno with words_set(). */
int tuning_init(struct tuning *t, const char *control, bool with_daemon);

/* The next parameter gets a value. The same. */
int tuning_change(struct tuning *t, const char *control, const char *arena, struct torture_random *random);

/* How often that parameter changed that did so least. */
uint64_t tuning_least(const struct tuning *t);

/* A value within the range, as the daemon would write it: often a bound, else of any order of magnitude. */
void tunable_draw(const struct tunable *t, struct torture_random *random, char ret[static TUNE_TEXT_BYTES]);
