/* SPDX-License-Identifier: MIT */
/*
 * What there is once a process (the lock, the list of handles, the thread-exit key) and once a thread (its
 * lanes). How it survives a fork stands in handle.h.
 */
#include "handle.h"

#include <sys/mman.h>
#include <unistd.h>

#include "basic/ordering.h"

/* Wiped in a child. Zero bytes are an unlocked mutex and an empty list. */
struct process {
    pthread_mutex_t lock;
    struct reclaim *handles;
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static int once_error;
static struct process *process;
static pthread_key_t thread_exit_key;
static __thread struct lane *thread_lanes;

/* Whole pages: the kernel wipes no less. */
void *wiped_new(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (memory == MAP_FAILED)
        return NULL;
    if (madvise(memory, bytes, MADV_WIPEONFORK) < 0)
        return wiped_free(memory, bytes);
    return memory;
}

void *wiped_free(void *memory, size_t bytes)
{
    if (memory)
        (void)munmap(memory, bytes);
    return NULL;
}

void process_lock(void)
{
    (void)pthread_mutex_lock(&process->lock);
}

void process_unlock(void)
{
    (void)pthread_mutex_unlock(&process->lock);
}

/* At thread exit. Another thread's reclaim_close() may have taken some of the lanes away already. */
static void thread_exit(void *lanes)
{
    struct lane **head = lanes;

    if (*head && !(*head)->thread)
        *head = NULL; /* the parent's, wiped by the fork */
    while (*head)
        lane_release(*head);
}

/*
 * Around fork(): a child that does not exec at once must not keep our connection open, or the daemon would
 * not see that we have gone. The numbers are in wiped memory, so they are noted before; a handle is on the
 * list before it has a descriptor, and each comes and goes under the lock that is held here. _Fork() and a
 * raw clone() do not come by here, nor do more arenas than this in one process: there the child keeps their
 * descriptors until it execs.
 */
#define NOTED_MAX 96
static int noted[NOTED_MAX];
static unsigned n_noted;

/* -1: nothing. */
static void fd_close(int fd)
{
    if (fd >= 0)
        (void)close(fd);
}

static void fork_prepare(void)
{
    process_lock();
    n_noted = 0;
    for (struct reclaim *r = process->handles; r && n_noted + 3 <= NOTED_MAX; r = r->next) {
        noted[n_noted++] = r->socket;
        noted[n_noted++] = r->eventfd;
        noted[n_noted++] = r->peer;
    }
}

static void fork_parent(void)
{
    process_unlock();
}

static void fork_child(void)
{
    while (n_noted > 0)
        fd_close(noted[--n_noted]);
}

/* Runs once a process and its children: the key and the handlers are inherited, and so is the page, wiped. */
static void process_make(void)
{
    process = wiped_new(sizeof(*process));
    if (!process)
        once_error = -ENOMEM;
    else if (pthread_key_create(&thread_exit_key, thread_exit) != 0)
        once_error = -EAGAIN;
    else
        once_error = -pthread_atfork(fork_prepare, fork_parent, fork_child);
}

int process_init(void)
{
    (void)pthread_once(&once, process_make);
    return once_error;
}

void process_handle_add(struct reclaim *r)
{
    process_lock();
    r->next = process->handles;
    process->handles = r;
    process_unlock();
}

void process_handle_remove(struct reclaim *r)
{
    process_lock();
    for (struct reclaim **at = &process->handles; *at; at = &(*at)->next)
        if (*at == r) {
            *at = r->next;
            break;
        }
    fd_close(r->socket);
    fd_close(r->eventfd);
    fd_close(r->peer);
    r->socket = r->eventfd = r->peer = -1;
    process_unlock();
}

/* Different for each thread that lives; the number would cost a system call. */
void *thread_self(void)
{
    return &thread_lanes;
}

int thread_lane_add(struct lane *l)
{
    int r = -pthread_setspecific(thread_exit_key, &thread_lanes);

    if (r < 0)
        return r;
    l->thread = thread_self();
    l->next_of_thread = thread_lanes;
    thread_lanes = l;
    return 0;
}

void thread_lane_remove(struct lane *l)
{
    for (struct lane **at = &thread_lanes; *at; at = &(*at)->next_of_thread)
        if (*at == l) {
            *at = l->next_of_thread;
            return;
        }
}

/*
 * Also forgets what the parent's thread had (wiped: no thread) and frees what another thread's
 * reclaim_close() left. No lock: lanes leave this list by this thread alone.
 */
struct lane *thread_lane_find(const struct reclaim *r)
{
    struct lane *next;

    if (thread_lanes && !thread_lanes->thread)
        thread_lanes = NULL;
    for (struct lane *l = thread_lanes; l; l = next) {
        /* Relaxed: only its being ours matters, and nobody else changes that while the handle is in use. */
        const struct reclaim *owner = load_relaxed(&l->r);

        next = l->next_of_thread;
        if (owner == r)
            return l;
        if (!owner)
            lane_release(l);
    }
    return NULL;
}

bool thread_in_section(void)
{
    bool in_section = false;

    process_lock(); /* against reclaim_close() by another thread, which unmaps slots */
    for (struct lane *l = thread_lanes; l && !in_section; l = l->next_of_thread)
        in_section = l->front.slot && load_relaxed(l->front.slot) != 0; /* only this thread writes it */
    process_unlock();
    return in_section;
}

int thread_cancel_disable(void)
{
    int state;

    (void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    return state;
}

void thread_cancel_restore(int state)
{
    (void)pthread_setcancelstate(state, NULL);
}
