/* SPDX-License-Identifier: MIT */
/* A private daemon and those who use it; see daemon-fixture.h. */
#include "daemon-fixture.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>

#include "basic/cleanup.h"

enum {
    ARGUMENTS_MAX = 40,
    OUTPUT_MAX = 1 << 20,
};

void sleep_ms(long ms)
{
    const struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};

    (void)nanosleep(&pause, NULL);
}

uint64_t clock_ms(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000u + (uint64_t)now.tv_nsec / 1000000u;
}

static const char *program(const char *variable)
{
    const char *path = getenv(variable);

    if (!path)
        fail_msg("%s is not set: run the tests through meson test", variable);
    return path;
}

/* From n on, ended by NULL. */
static void arguments_add(const char *arguments[ARGUMENTS_MAX], size_t n, va_list more)
{
    do {
        assert_true(n < ARGUMENTS_MAX);
        arguments[n] = va_arg(more, const char *);
    } while (arguments[n++]);
}

static char *file_read(int fd)
{
    char *text = malloc(OUTPUT_MAX + 1);
    size_t n = 0;
    ssize_t got;

    assert_non_null(text);
    (void)lseek(fd, 0, SEEK_SET);
    while (n < OUTPUT_MAX && (got = read(fd, text + n, OUTPUT_MAX - n)) > 0)
        n += (size_t)got;
    text[n] = '\0';
    return text;
}

/* ---- Processes ------------------------------------------------------------------------------------------------------- */

/* cmocka catches what would end us, to go on with the next test: not in a child. */
static void child_signals_default(void)
{
    static const int signals[] = {SIGSEGV, SIGFPE, SIGILL, SIGBUS, SIGSYS};

    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
        (void)signal(signals[i], SIG_DFL);
    (void)setrlimit(RLIMIT_CORE, &(struct rlimit){0});
}

pid_t child_start(int (*run)(void *), void *userdata)
{
    pid_t parent = getpid(), pid;

    (void)fflush(NULL);
    pid = fork();
    assert_true(pid >= 0);
    if (pid > 0)
        return pid;
    child_signals_default();
    (void)setenv("CMOCKA_TEST_ABORT", "1",
                 1); /* a failed assertion ends the child, and does not go on with the next test */
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    (void)alarm(4 * HANG_SECONDS); /* whoever hangs ends by itself */
    _exit(run(userdata));
}

static bool child_ended(pid_t pid, int *ret_status)
{
    return waitpid(pid, ret_status, WNOHANG) == pid;
}

int child_wait(pid_t pid)
{
    int status = 0;

    if (wait_until(child_ended(pid, &status)))
        return status;
    child_kill(pid);
    fail_msg("process %d hangs", (int)pid);
    return -1;
}

void child_must_succeed(pid_t pid)
{
    int status = child_wait(pid);

    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail_msg("a child ended with status 0x%x", (unsigned)status);
}

void child_kill(pid_t pid)
{
    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, NULL, 0);
}

/* ---- The daemon ------------------------------------------------------------------------------------------------------ */

void daemon_make_directory(struct daemon *d)
{
    if (d->directory[0])
        return;
    (void)strcpy(d->directory, "/tmp/reclaim-case.XXXXXX");
    assert_non_null(mkdtemp(d->directory));
    assert_int_equal(chmod(d->directory, 0755), 0); /* for clients of the second user */
    (void)snprintf(d->control, sizeof(d->control), "%s/control", d->directory);
    (void)snprintf(d->client, sizeof(d->client), "%s/client", d->directory);
    (void)snprintf(d->log, sizeof(d->log), "%s/log", d->directory);
}

struct daemon_exec {
    struct daemon *d;
    const char *arguments[ARGUMENTS_MAX];
    int log_fd;
};

