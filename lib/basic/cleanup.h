/* SPDX-License-Identifier: MIT */
/*
 * Ownership by scope: a variable that is marked here gives back what it holds when it goes out of scope.
 * steal_*() takes the thing out of the variable, which then has nothing to give back. A destructor for
 * _cleanup_() takes a pointer to the variable; DEFINE_CLEANUP() makes one from an ordinary f(T *) destructor.
 */
#pragma once

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define _cleanup_(function) __attribute__((cleanup(function)))

/* close() that keeps errno, ignores a negative number and returns -EBADF: fd = fd_close(fd). */
static inline int fd_close(int fd)
{
    if (fd >= 0) {
        int saved = errno;

        (void)close(fd);
        errno = saved;
    }
    return -EBADF;
}

/* Close and invalidate: the variable never names a number that somebody else may have been given since. */
static inline void fd_closep(int *fd)
{
    *fd = fd_close(*fd);
}

/* The fd now belongs to the caller; the variable holds none. */
static inline int steal_fd(int *fd)
{
    int stolen = *fd;

    *fd = -EBADF;
    return stolen;
}

/* The pointer now belongs to the caller; the variable is NULL. */
#define steal_pointer(variable)                                                                              \
    __extension__({                                                                                          \
        __typeof__(variable) *steal_from_ = &(variable);                                                     \
        __typeof__(variable) stolen_ = *steal_from_;                                                         \
        *steal_from_ = NULL;                                                                                 \
        stolen_;                                                                                             \
    })

/* static void fp(T *variable), which calls f() on what is not NULL. */
#define DEFINE_CLEANUP(type, function)                                                                       \
    static inline void function##p(type *variable)                                                           \
    {                                                                                                        \
        if (*variable)                                                                                       \
            (void)function(*variable);                                                                       \
        *variable = NULL;                                                                                    \
    }                                                                                                        \
    struct cleanup_semicolon_

static inline void freep(void *variable)
{
    free(*(void **)variable);
    *(void **)variable = NULL;
}

DEFINE_CLEANUP(FILE *, fclose);
DEFINE_CLEANUP(DIR *, closedir);

#define _cleanup_free_ _cleanup_(freep)
#define _cleanup_close_ _cleanup_(fd_closep)
#define _cleanup_fclose_ _cleanup_(fclosep)
#define _cleanup_closedir_ _cleanup_(closedirp)
