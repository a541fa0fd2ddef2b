/* SPDX-License-Identifier: MIT */
/* Reading and writing the values that people type. Times and sizes differ only in their units. */
#include "basic/parse.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

__extension__ typedef unsigned __int128 u128;

enum {
    FRACTION_DIGITS_MAX = 9, /* more are read but do not count: 10^9 times a unit fits 128 bits */
};

/* One way to write a factor. A table of them ends with a row without a name: what a bare number counts. */
struct unit {
    const char *name;
    uint64_t factor;
};

/* The first name of a factor is the one we write; largest first, so that format_usec() can walk down. */
static const struct unit time_units[] = {
    {"w", 7 * 24 * USEC_PER_HOUR},
    {"week", 7 * 24 * USEC_PER_HOUR},
    {"weeks", 7 * 24 * USEC_PER_HOUR},
    {"d", 24 * USEC_PER_HOUR},
    {"day", 24 * USEC_PER_HOUR},
    {"days", 24 * USEC_PER_HOUR},
    {"h", USEC_PER_HOUR},
    {"hr", USEC_PER_HOUR},
    {"hour", USEC_PER_HOUR},
    {"hours", USEC_PER_HOUR},
    {"min", USEC_PER_MINUTE},
    {"m", USEC_PER_MINUTE},
    {"minute", USEC_PER_MINUTE},
    {"minutes", USEC_PER_MINUTE},
    {"s", USEC_PER_SEC},
    {"sec", USEC_PER_SEC},
    {"second", USEC_PER_SEC},
    {"seconds", USEC_PER_SEC},
    {"ms", USEC_PER_MSEC},
    {"msec", USEC_PER_MSEC},
    {"us", 1},
    {"usec", 1},
    {"\302\265s", 1}, /* micro sign */
    {"\316\274s", 1}, /* Greek mu */
    {NULL, USEC_PER_SEC},
};

/* Base 1024 throughout; there is no other base, so a letter is enough. */
static const struct unit size_units[] = {
    {"E", UINT64_C(1) << 60},
    {"P", UINT64_C(1) << 50},
    {"T", UINT64_C(1) << 40},
    {"G", UINT64_C(1) << 30},
    {"M", UINT64_C(1) << 20},
    {"K", UINT64_C(1) << 10},
    {"B", 1},
    {NULL, 1},
};

/* What each kind is called and how it is written; the order is that of enum parse_kind. */
static const struct {
    const char *what, *example;
} kinds[PARSE_KIND_MAX] = {
    [PARSE_TIME] = {"a time", "write it like 250ms, 1min 30s or 1h"},
    [PARSE_SIZE] = {"a size", "write it like 4096, 64M or 1.5G"},
    [PARSE_PERCENT] = {"a percentage", "write it like 25%"},
    [PARSE_BOOLEAN] = {"yes or no", NULL}, /* which says how it is written too */
    [PARSE_NUMBER] = {"a number", "write it in digits, like 512"},
    [PARSE_ARENA_NAME] = {"an arena's name", "use 1 to 48 of letters, digits, '.', '_' and '-'"},
    [PARSE_ASSIGNMENT] = {"an assignment", "write it like drain-interval=1s"},
    [PARSE_NAME_SIZE] = {"an arena and its size", "write it like routes:64M"},
};

/* Blanks may stand around numbers and units, as in "1 min 30 s". */
static const char *skip_blanks(const char *s)
{
    return s + strspn(s, " \t");
}

/* Reads digits into a number; -EINVAL without any, -ERANGE when it does not fit. */
static int read_digits(const char **s, uint64_t *ret)
{
    uint64_t number = 0;
    /* Stepped in a local: on failure the caller still points at what could not be read. */
    const char *p = *s;

    if (!isdigit((unsigned char)*p))
        return -EINVAL;
    for (; isdigit((unsigned char)*p); p++)
        if (__builtin_mul_overflow(number, UINT64_C(10), &number) ||
            __builtin_add_overflow(number, (uint64_t)(*p - '0'), &number))
            return -ERANGE;
    *s = p;
    *ret = number;
    return 0;
}

/* Reads ".5" as 5 tenths: a numerator and its power of ten. Digits that cannot count are skipped. */
static int read_fraction(const char **s, uint64_t *ret_numerator, uint64_t *ret_denominator)
{
    uint64_t numerator = 0, denominator = 1;
    const char *p = *s;

    if (*p == '.') {
        const char *first = ++p;

        for (; isdigit((unsigned char)*p); p++)
            if (p - first < FRACTION_DIGITS_MAX) {
                numerator = numerator * 10 + (uint64_t)(*p - '0');
                denominator *= 10;
            }
        if (p == first)
            return -EINVAL;
    }
    *s = p;
    *ret_numerator = numerator;
    *ret_denominator = denominator;
    return 0;
}