static int daemon_exec(void *userdata)
{
    struct daemon_exec *e = userdata;

    (void)alarm(0);
    if (dup2(e->log_fd, STDOUT_FILENO) < 0 || dup2(e->log_fd, STDERR_FILENO) < 0)
        return 126;
    if (e->d->before_exec)
        e->d->before_exec(e->d->userdata);
    (void)unsetenv("RECLAIMD_RUNTIME_DIRECTORY");
    (void)unsetenv("JOURNAL_STREAM");
    (void)unsetenv("CMOCKA_TEST_ABORT");
    (void)execv(program("RECLAIMD"), (char *const *)e->arguments);
    return 127;
}

static pid_t daemon_spawn(struct daemon *d, int log_fd, va_list more)
{
    struct daemon_exec e = {
        .d = d, .log_fd = log_fd, .arguments = {"reclaimd", "--runtime-directory", d->directory}};

    arguments_add(e.arguments, 3, more);
    return child_start(daemon_exec, &e);
}

static bool socket_answers(const char *path, int type)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    _cleanup_close_ int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);

    (void)snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    return fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0;
}

/* Listening on both, or dead. */
static bool daemon_settled(struct daemon *d)
{
    int status;

    if (child_ended(d->pid, &status)) {
        d->pid = 0;
        return true;
    }
    return socket_answers(d->control, SOCK_STREAM) && socket_answers(d->client, SOCK_SEQPACKET);
}

