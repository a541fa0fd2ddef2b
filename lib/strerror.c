/* SPDX-License-Identifier: MIT */
/* What a negative errno of this library means, in words. */
#include "handle.h"

#include "basic/macro.h"

static const struct {
    int error;
    const char *words;
} table[] = {
    {0, "no error"},
    {-ENOENT, "there is no arena or root of that name"},
    {-EEXIST, "an arena of that name is there already"},
    {-EACCES, "this user may not open the arena"},
    {-EPERM, "this user may not do that"},
    {-ECONNREFUSED, "no daemon answers"},
    {-ECONNRESET, "the daemon closed the connection"},
    {-EPROTO, "the daemon does not speak this library's protocol"},
    {-EADDRINUSE, "the arena's address is in use in this process"},
    {-EMFILE, "a limit of the daemon's on arenas, clients or lanes is reached"},
    {-ENOSPC, "a limit of the daemon's on memory or roots is reached"},
    {-ENOMEM, "no memory"},
    {-EINVAL, "not a valid argument, or not an object of this arena"},
    {-EROFS, "the arena was opened to read only"},
    {-ESTALE, "this handle belongs to the parent process: open the arena here"},
    {-ESHUTDOWN, "the daemon is gone, or it has evicted this client"},
    {-EDEADLK, "in a read section, where this would never end"},
    {-EOVERFLOW, "read sections are nested too deep"},
    {-EAGAIN, "the daemon did not make room in time"},
    {-ETIMEDOUT, "not in time"},
    {-EINTR, "a signal was handled meanwhile"},
    {-EOWNERDEAD, "the daemon has died, and its connection is still open: another may take over"},
    {-ENAMETOOLONG, "the path of the daemon's socket is too long"},
    {-ENOTSUP,
     "this C library's robust mutexes are not what the daemon expects, or this kernel has no pidfds"},
};

const char *reclaim_strerror(int error)
{
    for (size_t i = 0; i < ARRAY_SIZE(table); i++)
        if (table[i].error == error)
            return table[i].words;
    return "an error of the operating system"; /* errno's own words: strerror(-error) */
}
