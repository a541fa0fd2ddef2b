/* SPDX-License-Identifier: MIT */
/* read, backend ck-epoch: Concurrency Kit's epoch sections, inline in its header. */
#include <ck_epoch.h>
#include <ck_pr.h>
#include <stdlib.h>

#include "read.h"
#include "words.h"

static ck_epoch_t epoch; /* of this process */
static struct read_object object = {1}, *root = &object;

#define READ_NAME(name) ck_##name
#define READ_LOCALS(t) ck_epoch_record_t *record = (t)->data;
#define READ_ROOT root
#define READ_LOCK() ck_epoch_begin(record, NULL)
#define READ_UNLOCK() (void)ck_epoch_end(record, NULL)
#define READ_DEREFERENCE(p) ((struct read_object *)ck_pr_load_ptr(&(p)))
#include "read-loop.h"

static int ck_process_init(void *job, void **ret)
{
    ck_epoch_init(&epoch);
    return 0;
}

/* The record stays on the epoch's list after the thread, so it is never given back. */
static int ck_thread_init(struct team_thread *t)
{
    t->data = aligned_alloc(CK_MD_CACHELINE, ALIGN_UP(sizeof(ck_epoch_record_t), CK_MD_CACHELINE));
    if (!t->data)
        return words_set(-ENOMEM, "no memory for an epoch record");
    ck_epoch_register(&epoch, t->data, NULL);
    return 0;
}

static void ck_thread_deinit(struct team_thread *t)
{
    ck_epoch_unregister(t->data);
}

const struct read_backend read_ck_epoch = {
    .name = "ck-epoch",
    .ops = {.process_init = ck_process_init,
            .thread_init = ck_thread_init,
            .thread_run = ck_run,
            .thread_deinit = ck_thread_deinit},
};
