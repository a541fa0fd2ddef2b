/* SPDX-License-Identifier: MIT */
/*
 * The heap against a model that knows only what its callers know: which bytes of the arena belong to whom.
 * Random operations from fixed seeds; after each the model must agree, now and then the audit, and a second
 * heap that is made from a copy of the state must be the same one. test_killed_at_each_store() does that
 * before every single store.
 */
#include <signal.h>
#include <ucontext.h>

#include "heap-fixture.h"

#define ARENA (6 * MIB)
#define N_GRANULES (ARENA / ABI_GRANULE_BYTES)
#define OBJECTS_MAX (unsigned)N_GRANULES
#define HOLES_MAX 8u
#define WORDS_MAX 200u

enum owner {
    NOBODY,
    CLIENT,
    PURGER,
};

struct model {
    struct fixture f;
    struct fixture copy; /* where a successor is tried */
    uint64_t seed;
    uint8_t *granules;                                /* enum owner */
    uint64_t live[OBJECTS_MAX], pending[OBJECTS_MAX]; /* words of one bit */
    unsigned n_live, n_pending;
    uint32_t live_at[N_GRANULES]; /* its place in live[], of the object that starts there */
    struct heap_hole holes[HOLES_MAX];
    unsigned n_holes;
    uint64_t cursor;
    uint64_t bytes_out, bytes_pending;
};

static uint64_t draw(struct model *m, uint64_t below)
{
    return fixture_random(&m->seed, below);
}

/* A range changes hands: all of it must have been the former owner's. */
static void model_give(struct model *m, uint64_t offset, uint64_t bytes, enum owner from, enum owner to)
{
    for (uint64_t g = offset / ABI_GRANULE_BYTES; g < (offset + bytes) / ABI_GRANULE_BYTES; g++) {
        assert_int_equal(m->granules[g], from);
        m->granules[g] = (uint8_t)to;
    }
}

static void model_handed_out(struct model *m, uint64_t word, uint64_t bytes)
{
    for (uint32_t mask = abi_word_mask(word); mask; mask &= mask - 1) {
        uint64_t one = abi_word(abi_word_block(word), mask & -mask), offset = word_offset(one);

        model_give(m, offset, bytes, NOBODY, CLIENT);
        for (uint64_t p = offset / ABI_PAGE_BYTES; p <= (offset + bytes - 1) / ABI_PAGE_BYTES; p++)
            assert_true(m->f.memory[p]); /* H3 */
        assert_true(m->n_live < OBJECTS_MAX);
        m->live_at[offset / ABI_GRANULE_BYTES] = m->n_live;
        m->live[m->n_live++] = one;
        m->bytes_out += bytes;
    }
}

static void commit_or_not(struct model *m, uint64_t word, uint64_t bytes)
{
    if (draw(m, 10) == 0) {
        heap_unreserve(m->f.heap, word);
        return;
    }
    heap_commit(m->f.heap, word);
    model_handed_out(m, word, bytes);
}

/* An object that the heap says is taken: one that was live until now. */
static void model_taken(struct model *m, uint64_t one)
{
    uint32_t i = m->live_at[word_offset(one) / ABI_GRANULE_BYTES];

    assert_true(i < m->n_live && m->live[i] == one);
    m->live[i] = m->live[--m->n_live];
    m->live_at[word_offset(m->live[i]) / ABI_GRANULE_BYTES] = i;
    m->pending[m->n_pending++] = one;
    m->bytes_pending += heap_object_bytes(m->f.heap, abi_word_block(one));
}

static void object_take(struct model *m, unsigned i)
{
    uint64_t word = m->live[i], bytes;
    bool extent;

    assert_int_equal(heap_take(m->f.heap, abi_word_block(word), abi_word_mask(word), &bytes, &extent),
                     abi_word_mask(word));
    assert_int_equal(bytes, heap_object_bytes(m->f.heap, abi_word_block(word)));
    model_taken(m, word);
}

/* Many records at once, wrong ones among them. */
static void step_take_words(struct model *m)
{
    uint64_t words[WORDS_MAX], accepted[WORDS_MAX], before = m->bytes_pending;
    struct heap_taken taken;
    unsigned n = 0, n_done, n_objects = 0, n_bits = 0;

    for (; n < draw(m, WORDS_MAX); n++)
        words[n] = m->n_live > 0 && draw(m, 9)
                       ? m->live[draw(m, m->n_live)] | draw(m, 2) * draw(m, UINT32_MAX)
                       : draw(m, UINT64_MAX);
    n_done = heap_take_words(m->f.heap, words, n, accepted, &taken);
    for (unsigned i = 0; i < n_done; i++)
        n_bits += (unsigned)__builtin_popcount(abi_word_mask(words[i]));
    for (unsigned i = 0; i < taken.n_words; i++)
        for (uint32_t mask = abi_word_mask(accepted[i]); mask; mask &= mask - 1, n_objects++)
            model_taken(m, abi_word(abi_word_block(accepted[i]), mask & -mask));
    assert_int_equal(taken.n_objects, n_objects);
    assert_int_equal(taken.n_objects + taken.n_refused, n_bits);
    assert_int_equal(taken.n_bytes, m->bytes_pending - before);
    assert_true(n_done == n ||
                heap_object_bytes(m->f.heap, abi_word_block(words[n_done])) % ABI_PAGE_BYTES == 0);
}

