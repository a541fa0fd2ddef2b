/* SPDX-License-Identifier: MIT */
/*
 * Where the drop-in lies, and whether the daemon would read what is in it.
 *
 * Only the daemon knows which configuration it was started with, so it is asked; RECLAIMD_CONFIG_DIRECTORY
 * counts more, for those who prepare a configuration for another machine.
 */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "basic/cleanup.h"
#include "basic/text.h"
#include "ctl.h"
#include "persist.h"

enum {
    LINE_BYTES_MAX = 199, /* of what the daemon reads as one line */
};

static const char drop_ins[] = "reclaimd.conf.d";
static const char file_name[] = "50-reclaimctl.conf";

/* A device or a pipe as configuration means that there shall be none, and nothing can lie beside it. */
static int fail_no_file(const char *config_file)
{
    return ctl_fail("--persist: the daemon reads %s, which is no file, so no drop-in either; start it "
                    "with another --config",
                    config_file);
}

/* The variable is looked at first: it is how one gets on without knowing what the daemon reads. */
int persist_place_find(const char *config_file, char ret[static PATH_MAX])
{
    const char *directory = getenv("RECLAIMD_CONFIG_DIRECTORY");
    struct stat st;
    int n;

    if (directory && *directory)
        n = snprintf(ret, PATH_MAX, "%s/%s/%s", directory, drop_ins, file_name);
    else if (*config_file != '/')
        return ctl_fail("--persist: the daemon does not say which configuration it reads; name its "
                        "directory in RECLAIMD_CONFIG_DIRECTORY");
    else if (stat(config_file, &st) == 0 && !S_ISREG(st.st_mode))
        return fail_no_file(config_file);
    else
        n = snprintf(ret, PATH_MAX, "%s.d/%s", config_file, file_name);
    if (n < 0 || n >= PATH_MAX)
        return ctl_fail("--persist: the configuration directory's path is too long");
    return CTL_DONE;
}

/* Whatever the environment says: what counts here is what the daemon will read. */
bool persist_place_read_by(const char *config_file, char ret[static PATH_MAX])
{
    int n = snprintf(ret, PATH_MAX, "%s.d/%s", config_file, file_name);

    return *config_file == '/' && n > 0 && n < PATH_MAX && access(ret, R_OK) == 0;
}

/* Readable for the daemon's user whatever the caller's umask: what it cannot read, it refuses to start with. */
static int directory_make(const char *path)
{
    if (mkdir(path, 0755) < 0)
        return errno == EEXIST ? 0 : -errno;
    return chmod(path, 0755) < 0 ? -errno : 0;
}

/* Cuts the path's last part; false: there is none to cut. */
static bool path_cut(char *path)
{
    char *slash = strrchr(path, '/');

    if (!slash || slash == path)
        return false;
    *slash = '\0';
    return true;
}

/* Two levels and no more: a misspelt directory should not come into being with all that lies above it. */
int persist_place_make(const char *path)
{
    char drop_in_directory[PATH_MAX], directory[PATH_MAX];
    int r = 0;

    (void)snprintf(drop_in_directory, sizeof(drop_in_directory), "%s", path);
    if (!path_cut(drop_in_directory))
        return 0;
    (void)strcpy(directory, drop_in_directory);
    if (path_cut(directory))
        r = directory_make(directory);
    return r < 0 ? r : directory_make(drop_in_directory);
}

/* By what the paths lead to, links and all; by the paths alone where nothing is there. */
bool persist_place_is_read(const char *path, const char *config_file)
{
    char directory[PATH_MAX], read[PATH_MAX];
    _cleanup_free_ char *real = NULL, *real_read = NULL;

    (void)snprintf(directory, sizeof(directory), "%s", path);
    (void)path_cut(directory);
    if ((size_t)snprintf(read, sizeof(read), "%s.d", config_file) >= sizeof(read))
        return false;
    real = realpath(directory, NULL);
    real_read = realpath(read, NULL);
    return strcmp(real ? real : directory, real_read ? real_read : read) == 0;
}

/* Both signs, as in the daemon's reader. */
static bool is_comment(const char *text)
{
    return *text == '#' || *text == ';';
}

/* [reclaimd] or [arena NAME], and nothing but a comment behind it. */
static const char *section_complaint(const char *line)
{
    static const char complaint[] =
        "this is no section that reclaimd knows; it is [reclaimd] or [arena NAME]";
    _cleanup_free_ char *copy = strdup(line);
    char *end = copy ? strchr(copy, ']') : NULL, *name, *rest;

    if (!end)
        return complaint;
    *end = '\0';
    rest = text_strip(end + 1);
    if (*rest && !is_comment(rest))
        return complaint;
    name = text_strip(copy + 1);
    if (strcmp(name, "reclaimd") == 0)
        return NULL;
    if (strncmp(name, "arena", 5) != 0 || !isspace((unsigned char)name[5]))
        return complaint;
    return arena_name_is_valid(text_strip(name + 5)) ? NULL : complaint;
}

/* The daemon's own rules for one line, but for names and values, which only it knows. */
static const char *line_complaint(const char *line, bool in_section)
{
    const char *text = line + strspn(line, " \t\r\f\v");
    size_t n = strcspn(line, "=:");

    if (!*text || is_comment(text))
        return NULL;
    if (strlen(line) > LINE_BYTES_MAX)
        return "this line is longer than reclaimd reads";
    if (*line == '[')
        return section_complaint(line);
    if (text != line)
        return "this line begins with blanks; let it begin in the first column";
    if (n == 0 || !line[n])
        return "this is neither [section] nor NAME = VALUE";
    return in_section ? NULL : "this stands before any section; write [reclaimd] above it";
}

/* The first one is enough: who mends it tries again. */
int persist_check_lines(const char *path, char *const *lines, size_t n)
{
    bool in_section = false;

    for (size_t i = 0; i < n; i++) {
        const char *complaint = line_complaint(lines[i], in_section);

        if (complaint)
            return ctl_fail(
                "--persist: %s:%zu: %s; the daemon would refuse the whole file, so nothing was changed", path,
                i + 1, complaint);
        in_section = in_section || lines[i][0] == '[';
    }
    return CTL_DONE;
}
