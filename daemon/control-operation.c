/* SPDX-License-Identifier: MIT */
/*
 * Drain, Purge, Synchronize, Barrier, Audit: work that takes its time, on one arena or on all that the caller
 * may tune. They all begin at once and end in any order; the call is answered after the last one.
 *
 * The caller may hang up and the control itself may go meanwhile. What runs then runs to its end, and its end
 * is forgotten.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "basic/cleanup.h"
#include "control-internal.h"

struct work;

/* One arena's part. */
struct task {
    struct work *work;
    char *arena;
    int r;
    struct json_object *result;
};

struct work {
    struct varlink_call *call;
    bool single; /* one arena by name: its failure is the call's */
    struct task *tasks;
    size_t n_tasks;
    size_t n_running;      /* one of them is work_begin() itself, until all have begun */
    struct error_line why; /* of a single one's failure */
};

/* The call has its answer, or its caller is gone. */
static void work_free(struct work *w)
{
    for (size_t i = 0; i < w->n_tasks; i++) {
        free(w->tasks[i].arena);
        (void)json_object_put(w->tasks[i].result);
    }
    free(w->tasks);
    (void)varlink_call_unref(w->call);
    free(w);
}

/* The results in the order of the arenas, whichever ended first. */
static void work_answer(struct work *w)
{
    struct json_object *results = json_object_new_array();
    int r;

    for (size_t i = 0; i < w->n_tasks; i++)
        (void)json_object_array_add(results, json_object_get(w->tasks[i].result));
    r = varlink_call_reply(w->call, control_json_wrap("results", results));
    if (r == -EMSGSIZE)
        control_fail_with(w->call, r, "the results are too long for one reply; ask for one arena at a time");
}

/* The last one out answers the call. */
static void work_release(struct work *w)
{
    if (--w->n_running > 0)
        return;
    if (w->single && w->tasks[0].r < 0)
        control_fail(w->call, w->tasks[0].r, &w->why);
    else
        work_answer(w);
    work_free(w);
}

/* How a task ends; `text` may be NULL. */
static void task_end(struct task *t, int r, const struct control_result *result, const char *text)
{
    struct work *w = t->work;

    if (r < 0 && (!text || !*text))
        text = control_error_words(r);
    if (r < 0)
        (void)error_line_set(&w->why, r, "%s", text);
    t->r = r;
    t->result = control_json_result(t->arena, r < 0 ? NULL : result, r < 0 ? text : NULL);
    work_release(w);
}

/* The operation's way back, possibly long after the caller has left. */
static void task_on_done(void *done_data, int r, const struct control_result *result, const char *text)
{
    task_end(done_data, r, result, text);
}

/* Names are copied before anything begins: operations may change the list that is being walked. */
static int visit_arena(void *data, const struct control_arena_info *info)
{
    struct work *w = data;
    struct task *tasks = reallocarray(w->tasks, w->n_tasks + 1, sizeof(*tasks));

    if (!tasks)
        return -ENOMEM;
    w->tasks = tasks;
    tasks[w->n_tasks] = (struct task){.work = w, .arena = strdup(info->name)};
    return tasks[w->n_tasks++].arena ? 0 : -ENOMEM;
}

/* The call is answered at the end, which may be before this returns. */
static void work_begin(struct work *w, struct control *c, enum control_operation operation)
{
    struct error_line why;
    int r;

    w->n_running = 1;
    for (size_t i = 0; i < w->n_tasks; i++) {
        why = (struct error_line){};
        w->n_running++;
        r = c->ops->operate(c->userdata, operation, w->tasks[i].arena, task_on_done, &w->tasks[i], &why);
        if (r < 0)
            task_end(&w->tasks[i], r, NULL, why.text);
    }
    work_release(w);
}

/*
 * The call is kept by a reference and answered by work_release(). That its caller may be gone by then
 * needs no care: an answer to nobody is dropped.
 */
static void operate(struct varlink_call *call, const struct control_arena_parameters *p, struct control *c,
                    enum control_operation operation)
{
    struct work *w;
    int r;

    if (p->arena && control_call_check_arena(c, call, p->arena, CONTROL_TUNE) < 0)
        return;
    w = calloc(1, sizeof(*w));
    if (!w) {
        control_fail(call, -ENOMEM, NULL);
        return;
    }
    w->call = varlink_call_ref(call);
    w->single = p->arena;
    r = control_call_visit_arenas(c, call, p->arena, CONTROL_TUNE, visit_arena, w);
    if (r < 0) {
        control_fail(call, r, NULL);
        work_free(w);
        return;
    }
    work_begin(w, c, operation);
}

/* What is pending now is freed after its grace period. */
void control_drain(struct varlink_call *call, const void *parameters, void *userdata)
{
    operate(call, parameters, userdata, CONTROL_OPERATION_DRAIN);
}

/* Free pages go back to the operating system. */
void control_purge(struct varlink_call *call, const void *parameters, void *userdata)
{
    operate(call, parameters, userdata, CONTROL_OPERATION_PURGE);
}

/* One whole grace period. */
void control_synchronize(struct varlink_call *call, const void *parameters, void *userdata)
{
    operate(call, parameters, userdata, CONTROL_OPERATION_SYNCHRONIZE);
}

/* Everything deferred so far has been freed. */
void control_barrier(struct varlink_call *call, const void *parameters, void *userdata)
{
    operate(call, parameters, userdata, CONTROL_OPERATION_BARRIER);
}

/* The books are checked against each other and against the file. */
void control_audit(struct varlink_call *call, const void *parameters, void *userdata)
{
    operate(call, parameters, userdata, CONTROL_OPERATION_AUDIT);
}