static void step_take(struct model *m)
{
    for (uint64_t n = draw(m, 60); n > 0 && m->n_live > 0; n--)
        object_take(m, (unsigned)draw(m, m->n_live));
}

static int compare_words(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

/* Many at once: mostly in order, so that there are rows of one span; some that are not pending (any more). */
static void step_expire_words(struct model *m)
{
    uint64_t words[WORDS_MAX];
    unsigned n = 0, n_real = (unsigned)MIN(draw(m, WORDS_MAX / 2), (uint64_t)m->n_pending);

    for (unsigned i = 0; i < n_real; i++) {
        uint64_t word = m->pending[--m->n_pending],
                 bytes = heap_object_bytes(m->f.heap, abi_word_block(word));

        model_give(m, word_offset(word), bytes, CLIENT, NOBODY);
        m->bytes_out -= bytes;
        m->bytes_pending -= bytes;
        words[n++] = word;
        if (draw(m, 4) == 0 && bytes < ABI_PAGE_BYTES)
            words[n++] = word; /* twice: the second time it is free already, its span perhaps too */
    }
    if (draw(m, 4))
        qsort(words, n, sizeof(words[0]), compare_words);
    heap_expire_words(m->f.heap, words, n);
}

static void step_expire(struct model *m)
{
    for (uint64_t n = draw(m, 70); n > 0 && m->n_pending > 0; n--) {
        unsigned i = (unsigned)draw(m, m->n_pending);
        uint64_t word = m->pending[i], bytes = heap_object_bytes(m->f.heap, abi_word_block(word));

        model_give(m, word_offset(word), bytes, CLIENT, NOBODY);
        heap_expire(m->f.heap, word);
        m->pending[i] = m->pending[--m->n_pending];
        m->bytes_out -= bytes;
        m->bytes_pending -= bytes;
    }
}

/*
 * A successor on a copy has the same figures (of what is out alone, if we are in the midst), and its audit is
 * clean.
 */
static void model_successor(struct model *m, bool amidst)
{
    struct heap_figures ours = fixture_figures(&m->f), theirs;

    fixture_copy_state(&m->f, &m->copy);
    assert_int_equal(fixture_start(&m->copy), 0);
    assert_audit_clean(&m->copy);
    theirs = fixture_figures(&m->copy);
    if (m->n_holes == 0 && !amidst)
        assert_memory_equal(&ours, &theirs, sizeof(ours));
    else
        assert_true(ours.out_objects == theirs.out_objects && ours.pending_bytes == theirs.pending_bytes);
    m->copy.heap = heap_free(m->copy.heap);
}

static void step_reserve(struct model *m)
{
    static const unsigned classes[] = {0, 1, 3, 4, 7, 11, 18, 25, 26};
    unsigned class_index = classes[draw(m, ARRAY_SIZE(classes))];
    uint64_t words[200];
    int error = 0;
    unsigned n = heap_reserve(m->f.heap, class_index, words, (unsigned)draw(m, 200) + 1,
                              draw(m, draw(m, 4) ? 20000 : 500000), &error);

    if (n == 0)
        assert_true(error == -ENOSPC || (error == -ENOMEM && m->f.fail));
    if (draw(m, 8) == 0) { /* frees between choosing and handing out */
        step_take(m);
        step_expire(m);
        model_successor(m, true);
    }
    if (draw(m, 2)) {
        heap_commit_words(m->f.heap, words, n);
        for (unsigned i = 0; i < n; i++)
            model_handed_out(m, words[i], abi_class_bytes(class_index));
        return;
    }
    for (unsigned i = 0; i < n; i++)
        commit_or_not(m, words[i], abi_class_bytes(class_index));
}

static void step_extent(struct model *m)
{
    uint64_t n_pages = draw(m, 4) ? 1 + draw(m, 15) : 16 + draw(m, 150), word;
    int r = heap_extent_reserve(m->f.heap, n_pages, &word);

    assert_true(r == 0 || r == -ENOSPC || (r == -ENOMEM && m->f.fail));
    if (r == 0)
        commit_or_not(m, word, n_pages * ABI_PAGE_BYTES);
}

/* What a hostile client may send: anything. Bits that the model has as live must be all that is accepted. */
static void step_garbage(struct model *m)
{
    uint32_t block = (uint32_t)draw(m, draw(m, 8) ? ARENA / ABI_BLOCK_BYTES : UINT32_MAX),
             mask = (uint32_t)draw(m, UINT32_MAX);
    uint64_t bytes;
    bool extent;
    uint32_t accepted = heap_take(m->f.heap, block, mask, &bytes, &extent);

    assert_int_equal(accepted & ~mask, 0);
    for (; accepted; accepted &= accepted - 1)
        model_taken(m, abi_word(block, accepted & -accepted));
}

static void step_purge_begin(struct model *m)
{
    struct heap_purge_bounds bounds = {draw(m, 4) ? 0 : 100000, draw(m, 4) ? UINT64_MAX : 300000};
    unsigned n = heap_purge_begin(m->f.heap, m->holes + m->n_holes,
                                  (unsigned)MIN(HOLES_MAX - m->n_holes, 1 + draw(m, 4)), &bounds, &m->cursor);

    for (unsigned i = 0; i < n; i++, m->n_holes++) {
        struct heap_hole *hole = &m->holes[m->n_holes];

        model_give(m, hole->offset, hole->bytes, NOBODY, PURGER);
        assert_false(heap_range_is_free(m->f.heap, hole->offset, hole->bytes));
    }
    if (m->cursor >= ARENA)
        m->cursor = 0;
}

static void step_purge_end(struct model *m)
{
    struct heap_hole hole;

    if (m->n_holes == 0)
        return;
    hole = m->holes[--m->n_holes];
    fixture_punch(&m->f, &hole);
    model_give(m, hole.offset, hole.bytes, PURGER, NOBODY);
    heap_purge_end(m->f.heap, &hole);
}

static void step_fail(struct model *m)
{
    m->f.fail = draw(m, 3) ? 0 : ENOMEM;
    m->f.fail_after = (unsigned)draw(m, 3);
}

static void model_figures(struct model *m)
{
    struct heap_figures figures = fixture_figures(&m->f);

    assert_int_equal(figures.out_objects, m->n_live + m->n_pending);
    assert_int_equal(figures.pending_objects, m->n_pending);
    assert_int_equal(figures.out_bytes, m->bytes_out);
    assert_int_equal(figures.pending_bytes, m->bytes_pending);
}

/* The daemon is killed and starts anew: purgers are gone, all else goes on. */
static void model_restart(struct model *m)
{
    m->f.heap = heap_free(m->f.heap);
    for (; m->n_holes > 0; m->n_holes--)
        model_give(m, m->holes[m->n_holes - 1].offset, m->holes[m->n_holes - 1].bytes, PURGER, NOBODY);
    assert_int_equal(fixture_start(&m->f), 0);
}

static void model_step(struct model *m)
{
    static void (*const steps[])(struct model *) = {
        step_take,   step_take_words, step_expire,      step_expire_words, step_expire_words, step_reserve,
        step_extent, step_garbage,    step_purge_begin, step_purge_end,    step_fail,
    };

    steps[draw(m, ARRAY_SIZE(steps))](m);
}

static struct model *model_new(uint64_t seed)
{
    struct model *m = calloc(1, sizeof(*m));

    assert_non_null(m);
    m->seed = seed;
    m->granules = calloc(1, N_GRANULES);
    assert_non_null(m->granules);
    fixture_init(&m->f, ARENA);
    fixture_init(&m->copy, ARENA);
    m->copy.heap = heap_free(m->copy.heap);
    return m;
}

static void model_free(struct model *m)
{
    fixture_deinit(&m->f);
    fixture_deinit(&m->copy);
    free(m->granules);
    free(m);
}

static void test_random_operations_agree_with_the_model(void **state)
{
    for (uint64_t seed = 1; seed <= 8; seed++) {
        struct model *m = model_new(seed * 0x9e3779b97f4a7c15ull);

        for (unsigned i = 1; i <= 26000; i++) {
            model_step(m);
            model_figures(m);
            if (i % 32 == 0)
                assert_audit_clean(&m->f);
            if (i % 512 == 0)
                model_successor(m, false);
            if (i % 5000 == 0)
                model_restart(m);
        }
        while (m->n_live > 0)
            object_take(m, 0);
        while (m->n_pending > 0)
            step_expire(m);
        while (m->n_holes > 0)
            step_purge_end(m);
        model_figures(m);
        assert_audit_clean(&m->f);
        model_free(m);
    }
}

/* ---- Killed at each store -- */

#if defined(__x86_64__)

#define TRAP_FLAG 0x100
#define STORES_WANTED 10000u

/*
 * The state is read-only. A store to it faults: here a daemon killed at that moment leaves what the memory
 * holds now, so a successor is tried on it. Then the store is let through, alone (trap flag), and the state
 * is read-only again.
 */
static struct model *traced;
static unsigned n_stores;
static uint64_t n_out_min, n_out_max;

static void state_protect(int protection)
{
    assert_int_equal(mprotect(traced->f.state, traced->f.state->bytes, protection), 0);
}

static void before_store(int signal, siginfo_t *info, void *context)
{
    char *start = (char *)traced->f.state;

    if ((char *)info->si_addr < start || (char *)info->si_addr >= start + traced->f.state->bytes) {
        (void)sigaction(SIGSEGV, &(struct sigaction){.sa_handler = SIG_DFL}, NULL); /* not ours: crash */
        return;
    }
    n_stores++;
    fixture_copy_state(&traced->f, &traced->copy);
    assert_int_equal(fixture_start(&traced->copy), 0);
    assert_audit_clean(&traced->copy);
    assert_in_range(fixture_figures(&traced->copy).out_objects, n_out_min, n_out_max);
    assert_int_equal(fixture_figures(&traced->copy).purging_bytes, 0);
    for (uint64_t c = 1; c < state_n_chunks(ARENA); c++) /* what it takes for backed is */
        for (uint32_t backed = state_chunks(traced->copy.state)[c].backed; backed; backed &= backed - 1)
            assert_true(traced->f.memory[c * ABI_PAGES_PER_CHUNK + (unsigned)__builtin_ctz(backed)]);
    traced->copy.heap = heap_free(traced->copy.heap);
    state_protect(PROT_READ | PROT_WRITE);
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_EFL] |= TRAP_FLAG;
}

