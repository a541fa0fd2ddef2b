/* SPDX-License-Identifier: MIT */
/* What the text of a parameter means: reading, range, writing, and the field of the struct that holds it. */
#include "parameters.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "basic/macro.h"
#include "basic/parse.h"

/* For each type, how parse.h calls what was expected. Choices and groups have words of their own. */
static const enum parse_kind parse_kinds[PARAMETER_TYPE_MAX] = {
    [PARAMETER_TIME] = PARSE_TIME,       [PARAMETER_SIZE] = PARSE_SIZE,  [PARAMETER_COUNT] = PARSE_NUMBER,
    [PARAMETER_PERCENT] = PARSE_PERCENT, [PARAMETER_SHARE] = PARSE_SIZE, [PARAMETER_BOOLEAN] = PARSE_BOOLEAN,
};

uint64_t parameter_share_bytes(struct parameter_share share, uint64_t whole_bytes)
{
    if (!share.is_percent)
        return share.value;
    /* Divided first, so that it cannot overflow; the remainder's part is added after. */
    return whole_bytes / 100 * share.value + whole_bytes % 100 * share.value / 100;
}

/*
 * A bare number in the way the parameter's values are written. The same function writes values, bounds and
 * ranges, so they look alike in every message.
 */
static const char *number_format(const struct parameter *parameter, uint64_t number, bool is_percent,
                                 char ret[static FORMAT_BYTES])
{
    if (is_percent || parameter->type == PARAMETER_PERCENT)
        (void)snprintf(ret, FORMAT_BYTES, "%" PRIu64 "%%", number);
    else if (parameter->type == PARAMETER_TIME)
        (void)format_usec(number, ret);
    else if (parameter->type == PARAMETER_SIZE || parameter->type == PARAMETER_SHARE)
        (void)format_bytes(number, ret);
    else
        (void)snprintf(ret, FORMAT_BYTES, "%" PRIu64, number);
    return ret;
}

/* All of a choice's words; the table's are few and short enough, and a test formats each. */
static char *choices_format(const struct parameter *parameter, char ret[static PARAMETER_RANGE_BYTES])
{
    size_t n = 0;

    for (const char *const *word = parameter->choices; *word; word++)
        n += (size_t)snprintf(ret + n, PARAMETER_RANGE_BYTES - n, "%s%s", n > 0 ? ", " : "", *word);
    assert(n < PARAMETER_RANGE_BYTES);
    return ret;
}

/* A type with words of its own shows those; all the others are two bounds. */
char *parameter_range_format(const struct parameter *parameter, char ret[static PARAMETER_RANGE_BYTES])
{
    char min[FORMAT_BYTES], max[FORMAT_BYTES];
    const char *special = parameter->special & PARAMETER_MAY_BE_OFF    ? " or off"
                          : parameter->special & PARAMETER_MAY_BE_AUTO ? " or auto"
                                                                       : "";

    switch (parameter->type) {
    case PARAMETER_CHOICE:
        return choices_format(parameter, ret);
    case PARAMETER_BOOLEAN:
        return strcpy(ret, "no, yes");
    case PARAMETER_GROUP:
        (void)snprintf(ret, PARAMETER_RANGE_BYTES, "a group's name%s", special);
        return ret;
    default:
        (void)snprintf(ret, PARAMETER_RANGE_BYTES, "%s%.20s..%.20s%s",
                       parameter->type == PARAMETER_SHARE ? "1%..100% or " : "",
                       number_format(parameter, parameter->min, false, min),
                       number_format(parameter, parameter->max, false, max), special);
        return ret;
    }
}

/*
 * Exactly the word: a choice is written by programs as often as by people, and there is one way to read it
 * back.
 */
static int choice_parse(const struct parameter *parameter, const char *text, struct parameter_value *value,
                        struct error_line *ret_why)
{
    char range[PARAMETER_RANGE_BYTES];

    for (uint64_t i = 0; parameter->choices[i]; i++)
        if (strcmp(parameter->choices[i], text) == 0) {
            value->number = i;
            return 0;
        }
    return error_line_set(ret_why, -EINVAL, "%s: '%s' is not one of %s", parameter->name,
                          text_quote(text).text, choices_format(parameter, range));
}

