/* SPDX-License-Identifier: MIT */
/*
 * A private daemon for the case tests, the programs that talk to it, and processes and threads that misbehave on order.
 *
 * Everything lives in one fresh directory: sockets, the daemon's log. Whatever can wait has a bound that no working
 * build comes near; reaching it means "hang" and fails the test. Assertions of cmocka are for the test's own process:
 * a child says what is wrong with CHECK() and its exit status.
 */
#ifndef RECLAIM_TEST_DAEMON_FIXTURE_H
#define RECLAIM_TEST_DAEMON_FIXTURE_H

#include <errno.h>
#include <json-c/json.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include <cmocka.h>

#include <reclaim/reclaim.h>

#include "abi.h"

enum {
    HANG_SECONDS = 30, /* nothing that works takes as long, sanitizers and valgrind included */
    NOBODY = 65534,    /* the second real user */
    WORDS_BYTES = 512,
};

#define MIB_BYTES (1ull << 20)

/* ---- Waiting ------------------------------------------------------------------------------------------------------- */

void sleep_ms(long ms);
uint64_t clock_ms(void);

/* Polls until the condition holds; false after HANG_SECONDS. */
#define wait_until(condition)                                                                                \
    __extension__({                                                                                          \
        uint64_t until_end_ = clock_ms() + HANG_SECONDS * 1000u;                                             \
        bool until_is_ = (condition);                                                                        \
        while (!until_is_ && clock_ms() < until_end_) {                                                      \
            sleep_ms(2);                                                                                     \
            until_is_ = (condition);                                                                         \
        }                                                                                                    \
        until_is_;                                                                                           \
    })

/* ---- The daemon ---------------------------------------------------------------------------------------------------- */

struct daemon {
    char directory[64];
    char control[96];
    char client[96];
    char log[96];
    pid_t pid;                /* 0: not running */
    void (*before_exec)(void *); /* in the child that becomes the daemon */
    void *userdata;
};

/* When there is none yet: for who needs its name before the start. */
void daemon_make_directory(struct daemon *d);
/* Arguments after the runtime directory, ended by NULL. Makes the directory when there is none yet; returns once the
   daemon listens. */
void daemon_start(struct daemon *d, ...) __attribute__((sentinel));
/* Starts it where another may run already, and waits for its end: its exit status; words: what it said. */
int daemon_try(struct daemon *d, char words[static WORDS_BYTES], ...) __attribute__((sentinel));
void daemon_audit(const struct daemon *d); /* must be clean */
void daemon_terminate(struct daemon *d);   /* SIGTERM; must end with 0 */
void daemon_kill(struct daemon *d);        /* SIGKILL */
/* SIGSTOP and SIGCONT: it stands still meanwhile, whoever calls. */
void daemon_halt(const struct daemon *d);
void daemon_go_on(const struct daemon *d);
/* audit, SIGTERM, then the directory goes; d may be started again afterwards. */
void daemon_stop(struct daemon *d);
void daemon_remove(struct daemon *d); /* the directory alone */
/* cmocka's teardown of a test whose state is a struct daemon: also after a failed assertion. */
int daemon_teardown(void **state);
/* In a table of tests: each of them with the struct daemon d. */
#define daemon_test(name) cmocka_unit_test_prestate_setup_teardown(name, NULL, daemon_teardown, &d)

char *daemon_log(const struct daemon *d); /* the caller frees it */
bool daemon_log_has(const struct daemon *d, const char *words);
bool daemon_lives(const struct daemon *d);
unsigned daemon_n_fds(const struct daemon *d);
bool daemon_has_open(const struct daemon *d, const char *path); /* also part of a name, as of memfds */
/* What all its memfds of a name that holds this one take together, as the kernel has it. */
uint64_t daemon_memfd_bytes(const struct daemon *d, const char *name);
/* What the file of the daemon's only arena takes: st_blocks, as the kernel has it. */
uint64_t daemon_file_bytes(const struct daemon *d);

/* ---- reclaimctl ---------------------------------------------------------------------------------------------------- */

struct ctl_result {
    int status; /* exit status */
    char *out;
    char *err;
};

/* Runs reclaimctl with these arguments, ended by NULL. Free with ctl_result_deinit(). */
struct ctl_result ctl_run(const struct daemon *d, ...) __attribute__((sentinel));
void ctl_result_deinit(struct ctl_result *r);
/* Must succeed; prints nothing of interest. */
void ctl_do(const struct daemon *d, ...) __attribute__((sentinel));
/* Must succeed and print JSON; json_object_put() it. */
json_object *ctl_json(const struct daemon *d, ...) __attribute__((sentinel));
/* Must fail with that status, nothing on stdout, one line on stderr that holds the words. */
void ctl_refused(const struct daemon *d, int status, const char *words, ...) __attribute__((sentinel));
int64_t arena_figure(const struct daemon *d, const char *arena, const char *name);
size_t n_clients(const struct daemon *d);
/* A field of the client with that process id; fails when there is none. */
json_object *client_find(json_object *clients, pid_t pid);

/* ---- Clients ------------------------------------------------------------------------------------------------------- */

/* words may be NULL. Opens, or makes with bytes > 0. */
int try_open(const struct daemon *d, const char *arena, unsigned flags, uint64_t bytes, mode_t mode, char *words,
             struct reclaim **ret);
struct reclaim *must_open(const struct daemon *d, const char *arena);
struct reclaim_lane *must_lane(struct reclaim *r);
void *must_alloc(struct reclaim_lane *l, size_t bytes);
struct abi_lane *lane_shared(const struct reclaim_lane *l); /* what the library writes, for tests that write it too */

/* A child process: its exit status is what run() returns. */
pid_t child_start(int (*run)(void *), void *userdata);
int child_wait(pid_t pid); /* status of waitpid(); a hang fails the test */
void child_must_succeed(pid_t pid);
void child_kill(pid_t pid); /* SIGKILL, and reaped */

#define CHECK(condition)                                                                                     \
    do {                                                                                                     \
        if (!(condition)) {                                                                                  \
            (void)fprintf(stderr, "%s:%d: in a child: %s does not hold\n", __FILE__, __LINE__, #condition);  \
            _exit(1);                                                                                        \
        }                                                                                                    \
    } while (0)

/* ---- A thread that does what it is told, with a lane of its own ---------------------------------------------------- */

struct actor {
    struct reclaim *r;
    struct reclaim_lane *lane;
    pthread_t thread;
    pid_t tid;
    sem_t go, done;
    void *(*act)(struct actor *a, void *userdata); /* NULL: end */
    void *userdata;
    void *result;
};

void actor_start(struct actor *a, struct reclaim *r);
void *actor_do(struct actor *a, void *(*act)(struct actor *a, void *userdata), void *userdata); /* and waits */
void actor_begin(struct actor *a, void *(*act)(struct actor *a, void *userdata), void *userdata);
void *actor_end(struct actor *a); /* of what was begun */
void actor_stop(struct actor *a);
void *act_read_lock(struct actor *a, void *userdata);
void *act_read_unlock(struct actor *a, void *userdata);
void actor_start_reading(struct actor *reader, struct reclaim *r); /* .. which is in a section then */

/* A daemon with an arena `a` of 16 MiB, which is opened here: our lane, and a reader in a section. */
struct reclaim_lane *must_lane_beside_reader(struct daemon *d, struct actor *reader, struct reclaim **ret);

static inline struct timespec seconds(unsigned n)
{
    return (struct timespec){.tv_sec = n};
}

#endif
