/* SPDX-License-Identifier: MIT */
/* Barriers of clients, and what control asks for: begun and ended in passes. See arena-work.h. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arena-work.h"
#include "basic/macro.h"
#include "clock.h"
#include "manager.h"
#include "segment.h"
#include "ticket.h"
#include "trace-events.h"

#define COMPLAINTS_MAX 1000u

/* ---- Barrier ---- */

/* Everything deferred up to now gets a cookie, and a batch at once. */
static void barrier_begin(struct pass *pass, struct barrier *b, enum drain_cause cause)
{
    struct arena *a = pass->arena;

    arena_collect_everything(pass);
    /* rings may hold some still: after the sweep */
    if (a->pending.starved)
        return;
    b->begun = true;
    b->cookie = arena_close_pages(a);
    b->n_single = 0;
    a->drain.urgent = cause;
    arena_want_cookie(a, b->cookie, false);
}

static bool barrier_is_done(struct pass *pass, struct barrier *b, enum drain_cause cause)
{
    struct arena *a = pass->arena;

    if (!b->begun)
        barrier_begin(pass, b, cause);
    if (!b->begun || arena_oldest_cookie(a) <= b->cookie)
        return false;
    if (b->n_single == 0)
        b->n_single = a->n_single_pushed + 1;
    if (a->n_single_run + 1 >= b->n_single)
        return true;
    a->n_single_wanted = MIN(a->n_single_wanted, b->n_single - 1);
    return false;
}

void arena_barrier_begin(struct arena *a, struct ticket *t)
{
    t->barrier = (struct barrier){0};
    t->next = a->barriers;
    a->barriers = t;
}

static void serve_barriers(struct pass *pass)
{
    struct ticket **p = &pass->arena->barriers;

    while (*p) {
        struct ticket *t = *p;

        if (!barrier_is_done(pass, &t->barrier, DRAIN_BARRIER)) {
            p = &t->next;
            continue;
        }
        *p = t->next;
        ticket_complete(t, 0);
    }
}

/* ---- Operations ---- */

void operation_free(struct operation *op)
{
    if (!op)
        return;
    for (size_t i = 0; i < op->n_complaints; i++)
        free(op->complaints[i]);
    free(op->complaints);
    arena_unref(op->arena);
    free(op);
}

static void operation_post_run(struct main_post *post)
{
    struct operation *op = container_of(post, struct operation, post);

    op->done(op);
}

static void operation_end(struct operation *op)
{
    op->usec = now_usec() - op->begun_usec;
    mainqueue_post(manager_mainqueue(op->arena->manager), &op->post, operation_post_run);
}

static void operation_gp_done(struct gp_waiter *w)
{
    struct operation *op = container_of(w, struct operation, waiter);

    op->error = w->error;
    trace_sync_complete(op->arena, 0);
    operation_end(op);
}

static void complain(void *userdata, const char *line)
{
    struct operation *op = userdata;
    char **bigger;

    if (op->n_complaints == COMPLAINTS_MAX)
        return;
    bigger = realloc(op->complaints, (op->n_complaints + 1) * sizeof(*bigger));
    if (!bigger)
        return;
    op->complaints = bigger;
    op->complaints[op->n_complaints] = strdup(line);
    if (op->complaints[op->n_complaints])
        op->n_complaints++;
}

static void complain_numbers(struct operation *op, const char *what, uint64_t ours, const char *other,
                             uint64_t theirs)
{
    char line[200];

    (void)snprintf(line, sizeof(line), "%s: %" PRIu64 ", %s: %" PRIu64, what, ours, other, theirs);
    complain(op, line);
}

/*
 * Magazines as the truth has them: every word in one is out, and not pending. When it is not, somebody freed an object
 * that lay in another lane's magazine: a free of what is not one's own, which no check at the time can tell.
 */
static void audit_magazine(struct operation *op, struct arena *a, const struct client_lane *cl,
                           unsigned class_index)
{
    const struct state_lane *state = cl->lane.state;
    uint32_t head = state->magazine_head[class_index];

    for (uint32_t i = head - lane_magazine_level(&cl->lane, class_index); i != head; i++) {
        uint64_t word = state->shadow[class_index][i % ABI_MAGAZINE_WORDS];
        uint64_t truth = state_truth(a->state)[abi_word_block(word)];
        uint32_t bad = abi_word_mask(word) & (~(uint32_t)truth | (uint32_t)(truth >> 32));
        char line[200];

        if (!bad)
            continue;
        (void)snprintf(line, sizeof(line),
                       "some client freed %u objects of block %u that lay in a magazine of client %" PRIu64
                       " (pid %d)",
                       mask_count(bad), abi_word_block(word), cl->client->id, (int)cl->client->pid);
        complain(op, line);
    }
}

