/* SPDX-License-Identifier: MIT */
/*
 * The smallest client: one greeting in shared memory, read without a lock and replaced while others read it.
 *
 *     cc -o hello hello.c $(pkg-config --cflags --libs libreclaim)
 *     ./hello 'Good morning'      writes a greeting, and says what is there
 *     ./hello                     says what is there
 */
#include <reclaim/reclaim.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct greeting {
    pid_t author;
    char text[60];
};

/* A writer: make the new one, publish it, and let the old one go when nobody can see it any more. */
static int greeting_replace(struct reclaim_lane *lane, void **root, const char *text)
{
    struct greeting *greeting = reclaim_alloc(lane, sizeof(*greeting)), *old;

    if (!greeting)
        return -errno;
    greeting->author = getpid();
    (void)snprintf(greeting->text, sizeof(greeting->text), "%s", text);
    /* Several writers may come at once; so each takes away what it replaced. One alone:
     * reclaim_assign_pointer(). */
    old = __atomic_exchange_n(root, greeting, __ATOMIC_ACQ_REL); /* pairs with reclaim_dereference() */
    return reclaim_defer_free(lane, old);
}

/* A reader: what it sees in the section stays whole until the section ends. */
static int greeting_print(struct reclaim_lane *lane, void **root)
{
    const struct greeting *greeting;
    int r = reclaim_read_lock(lane);

    if (r < 0)
        return r;
    greeting = reclaim_dereference(*root); /* pairs with the exchange in greeting_replace() */
    if (greeting)
        printf("%s (written by process %d)\n", greeting->text, (int)greeting->author);
    else
        printf("nobody has written anything yet\n");
    reclaim_read_unlock(lane);
    return 0;
}

/* All that a thread does first: its lane, and the named word where the structure begins. */
static int hello(struct reclaim *arena, const char *text)
{
    struct reclaim_lane *lane;
    void **root;
    int r = reclaim_lane_get(arena, &lane);

    if (r >= 0)
        r = reclaim_root(arena, "greeting", &root);
    if (r >= 0 && text)
        r = greeting_replace(lane, root, text);
    if (r >= 0)
        r = greeting_print(lane, root);
    if (r >= 0)
        r = reclaim_barrier(lane, NULL); /* not needed to be safe: it waits until the old greeting is freed */
    return r;
}

int main(int argc, char *argv[])
{
    char why[200] = "";
    struct reclaim_open_options options = {
        .size = sizeof(options),
        .flags = RECLAIM_CREATE,
        .arena_bytes = 1 << 20,
        .message = why,
        .message_size = sizeof(why),
    };
    struct reclaim *arena = NULL;
    int r = reclaim_open("hello", &options, &arena);

    if (r >= 0)
        r = hello(arena, argc > 1 ? argv[1] : NULL);
    if (r < 0)
        fprintf(stderr, "hello: %s\n", *why ? why : reclaim_strerror(r));
    reclaim_close(arena);
    return r < 0;
}
