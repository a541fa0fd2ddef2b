/* SPDX-License-Identifier: MIT */
/* Reading /proc: times, context switches and memory of another process. */
#include "procfs.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "basic/cleanup.h"
#include "basic/macro.h"

enum {
    PATH_BYTES = 64,  /* /proc/<pid>/task */
    FILE_BYTES = 128, /* /proc/<pid>/task/<tid>/schedstat */
};

/* The number after "key:" in a status file. */
static uint64_t status_number(const char *path, const char *key)
{
    _cleanup_fclose_ FILE *f = fopen(path, "re");
    size_t length = strlen(key);
    char line[256];

    while (f && fgets(line, sizeof(line), f))
        if (strncmp(line, key, length) == 0 && line[length] == ':')
            return strtoull(line + length + 1, NULL, 10);
    return 0;
}

/* Calls one function for each numeric name in a folder of /proc. */
static void for_each_number(const char *path, void (*visit)(void *data, const char *path, int number),
                            void *data)
{
    _cleanup_closedir_ DIR *d = opendir(path);
    struct dirent *entry;

    while (d && (entry = readdir(d)))
        if (entry->d_name[0] >= '0' && entry->d_name[0] <= '9')
            visit(data, path, atoi(entry->d_name));
}

/* schedstat's first number: nanoseconds on a processor. */
static void add_cpu(void *data, const char *path, int tid)
{
    char file[FILE_BYTES];
    uint64_t ns = 0;

    (void)snprintf(file, sizeof(file), "%s/%d/schedstat", path, tid);
    _cleanup_fclose_ FILE *f = fopen(file, "re");
    if (f && fscanf(f, "%" SCNu64, &ns) == 1)
        *(uint64_t *)data += ns;
}

uint64_t procfs_cpu_ns(pid_t pid)
{
    char path[PATH_BYTES];
    uint64_t total = 0;

    (void)snprintf(path, sizeof(path), "/proc/%d/task", pid);
    for_each_number(path, add_cpu, &total);
    return total;
}

struct thread_visit {
    procfs_thread_fn visit;
    void *data;
};

/* A thread that ends meanwhile has no name and no switches. */
static void visit_thread(void *data, const char *path, int tid)
{
    struct thread_visit *v = data;
    char file[FILE_BYTES], name[32] = "?";
    FILE *f;

    (void)snprintf(file, sizeof(file), "%s/%d/comm", path, tid);
    f = fopen(file, "re");
    if (f) {
        if (fgets(name, sizeof(name), f))
            name[strcspn(name, "\n")] = '\0';
        (void)fclose(f);
    }
    (void)snprintf(file, sizeof(file), "%s/%d/status", path, tid);
    v->visit(v->data, tid, name, status_number(file, "voluntary_ctxt_switches"));
}

void procfs_threads(pid_t pid, procfs_thread_fn visit, void *data)
{
    struct thread_visit v = {visit, data};
    char path[PATH_BYTES];

    (void)snprintf(path, sizeof(path), "/proc/%d/task", pid);
    for_each_number(path, visit_thread, &v);
}

static void add_wakeups(void *data, pid_t tid, const char *name, uint64_t wakeups)
{
    *(uint64_t *)data += wakeups;
}

uint64_t procfs_wakeups(pid_t pid)
{
    uint64_t total = 0;

    procfs_threads(pid, add_wakeups, &total);
    return total;
}

uint64_t procfs_anonymous_bytes(pid_t pid)
{
    char path[PATH_BYTES];

    (void)snprintf(path, sizeof(path), "/proc/%d/status", pid);
    return status_number(path, "RssAnon") * 1024;
}

struct memfds_visit {
    struct procfs_memfds *all, *but;
};

static bool memfds_have(const struct procfs_memfds *m, ino_t inode)
{
    for (size_t i = 0; i < m->n; i++)
        if (m->inodes[i] == inode)
            return true;
    return false;
}

static void add_memfd(void *data, const char *path, int fd)
{
    struct memfds_visit *v = data;
    char file[FILE_BYTES], target[32] = "";
    uint64_t bytes;
    struct stat st;

    (void)snprintf(file, sizeof(file), "%s/%d", path, fd);
    if (readlink(file, target, sizeof(target) - 1) < 0 || strncmp(target, "/memfd:", 7) != 0)
        return;
    if (stat(file, &st) < 0 || v->all->n == PROCFS_MEMFDS_MAX || memfds_have(v->all, st.st_ino))
        return;
    v->all->inodes[v->all->n++] = st.st_ino;
    bytes = (uint64_t)st.st_blocks * 512;
    if (v->but && memfds_have(v->but, st.st_ino))
        v->but->bytes += bytes;
    else
        v->all->bytes += bytes;
}

void procfs_memfds(pid_t pid, struct procfs_memfds *but, struct procfs_memfds *ret)
{
    struct memfds_visit v = {ret, but};
    char path[PATH_BYTES];

    ret->n = ret->bytes = 0;
    if (but)
        but->bytes = 0;
    (void)snprintf(path, sizeof(path), "/proc/%d/fd", pid);
    for_each_number(path, add_memfd, &v);
}
