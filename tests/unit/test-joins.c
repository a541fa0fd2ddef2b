/* SPDX-License-Identifier: MIT */
/*
 * Case 21: an object joins what has its cookie already. Whatever comes between the deferring of one object
 * and the next, by whatever channel either arrives and in whatever way they are freed: none is freed before a
 * grace period is over that began after it was deferred, and all are freed in the end.
 */
#include "lane-fixture.h"

#include "engine/batch.h"

#define CLASS_512 15u
#define EVENTS_BETWEEN 3u
#define OBJECTS_MAX 8u

/* How an object arrives. */
enum channel {
    SPANS,    /* a record of the ring, an object of a span */
    EXTENTS,  /* the same, an extent */
    CHAIN,    /* through the object itself */
    NO_PAGES, /* a record of the ring, when there is no memory for a page: a pending bit alone */
    CHANNELS,
};

/* How objects are freed once their time has come. */
enum way {
    BY_PAGE,   /* gp-wait = poll */
    BY_BATCH,  /* gp-wait = callback */
    BY_OBJECT, /* batching = no */
    WAYS,
};

/* What may come between. */
enum event {
    LOOK,  /* the daemon collects */
    CLOSE, /* pages close, as for a barrier */
    BATCH, /* a batch takes all that is pending */
    START, /* a grace period begins .. */
    END,   /* .. and ends */
    EVENTS,
};

struct object {
    uint64_t word;
    uint64_t deferred_at; /* the newest grace period that had begun */
};

struct world {
    struct lane_fixture l;
    struct batches batches;
    uint64_t completed;
    enum way way;
    struct object objects[OBJECTS_MAX];
    unsigned n;
};

/* ---- What the daemon does ---- */

static void collect(struct world *w)
{
    struct lane_look look;

    /* -ENOBUFS: after the sweep */
    (void)lane_collect(&w->l.lanes[0], w->l.f.heap, &w->l.pending, UINT32_MAX, &look);
    (void)lane_chain_collect(&w->l.lanes[0], w->l.f.heap, &w->l.pending, w->l.arena, UINT32_MAX, &look);
}

static void free_by_object(struct world *w)
{
    struct pending *p = &w->l.pending;
    struct batch *batch;

    while ((batch = batch_oldest(&w->batches, BATCH_WAITING)) &&
           pending_is_due(p, &batch->pages, w->completed)) {
        struct bulk_page *page = page_list_pop(&batch->pages);

        assert_true(pending_prove_page(p, page, w->completed));
        for (uint32_t i = 0; i < page->n_records; i++)
            pending_expire_object(p, w->l.f.heap, page->records[i], NULL); /* they are of one bit here */
        pending_drop_page(p, page);
        batch_end_if_empty(&w->batches, batch);
    }
}

static void free_by_batch(struct world *w)
{
    struct batch *batch;

    while ((batch = batch_oldest(&w->batches, BATCH_WAITING)) && batch->cookie <= w->completed)
        (void)batch_expire_all(&w->batches, batch, &w->l.pending, w->l.f.heap, w->completed, NULL);
}

static void free_by_page(struct world *w)
{
    (void)batches_expire(&w->batches, &w->l.pending, w->l.f.heap, w->completed, UINT32_MAX, NULL);
    (void)pending_expire(&w->l.pending, w->l.f.heap, &w->l.pending.closed, w->completed, UINT32_MAX, NULL);
}

/* P3 of pending, as an arena's pass has it. */
static void sweep(struct world *w)
{
    struct pending *p = &w->l.pending;

    if (!p->starved)
        return;
    if (p->sweep_cookie == 0) {
        pending_close(p);
        p->sweep_cookie = w->l.started + 1;
    }
    if (p->sweep_cookie <= w->completed && w->batches.n_running == 0 && !p->closed.first)
        (void)pending_sweep(p, w->l.f.heap, NULL);
}

static void free_what_is_due(struct world *w)
{
    static void (*const ways[WAYS])(struct world * w) = {
        [BY_PAGE] = free_by_page, [BY_BATCH] = free_by_batch, [BY_OBJECT] = free_by_object};

    ways[w->way](w);
    sweep(w);
}

/* ---- What is to hold ---- */

static unsigned check(const struct world *w)
{
    unsigned n_freed = 0;

    for (unsigned i = 0; i < w->n; i++) {
        if (word_is_out(&w->l, w->objects[i].word))
            continue;
        if (w->completed <= w->objects[i].deferred_at)
            fail_msg("object %u, deferred in grace period %llu, was freed after %llu", i,
                     (unsigned long long)w->objects[i].deferred_at, (unsigned long long)w->completed);
        n_freed++;
    }
    return n_freed;
}

/* ---- What happens ---- */

static void chain_put(struct world *w, uint64_t word)
{
    struct abi_lane *s = &w->l.shared[0];
    struct abi_chain_head *head = (void *)(w->l.arena + word_offset(word));

    *head = (struct abi_chain_head){.next = s->chain_head, .seq = s->chain_count + 1};
    s->chain_head = abi_chain_link(word_offset(word) / ABI_GRANULE_BYTES, 0);
    s->chain_count++;
}

