/* SPDX-License-Identifier: MIT */
/*
 * Control: the interface org.reclaimd.Control (org.reclaimd.Control.varlink) on top of a table of operations.
 *
 * Control knows the wire, the rights and the words; it knows nothing of engine, store or clients. Whoever
 * owns those (the manager) fills in a struct control_ops and gives it here with a userdata pointer. All of it
 * runs in the main thread: control calls the operations there, and expects its callbacks there.
 *
 * Conventions of the operations
 *  - They return 0 or a negative errno. On failure they may say why in an error_line: what is wrong and what
 *    would be right; else control says what the errno means. The errno chooses the error on the wire:
 *        -ENOENT             NoSuchArena              -ESRCH              NoSuchClient
 *        -ENOKEY             NoSuchParameter          -EINVAL, -ERANGE    InvalidValue
 *        -EEXIST             ArenaExists              -EBUSY              ArenaBusy
 *        -ENOSPC, -EDQUOT,                            -ENOMEM             NoMemory
 *        -EMFILE, -ENFILE    LimitReached             -EPERM, -EACCES     PermissionDenied
 *        any other           Failed
 *  - Rights are checked before an operation is called: it need not ask who calls.
 *  - Strings in the structs below belong to the caller of the function that they are handed to, and are valid
 *    during that call only.
 *  - A visitor returns 0 to go on; any other value stops the walk, and the operation returns that value.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "basic/text.h"

struct event_base;
struct control;

/* What made a drain begin. */
enum control_drain_cause {
    CONTROL_DRAIN_INTERVAL,      /* drain-interval has passed */
    CONTROL_DRAIN_FLOOD_OBJECTS, /* flood-objects wait */
    CONTROL_DRAIN_FLOOD_BYTES,   /* flood-bytes wait */
    CONTROL_DRAIN_FULL,          /* an allocation or a pending limit needs the room */
    CONTROL_DRAIN_PRESSURE,      /* memory is short */
    CONTROL_DRAIN_REQUEST,       /* somebody asked for a drain */
    CONTROL_DRAIN_BARRIER,       /* .. or for a barrier, here or in the library */
    CONTROL_DRAIN_DEATH,         /* a client or lane is gone: its objects come back */
    _CONTROL_DRAIN_MAX,
    _CONTROL_DRAIN_INVALID = -1,
};

const char *control_drain_cause_to_string(enum control_drain_cause cause);

/* Objects a page of records: 1, 2..3, 4..7 and so on, the last one open. */
#define CONTROL_PAGE_HISTOGRAM 10

/* The figures of one arena; those of the service are their sum. Counters (n_*) count since the arena was
 * made. */
struct control_figures {
    uint64_t clients;       /* attached now */
    uint64_t lanes;         /* in use now */
    uint64_t lanes_reading; /* inside a read section now */

    uint64_t size_bytes;
    uint64_t in_use_objects, in_use_bytes;   /* handed out, neither deferred nor idle in a magazine */
    uint64_t cached_objects, cached_bytes;   /* idle in lanes' magazines */
    uint64_t pending_objects, pending_bytes; /* deferred, waiting for their grace period */
    uint64_t lazy_pages, lazy_bytes;         /* free, still backed */
    uint64_t backed_bytes;                   /* of the arena's file, as the daemon accounts for it */

    uint64_t gp_started, gp_completed;  /* grace-period numbers */
    uint64_t gp_last_usec, gp_max_usec; /* how long they took; 0 before the first */
    uint64_t n_drains[_CONTROL_DRAIN_MAX];
    uint64_t n_pages, n_page_objects; /* record pages closed, and the objects that they held */
    uint64_t page_histogram[CONTROL_PAGE_HISTOGRAM];
    uint64_t oldest_pending_usec; /* how long the oldest pending object has waited at most; 0: none waits */
    uint64_t n_chain_objects;     /* deferred by the list that needs no room */
    uint64_t n_kept_objects;      /* of pages that could not prove their grace period */
    uint64_t n_sweeps;            /* frees without pages, for want of memory */
    uint64_t batches_running, n_batches;
    uint64_t n_purges_queued, n_purges_run;
    uint64_t n_holes, punched_bytes;
    uint64_t n_frees, freed_bytes;  /* objects freed after their grace period */
    uint64_t n_refused_records;     /* objects in deferred frees that were not the client's to free */
    uint64_t n_refused_allocations; /* no room, no memory, limit */
    uint64_t n_synchronizes;        /* waiters served */
    uint64_t synchronizing;         /* waiters now */
    uint64_t n_direct_wakes;        /* of those served: by the grace-period thread */
    uint64_t n_worker_wakes;        /* by a worker, beyond wake-direct */
    uint64_t n_fifo_wakes;          /* behind the callbacks */
    uint64_t n_callbacks_ahead;     /* entries that waited as a waiter's grace period ended; over all served */
    uint64_t max_direct_wakes;      /* most by the grace-period thread at the end of one grace period */
    uint64_t n_mutes;               /* times that a client rang too often and was not heard for a while */
    uint64_t n_wakeups;             /* times that a bell or timer woke a worker for this arena */
    uint64_t stalled_readers;       /* that hold up a grace period for stall-timeout now */
    uint64_t n_stalls;              /* all that ever did */
};