/* The unit at *s, which may be separated by blanks; none is the last row's default. */
static int read_unit(const char **s, const struct unit *units, const struct unit **ret)
{
    const char *p = skip_blanks(*s);
    size_t n = strcspn(p, " \t0123456789.");

    while (units->name && (strlen(units->name) != n || strncmp(p, units->name, n) != 0))
        units++;
    if (!units->name && n > 0)
        return -EINVAL;
    *s = skip_blanks(p + n);
    *ret = units;
    return 0;
}

/* One "1.5h"; *s is left at the next. */
static int read_component(const char **s, const struct unit *units, bool *ret_bare, uint64_t *ret)
{
    uint64_t whole, numerator, denominator;
    const struct unit *unit;
    u128 sum;
    int r;

    r = read_digits(s, &whole);
    if (r < 0)
        return r;
    r = read_fraction(s, &numerator, &denominator);
    if (r < 0)
        return r;
    r = read_unit(s, units, &unit);
    if (r < 0)
        return r;
    /* Neither product can overflow 128 bits: 2^64 times a week, or 10^9 times an exbibyte. */
    sum = (u128)whole * unit->factor + (u128)numerator * unit->factor / denominator;
    if (sum > UINT64_MAX)
        return -ERANGE;
    *ret_bare = !unit->name;
    *ret = (uint64_t)sum;
    return 0;
}

/* A sum of components; one without unit must stand alone, or "5 5" would pass for ten. */
static int parse_quantity(const char *text, const struct unit *units, uint64_t *ret)
{
    const char *s = skip_blanks(text);
    uint64_t sum = 0;
    size_t n_parts = 0;
    bool any_bare = false;

    do {
        uint64_t part;
        bool bare;
        int r = read_component(&s, units, &bare, &part);

        if (r < 0)
            return r;
        if (__builtin_add_overflow(sum, part, &sum))
            return -ERANGE;
        any_bare = any_bare || bare;
        n_parts++;
    } while (*s);
    if (any_bare && n_parts > 1)
        return -EINVAL;
    *ret = sum;
    return 0;
}

/*
 * The largest 64-bit number is refused although it fits: elsewhere it means infinity, and whoever types it
 * by its digits should not get that.
 */
int parse_usec(const char *text, uint64_t *ret_usec)
{
    uint64_t usec;
    int r = parse_quantity(text, time_units, &usec);

    if (r < 0)
        return r;
    if (usec == USEC_INFINITY)
        return -ERANGE;
    *ret_usec = usec;
    return 0;
}

int parse_usec_infinity(const char *text, uint64_t *ret_usec)
{
    if (strcmp(text, "infinity") == 0) {
        *ret_usec = USEC_INFINITY;
        return 0;
    }
    return parse_usec(text, ret_usec);
}

int parse_bytes(const char *text, uint64_t *ret_bytes)
{
    return parse_quantity(text, size_units, ret_bytes);
}

/* The sign is required: without it 25 could as well be meant as bytes or objects. */
int parse_percent(const char *text, unsigned *ret_percent)
{
    uint64_t percent;
    int r = read_digits(&text, &percent);

    if (r < 0)
        return r;
    if (strcmp(text, "%") != 0 && (percent > 0 || *text)) /* nothing is nothing, whatever it is a part of */
        return -EINVAL;
    if (percent > 100)
        return -ERANGE;
    *ret_percent = (unsigned)percent;
    return 0;
}

/* All the pairs that systemd takes, so that nobody has to learn which of them is ours. */
int parse_boolean(const char *text, bool *ret_boolean)
{
    static const char *const words[][2] = {{"no", "yes"}, {"false", "true"}, {"off", "on"},
                                           {"n", "y"},    {"f", "t"},        {"0", "1"}};

    for (size_t i = 0; i < ARRAY_SIZE(words); i++)
        for (int is = 0; is < 2; is++)
            if (strcasecmp(text, words[i][is]) == 0) {
                *ret_boolean = is;
                return 0;
            }
    return -EINVAL;
}

int parse_u64(const char *text, uint64_t min, uint64_t max, uint64_t *ret_number)
{
    uint64_t number;
    int r = read_digits(&text, &number);

    if (r < 0)
        return r;
    if (*text)
        return -EINVAL;
    if (number < min || number > max)
        return -ERANGE;
    *ret_number = number;
    return 0;
}

bool arena_name_is_valid(const char *name)
{
    size_t n = strnlen(name, ARENA_NAME_BYTES);

    /* Spelled out: isalnum() would let a locale decide what a name is. */
    return n > 0 && n <= ARENA_NAME_MAX &&
           strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == n;
}

/* The value may hold further equals signs and blanks: only its parameter knows what is right. */
int parse_assignment(const char *text, char **ret_name, char **ret_value)
{
    char *copy, *equals;

    if (!strchr(text, '=') || *text == '=')
        return -EINVAL;
    copy = strdup(text);
    if (!copy)
        return -ENOMEM;
    equals = strchr(copy, '=');
    *equals = '\0';
    *ret_name = copy;
    *ret_value = equals + 1;
    return 0;
}