static void after_store(int signal, siginfo_t *info, void *context)
{
    state_protect(PROT_READ);
    ((ucontext_t *)context)->uc_mcontext.gregs[REG_EFL] &= ~TRAP_FLAG;
}

static void handlers_install(struct sigaction old[2])
{
    struct sigaction segv = {.sa_sigaction = before_store, .sa_flags = SA_SIGINFO | SA_NODEFER};
    struct sigaction trap = {.sa_sigaction = after_store, .sa_flags = SA_SIGINFO};

    assert_int_equal(sigaction(SIGSEGV, &segv, &old[0]), 0);
    assert_int_equal(sigaction(SIGTRAP, &trap, &old[1]), 0);
}

/* One operation, so small that what may be out before each of its stores is known. */
static void traced_step(struct model *m)
{
    uint64_t word, n_out = fixture_figures(&m->f).out_objects;
    int error = 0;

    n_out_min = n_out > 0 ? n_out - 1 : 0;
    n_out_max = n_out + 32;
    switch (draw(m, 9)) {
    case 0:
        if (heap_reserve(m->f.heap, draw(m, 2) ? 26 : (unsigned)draw(m, 27), &word, 1, 1, &error) == 1)
            commit_or_not(m, word, heap_object_bytes(m->f.heap, abi_word_block(word)));
        return;
    case 1:
    case 2:
        step_extent(m);
        return;
    case 3:
    case 4:
        if (m->n_live > 0)
            object_take(m, (unsigned)draw(m, m->n_live));
        return;
    case 5:
    case 6:
        n_out_min = n_out - MIN(n_out, 70ull);
        step_expire(m);
        return;
    case 7:
        step_purge_begin(m);
        return;
    default:
        step_purge_end(m);
    }
}