void daemon_start(struct daemon *d, ...)
{
    _cleanup_close_ int log_fd = -EBADF;
    _cleanup_free_ char *log = NULL;
    va_list more;

    assert_int_equal(d->pid, 0);
    daemon_make_directory(d);
    log_fd = open(d->log, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    assert_true(log_fd >= 0);
    va_start(more, d);
    d->pid = daemon_spawn(d, log_fd, more);
    va_end(more);
    /* it serves once it says so: the sockets are there before the arenas of the command line are */
    if (wait_until(daemon_settled(d)) && d->pid > 0 && wait_until(daemon_log_has(d, "serving ")))
        return;
    log = daemon_log(d);
    fail_msg("the daemon does not start: %s", log);
}

int daemon_try(struct daemon *d, char words[static WORDS_BYTES], ...)
{
    _cleanup_close_ int fd = memfd_create("words", MFD_CLOEXEC);
    _cleanup_free_ char *text = NULL;
    va_list more;
    int status;

    assert_true(fd >= 0);
    daemon_make_directory(d);
    va_start(more, words);
    status = child_wait(daemon_spawn(d, fd, more));
    va_end(more);
    text = file_read(fd);
    (void)snprintf(words, WORDS_BYTES, "%s", text);
    if (!WIFEXITED(status))
        fail_msg("reclaimd ended with status 0x%x: %s", (unsigned)status, words);
    return WEXITSTATUS(status);
}

void daemon_audit(const struct daemon *d)
{
    struct ctl_result r = ctl_run(d, "audit", NULL);

    if (r.status != 0)
        fail_msg("audit: %s%s", r.out, r.err);
    ctl_result_deinit(&r);
}

void daemon_terminate(struct daemon *d)
{
    pid_t pid = d->pid;
    int status;

    assert_int_equal(kill(pid, SIGTERM), 0);
    d->pid = 0;
    status = child_wait(pid);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        fail_msg("the daemon ended with status 0x%x", (unsigned)status);
}

void daemon_kill(struct daemon *d)
{
    child_kill(d->pid);
    d->pid = 0;
}

void daemon_halt(const struct daemon *d)
{
    siginfo_t info;

    assert_int_equal(kill(d->pid, SIGSTOP), 0);
    assert_int_equal(waitid(P_PID, (id_t)d->pid, &info, WSTOPPED), 0);
}

void daemon_go_on(const struct daemon *d)
{
    assert_int_equal(kill(d->pid, SIGCONT), 0);
}

void daemon_remove(struct daemon *d)
{
    (void)unlink(d->log);
    (void)unlink(d->control);
    (void)unlink(d->client);
    assert_int_equal(rmdir(d->directory), 0);
    *d = (struct daemon){0};
}

void daemon_stop(struct daemon *d)
{
    daemon_audit(d);
    daemon_terminate(d);
    daemon_remove(d);
}

/* Only after a failed test there is anything left: its log helps. */
int daemon_teardown(void **state)
{
    struct daemon *d = *state;

    if (d->directory[0]) {
        _cleanup_free_ char *log = daemon_log(d);

        if (d->pid > 0 && !daemon_lives(d))
            (void)fprintf(stderr, "the daemon has died\n");
        (void)fprintf(stderr, "log of the daemon:\n%.4000s", log);
        if (d->pid > 0)
            daemon_kill(d);
        daemon_remove(d);
    }
    return 0;
}

char *daemon_log(const struct daemon *d)
{
    _cleanup_close_ int fd = open(d->log, O_RDONLY | O_CLOEXEC);

    return fd < 0 ? strdup("") : file_read(fd);
}

bool daemon_log_has(const struct daemon *d, const char *words)
{
    _cleanup_free_ char *log = daemon_log(d);

    return strstr(log, words);
}

/* Not even a zombie. */
bool daemon_lives(const struct daemon *d)
{
    siginfo_t info = {0};

    return waitid(P_PID, (id_t)d->pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == 0;
}

/* Calls visit() for each open file of the daemon's. */
static void daemon_visit_fds(const struct daemon *d, void (*visit)(const char *path, void *data), void *data)
{
    char path[64], file[320];
    _cleanup_closedir_ DIR *dir = NULL;
    struct dirent *entry;

    (void)snprintf(path, sizeof(path), "/proc/%d/fd", (int)d->pid);
    dir = opendir(path);
    assert_non_null(dir);
    while ((entry = readdir(dir)))
        if (entry->d_name[0] != '.') {
            (void)snprintf(file, sizeof(file), "%s/%s", path, entry->d_name);
            visit(file, data);
        }
}

static void count_fd(const char *path, void *data)
{
    (void)path;
    ++*(unsigned *)data;
}

unsigned daemon_n_fds(const struct daemon *d)
{
    unsigned n = 0;

    daemon_visit_fds(d, count_fd, &n);
    return n;
}

struct find_fd {
    const char *path;
    bool found;
};

static void find_fd(const char *path, void *data)
{
    struct find_fd *f = data;
    char target[128] = "";

    if (readlink(path, target, sizeof(target) - 1) > 0 && strstr(target, f->path))
        f->found = true;
}

bool daemon_has_open(const struct daemon *d, const char *path)
{
    struct find_fd f = {.path = path};

    daemon_visit_fds(d, find_fd, &f);
    return f.found;
}

struct sum_fds {
    const char *name;
    uint64_t bytes;
};

static void sum_blocks(const char *path, void *data)
{
    struct sum_fds *s = data;
    char target[128] = "";
    struct stat st;

    if (readlink(path, target, sizeof(target) - 1) > 0 && strstr(target, s->name) && stat(path, &st) == 0)
        s->bytes += (uint64_t)st.st_blocks * 512;
}

uint64_t daemon_memfd_bytes(const struct daemon *d, const char *name)
{
    struct sum_fds s = {.name = name};

    daemon_visit_fds(d, sum_blocks, &s);
    return s.bytes;
}

static void read_arena_blocks(const char *path, void *data)
{
    char target[128] = "";
    struct stat st;

    if (readlink(path, target, sizeof(target) - 1) > 0 && strstr(target, "reclaimd:arena") &&
        stat(path, &st) == 0)
        *(uint64_t *)data = (uint64_t)st.st_blocks * 512;
}

uint64_t daemon_file_bytes(const struct daemon *d)
{
    uint64_t bytes = UINT64_MAX;

    daemon_visit_fds(d, read_arena_blocks, &bytes);
    assert_true(bytes != UINT64_MAX);
    return bytes;
}

/* ---- reclaimctl ------------------------------------------------------------------------------------------------------ */

struct ctl_exec {
    const char *arguments[ARGUMENTS_MAX];
    int out_fd, err_fd;
};

static int ctl_exec(void *userdata)
{
    struct ctl_exec *e = userdata;

    if (dup2(e->out_fd, STDOUT_FILENO) < 0 || dup2(e->err_fd, STDERR_FILENO) < 0)
        return 126;
    (void)execv(program("RECLAIMCTL"), (char *const *)e->arguments);
    return 127;
}

static struct ctl_result ctl_run_list(const struct daemon *d, const char *option, va_list more)
{
    struct ctl_exec e = {.arguments = {"reclaimctl", "--runtime-directory", d->directory, option}};
    struct ctl_result r;
    int status;

    e.out_fd = memfd_create("out", MFD_CLOEXEC);
    e.err_fd = memfd_create("err", MFD_CLOEXEC);
    assert_true(e.out_fd >= 0 && e.err_fd >= 0);
    arguments_add(e.arguments, 4, more);
    status = child_wait(child_start(ctl_exec, &e));
    r = (struct ctl_result){.out = file_read(e.out_fd), .err = file_read(e.err_fd)};
    (void)close(e.out_fd);
    (void)close(e.err_fd);
    if (!WIFEXITED(status))
        fail_msg("reclaimctl ended with status 0x%x: %s", (unsigned)status, r.err);
    r.status = WEXITSTATUS(status);
    return r;
}

struct ctl_result ctl_run(const struct daemon *d, ...)
{
    struct ctl_result r;
    va_list more;

    va_start(more, d);
    r = ctl_run_list(d, "--no-pager", more);
    va_end(more);
    return r;
}

void ctl_result_deinit(struct ctl_result *r)
{
    free(r->out);
    free(r->err);
}

void ctl_do(const struct daemon *d, ...)
{
    struct ctl_result r;
    va_list more;

    va_start(more, d);
    r = ctl_run_list(d, "--no-pager", more);
    va_end(more);
    if (r.status != 0)
        fail_msg("reclaimctl: status %d: %s", r.status, r.err);
    ctl_result_deinit(&r);
}

json_object *ctl_json(const struct daemon *d, ...)
{
    struct ctl_result r;
    json_object *o;
    va_list more;

    va_start(more, d);
    r = ctl_run_list(d, "--json=short", more);
    va_end(more);
    o = json_tokener_parse(r.out);
    if (r.status != 0 || !o)
        fail_msg("reclaimctl: status %d: %s%s", r.status, r.out, r.err);
    ctl_result_deinit(&r);
    return o;
}

static size_t n_lines(const char *text)
{
    size_t n = 0;

    for (; *text; text++)
        n += *text == '\n';
    return n;
}

void ctl_refused(const struct daemon *d, int status, const char *words, ...)
{
    struct ctl_result r;
    va_list more;

    va_start(more, words);
    r = ctl_run_list(d, "--no-pager", more);
    va_end(more);
    if (r.status != status || r.out[0] || n_lines(r.err) != 1 || !strstr(r.err, words))
        fail_msg("status %d, not %d, or not one line with '%s': %s%s", r.status, status, words, r.out, r.err);
    ctl_result_deinit(&r);
}

static json_object *field(json_object *o, const char *name)
{
    json_object *value = NULL;

    if (!json_object_object_get_ex(o, name, &value))
        fail_msg("no field '%s'", name);
    return value;
}

int64_t arena_figure(const struct daemon *d, const char *arena, const char *name)
{
    json_object *o = ctl_json(d, "show", arena, NULL);
    int64_t value = json_object_get_int64(field(field(o, "figures"), name));

    json_object_put(o);
    return value;
}

size_t n_clients(const struct daemon *d)
{
    json_object *o = ctl_json(d, "list-clients", NULL);
    size_t n = json_object_array_length(o);

    json_object_put(o);
    return n;
}

json_object *client_find(json_object *clients, pid_t pid)
{
    for (size_t i = 0; i < json_object_array_length(clients); i++) {
        json_object *o = json_object_array_get_idx(clients, i);

        if (json_object_get_int64(field(o, "pid")) == pid)
            return o;
    }
    fail_msg("no client of process %d", (int)pid);
    return NULL;
}

/* ---- Clients --------------------------------------------------------------------------------------------------------- */

int try_open(const struct daemon *d, const char *arena, unsigned flags, uint64_t bytes, mode_t mode,
             char *words, struct reclaim **ret)
{
    struct reclaim_open_options options = {
        .size = sizeof(options),
        .flags = flags | (bytes > 0 ? RECLAIM_CREATE : 0),
        .mode = mode,
        .arena_bytes = bytes,
        .runtime_directory = d->directory,
        .message = words,
        .message_size = words ? WORDS_BYTES : 0,
    };

    return reclaim_open(arena, &options, ret);
}

struct reclaim *must_open(const struct daemon *d, const char *arena)
{
    char words[WORDS_BYTES] = "";
    struct reclaim *r = NULL;
    int error = try_open(d, arena, 0, 0, 0, words, &r);

    if (error < 0)
        fail_msg("open %s: %s: %s", arena, strerror(-error), words);
    return r;
}

struct reclaim_lane *must_lane(struct reclaim *r)
{
    struct reclaim_lane *l = NULL;

    assert_int_equal(reclaim_lane_get(r, &l), 0);
    return l;
}

void *must_alloc(struct reclaim_lane *l, size_t bytes)
{
    void *p = reclaim_alloc(l, bytes);

    if (!p)
        fail_msg("alloc of %zu bytes: %s", bytes, strerror(errno));
    return p;
}

struct abi_lane *lane_shared(const struct reclaim_lane *l)
{
    return (struct abi_lane *)((char *)(uintptr_t)l->want - offsetof(struct abi_lane, want));
}

/* ---- Actors ---------------------------------------------------------------------------------------------------------- */

static void *actor_main(void *userdata)
{
    struct actor *a = userdata;
    int r = reclaim_lane_get(a->r, &a->lane);

    a->tid = (pid_t)syscall(SYS_gettid);
    a->result = (void *)(intptr_t)r;
    for (;;) {
        (void)sem_post(&a->done);
        while (sem_wait(&a->go) < 0)
            ;
        if (!a->act)
            return NULL;
        a->result = a->act(a, a->userdata);
    }
}

void actor_begin(struct actor *a, void *(*act)(struct actor *a, void *userdata), void *userdata)
{
    a->act = act;
    a->userdata = userdata;
    (void)sem_post(&a->go);
}

void *actor_end(struct actor *a)
{
    struct timespec limit;

    (void)clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_sec += HANG_SECONDS;
    while (sem_timedwait(&a->done, &limit) < 0)
        if (errno != EINTR)
            fail_msg("a thread hangs");
    return a->result;
}

void *actor_do(struct actor *a, void *(*act)(struct actor *a, void *userdata), void *userdata)
{
    actor_begin(a, act, userdata);
    return actor_end(a);
}

void actor_start(struct actor *a, struct reclaim *r)
{
    a->r = r;
    (void)sem_init(&a->go, 0, 0);
    (void)sem_init(&a->done, 0, 0);
    assert_int_equal(pthread_create(&a->thread, NULL, actor_main, a), 0);
    assert_null(actor_end(a));
}

void actor_stop(struct actor *a)
{
    actor_begin(a, NULL, NULL);
    assert_int_equal(pthread_join(a->thread, NULL), 0);
}

void *act_read_lock(struct actor *a, void *userdata)
{
    return (void *)(intptr_t)reclaim_read_lock(a->lane);
}

void *act_read_unlock(struct actor *a, void *userdata)
{
    reclaim_read_unlock(a->lane);
    return NULL;
}

void actor_start_reading(struct actor *reader, struct reclaim *r)
{
    actor_start(reader, r);
    assert_null(actor_do(reader, act_read_lock, NULL));
}

struct reclaim_lane *must_lane_beside_reader(struct daemon *d, struct actor *reader, struct reclaim **ret)
{
    daemon_start(d, "--arena", "a:16M", NULL);
    *ret = must_open(d, "a");
    actor_start_reading(reader, *ret);
    return must_lane(*ret);
}