static void arena_audit(struct pass *pass, struct operation *op)
{
    struct arena *a = pass->arena;
    struct heap_figures f;
    uint64_t file_bytes;

    (void)heap_audit(a->heap, complain, op);
    heap_figures(a->heap, &f);
    if (f.pending_objects != a->pending.total_objects)
        complain_numbers(op, "pending bits", f.pending_objects, "objects in pages", a->pending.total_objects);
    for (uint32_t i = 0; i < a->n_lanes; i++)
        for (unsigned c = 0; c < ABI_CLASSES && a->lanes[i]->life == LANE_LIVE; c++)
            audit_magazine(op, a, a->lanes[i], c);
    if (segment_backed_bytes(a->arena_fd, &file_bytes) == 0 && file_bytes != f.backed_bytes)
        complain_numbers(op, "backed bytes", f.backed_bytes, "the file's own", file_bytes);
    op->n_objects = f.out_objects;
    op->bytes = f.out_bytes;
}

static bool operation_looks(const struct operation *op)
{
    return op->kind == CONTROL_OPERATION_PURGE || op->kind == CONTROL_OPERATION_AUDIT;
}

bool arena_operation_looks(const struct arena *a)
{
    for (const struct operation *op = a->operations; op; op = op->next)
        if (operation_looks(op))
            return true;
    return false;
}

static void operation_begin(struct pass *pass, struct operation *op)
{
    struct arena *a = pass->arena;

    op->begun = true;
    op->objects_before = a->pending.freed_objects;
    op->bytes_before =
        op->kind == CONTROL_OPERATION_PURGE ? a->figures.punched_bytes : a->pending.freed_bytes;
    if (op->kind == CONTROL_OPERATION_PURGE)
        op->turn = purge_ask(&a->purge);
    if (operation_looks(op))
        /* pages that a client touched after they were given back are no fault of the books */
        op->comparison = arena_comparison_ask(a);
}

static bool operation_is_done(struct pass *pass, struct operation *op)
{
    struct arena *a = pass->arena;

    switch (op->kind) {
    case CONTROL_OPERATION_PURGE:
        if (!purge_is_over(&a->purge, op->turn) || !arena_comparison_is_over(a, op->comparison))
            return false;
        op->bytes = a->figures.punched_bytes - op->bytes_before;
        return true;
    case CONTROL_OPERATION_AUDIT:
        /* nothing is in the middle of a change: what is queued begins with the lock, which is ours */
        if (!arena_comparison_is_over(a, op->comparison) || a->sweeping || a->purge.n_running > 0)
            return false;
        arena_audit(pass, op);
        return true;
    default:
        if (!barrier_is_done(pass, &op->barrier,
                             op->kind == CONTROL_OPERATION_BARRIER ? DRAIN_BARRIER : DRAIN_REQUEST))
            return false;
        op->n_objects = a->pending.freed_objects - op->objects_before;
        op->bytes = a->pending.freed_bytes - op->bytes_before;
        return true;
    }
}

static void serve_operations(struct pass *pass)
{
    struct operation **p = &pass->arena->operations;

    while (*p) {
        struct operation *op = *p;

        if (!op->begun)
            operation_begin(pass, op);
        if (!operation_is_done(pass, op)) {
            p = &op->next;
            continue;
        }
        *p = op->next;
        operation_end(op);
    }
}

void arena_serve_operations(struct pass *pass)
{
    pass->arena->n_single_wanted = UINT64_MAX; /* barrier_is_done() says it anew */
    if (pass->arena->barriers)
        serve_barriers(pass);
    if (pass->arena->operations)
        serve_operations(pass);
}

static void operation_job(struct job *job, struct arena *a)
{
    struct operation *op = container_of(job, struct operation, job);

    op->next = a->operations;
    a->operations = op;
}

int arena_operate(struct arena *a, enum control_operation kind, void (*done)(struct operation *op),
                  void *userdata)
{
    struct operation *op = calloc(1, sizeof(*op));

    if (!op)
        return -ENOMEM;
    arena_ref(a);
    op->arena = a;
    op->kind = kind;
    op->done = done;
    op->userdata = userdata;
    op->begun_usec = now_usec();
    if (kind == CONTROL_OPERATION_SYNCHRONIZE) {
        op->waiter.done = operation_gp_done;
        trace_sync_request(a, 0);
        grace_synchronize(manager_grace(a->manager), a, &op->waiter);
    } else {
        arena_post(a, &op->job, operation_job);
    }
    return 0;
}

void arena_abandon(struct arena *a)
{
    a->ending = true;
    arena_run_jobs(a);
    arena_take_rung(a);
    while (a->barriers) {
        struct ticket *t = a->barriers;

        a->barriers = t->next;
        ticket_complete(t, -ESHUTDOWN);
    }
    while (a->operations) {
        struct operation *op = a->operations;

        a->operations = op->next;
        op->error = -ESHUTDOWN;
        operation_end(op);
    }
}