static bool under_valgrind(void)
{
    const char *preload = getenv("LD_PRELOAD");

    return preload && strstr(preload, "vgpreload"); /* it does not do the trap flag */
}

static void test_killed_at_each_store(void **state)
{
    struct sigaction old[2];
    uint64_t offset;

    if (under_valgrind())
        skip();
    traced = model_new(42);
    n_stores = 0;
    n_out_min = n_out_max = 0;
    handlers_install(old);
    state_protect(PROT_READ);
    assert_int_equal(heap_roots(traced->f.heap, &offset), 0);
    traced->granules[offset / ABI_GRANULE_BYTES] = CLIENT;
    for (unsigned i = 0; n_stores < STORES_WANTED && i < STORES_WANTED; i++) {
        traced_step(traced);
        if (i % 500 == 0)
            model_restart(traced); /* a start is killed at each of its stores, too */
    }
    state_protect(PROT_READ | PROT_WRITE);
    assert_int_equal(sigaction(SIGSEGV, &old[0], NULL), 0);
    assert_int_equal(sigaction(SIGTRAP, &old[1], NULL), 0);
    assert_true(n_stores > STORES_WANTED / 2);
    assert_audit_clean(&traced->f);
    model_free(traced);
}

#else

static void test_killed_at_each_store(void **state)
{
    skip(); /* needs the trap flag of x86-64 */
}

#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_operations_agree_with_the_model),
        cmocka_unit_test(test_killed_at_each_store),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
