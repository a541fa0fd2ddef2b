/* SPDX-License-Identifier: MIT */
/* Named points at which a test can stop, kill or hold this process. */
#include "basic/testpoint.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "basic/ordering.h"

enum {
    TESTPOINT_NAME_BYTES = 64,  /* a longer name in the variable matches no point */
    TESTPOINT_PATH_BYTES = 256, /* with a longer one nothing is held */
    HOLD_STEP_NS = 1000000,     /* how soon the end of a hold is seen */
};

int testpoint_state = TESTPOINT_UNREAD;

/* Written under the lock before testpoint_state says ARMED, constant until a reload. */
static struct {
    char name[TESTPOINT_NAME_BYTES];
    int signal; /* 0: hold */
    char hold_path[TESTPOINT_PATH_BYTES];
    uint64_t nth;
} armed;

/*
 * Of the armed point, in all threads together: "the third passage" means the process, not one of its
 * threads.
 */
static uint64_t n_passages;
/* Only for the first reading; a passage takes no lock. */
static pthread_mutex_t read_lock = PTHREAD_MUTEX_INITIALIZER;

/* "kill", "stop", "hold", "kill@3"; false when it is none of these. */
static bool action_parse(const char *action, int *ret_signal, uint64_t *ret_nth)
{
    const char *at = strchrnul(action, '@');
    char *end;

    if (at - action != 4)
        return false;
    if (strncmp(action, "kill", 4) == 0)
        *ret_signal = SIGKILL;
    else if (strncmp(action, "stop", 4) == 0)
        *ret_signal = SIGSTOP;
    else if (strncmp(action, "hold", 4) == 0)
        *ret_signal = 0;
    else
        return false;
    *ret_nth = 1;
    if (!*at)
        return true;
    *ret_nth = strtoull(at + 1, &end, 10);
    return at[1] >= '0' && at[1] <= '9' && !*end;
}

/* Where there is no room for the name, or none, nothing is held. */
static void hold_path_read(void)
{
    const char *path = secure_getenv("RECLAIM_TEST_HOLD");
    size_t n = path ? strlen(path) : 0;

    armed.hold_path[0] = '\0';
    if (n > 0 && n < sizeof(armed.hold_path))
        memcpy(armed.hold_path, path, n + 1);
}

/* The part before the colon names the point, the part after it says what happens there. */
static enum testpoint_state variable_read(void)
{
    const char *value = secure_getenv("RECLAIM_TEST_POINT");
    const char *colon = value ? strchr(value, ':') : NULL;
    size_t n = colon ? (size_t)(colon - value) : 0;

    if (n == 0 || n >= sizeof(armed.name) || !action_parse(colon + 1, &armed.signal, &armed.nth))
        return TESTPOINT_OFF;
    memcpy(armed.name, value, n);
    armed.name[n] = '\0';
    hold_path_read();
    return TESTPOINT_ARMED;
}

/* Two threads may come to their first point together: one reads, the other waits and then uses it. */
static void state_read(bool again)
{
    (void)pthread_mutex_lock(&read_lock);
    if (again || load_relaxed(&testpoint_state) == TESTPOINT_UNREAD) {
        store_relaxed(&n_passages, 0);
        /* Orders the writes of `armed` before ARMED; pairs with testpoint_pass(). */
        store_release(&testpoint_state, (int)variable_read());
    }
    (void)pthread_mutex_unlock(&read_lock);
}

void testpoint_reload(void)
{
    state_read(true);
}

/* Until the file that says "here" is gone. */
static void hold(const char *path)
{
    const struct timespec step = {.tv_nsec = HOLD_STEP_NS};
    int fd = open(path, O_CREAT | O_EXCL | O_RDONLY | O_CLOEXEC, 0600);

    if (fd < 0)
        return;
    (void)close(fd);
    while (access(path, F_OK) == 0)
        (void)nanosleep(&step, NULL);
}

/*
 * Reached only while nothing has been read or a point is armed. raise() comes back after SIGSTOP when the
 * test has sent SIGCONT, and never after SIGKILL.
 */
void testpoint_pass(const char *name)
{
    if (load_relaxed(&testpoint_state) == TESTPOINT_UNREAD)
        state_read(false);
    /* Orders ARMED before the reads of `armed`; pairs with state_read(). */
    if (load_acquire(&testpoint_state) != TESTPOINT_ARMED || strcmp(name, armed.name) != 0)
        return;
    if (fetch_add_relaxed(&n_passages, 1) + 1 != armed.nth)
        return;
    if (armed.signal != 0)
        (void)raise(armed.signal);
    else
        hold(armed.hold_path);
}
