/* SPDX-License-Identifier: MIT */
/*
 * The drop-in 50-reclaimctl.conf, which --persist writes: read whole, changed in memory,
 * written beside its place and renamed over it, so that the daemon never reads half of one. Lines that are
 * not ours to change stay as they are, comments too.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "basic/cleanup.h"
#include "basic/text.h"
#include "ctl.h"
#include "persist.h"

enum {
    SECTION_BYTES = ARENA_NAME_BYTES + 16, /* "arena " and a name */
};

static const char head[] = "# Written by reclaimctl --persist, which keeps other lines as they are.\n";

struct persist {
    char path[PATH_MAX];
    char temporary[PATH_MAX + 16];
    bool written;
    char **lines; /* without their newlines */
    size_t n_lines;
};

/* The path and the system's own reason; most often somebody may not write there. */
static int persist_fail(const struct persist *p, const char *what, int error)
{
    return ctl_fail("--persist: cannot %s %s: %s%s", what, p->path, strerror(error),
                    error == EACCES || error == EPERM ? "; it needs who may write there, usually root" : "");
}

/* Where it is, or will be after the commit. */
const char *persist_path(const struct persist *p)
{
    return p->path;
}

/* What was prepared and not committed goes, so that a refused value leaves nothing behind. */
struct persist *persist_free(struct persist *p)
{
    if (!p)
        return NULL;
    if (p->written)
        (void)unlink(p->temporary);
    for (size_t i = 0; i < p->n_lines; i++)
        free(p->lines[i]);
    free(p->lines);
    free(p);
    return NULL;
}

/* For the cleanup attribute. */
void persist_freep(struct persist **p)
{
    *p = persist_free(*p);
}

/* Takes the line and puts it at that place. */
static int lines_insert(struct persist *p, size_t at, char *line)
{
    char **lines = line ? reallocarray(p->lines, p->n_lines + 1, sizeof(*lines)) : NULL;

    if (!lines) {
        free(line);
        return -ENOMEM;
    }
    memmove(lines + at + 1, lines + at, (p->n_lines - at) * sizeof(*lines));
    lines[at] = line;
    p->lines = lines;
    p->n_lines++;
    return 0;
}

/* The order of the others is kept: comments belong to the lines below them. */
static void lines_remove(struct persist *p, size_t at)
{
    free(p->lines[at]);
    memmove(p->lines + at, p->lines + at + 1, (p->n_lines - at - 1) * sizeof(*p->lines));
    p->n_lines--;
}

/*
 * No file yet is an empty one. A last line without newline gets one when it is written back. -EBADMSG: there
 * are NUL bytes in it, so it is none of ours.
 */
static int persist_read(struct persist *p)
{
    _cleanup_fclose_ FILE *f = fopen(p->path, "re");
    _cleanup_free_ char *line = NULL;
    size_t size = 0;
    ssize_t n;

    if (!f)
        return errno == ENOENT ? 0 : -errno;
    while ((n = getline(&line, &size, f)) >= 0) {
        if (n > 0 && line[n - 1] == '\n')
            line[--n] = '\0';
        if (strlen(line) != (size_t)n)
            return -EBADMSG;
        if (lines_insert(p, p->n_lines, strdup(line)) < 0)
            return -ENOMEM;
    }
    return ferror(f) ? -EIO : 0;
}

/* The text between the brackets, blanks made equal: "arena routes". Empty: the line begins no section. */
static void section_of(const char *line, char *ret, size_t size)
{
    _cleanup_free_ char *copy = strdup(line);
    char *end, *text, *name;

    *ret = '\0';
    if (!copy || copy[0] != '[' || !(end = strchr(copy, ']')))
        return;
    *end = '\0';
    text = text_strip(copy + 1);
    name = text + strcspn(text, " \t");
    if (*name)
        *name++ = '\0';
    name = text_strip(name);
    (void)snprintf(ret, size, "%s%s%s", text, *name ? " " : "", name);
}

/* The daemon knows keys in the first column only, both kinds of blanks before the sign, and both signs. */
static bool line_has_key(const char *line, const char *name)
{
    size_t n = strlen(name);

    if (strncmp(line, name, n) != 0)
        return false;
    line += n + strspn(line + n, " \t");
    return *line == '=' || *line == ':';
}

/* The lines of one section: all that stand between its heads and the next ones, if it stands there twice too.
 */
struct section {
    char name[SECTION_BYTES];
    bool inside;
    bool found;
    size_t end; /* behind its last line that is not empty */
};

/* Follows the lines one by one; true: this one belongs to the section, and is not its head. */
static bool section_follow(struct section *s, const char *line, size_t at)
{
    char name[LINE_MAX];

    if (line[0] != '[') {
        if (s->inside && *line)
            s->end = at + 1;
        return s->inside;
    }
    section_of(line, name, sizeof(name));
    s->inside = strcmp(name, s->name) == 0;
    if (s->inside) {
        s->found = true;
        s->end = at + 1;
    }
    return false;
}

/* All of them, should it stand there twice: the daemon would refuse the second one. */
static void remove_key(struct persist *p, const char *section, const char *name)
{
    struct section s = {};

    (void)snprintf(s.name, sizeof(s.name), "%s", section);
    for (size_t i = 0; i < p->n_lines;) {
        if (section_follow(&s, p->lines[i], i) && line_has_key(p->lines[i], name))
            lines_remove(p, i);
        else
            i++;
    }
}

/* As a person would write it. */
static char *key_line(const struct persist_key *key)
{
    char *line;

    return asprintf(&line, "%s = %s", key->name, key->value) < 0 ? NULL : line;
}

