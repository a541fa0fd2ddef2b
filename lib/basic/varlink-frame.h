/* SPDX-License-Identifier: MIT */
/*
 * Varlink on the wire: JSON texts, each ended by a NUL byte, over a Unix stream socket. This is the framing
 * that server and clients share, and a small blocking client. Neither looks into the texts: no JSON library
 * is needed.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    VARLINK_MESSAGE_MAX_BYTES = 1024 * 1024, /* without its NUL; what a hostile peer can make us hold */
    VARLINK_FRAME_READ_BYTES = 64 * 1024,    /* at a time, so that no peer keeps a server busy for long */
    VARLINK_FRAME_INITIAL_BYTES = 512,       /* holds most calls */
};

/*
 * Bytes in, messages out. Zero-initialised it is an empty frame with the largest limit.
 *
 *     data: | taken | messages and the beginning of one | room |
 *                   ^ begin       ^ scanned             ^ end  ^ allocated
 */
struct varlink_frame {
    char *data;
    size_t begin;   /* first byte that was not taken */
    size_t scanned; /* there is no NUL in begin..scanned */
    size_t end;
    size_t allocated;
    size_t max_bytes; /* of one message; 0: VARLINK_MESSAGE_MAX_BYTES */
};

void varlink_frame_deinit(struct varlink_frame *f);

/* Room for at least n bytes behind the end, for varlink_frame_commit(). Messages taken before are invalid
 * then. */
int varlink_frame_reserve(struct varlink_frame *f, size_t n, char **ret_room);

/* n bytes, at most those reserved, were written into the room. */
void varlink_frame_commit(struct varlink_frame *f, size_t n);

/* The two above for bytes that are already somewhere. */
int varlink_frame_append(struct varlink_frame *f, const void *bytes, size_t n);

/*
 * The next whole message: 1 and a NUL-terminated text that is valid until the next reserve or append; 0:
 * there is none yet; -EMSGSIZE: it is longer than allowed, and nothing that follows can be made out any more.
 */
int varlink_frame_take(struct varlink_frame *f, const char **ret_message, size_t *ret_length);

/* Bytes that came and were not taken. */
static inline size_t varlink_frame_pending(const struct varlink_frame *f)
{
    return f->end - f->begin;
}

/* Drops n bytes of those pending: for a frame that serves as a queue of bytes to be sent. */
void varlink_frame_drop(struct varlink_frame *f, size_t n);

/* Gives the memory back if there is nothing in it. */
void varlink_frame_trim(struct varlink_frame *f);

struct varlink_client;

/* Connects to the socket at that path: -ENAMETOOLONG when it does not fit, else as connect(2). */
int varlink_client_connect(const char *path, struct varlink_client **ret);

/* The same over a connected socket, which is the client's from then on, also on failure. */
int varlink_client_new(int fd, struct varlink_client **ret);
struct varlink_client *varlink_client_free(struct varlink_client *c);
void varlink_client_freep(struct varlink_client **c);

/* Sends one message. Blocks until the socket has taken it; -EPIPE or -ECONNRESET: the peer is gone. */
int varlink_client_send(struct varlink_client *c, const char *message);

/*
 * Waits for the next message; the text is valid until the next call. -ECONNRESET: the peer hung up before a
 * whole message was there; -ETIMEDOUT after so many microseconds of silence (UINT64_MAX: never); -EMSGSIZE as
 * above.
 */
int varlink_client_receive(struct varlink_client *c, uint64_t timeout_usec, const char **ret_message);

/* For poll(2); the client's own. */
int varlink_client_fd(const struct varlink_client *c);
