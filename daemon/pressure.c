/* SPDX-License-Identifier: MIT */
/* Watching for memory pressure; see pressure.h. */
#include "pressure.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "basic/base64.h"
#include "basic/cleanup.h"
#include "clock.h"
#include "log.h"

/* Some task waited for memory 150 ms in 2 s: what systemd asks for by default, in the smallest window that
 * anybody may. */
#define KERNEL_FILE "/proc/pressure/memory"
#define KERNEL_TRIGGER "some 150000 2000000"

#define BACK_OFF_USEC 1000000u
#define HIGH_USEC 10000000u
#define TRIGGER_BYTES_MAX 256

struct pressure {
    struct event_base *base;
    struct event *event;
    int fd, epoll_fd;
    bool is_stream; /* FIFO or socket: what arrives is read and thrown away */
    uint64_t acted_usec, n_acted, n_passed;
    int told; /* why nothing is watched, as was logged; 0: it is watched */
    void (*act)(void *userdata);
    void *userdata;
};

static void pressure_close(struct pressure *p)
{
    if (p->event)
        event_free(p->event);
    p->event = NULL;
    p->fd = fd_close(p->fd);
    p->epoll_fd = fd_close(p->epoll_fd);
}

/* What arrived is of no interest, but that it did. False: there will be no more. */
static bool pressure_read(struct pressure *p)
{
    struct pollfd state = {.fd = p->fd, .events = POLLPRI};
    char ignored[512];

    if (p->is_stream)
        return read(p->fd, ignored, sizeof(ignored)) != 0;
    /* a control group that is gone says so for ever */
    return poll(&state, 1, 0) < 0 || !(state.revents & POLLERR);
}

static void pressure_event(evutil_socket_t fd, short what, void *userdata)
{
    struct pressure *p = userdata;
    uint64_t now = now_usec();

    (void)fd;
    (void)what;
    if (!pressure_read(p)) {
        log_notice("memory pressure is watched no more: the other end of MEMORY_PRESSURE_WATCH was closed");
        pressure_close(p);
        return;
    }
    if (p->acted_usec != 0 && now - p->acted_usec < BACK_OFF_USEC) {
        p->n_passed++;
        return;
    }
    p->acted_usec = now;
    p->n_acted++;
    log_notice("memory is short: draining, purging, dropping caches");
    p->act(p->userdata);
}

static int open_socket(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    _cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return -errno;
    if (strlen(path) >= sizeof(address.sun_path))
        return -ENAMETOOLONG;
    (void)strncpy(address.sun_path, path, sizeof(address.sun_path) - 1);
    if (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
        return -errno;
    return steal_fd(&fd);
}

/*
 * Whatever the path is. A FIFO is opened for writing too, so that it does not end when its other writers go.
 */
static int open_path(const char *path, bool *ret_is_stream)
{
    struct stat st;
    int fd;

    if (stat(path, &st) < 0)
        return -errno;
    *ret_is_stream = S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode);
    if (S_ISSOCK(st.st_mode))
        return open_socket(path);
    fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

static int write_trigger(int fd, const void *trigger, size_t n)
{
    return n == 0 || write(fd, trigger, n) == (ssize_t)n ? 0 : -errno;
}

static int open_systemd(struct pressure *p, const char *path)
{
    const char *encoded = getenv("MEMORY_PRESSURE_WRITE");
    uint8_t trigger[TRIGGER_BYTES_MAX];
    ssize_t n = encoded ? base64_decode(encoded, trigger, sizeof(trigger)) : 0;

    if (n < 0)
        return -EINVAL;
    p->fd = open_path(path, &p->is_stream);
    return p->fd < 0 ? p->fd : write_trigger(p->fd, trigger, (size_t)n);
}

static int open_kernel(struct pressure *p)
{
    p->is_stream = false;
    p->fd = open(KERNEL_FILE, O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (p->fd < 0)
        return -errno;
    return write_trigger(p->fd, KERNEL_TRIGGER,
                         sizeof(KERNEL_TRIGGER)); /* with its NUL, as the kernel wants it */
}

/* libevent knows no priority events, which is how PSI speaks; an epoll descriptor around it is readable
 * instead. */
static int watch_fd(struct pressure *p)
{
    struct epoll_event event = {.events = p->is_stream ? EPOLLIN : EPOLLPRI};

    p->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (p->epoll_fd < 0 || epoll_ctl(p->epoll_fd, EPOLL_CTL_ADD, p->fd, &event) < 0)
        return -errno;
    p->event = event_new(p->base, p->epoll_fd, EV_READ | EV_PERSIST, pressure_event, p);
    return p->event && event_add(p->event, NULL) == 0 ? 0 : -ENOMEM;
}

/* Once for each reason: every change of a parameter comes here. */
static void pressure_tell(struct pressure *p, const char *path, int r)
{
    if (r != p->told && r < 0)
        log_message(
            path ? LOG_WARNING : LOG_NOTICE,
            "memory pressure is not watched: %s: %s; purge-threshold and purge-delay alone give memory back",
            path ? path : KERNEL_FILE, strerror(-r));
    p->told = r;
}

static void pressure_open(struct pressure *p)
{
    const char *path = getenv("MEMORY_PRESSURE_WATCH");
    int r;

    if (path && strcmp(path, "/dev/null") == 0) /* how the service manager says: do not */
        return;
    r = path ? open_systemd(p, path) : open_kernel(p);
    if (r == 0)
        r = watch_fd(p);
    pressure_tell(p, path, r);
    if (r < 0)
        pressure_close(p);
}

int pressure_new(struct event_base *base, void (*act)(void *userdata), void *userdata, struct pressure **ret)
{
    struct pressure *p = calloc(1, sizeof(*p));

    if (!p)
        return -ENOMEM;
    *p = (struct pressure){.base = base, .fd = -EBADF, .epoll_fd = -EBADF, .act = act, .userdata = userdata};
    *ret = p;
    return 0;
}

struct pressure *pressure_free(struct pressure *p)
{
    if (!p)
        return NULL;
    pressure_close(p);
    free(p);
    return NULL;
}

void pressure_set(struct pressure *p, bool watch)
{
    if (!watch)
        pressure_close(p);
    else if (!p->event)
        pressure_open(p);
}

bool pressure_is_high(const struct pressure *p)
{
    return p->acted_usec != 0 && now_usec() - p->acted_usec < HIGH_USEC;
}

uint64_t pressure_n_acted(const struct pressure *p)
{
    return p->n_acted;
}

uint64_t pressure_n_passed(const struct pressure *p)
{
    return p->n_passed;
}
