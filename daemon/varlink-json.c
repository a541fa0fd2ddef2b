/* SPDX-License-Identifier: MIT */
/*
 * What peers send, before anybody acts on it: the check of the text, and decoding by table.
 *
 * json-c forgives too much for a peer that is not trusted (a key that stands twice, a NUL inside a key, a
 * megabyte of empty arrays), so the text is checked here by the letter of RFC 8259 first. The check allocates
 * nothing and looks at each byte once, but for keys, which are compared within their own object.
 */
#include <errno.h>
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>

#include "basic/macro.h"
#include "basic/text.h"
#include "varlink.h"

struct span {
    const char *text;
    size_t length;
};

struct scanner {
    const char *at, *end;
    unsigned depth;
    unsigned n_values;
    char *key; /* where to say which key is wrong */
};

static int scan_value(struct scanner *s);

/* The four that JSON has; isspace() knows more, and depends on the locale. */
static void scan_blanks(struct scanner *s)
{
    while (s->at < s->end && (*s->at == ' ' || *s->at == '\t' || *s->at == '\n' || *s->at == '\r'))
        s->at++;
}

/* Takes the character if it is the next one. */
static bool scan_char(struct scanner *s, char c)
{
    if (s->at == s->end || *s->at != c)
        return false;
    s->at++;
    return true;
}