/* The name has been checked: nothing in it can end the brackets. */
static char *section_line(const char *section)
{
    char *line;

    return asprintf(&line, "[%s]", section) < 0 ? NULL : line;
}

/* At the section's end; without the section, at a new one's. */
static int append_key(struct persist *p, const char *section, const struct persist_key *key)
{
    struct section s = {};
    int r = 0;

    (void)snprintf(s.name, sizeof(s.name), "%s", section);
    for (size_t i = 0; i < p->n_lines; i++)
        (void)section_follow(&s, p->lines[i], i);
    if (!s.found) {
        if (p->n_lines > 0)
            r = lines_insert(p, p->n_lines, strdup(""));
        if (r >= 0)
            r = lines_insert(p, p->n_lines, section_line(section));
        s.end = p->n_lines;
    }
    return r < 0 ? r : lines_insert(p, s.end, key_line(key));
}

/*
 * A changed key moves to the end of its section: no line is edited in place, so that a comment behind the
 * old value cannot end up in the new one.
 */
static int change_keys(struct persist *p, const char *section, const struct persist_key *keys, size_t n)
{
    int r = 0;

    for (size_t i = 0; i < n && r >= 0; i++) {
        remove_key(p, section, keys[i].name);
        if (keys[i].value)
            r = append_key(p, section, &keys[i]);
    }
    return r;
}

/*
 * Readable for the daemon's user, who is not the one who writes, and on the disk before it can take the
 * old one's place.
 */
static int write_lines(const struct persist *p, FILE *f)
{
    if (p->n_lines == 0 || strncmp(p->lines[0], head, strlen(head) - 1) != 0)
        (void)fputs(head, f);
    for (size_t i = 0; i < p->n_lines; i++)
        (void)fprintf(f, "%s\n", p->lines[i]);
    if (fflush(f) != 0 || ferror(f) || fchmod(fileno(f), 0644) < 0 || fsync(fileno(f)) < 0)
        return -errno;
    return 0;
}

/*
 * A name of its own in the same directory: a rename is whole only within a file system, and two who write
 * at once must not share a file. It does not end in .conf, so a daemon that reads meanwhile ignores it.
 */
static int persist_write(struct persist *p)
{
    _cleanup_fclose_ FILE *f = NULL;
    int fd = mkostemp(p->temporary, O_CLOEXEC);

    if (fd < 0)
        return -errno;
    p->written = true;
    f = fdopen(fd, "we");
    if (!f) {
        (void)fd_close(fd);
        return -ENOMEM;
    }
    return write_lines(p, f);
}

/* What would not be one line, or not the same value when it is read back. */
static int check_keys(const struct persist_key *keys, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strpbrk(keys[i].name, "\r\n=[]#;") || (keys[i].value && strpbrk(keys[i].value, "\r\n#;")))
            return ctl_usage("--persist: '%s' cannot stand in a configuration file",
                             text_quote(keys[i].name).text);
    return CTL_DONE;
}

/* The section of [reclaimd], or of an arena, as section_of() writes it. */
static void section_name(const char *arena, char ret[static SECTION_BYTES])
{
    (void)snprintf(ret, SECTION_BYTES, "%s%s", arena ? "arena " : "reclaimd", arena ?: "");
}

/* Reads, changes, checks. Nothing is written yet, and no directory made. */
static int persist_change(struct persist *p, const char *arena, const struct persist_key *keys, size_t n)
{
    char section[SECTION_BYTES];
    int r = persist_read(p);

    if (r < 0)
        return persist_fail(p, "read", -r);
    section_name(arena, section);
    if (change_keys(p, section, keys, n) < 0)
        return ctl_fail("out of memory");
    return persist_check_lines(p->path, p->lines, p->n_lines);
}

/* As a file that the daemon reads only at its next reload or start, it may differ from what it says now. */
bool persist_has(const char *config_file, const char *arena, const char *name, char ret_path[static PATH_MAX])
{
    _cleanup_(persist_freep) struct persist *p = calloc(1, sizeof(*p));
    struct section s = {};
    bool has = false;

    if (!p || !persist_place_read_by(config_file, p->path) || persist_read(p) < 0)
        return false;
    section_name(arena, s.name);
    for (size_t i = 0; i < p->n_lines && !has; i++)
        has = section_follow(&s, p->lines[i], i) && line_has_key(p->lines[i], name);
    if (has)
        (void)strcpy(ret_path, p->path);
    return has;
}

/* Everything that can fail but the last step is done here. */
int persist_prepare(const char *config_file, const char *arena, const struct persist_key *keys, size_t n,
                    struct persist **ret)
{
    _cleanup_(persist_freep) struct persist *p = calloc(1, sizeof(*p));
    int r;

    if (!p)
        return ctl_fail("out of memory");
    if (arena && !arena_name_is_valid(arena))
        return ctl_usage("--arena: '%s' is no arena's name", text_quote(arena).text);
    if ((r = check_keys(keys, n)) != CTL_DONE || (r = persist_place_find(config_file, p->path)) != CTL_DONE ||
        (r = persist_change(p, arena, keys, n)) != CTL_DONE)
        return r;
    r = persist_place_make(p->path);
    if (r < 0)
        return persist_fail(p, "make the directory of", -r);
    (void)snprintf(p->temporary, sizeof(p->temporary), "%s.XXXXXX", p->path);
    r = persist_write(p);
    if (r < 0)
        return persist_fail(p, "write", -r);
    *ret = steal_pointer(p);
    return CTL_DONE;
}

/* Whoever reads sees the old file or the new one. */
int persist_commit(struct persist *p)
{
    if (rename(p->temporary, p->path) < 0)
        return persist_fail(p, "write", errno);
    p->written = false;
    return CTL_DONE;
}