/* The reader whose section began longest ago. */
struct control_reader {
    bool found;
    uint64_t client; /* id */
    pid_t pid;       /* 0: not visible from the daemon's pid namespace */
    pid_t tid;       /* 0: not known */
    uint64_t age_usec;
};

/* A reader that holds up a grace period, and was reported for it. */
struct control_stall {
    uint64_t client; /* id; 0: there is no such reader */
    pid_t pid;       /* 0: not visible from the daemon's pid namespace */
    pid_t tid;       /* as the client says; 0: not known */
    uid_t uid;
    const char *comm; /* hostile bytes are cleaned by control */
    const char *arena;
    uint64_t gp, usec;                    /* which grace period, and for how long */
    uint64_t n_objects, bytes, n_waiters; /* of the arena, behind it */
};

struct control_arena_info {
    const char *name;
    const char *state; /* one word: ready, stalled, degraded, removing */
    uid_t owner;
    gid_t group;
    mode_t mode; /* 0..0777, as chmod writes it; r lets a user see it here, rw attach as a writer */
    bool transient;
    uint64_t base_address;
    uint64_t created_usec; /* CLOCK_REALTIME */
    struct control_figures figures;
    struct control_reader oldest_reader;
};

struct control_client_info {
    uint64_t id; /* unique for the daemon's life */
    pid_t pid;   /* 0: not visible from the daemon's pid namespace */
    uid_t uid;
    gid_t gid;
    const char *comm; /* the process's own idea of its name: hostile bytes are cleaned by control */
    const char *arena;
    const char *state; /* one word: attached, observer, muted, quarantined, evicted, dying */
    uint64_t lanes, lanes_reading;
    uint64_t pending_objects, pending_bytes;
    uint64_t n_refused_records;
    uint64_t since_usec; /* CLOCK_REALTIME */
    uint64_t stalled_readers;
    struct control_stall stall; /* the one of them that began first */
};

struct control_status {
    const char *version;
    const char *state; /* one word: running, degraded, stopping */
    pid_t pid;
    uid_t uid;
    uint64_t started_usec; /* CLOCK_REALTIME */
    uint64_t uptime_usec;
    uint64_t arenas; /* all of them, also those that the caller may not see */
    uint64_t clients;
    uint64_t clients_max;
    bool readers_must_fence;    /* membarrier is not available to somebody */
    bool under_pressure;        /* memory is short now */
    uint64_t n_pressures;        /* times that memory was short, and what could be done was done .. */
    uint64_t n_pressures_passed; /* .. and that no more was done so soon after */
    uint64_t callbacks_waiting; /* length of the callback FIFO */
    uint64_t n_callbacks;       /* entries run */
    uint64_t n_wakeups;         /* voluntary context switches of all threads of the daemon */
    uint64_t rss_bytes;
    uint64_t n_membarriers;  /* calls of membarrier(2), each for all arenas that need one then */
    const char *config_file; /* an absolute path; FILE.d/ beside it holds the drop-ins */
};

/* A parameter as everybody sees it: all of it text, in the form that a user writes. */
struct control_parameter_info {
    const char *name;
    const char *type;          /* time, size, count, boolean, choice, ... */
    const char *unit;          /* "" for none */
    const char *range;         /* "1ms..1h", "no, yes, auto" */
    const char *default_value; /* the built-in one */
    const char *value;         /* in force for the arena asked for, else for the daemon */
    const char *origin;        /* where it comes from: "built-in", "/etc/...:12", "--set", "runtime" */
    const char *doc;           /* one sentence */
    bool arena_scope;          /* an arena may override it */
};

/* One NAME=VALUE of a set. */
struct control_assignment {
    const char *name;
    const char *value;
};

/*
 * What a set, reset or reload changed, or, with `kept`, what a reload left alone as it was set at runtime. Of an arena a
 * reload also tells "size": from "" if it made it; with `kept` if the file's is another, as a size cannot change.
 */
struct control_change {
    const char *name;
    const char *arena; /* NULL: the daemon's value */
    const char *old_value;
    const char *new_value; /* with kept: what the file says */
    bool kept;
};

