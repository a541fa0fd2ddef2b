/* SPDX-License-Identifier: MIT */
/* Parameters that change at random. See tune.h. */
#include "tune.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "basic/macro.h"
#include "basic/parse.h"
#include "bench/words.h"
#include "control.h"

enum {
    BOUND_ONE_IN = 6,    /* a value at one of its bounds, or its word */
    STANDARD_ONE_IN = 3, /* the default: or limits of one client or lane would seldom let anybody work */
};

/* ---- Values by type and range ---- */

/* "no, yes, auto": one of them. */
static void draw_word(const char *range, struct torture_random *random, char ret[static TUNE_TEXT_BYTES])
{
    unsigned n = 1, chosen;

    for (const char *p = range; (p = strstr(p, ", ")); p += 2)
        n++;
    for (chosen = random_below(random, n); chosen > 0; chosen--)
        range = strstr(range, ", ") + 2;
    (void)snprintf(ret, TUNE_TEXT_BYTES, "%.*s", (int)strcspn(range, ","), range);
}

static int number_parse(const char *type, const char *text, uint64_t *ret)
{
    unsigned percent;
    int r;

    if (strcmp(type, "time") == 0)
        return parse_usec(text, ret);
    if (strcmp(type, "size") == 0)
        return parse_bytes(text, ret);
    if (strcmp(type, "count") == 0)
        return parse_u64(text, 0, UINT64_MAX, ret);
    r = parse_percent(text, &percent);
    if (r == 0)
        *ret = percent;
    return r;
}

static void number_format(const char *type, uint64_t n, char ret[static TUNE_TEXT_BYTES])
{
    char text[FORMAT_BYTES];

    if (strcmp(type, "time") == 0)
        (void)snprintf(ret, TUNE_TEXT_BYTES, "%s", format_usec(n, text));
    else if (strcmp(type, "size") == 0)
        (void)snprintf(ret, TUNE_TEXT_BYTES, "%s", format_bytes(n, text));
    else
        (void)snprintf(ret, TUNE_TEXT_BYTES, "%" PRIu64 "%s", n, strcmp(type, "count") == 0 ? "" : "%");
}

/* All orders of magnitude above the least are as likely. */
static uint64_t draw_number(uint64_t min, uint64_t max, struct torture_random *random)
{
    uint64_t span = max - min;
    unsigned bits = span > 0 ? 64u - (unsigned)__builtin_clzll(span) : 0;
    uint64_t mask;

    if (random_one_in(random, BOUND_ONE_IN))
        return random_one_in(random, 2) ? min : max;
    bits = random_below(random, bits + 1);
    mask = bits > 0 ? UINT64_MAX >> (64 - bits) : 0;
    return min + MIN(random_next(random) & mask, span);
}

/* "MIN..MAX". False: it does not look like that. */
static bool draw_between(const char *type, const char *range, struct torture_random *random,
                         char ret[static TUNE_TEXT_BYTES])
{
    const char *dots = strstr(range, "..");
    char bounds[2][TUNE_TEXT_BYTES];
    uint64_t min, max;

    if (!dots)
        return false;
    (void)snprintf(bounds[0], TUNE_TEXT_BYTES, "%.*s", (int)(dots - range), range);
    (void)snprintf(bounds[1], TUNE_TEXT_BYTES, "%s", dots + 2);
    if (number_parse(type, bounds[0], &min) < 0 || number_parse(type, bounds[1], &max) < 0 || min > max)
        return false;
    number_format(type, draw_number(min, max, random), ret);
    return true;
}

/* The part of a range before or after its " or ", the whole where there is none. */
static void range_part(const char *range, bool second, char part[static TUNE_TEXT_BYTES])
{
    const char *word = strstr(range, " or ");

    if (word && !second)
        (void)snprintf(part, TUNE_TEXT_BYTES, "%.*s", (int)(word - range), range);
    else
        (void)snprintf(part, TUNE_TEXT_BYTES, "%s", word ? word + 4 : range);
}

void tunable_draw(const struct tunable *t, struct torture_random *random, char ret[static TUNE_TEXT_BYTES])
{
    char first[TUNE_TEXT_BYTES], second[TUNE_TEXT_BYTES];
    bool has_second = strstr(t->range, " or ");

    range_part(t->range, false, first);
    range_part(t->range, true, second);
    if (strcmp(t->type, "choice") == 0 || strcmp(t->type, "boolean") == 0) {
        draw_word(t->range, random, ret);
        return;
    }
    if (strcmp(t->type, "share") == 0 && has_second) { /* percent or bytes */
        bool bytes = random_one_in(random, 2);

        if (draw_between(bytes ? "size" : "percentage", bytes ? second : first, random, ret))
            return;
    }
    if (has_second && random_one_in(random, BOUND_ONE_IN)) {
        (void)snprintf(ret, TUNE_TEXT_BYTES, "%s", second);
        return;
    }
    /* of a type without a range, like a name, there is the default, and its word if it has one */
    if (!draw_between(t->type, first, random, ret))
        (void)snprintf(ret, TUNE_TEXT_BYTES, "%s",
                       has_second && random_one_in(random, 2) ? second : t->standard);
}

/* ---- Changing ---- */

static void shuffle(struct tuning *t, struct torture_random *random)
{
    for (unsigned i = 0; i < t->n; i++) {
        unsigned j = random_below(random, i + 1);

        t->order[i] = t->order[j];
        t->order[j] = i;
    }
}

int tuning_init(struct tuning *t, const char *control, bool with_daemon)
{
    *t = (struct tuning){0};
    return control_tunables(control, with_daemon, t->all, TUNABLES_MAX, &t->n);
}

int tuning_change(struct tuning *t, const char *control, const char *arena, struct torture_random *random)
{
    char value[TUNE_TEXT_BYTES], values[TUNE_TEXT_BYTES * 2 + 8];
    struct tunable *next;

    if (t->n_changes % t->n == 0)
        shuffle(t, random);
    next = &t->all[t->order[t->n_changes++ % t->n]];
    next->n_changes++;
    if (random_one_in(random, STANDARD_ONE_IN))
        (void)strcpy(value, next->standard);
    else
        tunable_draw(next, random, value);
    (void)snprintf(values, sizeof(values), "{\"%s\":\"%s\"}", next->name, value);
    return control_set(control, next->of_arena ? arena : NULL, values);
}

uint64_t tuning_least(const struct tuning *t)
{
    uint64_t least = UINT64_MAX;

    for (unsigned i = 0; i < t->n; i++)
        least = MIN(least, t->all[i].n_changes);
    return least;
}