static int group_parse(const struct parameter *parameter, const char *text, struct parameter_value *value,
                       struct error_line *ret_why)
{
    /* The characters of an arena's name are also those that every distribution allows for a group. */
    if (!arena_name_is_valid(text) || *text == '-' || strlen(text) >= PARAMETER_WORD_BYTES)
        return error_line_set(ret_why, -EINVAL,
                              "%s: '%s' is not a group's name; use at most %d letters, "
                              "digits, '.', '_' and '-', or off",
                              parameter->name, text_quote(text).text, PARAMETER_WORD_BYTES - 1);
    strcpy(value->word, text);
    return 0;
}

/*
 * The words that stand beside a type's values. Tried first and only where the row allows it. No number can
 * be mistaken for them: both are above every range, which range_check() makes sure of.
 */
static bool special_parse(const struct parameter *parameter, const char *text, struct parameter_value *value)
{
    if (parameter->special & PARAMETER_MAY_BE_OFF && strcmp(text, "off") == 0)
        value->number = PARAMETER_OFF;
    else if (parameter->special & PARAMETER_MAY_BE_AUTO && strcmp(text, "auto") == 0)
        value->number = PARAMETER_AUTO;
    else
        return false;
    return true;
}

/* Reads the number of a type without looking at its range. */
static int number_parse(const struct parameter *parameter, const char *text, struct parameter_value *value)
{
    unsigned percent;
    bool is;
    int r;

    switch (parameter->type) {
    case PARAMETER_TIME:
        return parse_usec(text, &value->number);
    case PARAMETER_SIZE:
        return parse_bytes(text, &value->number);
    case PARAMETER_COUNT:
        return parse_u64(text, 0, UINT64_MAX, &value->number);
    case PARAMETER_BOOLEAN:
        r = parse_boolean(text, &is);
        value->number = r >= 0 && is;
        return r;
    case PARAMETER_SHARE:
        if (!strchr(text, '%'))
            return parse_bytes(text, &value->number);
        value->is_percent = true;
        /* fall through */
    default:
        r = parse_percent(text, &percent);
        value->number = r >= 0 ? percent : 0;
        return r;
    }
}

/* "drain-interval: '5us' is below 1ms; range 1ms..1h": the bound that was passed, then both. */
static int range_complain(const struct parameter *parameter, const char *text, const char *relation,
                          const char *bound, struct error_line *ret_why)
{
    char range[PARAMETER_RANGE_BYTES];

    return error_line_set(ret_why, -ERANGE, "%s: '%s' is %s %s; range %s", parameter->name,
                          text_quote(text).text, relation, bound, parameter_range_format(parameter, range));
}

/* A share has two ranges: the row holds the one in bytes, and a percentage is always 1..100. */
static int range_check(const struct parameter *parameter, const char *text,
                       const struct parameter_value *value, struct error_line *ret_why)
{
    uint64_t min = value->is_percent ? 1 : parameter->min;
    uint64_t max = value->is_percent ? 100 : parameter->max;
    char bound[FORMAT_BYTES];

    if (value->number < min)
        return range_complain(parameter, text, "below",
                              number_format(parameter, min, value->is_percent, bound), ret_why);
    if (value->number > max)
        return range_complain(parameter, text, "above",
                              number_format(parameter, max, value->is_percent, bound), ret_why);
    return 0;
}

/*
 * What is wrong with the form, by the kind that the text seems to be: with a % it was meant as a percentage.
 */
static int number_complain(const struct parameter *parameter, const char *text, int error, bool is_percent,
                           struct error_line *ret_why)
{
    struct error_line line;
    char bound[FORMAT_BYTES];

    /* What does not even fit is above every range. */
    if (error == -ERANGE)
        return range_complain(parameter, text, "above",
                              number_format(parameter, is_percent ? 100 : parameter->max, is_percent, bound),
                              ret_why);
    parse_error_describe(is_percent ? PARSE_PERCENT : parse_kinds[parameter->type], error, text, &line);
    return error_line_set(ret_why, error, "%s: %.*s%s", parameter->name, ERROR_LINE_BYTES - 64, line.text,
                          parameter->special & PARAMETER_MAY_BE_OFF    ? ", or off"
                          : parameter->special & PARAMETER_MAY_BE_AUTO ? ", or auto"
                                                                       : "");
}

/* Everything goes through here: files, --set, the wire. So every one of them gives the same answer. */
int parameter_value_parse(const struct parameter *parameter, const char *text, struct parameter_value *ret,
                          struct error_line *ret_why)
{
    struct parameter_value value = {};
    int r = 0;