/* An arena to be made. Owner and group are set; names, size and limits are for the operation to check. */
struct control_arena_request {
    const char *name;
    uint64_t size_bytes;
    uid_t owner;
    gid_t group;
    mode_t mode;
    bool transient;
    uid_t asked_by; /* whose limits count, unless 0 */
};

/* Work on one arena that takes its time. */
enum control_operation {
    CONTROL_OPERATION_DRAIN,       /* what is pending now gets its batch now; done when it has been freed */
    CONTROL_OPERATION_PURGE,       /* free pages go back to the operating system */
    CONTROL_OPERATION_SYNCHRONIZE, /* one whole grace period */
    CONTROL_OPERATION_BARRIER,     /* all frees deferred before it are done */
    CONTROL_OPERATION_AUDIT,       /* every invariant; a complaint a line */
    _CONTROL_OPERATION_MAX,
    _CONTROL_OPERATION_INVALID = -1,
};

struct control_result {
    uint64_t usec;                 /* from the call to the end */
    uint64_t n_objects, bytes;     /* freed or given back by it; audit: looked at */
    const char *const *complaints; /* audit only: one line each */
    size_t n_complaints;
};

/*
 * How an operation ends: called exactly once, in the main thread, possibly before ops->operate() returns. `r`
 * is 0 or a negative errno, then `text` may say why (or be NULL). Also legal after control_free(): it is then
 * forgotten.
 */
typedef void (*control_done_fn)(void *done_data, int r, const struct control_result *result,
                                const char *text);

typedef int (*control_arena_fn)(void *data, const struct control_arena_info *info);
typedef int (*control_client_fn)(void *data, const struct control_client_info *info);
typedef int (*control_stall_fn)(void *data, const struct control_stall *stall);
typedef int (*control_parameter_fn)(void *data, const struct control_parameter_info *info);
typedef int (*control_change_fn)(void *data, const struct control_change *change);

/* All of them are required. */
struct control_ops {
    /* The group whose members may do all: parameter admin-group. (gid_t)-1: there is none. */
    gid_t (*admin_gid)(void *userdata);

    int (*status)(void *userdata, struct control_status *ret);

    /* All arenas (name NULL) or the one; -ENOENT if it is not there. Each is a consistent snapshot. */
    int (*arenas)(void *userdata, const char *name, control_arena_fn visit, void *data);

    /* All clients of all arenas (arena NULL) or of the one. `id` 0: all, else that one; -ESRCH: no such
     * client. */
    int (*clients)(void *userdata, const char *arena, uint64_t id, control_client_fn visit, void *data);

    /* The readers that stall now, in all arenas. */
    int (*stalls)(void *userdata, control_stall_fn visit, void *data);

    /* The table in its order: the daemon's values (arena NULL) or those in force in that arena. */
    int (*parameters)(void *userdata, const char *arena, control_parameter_fn visit, void *data);

    /*
     * Several at once or not at all; with dry_run everything is checked and visited, nothing is changed.
     * `visit` gets one change for each assignment or name (old and new may be equal), and is called only when
     * all of them are right. A reset goes back to what file and command line say; in an arena, to the
     * daemon's value. No names: all of them.
     */
    int (*set)(void *userdata, const char *arena, const struct control_assignment *assignments, size_t n,
               bool dry_run, control_change_fn visit, void *data, struct error_line *why);
    int (*reset)(void *userdata, const char *arena, const char *const *names, size_t n, bool dry_run,
                 control_change_fn visit, void *data, struct error_line *why);

    int (*arena_create)(void *userdata, const struct control_arena_request *request, struct error_line *why);
    /* Without force, -EBUSY while it has clients. */
    int (*arena_remove)(void *userdata, const char *arena, bool force, struct error_line *why);

    /* Begins it. 0: done() tells the end. Negative: it did not begin, done() is never called. */
    int (*operate)(void *userdata, enum control_operation operation, const char *arena, control_done_fn done,
                   void *done_data, struct error_line *why);

    int (*client_evict)(void *userdata, uint64_t id, bool kill, struct error_line *why);

    /* Reads the files again: all or nothing. `visit` gets what changed and what was kept. */
    int (*reload)(void *userdata, control_change_fn visit, void *data, struct error_line *why);
};

/* Ops and userdata must outlive the control. */
int control_new(struct event_base *base, const struct control_ops *ops, void *userdata, struct control **ret);

/* Ends every connection. Operations that are still running may end later. */
struct control *control_free(struct control *c);

/* Serves a listening Unix stream socket and closes it in the end; on failure it stays the caller's. */
int control_listen(struct control *c, int fd);
