/* SPDX-License-Identifier: MIT */
/* The library without a daemon: attaching, what it refuses, lanes, forks, closing. */
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>

#include "fake-daemon.h"

static int setup(void **state)
{
    *state = fake_start();
    return 0;
}

static int teardown(void **state)
{
    fake_free(*state);
    return 0;
}

static unsigned count_fds(void)
{
    unsigned n = 0;

    for (int fd = 0; fd < 256; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

static int open_named(struct fake *f, const char *name, struct reclaim_open_options opt,
                      char message[static 256])
{
    struct reclaim *r = (struct reclaim *)0x1;
    int error;

    message[0] = '\0';
    opt.size = sizeof(opt);
    opt.runtime_directory = f->directory;
    opt.message = message;
    opt.message_size = 256;
    error = reclaim_open(name, &opt, &r);
    if (error < 0)
        assert_ptr_equal(r, (struct reclaim *)0x1);
    else
        reclaim_close(r);
    return error;
}

/* ---- attaching ---- */

static void test_open_request(void **state)
{
    struct fake *f = *state;
    struct reclaim_open_options opt = {.flags = RECLAIM_CREATE | RECLAIM_EXCL | RECLAIM_TRANSIENT,
                                       .arena_bytes = (1 << 20) + 1,
                                       .mode = 0640};
    char message[256];

    assert_int_equal(open_named(f, "a.b_C-9", opt, message), 0);
    assert_int_equal(f->last.flags & ~ABI_OPEN_MUST_FENCE,
                     ABI_OPEN_CREATE | ABI_OPEN_EXCL | ABI_OPEN_TRANSIENT);
    assert_int_equal(f->last.arena_bytes, (1 << 20) + 65536);
    assert_int_equal(f->last.mode, 0640);
    assert_int_equal(f->last.fingerprint, ABI_FINGERPRINT);
    assert_string_equal(f->last.name, "a.b_C-9");
    assert_int_equal(f->last_credentials.pid, getpid());
    assert_int_equal(f->last_credentials.uid, geteuid());
    opt = (struct reclaim_open_options){.flags = RECLAIM_CREATE, .arena_bytes = 1 << 20};
    assert_int_equal(open_named(f, "x", opt, message), 0);
    assert_int_equal(f->last.mode, 0600);
    assert_string_equal(message, "");
}

static void test_open_bad_arguments(void **state)
{
    struct fake *f = *state;
    struct reclaim_open_options plain = {0}, opt;
    char message[256], name[64];
    const char *bad[] = {"", "a/b", "a b", "\xc3\xa4", "a\n", NULL};

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        assert_int_equal(open_named(f, bad[i], plain, message), -EINVAL);
        assert_non_null(strstr(message, "name"));
    }
    memset(name, 'x', 49);
    name[49] = '\0';
    assert_int_equal(open_named(f, name, plain, message), -EINVAL);
    name[48] = '\0';
    assert_int_equal(open_named(f, name, plain, message), 0);
    opt = (struct reclaim_open_options){.flags = RECLAIM_CREATE, .arena_bytes = (1 << 20) - 1};
    assert_int_equal(open_named(f, "x", opt, message), -EINVAL);
    assert_non_null(strstr(message, "1 MiB"));
    opt.arena_bytes = (2ull << 40) + 1;
    assert_int_equal(open_named(f, "x", opt, message), -EINVAL);
    opt = (struct reclaim_open_options){.flags = RECLAIM_CREATE, .arena_bytes = 1 << 20, .mode = 01600};
    assert_int_equal(open_named(f, "x", opt, message), -EINVAL);
    opt = (struct reclaim_open_options){.flags = RECLAIM_EXCL};
    assert_int_equal(open_named(f, "x", opt, message), -EINVAL);
    opt = (struct reclaim_open_options){.flags = 1u << 30};
    assert_int_equal(open_named(f, "x", opt, message), -EINVAL);
    assert_int_equal(reclaim_open("x", NULL, NULL), -EINVAL);
}

/* Programs built against an earlier or a later header. */
static void test_open_option_sizes(void **state)
{
    struct fake *f = *state;
    struct {
        struct reclaim_open_options known;
        uint64_t later;
    } opt = {.known = {.size = sizeof(opt), .runtime_directory = f->directory}};
    char beyond[16] = "beyond";
    struct reclaim *r;

    assert_int_equal(reclaim_open("x", &opt.known, &r), 0);
    reclaim_close(r);
    opt.later = 1;
    assert_int_equal(reclaim_open("x", &opt.known, &r), -EINVAL);
    opt.known.size = 4;
    assert_int_equal(reclaim_open("x", &opt.known, &r), -EINVAL);
    opt.known.size = offsetof(struct reclaim_open_options, message);
    opt.known.message = beyond; /* not there in that earlier version */
    opt.known.message_size = sizeof(beyond);
    assert_int_equal(reclaim_open("x", &opt.known, &r), 0);
    reclaim_close(r);
    assert_int_equal(reclaim_open("not a name", &opt.known, &r), -EINVAL);
    assert_string_equal(beyond, "beyond");
}

static void test_open_no_daemon(void **state)
{
    struct fake nowhere = {.directory = "/tmp/reclaim-not-there"}, too_long = {0}, *f = *state;
    struct reclaim_open_options opt = {0};
    char message[256], directory[200];
    struct reclaim *r;

    assert_int_equal(open_named(&nowhere, "x", opt, message), -ECONNREFUSED);
    assert_non_null(strstr(message, "/tmp/reclaim-not-there/client"));
    memset(directory, 'd', sizeof(directory) - 1);
    directory[sizeof(directory) - 1] = '\0';
    opt = (struct reclaim_open_options){.size = sizeof(opt), .runtime_directory = directory};
    assert_int_equal(reclaim_open("x", &opt, &r), -ENAMETOOLONG);
    (void)too_long;
    fake_stop(f);
    assert_int_equal(open_named(f, "x", (struct reclaim_open_options){0}, message), -ECONNREFUSED);
}

static void test_open_environment(void **state)
{
    struct fake *f = *state;
    struct reclaim *r;

    setenv("RECLAIMD_RUNTIME_DIRECTORY", f->directory, 1);
    assert_int_equal(reclaim_open("x", NULL, &r), 0);
    assert_int_equal(f->last.flags & ~ABI_OPEN_MUST_FENCE, 0);
    reclaim_close(r);
    unsetenv("RECLAIMD_RUNTIME_DIRECTORY");
}

static void test_open_refused(void **state)
{
    struct fake *f = *state;
    char message[256];

    fake_set(f, reply_error, -EMFILE);
    fake_set(f, reply_message, "16 arenas are yours already: arenas-per-user-max");
    assert_int_equal(open_named(f, "x", (struct reclaim_open_options){0}, message), -EMFILE);
    assert_string_equal(message, f->reply_message);
    fake_set(f, reply_message, NULL);
    fake_set(f, reply_error, -ENOENT);
    assert_int_equal(open_named(f, "x", (struct reclaim_open_options){0}, message), -ENOENT);
    assert_string_equal(message, reclaim_strerror(-ENOENT));
}

static void test_open_bad_daemon(void **state)
{
    struct fake *f = *state;
    struct reclaim_open_options opt = {0};
    char message[256];
    unsigned n_fds;

    assert_int_equal(open_named(f, "x", opt, message), 0);
    n_fds = count_fds();
    fake_set(f, hang_up, true);
    assert_int_equal(open_named(f, "x", opt, message), -ECONNRESET);
    assert_string_not_equal(message, "");
    fake_set(f, hang_up, false);
    fake_set(f, truncated, true);
    assert_int_equal(open_named(f, "x", opt, message), -EPROTO);
    fake_set(f, truncated, false);
    fake_set(f, n_extra_fds, 1);
    assert_int_equal(open_named(f, "x", opt, message), -EPROTO);
    fake_set(f, n_extra_fds, 28);
    assert_int_equal(open_named(f, "x", opt, message), -EPROTO);
    fake_set(f, n_extra_fds, 0);
    assert_int_equal(open_named(f, "x", opt, message), 0);
    assert_in_range(count_fds(), n_fds - 2, n_fds + 1); /* the fake closes its ends a little later */
}

static void test_open_unsealed(void **state)
{
    struct fake *f = *state;
    char message[256];

    fake_set(f, seals, F_SEAL_GROW);
    assert_int_equal(open_named(f, "x", (struct reclaim_open_options){0}, message), -EPROTO);
    assert_non_null(strstr(message, "segments"));
}

static void test_open_unsound_segments(void **state)
{
    struct fake *f = *state;
    struct abi_channel channel = *f->channel;
    struct abi_domain domain = *f->domain;
    char message[256];

    for (int i = 0; i < 11; i++) {
        switch (i) {
        case 0:
            f->domain->magic++;
            break;
        case 1:
            f->domain->major++;
            break;
        case 2:
            f->domain->fingerprint++;
            break;
        case 3:
            f->domain->base += 4096;
            break;
        case 4:
            f->domain->arena_bytes *= 2;
            break;
        case 5:
            f->channel->fingerprint++;
            break;
        case 6:
            f->channel->n_lanes = 1u << 31;
            break;
        case 7:
            f->channel->lane_stride = 4096;
            break;
        case 8:
            f->channel->slot_offset = channel.lane_offset;
            break;
        case 9:
            f->channel->lane_offset = UINT64_MAX - 4095;
            break;
        case 10:
            f->channel->n_lanes = 0;
            break;
        }
        assert_int_equal(open_named(f, "x", (struct reclaim_open_options){0}, message), -EPROTO);
        *f->channel = channel;
        *f->domain = domain;
    }
    fake_set(f, reply_skew, 1 << 20);
    assert_int_equal(open_named(f, "x", (struct reclaim_open_options){0}, message), -EPROTO);
    fake_set(f, reply_skew, 0);
    assert_int_equal(open_named(f, "x", (struct reclaim_open_options){0}, message), 0);
}

static void test_open_address_in_use(void **state)
{
    struct fake *f = *state;
    char message[256];
    struct reclaim *r, *again;

    assert_int_equal(fake_open_flags(f, 0, &r), 0);
    assert_ptr_equal(reclaim_base(r), (void *)FAKE_BASE);
    assert_int_equal(reclaim_size(r), FAKE_ARENA_BYTES);
    assert_int_equal(open_named(f, "x", (struct reclaim_open_options){0}, message), -EADDRINUSE);
    assert_non_null(strstr(message, "RECLAIM_RELOCATED"));
    assert_int_equal(fake_open_flags(f, RECLAIM_RELOCATED, &again), 0);
    assert_ptr_not_equal(reclaim_base(again), (void *)FAKE_BASE);
    ((char *)reclaim_base(r))[70000] = 77;
    assert_int_equal(((char *)reclaim_base(again))[70000], 77);
    reclaim_close(again);
    reclaim_close(r);
    reclaim_close(NULL);
}

static void test_descriptors_are_private(void **state)
{
    struct fake *f = *state;
    unsigned before = count_fds();
    bool inherited[64];
    struct reclaim *r;

    for (int fd = 0; fd < 64; fd++)
        inherited[fd] = fcntl(fd, F_GETFD) >= 0;
    assert_int_equal(fake_open_flags(f, 0, &r), 0);
    for (int fd = 0; fd < 64; fd++)
        if (!inherited[fd] && fcntl(fd, F_GETFD) >= 0)
            assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    assert_int_equal(count_fds(), before + 3); /* socket and eventfd; and the fake's end */
    reclaim_close(r);
}

static void test_root_and_stats(void **state)
{
    struct fake *f = *state;
    const uint64_t bad_offsets[] = {0, ABI_CHUNK_BYTES - 8, ABI_CHUNK_BYTES + 4, FAKE_ARENA_BYTES,
                                    UINT64_MAX - 7};
    struct reclaim_stats stats = {.size = sizeof(stats)};
    struct reclaim_lane *l;
    struct reclaim *r = fake_open(f, &l);
    void **word = NULL;

    assert_int_equal(reclaim_root(r, "head", &word), 0);
    assert_ptr_equal(word, (char *)reclaim_base(r) + ABI_CHUNK_BYTES);
    assert_string_equal(f->last.name, "head");
    assert_int_equal(reclaim_root(r, "he ad", &word), -EINVAL);
    for (size_t i = 0; i < ARRAY_SIZE(bad_offsets); i++) {
        fake_set(f, reply_offset, bad_offsets[i]);
        assert_int_equal(reclaim_root(r, "head", &word), -EPROTO);
    }
    assert_int_equal(reclaim_stats(r, &stats), 0);
    assert_int_equal(stats.arena_bytes, FAKE_ARENA_BYTES);
    assert_int_equal(stats.in_use_bytes, 1);
    assert_int_equal(stats.refused_records, 7);
    assert_int_equal(stats.gp_started, 7);
    stats = (struct reclaim_stats){.size = offsetof(struct reclaim_stats, pending_objects)};
    assert_int_equal(reclaim_stats(r, &stats), 0);
    assert_int_equal(stats.in_use_bytes, 1);
    assert_int_equal(stats.pending_objects, 0);
    stats.size = 3;
    assert_int_equal(reclaim_stats(r, &stats), -EINVAL);
    fake_set(f, reply_error, -ENOSPC);
    assert_int_equal(reclaim_root(r, "more", &word), -ENOSPC);
    fake_set(f, truncated, true);
    assert_int_equal(reclaim_root(r, "more", &word), -ESHUTDOWN);
    fake_set(f, truncated, false); /* what comes after an answer that made no sense is not to be trusted */
    assert_int_equal(reclaim_root(r, "more", &word), -ESHUTDOWN);
    reclaim_close(r);
}

/* What must be there and is not. NULL for what may be left out is tested where that is. */
static void test_null_arguments(void **state)
{
    struct reclaim_stats stats = {.size = sizeof(stats)};
    struct reclaim_lane *l;
    struct reclaim *r = fake_open(*state, &l);
    uint64_t cookie;
    void **word;

    assert_int_equal(reclaim_lane_get(NULL, &l), -EINVAL);
    assert_int_equal(reclaim_lane_get(r, NULL), -EINVAL);
    assert_int_equal(reclaim_root(NULL, "x", &word), -EINVAL);
    assert_int_equal(reclaim_root(r, NULL, &word), -EINVAL);
    assert_int_equal(reclaim_root(r, "x", NULL), -EINVAL);
    assert_int_equal(reclaim_stats(NULL, &stats), -EINVAL);
    assert_int_equal(reclaim_stats(r, NULL), -EINVAL);
    assert_int_equal(reclaim_gp_start(NULL, &cookie), -EINVAL);
    assert_int_equal(reclaim_gp_start(l, NULL), -EINVAL);
    assert_int_equal(reclaim_gp_poll(NULL, 1), -EINVAL);
    assert_int_equal(reclaim_gp_wait(NULL, 1, NULL), -EINVAL);
    assert_int_equal(reclaim_synchronize(NULL, 0, NULL), -EINVAL);
    assert_int_equal(reclaim_barrier(NULL, NULL), -EINVAL);
    assert_int_equal(reclaim_free(NULL, (char *)FAKE_BASE + 65536), -EINVAL);
    assert_int_equal(reclaim_defer_free_head(NULL, NULL, NULL), -EINVAL);
    assert_int_equal(reclaim_defer_free_head(l, (char *)FAKE_BASE + 65536, NULL), -EINVAL);
    assert_null(reclaim_base(NULL));
    assert_int_equal(reclaim_size(NULL), 0);
    reclaim_lane_put(NULL);
    reclaim_close(r);
}

/* ---- lanes ---- */

static void test_lane_life(void **state)
{
    struct fake *f = *state;
    struct reclaim_lane *l, *again;
    struct reclaim *r = fake_open(f, &l);
    struct abi_lane *shared = fake_lane(f, 0);

    assert_int_equal(reclaim_lane_get(r, &again), 0);
    assert_ptr_equal(l, again);
    assert_int_equal(shared->phase, shared->generation);
    assert_int_equal(shared->owner[0] & FUTEX_TID_MASK, gettid());
    assert_int_equal(reclaim_read_lock(l), 0);
    assert_int_equal(fake_slot(f, 0)->word, 7 << 16 | 1);
    assert_int_equal(reclaim_read_lock(l), 0);
    f->domain->started = 9;
    assert_int_equal(fake_slot(f, 0)->word, 7 << 16 | 2);
    reclaim_read_unlock(l);
    reclaim_read_unlock(l);
    assert_int_equal(fake_slot(f, 0)->word, 0);
    reclaim_read_unlock(l);
    assert_int_equal(reclaim_read_lock(l), 0);
    assert_int_equal(fake_slot(f, 0)->word, 9 << 16 | 1);
    reclaim_lane_put(l);
    assert_int_equal(fake_slot(f, 0)->word, 0);
    assert_int_equal(shared->owner[0], 0);
    assert_int_equal(reclaim_lane_get(r, &l),
                     0); /* the socket is in order: the fake has seen the put before */
    assert_int_equal(fake_get(f, n_puts), 1);
    assert_int_equal(fake_get(f, puts[0]), 0);
    reclaim_close(r);
}

static void test_lane_nesting_limit(void **state)
{
    struct reclaim_lane *l;
    struct reclaim *r = fake_open(*state, &l);

    for (int i = 0; i < 65535; i++)
        assert_int_equal(reclaim_read_lock(l), 0);
    assert_int_equal(reclaim_read_lock(l), -EOVERFLOW);
    for (int i = 0; i < 65535; i++)
        reclaim_read_unlock(l);
    assert_int_equal(fake_slot(*state, 0)->word, 0);
    reclaim_close(r);
}

struct visit {
    struct reclaim *r;
    struct reclaim_lane *lane;
    int error;
    bool cancelled;
};

static void *visit_and_return(void *arg)
{
    struct visit *v = arg;

    v->error = reclaim_lane_get(v->r, &v->lane);
    if (v->error == 0)
        (void)reclaim_read_lock(v->lane); /* and never unlocked */
    while (v->cancelled)
        pause();
    return NULL;
}

static void test_threads_come_and_go(void **state)
{
    struct fake *f = *state;
    struct reclaim_lane *l;
    struct reclaim *r = fake_open(f, &l);

    for (int i = 0; i < 3 * FAKE_LANES; i++) {
        struct visit v = {.r = r};
        pthread_t thread;

        pthread_create(&thread, NULL, visit_and_return, &v);
        pthread_join(thread, NULL);
        assert_int_equal(v.error, 0);
        assert_int_equal(fake_slot(f, 1)->word, 0);
        assert_int_equal(fake_lane(f, 1)->owner[0], 0);
    }
    reclaim_close(r);
}

static void test_thread_cancelled_in_section(void **state)
{
    struct fake *f = *state;
    struct reclaim_lane *l;
    struct reclaim *r = fake_open(f, &l);
    struct visit v = {.r = r, .cancelled = true};
    pthread_t thread;

    pthread_create(&thread, NULL, visit_and_return, &v);
    while (!load_acquire(&fake_slot(f, 1)->word))
        sched_yield();
    pthread_cancel(thread);
    pthread_join(thread, NULL);
    assert_int_equal(fake_slot(f, 1)->word, 0);
    assert_int_equal(fake_lane(f, 1)->owner[0], 0);
    reclaim_close(r);
}

static void test_lanes_run_out(void **state)
{
    struct fake *f = *state;
    struct reclaim *r, *others[FAKE_LANES];
    struct reclaim_lane *l;

    for (int i = 0; i < FAKE_LANES; i++) {
        assert_int_equal(fake_open_flags(f, RECLAIM_RELOCATED, &others[i]), 0);
        assert_int_equal(reclaim_lane_get(others[i], &l), 0);
    }
    assert_int_equal(fake_open_flags(f, RECLAIM_RELOCATED, &r), 0);
    assert_int_equal(reclaim_lane_get(r, &l), -EMFILE);
    reclaim_close(others[2]);
    assert_int_equal(reclaim_lane_get(r, &l), 0);
    reclaim_close(r);
    for (int i = 0; i < FAKE_LANES; i++)
        if (i != 2)
            reclaim_close(others[i]);
}

/* ---- closing while other threads have lanes ---- */

struct stayer {
    struct reclaim *r;
    struct reclaim_lane *lane;
    int step; /* 1: has a lane; 2: the handle was closed; 3: done */
    pthread_mutex_t robust[2];
    int lock_error;
};

static void robust_init(pthread_mutex_t *mutex)
{
    pthread_mutexattr_t attributes;

    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(mutex, &attributes);
    pthread_mutexattr_destroy(&attributes);
}

/* Uses robust mutexes of its own around the lane's, so its list runs through the lane. */
static void *stay(void *arg)
{
    struct stayer *s = arg;

    pthread_mutex_lock(&s->robust[0]);
    assert_int_equal(reclaim_lane_get(s->r, &s->lane), 0);
    store_release(&s->step, 1);
    while (load_acquire(&s->step) != 2)
        sched_yield();
    s->lock_error = pthread_mutex_lock(&s->robust[1]) | pthread_mutex_unlock(&s->robust[0]);
    assert_int_equal(reclaim_read_lock(s->lane), -ESTALE);
    assert_null(reclaim_alloc(s->lane, 16));
    assert_int_equal(reclaim_defer_free(s->lane, NULL), -ESTALE);
    return NULL; /* holding robust[1] */
}

static void test_close_under_other_threads(void **state)
{
    struct fake *f = *state;
    struct reclaim_lane *l;
    struct reclaim *r = fake_open(f, &l);
    struct stayer s = {.r = r};
    pthread_t thread;

    robust_init(&s.robust[0]);
    robust_init(&s.robust[1]);
    pthread_create(&thread, NULL, stay, &s);
    while (load_acquire(&s.step) != 1)
        sched_yield();
    reclaim_close(r);
    assert_int_equal(fake_lane(f, 0)->owner[0], 0);
    assert_int_equal(fake_lane(f, 1)->owner[0], 0);
    store_release(&s.step, 2);
    pthread_join(thread, NULL);
    assert_int_equal(s.lock_error, 0);
    assert_int_equal(pthread_mutex_lock(&s.robust[0]), 0);
    assert_int_equal(pthread_mutex_lock(&s.robust[1]),
                     EOWNERDEAD); /* the kernel's walk of its list found it */
    assert_int_equal(fake_open_flags(f, 0, &r), 0);
    reclaim_close(r);
    assert_int_equal(fake_get(f, n_puts), 2);
}

/* The thread goes on and opens anew: it forgets the lane that was taken from it. */
static void *stay_and_reopen(void *arg)
{
    struct stayer *s = arg;

    assert_int_equal(reclaim_lane_get(s->r, &s->lane), 0);
    store_release(&s->step, 1);
    while (load_acquire(&s->step) != 2)
        sched_yield();
    assert_int_equal(reclaim_lane_get(s->r, &s->lane), 0);
    assert_int_equal(reclaim_read_lock(s->lane), 0);
    reclaim_read_unlock(s->lane);
    return NULL;
}

static void test_reopen_under_other_threads(void **state)
{
    struct fake *f = *state;
    struct stayer s = {0};
    pthread_t thread;

    assert_int_equal(fake_open_flags(f, 0, &s.r), 0);
    pthread_create(&thread, NULL, stay_and_reopen, &s);
    while (load_acquire(&s.step) != 1)
        sched_yield();
    reclaim_close(s.r);
    assert_int_equal(fake_open_flags(f, 0, &s.r), 0);
    store_release(&s.step, 2);
    pthread_join(thread, NULL);
    reclaim_close(s.r);
}

/* ---- forks ---- */

/* Every call of a child says -ESTALE; the exit status names the first that does not. */
static int child_stale(struct reclaim *r, struct reclaim_lane *l)
{
    struct reclaim_stats stats = {.size = sizeof(stats)};
    struct reclaim_lane *lane;
    uint64_t cookie;
    void **word;

    if (reclaim_lane_get(r, &lane) != -ESTALE || reclaim_read_lock(l) != -ESTALE)
        return 1;
    errno = 0;
    if (reclaim_alloc(l, 16) || errno != ESTALE)
        return 2;
    if (reclaim_defer_free(l, (char *)FAKE_BASE + 65536) != -ESTALE || reclaim_free(l, NULL) != -ESTALE)
        return 3;
    if (reclaim_synchronize(l, 0, NULL) != -ESTALE || reclaim_barrier(l, NULL) != -ESTALE)
        return 4;
    if (reclaim_gp_start(l, &cookie) != -ESTALE || reclaim_gp_poll(r, 1) != -ESTALE ||
        reclaim_gp_wait(l, 1, NULL) != -ESTALE)
        return 5;
    if (reclaim_root(r, "x", &word) != -ESTALE || reclaim_stats(r, &stats) != -ESTALE)
        return 6;
    if (reclaim_base(r) || reclaim_size(r))
        return 7;
    reclaim_read_unlock(l);
    reclaim_lane_put(l);
    reclaim_close(r);
    return 0;
}

/* Tools that know fork() only as the C library does it, or no MADV_DONTFORK. */
static bool under_valgrind(void)
{
    const char *preload = getenv("LD_PRELOAD");

    return preload && strstr(preload, "vgpreload");
}

#ifdef __SANITIZE_THREAD__
#define skip_where_fork_is_watched() skip() /* ThreadSanitizer takes the child's threads for the parent's */
#else
#define skip_where_fork_is_watched() ((void)0)
#endif

/* The arena's place is free in the child, which can open it by itself. */
static int child_reopen(struct fake *f)
{
    struct reclaim *r;
    struct reclaim_lane *l;

    if (under_valgrind())
        return 0; /* valgrind still has the parent's mappings in its books */
    if (mmap((void *)FAKE_BASE, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) !=
        (void *)FAKE_BASE)
        return 11;
    munmap((void *)FAKE_BASE, 4096);
    if (fake_open_flags(f, 0, &r) != 0)
        return 12;
    if (reclaim_lane_get(r, &l) != 0 || reclaim_read_lock(l) != 0)
        return 13;
    reclaim_read_unlock(l);
    reclaim_close(r);
    return 0;
}

static int child_status(pid_t child)
{
    int status;

    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 256 + WTERMSIG(status);
}

static void check_fork(struct fake *f, pid_t (*fork_like)(void), bool reopens)
{
    struct reclaim_lane *l;
    struct reclaim *r = fake_open(f, &l);
    pid_t child;

    assert_int_equal(reclaim_read_lock(l), 0);
    child = fork_like();
    if (child == 0) {
        int status = child_stale(r, l);

        if (status == 0 && reopens)
            status = child_reopen(f);
        _exit(status);
    }
    assert_int_equal(child_status(child), 0);
    assert_int_not_equal(fake_slot(f, 0)->word, 0); /* the parent is untouched, and still in its section */
    reclaim_read_unlock(l);
    assert_int_equal(fake_lane(f, 0)->owner[0] & FUTEX_TID_MASK, gettid());
    reclaim_close(r);
}

static pid_t raw_clone(void)
{
    return (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
}

static void test_fork(void **state)
{
    check_fork(*state, fork, true);
}

static void test_fork_without_handlers(void **state)
{
    skip_where_fork_is_watched();
    check_fork(*state, _Fork, true);
}

static void test_raw_clone(void **state)
{
    skip_where_fork_is_watched();
    check_fork(*state, raw_clone, false);
}

/* glibc does not know the child of a raw clone(); a lane there would break its thread. It is told so. */
static void test_raw_clone_gets_no_lane(void **state)
{
    struct fake *f = *state;
    struct reclaim_lane *l;
    struct reclaim *r;
    pid_t child;

    skip_where_fork_is_watched();
    r = fake_open(f, &l);
    child = raw_clone();
    if (child == 0) {
        struct reclaim *own;

        _exit(fake_open_flags(f, RECLAIM_RELOCATED, &own) == 0 && reclaim_lane_get(own, &l) == -ESTALE ? 0
                                                                                                       : 1);
    }
    assert_int_equal(child_status(child), 0);
    reclaim_close(r);
}

/* A child that lives on does not keep the parent's connection open. */
static void test_fork_leaves_descriptors(void **state)
{
    struct fake *f = *state;
    struct reclaim_lane *l;
    struct reclaim *r = fake_open(f, &l);
    unsigned before = count_fds();
    pid_t child = fork();

    if (child == 0)
        _exit(count_fds() == before - 2 ? 0 : 1);
    assert_int_equal(child_status(child), 0);
    assert_int_equal(count_fds(), before);
    reclaim_close(r);
}

static void *open_slowly(void *arg)
{
    struct reclaim *r;

    return (void *)(intptr_t)fake_open_flags(arg, 0, &r);
}

/* Nor one that is being made meanwhile. */
static void test_fork_while_opening(void **state)
{
    struct fake *f = *state;
    pthread_t thread;
    unsigned before;
    pid_t child;
    void *error;

    fake_set(f, mute, true);
    pthread_create(&thread, NULL, open_slowly, f);
    while (fake_get(f, last).op != ABI_OP_OPEN)
        sched_yield();
    before = count_fds();
    child = fork();
    if (child == 0)
        _exit(count_fds() == before - 1 ? 0 : 1);
    assert_int_equal(child_status(child), 0);
    fake_stop(f); /* closes the connection */
    pthread_join(thread, &error);
    assert_int_equal((intptr_t)error, -ECONNRESET);
}

static void test_fork_twice_deep(void **state)
{
    struct fake *f = *state;
    struct reclaim_lane *l;
    struct reclaim *r = fake_open(f, &l);
    pid_t child = fork();

    if (child == 0) {
        struct reclaim *own;

        if (fake_open_flags(f, RECLAIM_RELOCATED, &own) != 0 || reclaim_lane_get(own, &l) != 0)
            _exit(1);
        child = fork();
        if (child == 0)
            _exit(child_stale(own, l) || child_stale(r, l) ? 1 : child_reopen(f));
        if (child_status(child) != 0 || reclaim_read_lock(l) != 0)
            _exit(2);
        reclaim_read_unlock(l);
        reclaim_close(own);
        exit(0);
    }
    assert_int_equal(child_status(child), 0);
    assert_int_equal(reclaim_read_lock(l), 0);
    reclaim_read_unlock(l);
    reclaim_close(r);
}

static void test_strerror(void **state)
{
    assert_string_equal(reclaim_strerror(0), "no error");
    assert_non_null(strstr(reclaim_strerror(-ESTALE), "parent"));
    assert_non_null(reclaim_strerror(-9999));
    assert_non_null(reclaim_strerror(12));
}

#define TEST(name) cmocka_unit_test_setup_teardown(test_##name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(open_request),
        TEST(open_bad_arguments),
        TEST(open_option_sizes),
        TEST(open_no_daemon),
        TEST(open_environment),
        TEST(open_refused),
        TEST(open_bad_daemon),
        TEST(open_unsealed),
        TEST(open_unsound_segments),
        TEST(open_address_in_use),
        TEST(descriptors_are_private),
        TEST(root_and_stats),
        TEST(null_arguments),
        TEST(lane_life),
        TEST(lane_nesting_limit),
        TEST(threads_come_and_go),
        TEST(thread_cancelled_in_section),
        TEST(lanes_run_out),
        TEST(close_under_other_threads),
        TEST(reopen_under_other_threads),
        TEST(fork),
        TEST(fork_without_handlers),
        TEST(raw_clone),
        TEST(raw_clone_gets_no_lane),
        TEST(fork_leaves_descriptors),
        TEST(fork_while_opening),
        TEST(fork_twice_deep),
        TEST(strerror),
    };

    return cmocka_run_group_tests_name("lib", tests, NULL, NULL);
}
