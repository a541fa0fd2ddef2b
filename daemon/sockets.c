/* SPDX-License-Identifier: MIT */
/* Listening sockets; see sockets.h. */
#include "sockets.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <systemd/sd-daemon.h>

#include "basic/cleanup.h"

#define BACKLOG 128

static struct sockaddr_un address_of(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};

    /* its length was checked with the paths */
    (void)strncpy(address.sun_path, path, sizeof(address.sun_path) - 1);
    return address;
}

/* 1: somebody listens there; 0: nobody does (no node, or a stale one). */
static int socket_is_live(const char *path, int type)
{
    struct sockaddr_un address = address_of(path);
    _cleanup_close_ int fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return -errno;
    if (connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0 || errno == EAGAIN)
        return 1;
    return errno == ECONNREFUSED || errno == ENOENT ? 0 : -errno;
}

static int socket_listen(const char *path, int type, int *ret_fd, struct error_line *why)
{
    struct sockaddr_un address = address_of(path);
    _cleanup_close_ int fd = -EBADF;
    struct stat st;
    int live;

    if (lstat(path, &st) == 0 && !S_ISSOCK(st.st_mode))
        return error_line_set(why, -EEXIST, "%s is in the way and no socket; remove it", path);
    live = socket_is_live(path, type);
    if (live > 0)
        return error_line_set(why, -EADDRINUSE, "somebody listens on %s already", path);
    if (live < 0 && live != -EPROTOTYPE)
        return error_line_set(why, live, "cannot use %s: %s", path, strerror(-live));
    (void)unlink(path);
    fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 || chmod(path, 0666) < 0 ||
        listen(fd, BACKLOG) < 0)
        return error_line_set(why, -errno, "cannot listen on %s: %s", path, strerror(errno));
    *ret_fd = steal_fd(&fd);
    return 0;
}

/* Holds for our life, and nothing is left behind when that ends, however it does. */
static int directory_lock(struct sockets *s, struct error_line *why)
{
    if (mkdir(s->paths.directory, 0755) < 0 && errno != EEXIST)
        return error_line_set(why, -errno, "cannot make %s: %s", s->paths.directory, strerror(errno));
    s->lock_fd = open(s->paths.directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (s->lock_fd < 0)
        return error_line_set(why, -errno, "cannot open %s: %s", s->paths.directory, strerror(errno));
    if (flock(s->lock_fd, LOCK_EX | LOCK_NB) < 0)
        return error_line_set(why, -EADDRINUSE,
                              "another reclaimd runs in %s; stop it or choose --runtime-directory",
                              s->paths.directory);
    return 0;
}

static int sockets_make(struct sockets *s, struct error_line *why)
{
    int r = directory_lock(s, why);

    if (r == 0)
        r = socket_listen(s->paths.control, SOCK_STREAM, &s->control_fd, why);
    if (r == 0)
        r = socket_listen(s->paths.client, SOCK_SEQPACKET, &s->client_fd, why);
    s->made = r == 0;
    return r;
}

static void strings_free(char **strings)
{
    for (char **p = strings; p && *p; p++)
        free(*p);
    free(strings);
}

/* Whatever comes under another name is closed, so that nothing stays open that nobody serves. */
static int sockets_inherit(struct sockets *s, struct error_line *why)
{
    char **names = NULL;
    int n = sd_listen_fds_with_names(true, &names);

    for (int i = 0; i < n; i++) {
        int fd = SD_LISTEN_FDS_START + i;

        if (strcmp(names[i], "control") == 0 && s->control_fd < 0 &&
            sd_is_socket(fd, AF_UNIX, SOCK_STREAM, 1) > 0)
            s->control_fd = fd;
        else if (strcmp(names[i], "client") == 0 && s->client_fd < 0 &&
                 sd_is_socket(fd, AF_UNIX, SOCK_SEQPACKET, 1) > 0)
            s->client_fd = fd;
        else
            (void)fd_close(fd);
    }
    strings_free(names);
    if (n <= 0)
        return n;
    if (s->control_fd < 0 || s->client_fd < 0)
        return error_line_set(
            why, -EINVAL,
            "the service manager gave %d sockets, but not both `control` (stream) and `client` (seqpacket); "
            "start reclaimd-control.socket and reclaimd-client.socket",
            n);
    /* Again, so that clients see our process as their peer, not the one that made the socket: lib/message.c. */
    if (listen(s->client_fd, BACKLOG) < 0)
        return error_line_set(why, -errno,
                              "cannot listen on the `client` socket that the service manager gave: %s",
                              strerror(errno));
    return 1;
}

int sockets_open(const char *runtime_directory, struct sockets *ret, struct error_line *why)
{
    struct sockets s = {.control_fd = -EBADF, .client_fd = -EBADF, .lock_fd = -EBADF};
    int r = sockets_inherit(&s, why);

    if (r == 0) {
        r = runtime_paths_find(runtime_directory, &s.paths);
        if (r < 0)
            runtime_error_describe(r, why);
        else
            r = sockets_make(&s, why);
    }
    if (r < 0) {
        sockets_close(&s);
        return r;
    }
    *ret = s;
    return 0;
}

void sockets_close(struct sockets *s)
{
    s->control_fd = fd_close(s->control_fd);
    s->client_fd = fd_close(s->client_fd);
    if (s->made) {
        (void)unlink(s->paths.control);
        (void)unlink(s->paths.client);
    }
    s->made = false;
    s->lock_fd = fd_close(s->lock_fd);
}