/* The name is copied before it is checked, and measured before it is copied: it comes from a stranger. */
int parse_name_size(const char *text, char ret_name[static ARENA_NAME_BYTES], uint64_t *ret_bytes)
{
    const char *colon = strchr(text, ':');
    char name[ARENA_NAME_BYTES];
    uint64_t bytes;
    int r;

    if (!colon || colon - text > ARENA_NAME_MAX)
        return -EINVAL;
    memcpy(name, text, (size_t)(colon - text));
    name[colon - text] = '\0';
    if (!arena_name_is_valid(name))
        return -EINVAL;
    r = parse_bytes(colon + 1, &bytes);
    if (r < 0)
        return r;
    memcpy(ret_name, name, sizeof(name));
    *ret_bytes = bytes;
    return 0;
}

/*
 * A size with its unit as others write it, as 64m, 64MB or 64MiB: the number's length and our letter. 0: it is
 * wrong in another way.
 */
static int size_meant(const char *text, char *ret_unit)
{
    static const char digits[] = "0123456789";
    size_t n = strspn(text, digits), n_fraction = text[n] == '.' ? strspn(text + n + 1, digits) : 0;
    const char *unit;
    char letter;

    if (n == 0)
        return 0;
    n += n_fraction > 0 ? n_fraction + 1 : 0;
    unit = skip_blanks(text + n);
    letter = (char)toupper((unsigned char)*unit);
    if (n > FORMAT_BYTES || letter == '\0' || !strchr("BKMGTPE", letter))
        return 0;
    unit += 1 + (unit[1] == 'i');
    if (*unit && strcasecmp(unit, "b") != 0)
        return 0;
    *ret_unit = letter;
    return (int)n;
}

/*
 * A number that does not fit is one of the right kind, so the advice how to write one would mislead.
 * Whoever knows the range says it.
 */
void parse_error_describe(enum parse_kind kind, int error, const char *text, struct error_line *ret_line)
{
    char unit;
    int n = kind == PARSE_SIZE ? size_meant(text, &unit) : 0;

    if (error == -ENOMEM)
        (void)error_line_set(ret_line, error, "not enough memory");
    else if (error == -ERANGE)
        (void)error_line_set(ret_line, error, "'%s' is out of range", text_quote(text).text);
    else if (n > 0)
        (void)error_line_set(ret_line, error, "'%s' is not a size; write it as %.*s%c", text_quote(text).text,
                             n, text, unit);
    else
        (void)error_line_set(ret_line, error, "'%s' is not %s%s%s", text_quote(text).text, kinds[kind].what,
                             kinds[kind].example ? "; " : "", kinds[kind].example ?: "");
}

/* Weeks and days are only read: hours stay recognisable, and no parameter of ours reaches a day. */
char *format_usec(uint64_t usec, char ret[static FORMAT_BYTES])
{
    size_t n = 0;

    if (usec == 0 || usec == USEC_INFINITY)
        return strcpy(ret, usec == 0 ? "0" : "infinity");
    for (const struct unit *unit = time_units; unit->name && usec > 0; unit++) {
        if (unit->factor > USEC_PER_HOUR || usec < unit->factor)
            continue;
        n += (size_t)snprintf(ret + n, FORMAT_BYTES - n, "%s%" PRIu64 "%s", n > 0 ? " " : "",
                              usec / unit->factor, unit->name);
        usec %= unit->factor;
    }
    return ret;
}

/* The largest unit that says the size exactly or, for people, that is not larger than it. */
static const struct unit *size_unit(uint64_t bytes, bool exact)
{
    const struct unit *unit = size_units;

    while (unit->factor > 1 && (bytes < unit->factor || (exact && bytes % unit->factor != 0)))
        unit++;
    return unit;
}

/* As few digits as can be without losing any: 1536M and not 1.5G, which would have to be cut elsewhere. */
char *format_bytes(uint64_t bytes, char ret[static FORMAT_BYTES])
{
    const struct unit *unit = size_unit(bytes, true);

    (void)snprintf(ret, FORMAT_BYTES, "%" PRIu64 "%s", bytes / unit->factor,
                   unit->factor > 1 ? unit->name : "");
    return ret;
}

/* Tenths are cut, not rounded, so that what is free is never said to be more than it is. */
char *format_bytes_human(uint64_t bytes, char ret[static FORMAT_BYTES])
{
    const struct unit *unit = size_unit(bytes, false);
    uint64_t tenths = (uint64_t)((u128)(bytes % unit->factor) * 10 / unit->factor);

    if (tenths > 0)
        (void)snprintf(ret, FORMAT_BYTES, "%" PRIu64 ".%" PRIu64 "%s", bytes / unit->factor, tenths,
                       unit->name);
    else
        (void)snprintf(ret, FORMAT_BYTES, "%" PRIu64 "%s", bytes / unit->factor, unit->name);
    return ret;
}