static void defer(struct world *w, enum channel channel)
{
    uint64_t word =
        channel == EXTENTS ? fixture_alloc_pages(&w->l.f, 2) : fixture_alloc_word(&w->l.f, CLASS_512, 1);

    assert_true(w->n < OBJECTS_MAX);
    w->objects[w->n++] = (struct object){word, w->l.started};
    if (channel == CHAIN)
        chain_put(w, word);
    else
        client_put(&w->l, 0, word);
    if (channel != NO_PAGES)
        return;
    pending_close(&w->l.pending); /* no page has room .. */
    pending_drop_spare(&w->l.pending);
    malloc_left = 0;
    collect(w);
    malloc_left = -1;
}

static void happen(struct world *w, enum event event)
{
    switch (event) {
    case LOOK:
        collect(w);
        break;
    case CLOSE:
        pending_close(&w->l.pending);
        break;
    case BATCH:
        (void)batch_begin(&w->batches, &w->l.pending, BATCHES_MAX);
        break;
    case START: /* one at a time */
        w->l.started += w->l.started == w->completed;
        break;
    default:
        w->completed = w->l.started;
    }
    free_what_is_due(w);
    (void)check(w);
}

static void settle(struct world *w)
{
    for (unsigned i = 0; i < 6; i++)
        for (enum event e = LOOK; e < EVENTS; e++)
            happen(w, e);
    assert_int_equal(check(w), w->n);
    assert_int_equal(w->l.pending.total_objects, 0);
    assert_audit_clean(&w->l.f);
}

/* An older batch in flight or none; one object, whatever events, the other object, the end. */
static void play(enum way way, bool older, const enum channel channels[2], unsigned events)
{
    static struct world w; /* large */

    w = (struct world){.way = way};
    lane_fixture_init(&w.l);
    if (older) {
        defer(&w, SPANS);
        happen(&w, LOOK);
        happen(&w, BATCH);
        happen(&w, START);
    }
    defer(&w, channels[0]);
    for (unsigned i = 0; i < EVENTS_BETWEEN; i++, events /= EVENTS)
        happen(&w, events % EVENTS);
    defer(&w, channels[1]);
    /* first what was under way goes on, without a look at the ring and with one */
    happen(&w, END);
    happen(&w, LOOK);
    happen(&w, END);
    settle(&w);
    lane_fixture_deinit(&w.l);
}

/* Everything that may come between, for one pair of channels. */
static void check_channels(enum channel first, enum channel second)
{
    const enum channel channels[2] = {first, second};

    for (enum way way = BY_PAGE; way < WAYS; way++)
        for (unsigned events = 0; events < EVENTS * EVENTS * EVENTS; events++)
            for (unsigned older = 0; older < 2; older++)
                play(way, older, channels, events);
}

#define CASE(name, first, second)                                                                            \
    static void case_21_##name(void **state)                                                                 \
    {                                                                                                        \
        check_channels(first, second);                                                                       \
    }

CASE(span_after_span, SPANS, SPANS)
CASE(extent_after_span, SPANS, EXTENTS)
CASE(chain_after_span, SPANS, CHAIN)
CASE(no_page_after_span, SPANS, NO_PAGES)
CASE(span_after_extent, EXTENTS, SPANS)
CASE(extent_after_extent, EXTENTS, EXTENTS)
CASE(chain_after_extent, EXTENTS, CHAIN)
CASE(no_page_after_extent, EXTENTS, NO_PAGES)
CASE(span_after_chain, CHAIN, SPANS)
CASE(extent_after_chain, CHAIN, EXTENTS)
CASE(chain_after_chain, CHAIN, CHAIN)
CASE(no_page_after_chain, CHAIN, NO_PAGES)
CASE(span_after_no_page, NO_PAGES, SPANS)
CASE(extent_after_no_page, NO_PAGES, EXTENTS)
CASE(chain_after_no_page, NO_PAGES, CHAIN)
CASE(no_page_after_no_page, NO_PAGES, NO_PAGES)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(case_21_span_after_span),     cmocka_unit_test(case_21_extent_after_span),
        cmocka_unit_test(case_21_chain_after_span),    cmocka_unit_test(case_21_no_page_after_span),
        cmocka_unit_test(case_21_span_after_extent),   cmocka_unit_test(case_21_extent_after_extent),
        cmocka_unit_test(case_21_chain_after_extent),  cmocka_unit_test(case_21_no_page_after_extent),
        cmocka_unit_test(case_21_span_after_chain),    cmocka_unit_test(case_21_extent_after_chain),
        cmocka_unit_test(case_21_chain_after_chain),   cmocka_unit_test(case_21_no_page_after_chain),
        cmocka_unit_test(case_21_span_after_no_page),  cmocka_unit_test(case_21_extent_after_no_page),
        cmocka_unit_test(case_21_chain_after_no_page), cmocka_unit_test(case_21_no_page_after_no_page),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