    if (special_parse(parameter, text, &value)) {
        *ret = value;
        return 0;
    }
    if (parameter->type == PARAMETER_CHOICE) {
        r = choice_parse(parameter, text, &value, ret_why);
    } else if (parameter->type == PARAMETER_GROUP) {
        r = group_parse(parameter, text, &value, ret_why);
    } else {
        r = number_parse(parameter, text, &value);
        if (r < 0)
            return number_complain(parameter, text, r, value.is_percent, ret_why);
        r = range_check(parameter, text, &value, ret_why);
    }
    if (r >= 0)
        *ret = value;
    return r;
}

/* The inverse. What it writes is what list-parameters shows, and what --print-config writes into a file. */
char *parameter_value_format(const struct parameter *parameter, const struct parameter_value *value,
                             char ret[static PARAMETER_TEXT_BYTES])
{
    const char *word = NULL;

    if (parameter->special & PARAMETER_MAY_BE_OFF && value->number == PARAMETER_OFF)
        word = "off";
    else if (parameter->special & PARAMETER_MAY_BE_AUTO && value->number == PARAMETER_AUTO)
        word = "auto";
    else if (parameter->type == PARAMETER_CHOICE)
        word = parameter->choices[value->number];
    else if (parameter->type == PARAMETER_BOOLEAN)
        word = value->number ? "yes" : "no";
    else if (parameter->type == PARAMETER_GROUP)
        word = value->word;
    if (word)
        return strcpy(ret, word);
    (void)number_format(parameter, value->number, value->is_percent, ret);
    return ret;
}

assert_cc((int)FORMAT_BYTES <= (int)PARAMETER_TEXT_BYTES);
/* Choices are read and written as an int, whatever enum the field has. */
assert_cc(sizeof(enum gp_wait) == sizeof(int) && sizeof(enum wake_from_gp) == sizeof(int));
assert_cc(sizeof(enum stall_action) == sizeof(int) && sizeof(enum memory_pressure) == sizeof(int));

/*
 * The one place, with its inverse below, that knows which field has which type; the rows' offsets are typed
 * by it.
 */
void parameter_value_store(const struct parameter *parameter, const struct parameter_value *value,
                           void *target)
{
    void *field = (char *)target + parameter->offset;

    switch (parameter->type) {
    case PARAMETER_BOOLEAN:
        *(bool *)field = value->number != 0;
        return;
    case PARAMETER_CHOICE:
        *(int *)field = (int)value->number;
        return;
    case PARAMETER_SHARE:
        *(struct parameter_share *)field = (struct parameter_share){value->number, value->is_percent};
        return;
    case PARAMETER_GROUP:
        memcpy(field, value->word, sizeof(value->word));
        return;
    default:
        *(uint64_t *)field = value->number;
    }
}

/*
 * A group that is off is an empty name in the struct, so that whoever uses it needs no second word for
 * "none"; here it becomes the special again.
 */
void parameter_value_load(const struct parameter *parameter, const void *from, struct parameter_value *ret)
{
    const void *field = (const char *)from + parameter->offset;
    struct parameter_value value = {};

    switch (parameter->type) {
    case PARAMETER_BOOLEAN:
        value.number = *(const bool *)field;
        break;
    case PARAMETER_CHOICE:
        value.number = (uint64_t) * (const int *)field;
        break;
    case PARAMETER_SHARE:
        value.number = ((const struct parameter_share *)field)->value;
        value.is_percent = ((const struct parameter_share *)field)->is_percent;
        break;
    case PARAMETER_GROUP:
        memcpy(value.word, field, sizeof(value.word));
        value.number = *value.word ? 0 : PARAMETER_OFF;
        break;
    default:
        value.number = *(const uint64_t *)field;
    }
    *ret = value;
}

int parameter_set(const struct parameter *parameter, const char *text, void *target,
                  struct error_line *ret_why)
{
    struct parameter_value value;
    int r = parameter_value_parse(parameter, text, &value, ret_why);

    if (r < 0)
        return r;
    parameter_value_store(parameter, &value, target);
    return 0;
}

char *parameter_format(const struct parameter *parameter, const void *from,
                       char ret[static PARAMETER_TEXT_BYTES])
{
    struct parameter_value value;

    parameter_value_load(parameter, from, &value);
    return parameter_value_format(parameter, &value, ret);
}
