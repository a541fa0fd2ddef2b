/* SPDX-License-Identifier: MIT */
/* Posts to the main thread: a wait-free queue and an eventfd; see mainqueue.h. */
#include "mainqueue.h"

#include <errno.h>
#include <event2/event.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "basic/cleanup.h"
#include "basic/macro.h"

struct mainqueue {
    struct __cds_wfcq_head head;
    struct cds_wfcq_tail tail;
    struct event *event;
    int fd;
};

void mainqueue_flush(struct mainqueue *q)
{
    struct cds_wfcq_node *node;

    while ((node = __cds_wfcq_dequeue_blocking(&q->head, &q->tail))) {
        struct main_post *post = container_of(node, struct main_post, node);

        post->run(post);
    }
}

static void mainqueue_dispatch(evutil_socket_t fd, short what, void *userdata)
{
    eventfd_t count;

    (void)what;
    (void)eventfd_read(fd, &count); /* before emptying: a post after it makes the descriptor ready again */
    mainqueue_flush(userdata);
}

int mainqueue_new(struct event_base *base, struct mainqueue **ret)
{
    struct mainqueue *q = calloc(1, sizeof(*q));

    if (!q)
        return -ENOMEM;
    __cds_wfcq_init(&q->head, &q->tail);
    q->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (q->fd >= 0)
        q->event = event_new(base, q->fd, EV_READ | EV_PERSIST, mainqueue_dispatch, q);
    if (!q->event || event_add(q->event, NULL) < 0) {
        (void)mainqueue_free(q);
        return -ENOMEM;
    }
    *ret = q;
    return 0;
}

struct mainqueue *mainqueue_free(struct mainqueue *q)
{
    if (!q)
        return NULL;
    if (q->event)
        event_free(q->event);
    (void)fd_close(q->fd);
    free(q);
    return NULL;
}

void mainqueue_post(struct mainqueue *q, struct main_post *post, void (*run)(struct main_post *post))
{
    post->run = run;
    cds_wfcq_node_init(&post->node);
    (void)cds_wfcq_enqueue(&q->head, &q->tail, &post->node);
    (void)eventfd_write(q->fd, 1); /* cannot fail but for a full counter, which is ready anyway */
}
