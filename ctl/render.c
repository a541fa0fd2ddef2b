/* SPDX-License-Identifier: MIT */
/*
 * Replies as people read them: members by path, durations, times, names of users.
 *
 * Figures are rounded here and nowhere else, and only for people; with --json all of them are exact. The
 * accessors are forgiving: a member that is not there is nothing or zero, since reclaimctl and the daemon need
 * not be of the same version, and most of an answer is better than none.
 */
#include <grp.h>
#include <inttypes.h>
#include <pwd.h>
#include <string.h>
#include <time.h>

#include "ctl.h"

enum {
    PATH_BYTES = 64, /* longer than any path of ours */
};

/* Optional parameters are left out when they are not given: the daemon then decides what is meant. */
struct json_object *ctl_object(const char *name, const char *value)
{
    struct json_object *o = json_object_new_object();

    if (o && value)
        (void)json_object_object_add(o, name, json_object_new_string(value));
    return o;
}

/* json-c's own pointers, so that arrays are walked too. */
struct json_object *ctl_at(struct json_object *o, const char *path)
{
    char pointer[PATH_BYTES];
    struct json_object *found;

    (void)snprintf(pointer, sizeof(pointer), "/%s", path);
    return json_pointer_get(o, pointer, &found) == 0 ? found : NULL;
}

/* A daemon that is older or younger than we are may lack a member; a zero is better than no output. */
uint64_t ctl_number(struct json_object *o, const char *path)
{
    struct json_object *found = ctl_at(o, path);

    return found ? json_object_get_uint64(found) : 0;
}

/* Valid as long as the object. */
const char *ctl_text(struct json_object *o, const char *path)
{
    struct json_object *found = ctl_at(o, path);

    return found ? json_object_get_string(found) : "";
}

/* What is not there is false. */
bool ctl_boolean(struct json_object *o, const char *path)
{
    struct json_object *found = ctl_at(o, path);

    return found && json_object_get_boolean(found);
}

/* Slashes stay as they are: paths and origins are full of them, and every JSON reader takes both. */
bool ctl_print_json(struct ctl *ctl, struct json_object *o)
{
    int flags = JSON_C_TO_STRING_NOSLASHESCAPE;

    if (ctl->json == CTL_JSON_OFF)
        return false;
    flags |= ctl->json == CTL_JSON_PRETTY ? JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_SPACED
                                          : JSON_C_TO_STRING_PLAIN;
    (void)fprintf(ctl->out, "%s\n", json_object_to_json_string_ext(o, flags));
    return true;
}

struct duration_unit {
    uint64_t usec;
    const char *name;
};

static const struct duration_unit duration_units[] = {
    {24 * USEC_PER_HOUR, "d"}, {USEC_PER_HOUR, "h"},  {USEC_PER_MINUTE, "min"},
    {USEC_PER_SEC, "s"},       {USEC_PER_MSEC, "ms"}, {1, "us"},
};

/*
 * Up to a minute one unit and one decimal, from there two units; nobody reads microseconds beside days.
 * format_usec() is the exact one.
 */
char *ctl_duration(uint64_t usec, char ret[static FORMAT_BYTES])
{
    const struct duration_unit *u = duration_units;
    uint64_t rest;

    while (u->usec > 1 && usec < u->usec)
        u++;
    rest = usec % u->usec;
    if (u->usec >= USEC_PER_MINUTE && rest >= u[1].usec)
        (void)snprintf(ret, FORMAT_BYTES, "%" PRIu64 "%s %" PRIu64 "%s", usec / u->usec, u->name,
                       rest / u[1].usec, u[1].name);
    else if (u->usec < USEC_PER_MINUTE && u->usec > 1 && rest * 10 / u->usec > 0)
        (void)snprintf(ret, FORMAT_BYTES, "%" PRIu64 ".%" PRIu64 "%s", usec / u->usec, rest * 10 / u->usec,
                       u->name);
    else
        (void)snprintf(ret, FORMAT_BYTES, "%" PRIu64 "%s", usec / u->usec, u->name);
    return ret;
}

/* Local time, in the one form that sorts as text. */
char *ctl_time(uint64_t usec, char ret[static FORMAT_BYTES])
{
    time_t seconds = (time_t)(usec / USEC_PER_SEC);
    struct tm tm;

    if (usec == 0 || !localtime_r(&seconds, &tm) || strftime(ret, FORMAT_BYTES, "%F %T", &tm) == 0)
        (void)strcpy(ret, "-");
    return ret;
}

/* A name may be missing here although the daemon's side has it: other containers, other databases. */
char *ctl_user(uint64_t uid, char ret[static FORMAT_BYTES])
{
    struct passwd *user = getpwuid((uid_t)uid);

    if (user)
        (void)snprintf(ret, FORMAT_BYTES, "%s", user->pw_name);
    else
        (void)snprintf(ret, FORMAT_BYTES, "%" PRIu64, uid);
    return ret;
}

/* As ctl_user(). */
char *ctl_group(uint64_t gid, char ret[static FORMAT_BYTES])
{
    struct group *group = getgrgid((gid_t)gid);

    if (group)
        (void)snprintf(ret, FORMAT_BYTES, "%s", group->gr_name);
    else
        (void)snprintf(ret, FORMAT_BYTES, "%" PRIu64, gid);
    return ret;
}

/* English has two forms; both are the caller's. */
char *ctl_count(uint64_t n, const char *one, const char *many, char ret[static FORMAT_BYTES])
{
    (void)snprintf(ret, FORMAT_BYTES, "%" PRIu64 " %s", n, n == 1 ? one : many);
    return ret;
}
