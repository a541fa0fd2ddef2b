/* SPDX-License-Identifier: MIT */
/* Words for people: one-line errors, quoting, the nearest name. */
#include "basic/text.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum {
    NEAREST_WORD_MAX = 63, /* no name of ours is longer; bounds the stack of the distance table */
};

/*
 * Too long a line is cut at its end: the beginning says what is wrong, the end only what would be right.
 * Whoever needs the end keeps the parts short, which is what text_quote() is for.
 */
int error_line_set(struct error_line *line, int error, const char *format, ...)
{
    if (line) {
        va_list arguments;

        va_start(arguments, format);
        (void)vsnprintf(line->text, sizeof(line->text), format, arguments);
        va_end(arguments);
    }
    return error;
}

/*
 * Returned as a struct, by value, so that it can be used inside a printf without a buffer or an allocation.
 * Other alphabets suffer too: what is quoted is for recognising, and half a character would be worse.
 */
struct text_quoted text_quote(const char *text)
{
    struct text_quoted quoted;
    size_t n = strnlen(text, sizeof(quoted.text));
    bool cut = n == sizeof(quoted.text);

    if (cut)
        n = sizeof(quoted.text) - sizeof("...");
    for (size_t i = 0; i < n; i++)
        quoted.text[i] = text[i] >= ' ' && text[i] <= '~' ? text[i] : '?';
    strcpy(quoted.text + n, cut ? "..." : "");
    return quoted;
}

/* The cheapest of the three ways to have come here. */
static unsigned min3(unsigned a, unsigned b, unsigned c)
{
    return MIN(MIN(a, b), c);
}

/* How many single-character insertions, removals and replacements lie between two words (Levenshtein). */
static unsigned text_distance(const char *a, const char *b)
{
/*
 * One row of the usual table is enough: row[j] is the distance from what was read of a to the first j
 * characters of b, and `diagonal` the cell that the row has just lost.
 */
    unsigned row[NEAREST_WORD_MAX + 1];
    size_t n = strlen(b);

    for (size_t j = 0; j <= n; j++)
        row[j] = (unsigned)j;
    for (size_t i = 1; a[i - 1]; i++) {
        unsigned diagonal = row[0];

        row[0] = (unsigned)i;
        for (size_t j = 1; j <= n; j++) {
            unsigned above = row[j];

            row[j] = min3(above + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1]));
            diagonal = above;
        }
    }
    return row[n];
}

/* Of two that are equally near the first wins, so the order of a table is also one of likelihood. */
const char *text_nearest(const char *word, const char *(*get)(size_t i))
{
    size_t n_word = strnlen(word, NEAREST_WORD_MAX + 1);
    unsigned best_distance = UINT32_MAX;
    const char *best = NULL;

    if (n_word > NEAREST_WORD_MAX)
        return NULL;
    for (size_t i = 0; get(i); i++) {
        const char *candidate = get(i);
        unsigned distance;

        if (strlen(candidate) > NEAREST_WORD_MAX)
            continue;
        distance = text_distance(word, candidate);
        if (distance < best_distance) {
            best_distance = distance;
            best = candidate;
        }
    }
    /* More than a third of it wrong is another word, not a slip of the finger. */
    return best_distance <= MAX(n_word, (size_t)3) / 3 ? best : NULL;
}

/* Blanks as the C locale has them; nothing moves, the result points into the text. */
char *text_strip(char *text)
{
    char *end;

    while (isspace((unsigned char)*text))
        text++;
    end = text + strlen(text);
    while (end > text && isspace((unsigned char)end[-1]))
        *--end = '\0';
    return text;
}

bool text_equal(const char *a, const char *b)
{
    if (!a || !b)
        return a == b;
    return strcmp(a, b) == 0;
}
