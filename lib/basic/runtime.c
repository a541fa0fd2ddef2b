/* SPDX-License-Identifier: MIT */
/* Where the daemon's sockets are. */
#include "basic/runtime.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

assert_cc(RUNTIME_PATH_BYTES == sizeof(((struct sockaddr_un *)NULL)->sun_path));

/* A variable of the environment. Empty is unset; a set-uid program must not listen to its caller. */
static const char *environment_get(const char *name)
{
    const char *value = secure_getenv(name);

    return value && *value ? value : NULL;
}

/* Joins directory and name (NULL: none), without doubling a slash. */
static int path_join(const char *directory, const char *name, char ret[static RUNTIME_PATH_BYTES])
{
    size_t n = strlen(directory);
    int n_written;

    while (n > 1 && directory[n - 1] == '/')
        n--;
    if (n >= RUNTIME_PATH_BYTES)
        return -ENAMETOOLONG;
    n_written = snprintf(ret, RUNTIME_PATH_BYTES, "%.*s%s%s", (int)n, directory,
                         name && directory[n - 1] != '/' ? "/" : "", name ? name : "");
    return n_written < RUNTIME_PATH_BYTES ? 0 : -ENAMETOOLONG;
}

/*
 * The argument first, then what the environment says of us, then where the service is, then where a user's
 * own would be. Nothing is tried: whether anybody listens there is seen at connect().
 */
static int directory_find(const char *argument, char ret[static RUNTIME_PATH_BYTES])
{
    const char *directory;

    if (argument)
        return *argument ? path_join(argument, NULL, ret) : -EINVAL;
/* One variable for daemon, control tool and library alike, so that they meet. */
    directory = environment_get("RECLAIMD_RUNTIME_DIRECTORY");
    if (directory)
        return path_join(directory, NULL, ret);
    if (geteuid() == 0)
        return path_join("/run/reclaimd", NULL, ret);
    directory = environment_get("XDG_RUNTIME_DIR");
    /* The variable's own specification says that a relative path is to be ignored. */
    return directory && *directory == '/' ? path_join(directory, "reclaimd", ret) : -ENXIO;
}

/*
 * All three or none: a directory whose sockets could not be named is refused before anything is made in it.
 */
int runtime_paths_find(const char *argument, struct runtime_paths *ret)
{
    struct runtime_paths paths;
    int r;

    r = directory_find(argument, paths.directory);
    if (r < 0)
        return r;
    r = path_join(paths.directory, "control", paths.control);
    if (r < 0)
        return r;
    r = path_join(paths.directory, "client", paths.client);
    if (r < 0)
        return r;
    *ret = paths;
    return 0;
}

/* Each names the way out; the default is for what the functions above may come to return. */
void runtime_error_describe(int error, struct error_line *ret_line)
{
    switch (error) {
    case -EINVAL:
        (void)error_line_set(ret_line, error, "the runtime directory is empty; name one");
        break;
    case -ENXIO:
        (void)error_line_set(ret_line, error,
                             "no runtime directory: XDG_RUNTIME_DIR is not set; "
                             "use --runtime-directory or set RECLAIMD_RUNTIME_DIRECTORY");
        break;
    case -ENAMETOOLONG:
        (void)error_line_set(ret_line, error,
                             "the runtime directory's path is too long for a socket; "
                             "use one of at most %zu bytes",
                             RUNTIME_PATH_BYTES - sizeof("/control"));
        break;
    default:
        (void)error_line_set(ret_line, error, "cannot find the runtime directory: %s", strerror(-error));
    }
}