/* Not isdigit(), which is not made for signed characters. */
static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Either case. */
static bool is_hex(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

/* Behind a backslash. */
static int scan_escape(struct scanner *s)
{
    if (s->at == s->end || !*s->at || !strchr("\"\\/bfnrtu", *s->at))
        return -EBADMSG;
    if (*s->at++ != 'u')
        return 0;
    for (int i = 0; i < 4; i++, s->at++)
        if (s->at == s->end || !is_hex(*s->at))
            return -EBADMSG;
    return 0;
}

/* A string with its quotes; the span is what stands between them. UTF-8 is for json-c to check. */
static int scan_string(struct scanner *s, struct span *ret)
{
    const char *begin = s->at + 1;
    int r;

    if (!scan_char(s, '"'))
        return -EBADMSG;
    while (!scan_char(s, '"')) {
        if (s->at == s->end || (unsigned char)*s->at < ' ')
            return -EBADMSG;
        if (*s->at++ != '\\')
            continue;
        r = scan_escape(s);
        if (r < 0)
            return r;
    }
    *ret = (struct span){begin, (size_t)(s->at - 1 - begin)};
    return 0;
}

/* At least one. */
static bool scan_digits(struct scanner *s)
{
    const char *begin = s->at;

    while (s->at < s->end && is_digit(*s->at))
        s->at++;
    return s->at > begin;
}

/*
 * No leading zeros or plus, and digits on both sides of a point. What it is worth is json-c's business.
 */
static int scan_number(struct scanner *s)
{
    const char *first;

    (void)scan_char(s, '-');
    first = s->at;
    if (!scan_digits(s) || (*first == '0' && s->at - first > 1))
        return -EBADMSG;
    if (scan_char(s, '.') && !scan_digits(s))
        return -EBADMSG;
    if (scan_char(s, 'e') || scan_char(s, 'E')) {
        (void)(scan_char(s, '-') || scan_char(s, '+'));
        if (!scan_digits(s))
            return -EBADMSG;
    }
    return 0;
}

/* What follows it is checked by whoever expects a comma or an end there. */
static int scan_word(struct scanner *s, const char *word)
{
    size_t n = strlen(word);

    if ((size_t)(s->end - s->at) < n || memcmp(s->at, word, n) != 0)
        return -EBADMSG;
    s->at += n;
    return 0;
}

/* Says which key is refused; QUOTED_TEXT_BYTES is no more than there is room for. */
static int scan_refuse_key(struct scanner *s, const struct span *key)
{
    char copy[VARLINK_KEY_BYTES];
    size_t n = MIN(key->length, sizeof(copy) - 1);

    assert_cc((int)QUOTED_TEXT_BYTES <= (int)VARLINK_KEY_BYTES);
    memcpy(copy, key->text, n);
    copy[n] = '\0';
    (void)strcpy(s->key, text_quote(copy).text);
    return -EINVAL;
}

/* A key with an escape could be a second name for another one: nobody who means well needs that. */
static int scan_key(struct scanner *s, struct span *keys, size_t *n_keys)
{
    struct span key;
    int r = scan_string(s, &key);

    if (r < 0)
        return r;
    if (*n_keys == VARLINK_KEYS_MAX || memchr(key.text, '\\', key.length))
        return scan_refuse_key(s, &key);
    for (size_t i = 0; i < *n_keys; i++)
        if (keys[i].length == key.length && memcmp(keys[i].text, key.text, key.length) == 0)
            return scan_refuse_key(s, &key);
    keys[(*n_keys)++] = key;
    return 0;
}

/* A key, a colon and a value. */
static int scan_member(struct scanner *s, struct span *keys, size_t *n_keys)
{
    int r;

    scan_blanks(s);
    r = scan_key(s, keys, n_keys);
    if (r < 0)
        return r;
    scan_blanks(s);
    return scan_char(s, ':') ? scan_value(s) : -EBADMSG;
}

/* Keys stand on the stack, two words each, for all levels together some 32 KiB. */
static int scan_object(struct scanner *s)
{
    struct span keys[VARLINK_KEYS_MAX];
    size_t n_keys = 0;
    int r;

    scan_blanks(s);
    if (scan_char(s, '}'))
        return 0;
    do {
        r = scan_member(s, keys, &n_keys);
        if (r < 0)
            return r;
    } while (scan_char(s, ','));
    return scan_char(s, '}') ? 0 : -EBADMSG;
}

/* An array of any length: the number of values bounds it. */
static int scan_array(struct scanner *s)
{
    int r;

    scan_blanks(s);
    if (scan_char(s, ']'))
        return 0;
    do {
        r = scan_value(s);
        if (r < 0)
            return r;
    } while (scan_char(s, ','));
    return scan_char(s, ']') ? 0 : -EBADMSG;
}

/* The only recursion, and it is counted. */
static int scan_container(struct scanner *s)
{
    bool object = *s->at++ == '{';
    int r;

    if (++s->depth > VARLINK_DEPTH_MAX)
        return -EBADMSG;
    r = object ? scan_object(s) : scan_array(s);
    s->depth--;
    return r;
}

/* The first character decides. */
static int scan_scalar(struct scanner *s)
{
    struct span string;

    switch (*s->at) {
    case '"':
        return scan_string(s, &string);
    case 't':
        return scan_word(s, "true");
    case 'f':
        return scan_word(s, "false");
    case 'n':
        return scan_word(s, "null");
    default:
        return scan_number(s);
    }
}

/* A value with the blanks on both of its sides. */
static int scan_value(struct scanner *s)
{
    int r;

    scan_blanks(s);
    if (s->at == s->end || ++s->n_values > VARLINK_VALUES_MAX)
        return -EBADMSG;
    r = *s->at == '{' || *s->at == '[' ? scan_container(s) : scan_scalar(s);
    scan_blanks(s);
    return r;
}

/*
 * The outermost value has the same rules as all others; that a message is an object is checked when it is
 * decoded.
 */
int varlink_json_check(const char *text, size_t length, char ret_key[static VARLINK_KEY_BYTES])
{
    struct scanner s = {.at = text, .end = text + length, .key = ret_key};
    int r = scan_value(&s);

    if (r < 0)
        return r;
    return s.at == s.end ? 0 : -EBADMSG;
}

/* The type has been checked before any setter is called. */
int varlink_set_boolean(struct json_object *value, void *bool_destination)
{
    *(bool *)bool_destination = json_object_get_boolean(value);
    return 0;
}

/* json-c turns what does not fit into the nearest that does, so the largest number is not to be trusted. */
int varlink_set_unsigned(struct json_object *value, void *uint64_destination)
{
    int64_t n = json_object_get_int64(value);

    if (n < 0 || n == INT64_MAX)
        return -ERANGE;
    *(uint64_t *)uint64_destination = (uint64_t)n;
    return 0;
}

/* For numbers whose zero means something. */
int varlink_set_optional(struct json_object *value, void *optional_destination)
{
    struct varlink_optional *o = optional_destination;
    int r = varlink_set_unsigned(value, &o->value);

    if (r < 0)
        return r;
    o->present = true;
    return 0;
}

/* A NUL that was written as an escape would hide the rest of a name from everybody who compares. */
int varlink_set_string(struct json_object *value, void *const_char_destination)
{
    const char *text = json_object_get_string(value);

    if (strlen(text) != (size_t)json_object_get_string_len(value))
        return -EINVAL;
    *(const char **)const_char_destination = text;
    return 0;
}

/* For whoever looks into it himself. */
int varlink_set_json(struct json_object *value, void *json_object_destination)
{
    *(struct json_object **)json_object_destination = value;
    return 0;
}

/* Floating point is no type of ours: no call needs one. */
static enum json_type json_type_of(enum varlink_type type)
{
    static const enum json_type table[_VARLINK_TYPE_MAX] = {
        [VARLINK_BOOLEAN] = json_type_boolean, [VARLINK_INTEGER] = json_type_int,
        [VARLINK_STRING] = json_type_string,   [VARLINK_ARRAY] = json_type_array,
        [VARLINK_OBJECT] = json_type_object,
    };

    return table[type];
}

/* Tables are short. */
static const struct varlink_field *field_find(const struct varlink_field *fields, const char *name)
{
    for (const struct varlink_field *f = fields; f && f->name; f++)
        if (strcmp(f->name, name) == 0)
            return f;
    return NULL;
}

/* The type first, so that setters can rely on it. */
static int field_decode(const struct varlink_field *f, struct json_object *value, void *ret)
{
    if (!json_object_is_type(value, json_type_of(f->type)))
        return -EINVAL;
    return f->set(value, (char *)ret + f->offset);
}

/* Goes on after the first failure, so that whoever answers it knows as much as there is to know. */
int varlink_decode(struct json_object *object, const struct varlink_field *fields, void *ret,
                   const char **ret_field)
{
    const struct varlink_field *f;
    const char *failed = NULL;
    struct json_object *value;

    json_object_object_foreach(object, name, member)
    {
        f = field_find(fields, name);
        if (!f || (member && field_decode(f, member, ret) < 0))
            failed = failed ?: name;
    }
    for (f = fields; f && f->name; f++)
        if (f->required && !(json_object_object_get_ex(object, f->name, &value) && value))
            failed = failed ?: f->name;
    if (!failed)
        return 0;
    *ret_field = failed;
    return -EINVAL;
}
