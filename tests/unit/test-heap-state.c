/* SPDX-License-Identifier: MIT */
/* What the heap makes of a state that it did not write itself: starts, and the audit. */
#include "heap-fixture.h"

#define SMALL_ARENA (4 * MIB)
#define CLASS_OF_64 3u

/* ---- Starts -- */

static void test_an_intent_is_finished_by_the_start(void **state)
{
    uint64_t words[4], extent;
    struct fixture f;
    int error;

    fixture_init(&f, SMALL_ARENA);
    assert_int_equal(heap_reserve(f.heap, CLASS_OF_64, words, 4, UINT64_MAX, &error), 4);
    for (unsigned i = 0; i < 4;
         i++) /* what lane_refill() stores before it is killed; around the end of the magazine */
        state_lane(f.state, 7)->shadow[CLASS_OF_64][(ABI_MAGAZINE_WORDS - 2 + i) % ABI_MAGAZINE_WORDS] =
            words[i];
    f.state->intent =
        1ull << 63 | 7ull << 40 | (uint64_t)CLASS_OF_64 << 32 | 4ull << 16 | (3 * ABI_MAGAZINE_WORDS - 2);
    f.heap = heap_free(f.heap);
    assert_int_equal(fixture_start(&f), 0);
    assert_int_equal(fixture_figures(&f).out_objects, 4 * 8);
    for (unsigned i = 0; i < 4; i++)
        heap_commit(f.heap, words[i]); /* lane_recover() does it once more */
    assert_int_equal(fixture_figures(&f).out_objects, 4 * 8);
    assert_audit_clean(&f);
    assert_int_equal(heap_extent_reserve(f.heap, 20, &extent), 0);
    state_lane(f.state, 7)->shadow[ABI_CLASS_EXTENT][0] = extent;
    f.state->intent = 1ull << 63 | 7ull << 40 | (uint64_t)ABI_CLASS_EXTENT << 32 | 1ull << 16;
    f.heap = heap_free(f.heap);
    assert_int_equal(fixture_start(&f), 0);
    assert_int_equal(fixture_figures(&f).extents, 1);
    f.state->intent =
        1ull << 63 | 0x3fffffull << 40 | 200ull << 32 | 0xffffull << 16; /* none that we write: ignored */
    f.heap = heap_free(f.heap);
    assert_int_equal(fixture_start(&f), 0);
    assert_audit_clean(&f);
    fixture_deinit(&f);
}

static void break_magic(struct state *s)
{
    s->magic++;
}

static void break_version(struct state *s)
{
    s->version++;
}

static void break_size(struct state *s)
{
    s->arena_bytes += ABI_CHUNK_BYTES;
}

static void break_low(struct state *s)
{
    s->n_low = UINT64_MAX;
}

static void break_kind(struct state *s)
{
    state_chunks(s)[1].kind = CHUNK_KIND_MAX;
}

static void break_class(struct state *s)
{
    state_chunks(s)[1].class_index = ABI_CLASS_EXTENT;
}

static void break_pieces(struct state *s)
{
    struct chunk_entry *e = &state_chunks(s)[state_n_chunks(s->arena_bytes) - 1];

    assert_int_equal(e->kind, CHUNK_PIECES);
    e->pieces =
        (e->pieces & ~(15ull << 56)) | 5ull << 56; /* its extent of two pages in the end has five now */
}

static void break_length(struct state *s)
{
    for (uint64_t c = 1; c < state_n_chunks(s->arena_bytes); c++)
        if (state_chunks(s)[c].kind == CHUNK_LARGE)
            state_chunks(s)[c].n_pages = UINT64_MAX;
}

static void break_tail(struct state *s)
{
    for (uint64_t c = 1; c < state_n_chunks(s->arena_bytes); c++)
        if (state_chunks(s)[c].kind == CHUNK_TAIL)
            state_chunks(s)[c].kind = CHUNK_FREE;
}

static void test_a_start_refuses_what_is_no_state(void **state)
{
    static void (*const breaks[])(struct state *) = {break_magic,  break_version, break_size,
                                                     break_low,    break_kind,    break_class,
                                                     break_pieces, break_length,  break_tail};

    for (unsigned i = 0; i < ARRAY_SIZE(breaks); i++) {
        uint64_t bytes = SMALL_ARENA;
        struct fixture f;

        fixture_init(&f, bytes);
        (void)fixture_alloc_word(&f, 0, 1);
        (void)fixture_alloc_pages(&f, 2);
        (void)fixture_alloc_pages(&f, 40);
        f.heap = heap_free(f.heap);
        breaks[i](f.state);
        assert_int_equal(fixture_start(&f), -EUCLEAN);
        assert_null(f.heap);
        f.state->bytes = state_bytes(bytes);
        fixture_deinit(&f);
    }
}

/* ---- The audit -- */

struct planted {
    const char *what;
    void (*plant)(struct fixture *f, uint64_t span, uint64_t piece, uint64_t large);
};

static void plant_pending(struct fixture *f, uint64_t span, uint64_t piece, uint64_t large)
{
    state_truth(f->state)[abi_word_block(span) + 1] |= 1ull << 32;
}

static void plant_misaligned(struct fixture *f, uint64_t span, uint64_t piece, uint64_t large)
{
    state_truth(f->state)[abi_word_block(span)] |= 2;
}

static void plant_out(struct fixture *f, uint64_t span, uint64_t piece, uint64_t large)
{
    state_truth(f->state)[abi_word_block(span) + 1] |= 1;
}

static void plant_lost(struct fixture *f, uint64_t span, uint64_t piece, uint64_t large)
{
    state_truth(f->state)[abi_word_block(span)] &= ~1ull;
}

static void plant_piece_out(struct fixture *f, uint64_t span, uint64_t piece, uint64_t large)
{
    state_truth(f->state)[abi_word_block(piece) + 1] |= 1;
}

static void plant_piece_longer(struct fixture *f, uint64_t span, uint64_t piece, uint64_t large)
{
    word_entry(f, piece)->pieces +=
        1ull << (abi_word_block(piece) % ABI_BLOCKS_PER_CHUNK / ABI_BLOCKS_PER_PAGE * 4);
}

static void plant_large_longer(struct fixture *f, uint64_t span, uint64_t piece, uint64_t large)
{
    word_entry(f, large)->n_pages += 1;
}

static void plant_large_over_the_end(struct fixture *f, uint64_t span, uint64_t piece, uint64_t large)
{
    word_entry(f, large)->n_pages = 100000;
}

static void plant_tail(struct fixture *f, uint64_t span, uint64_t piece, uint64_t large)
{
    word_entry(f, large)[1].kind = CHUNK_FREE;
}

static void plant_stray_tail(struct fixture *f, uint64_t span, uint64_t piece, uint64_t large)
{
    word_entry(f, span)[1].kind = CHUNK_TAIL;
}

static void plant_unbacked_span(struct fixture *f, uint64_t span, uint64_t piece, uint64_t large)
{
    word_entry(f, span)->backed &= 0xfffe;
}

static void plant_unbacked_piece(struct fixture *f, uint64_t span, uint64_t piece, uint64_t large)
{
    word_entry(f, piece)->backed = 0;
}

static void plant_unbacked_large(struct fixture *f, uint64_t span, uint64_t piece, uint64_t large)
{
    word_entry(f, large)[1].backed &= 0xfffe;
}

static void plant_purging(struct fixture *f, uint64_t span, uint64_t piece, uint64_t large)
{
    word_entry(f, span)->purging = 1;
}

static void plant_purging_free(struct fixture *f, uint64_t span, uint64_t piece, uint64_t large)
{
    word_entry(f, span)[1].purging = 0x8000;
}

static void plant_class(struct fixture *f, uint64_t span, uint64_t piece, uint64_t large)
{
    word_entry(f, span)->class_index = 4;
}

static void plant_kind(struct fixture *f, uint64_t span, uint64_t piece, uint64_t large)
{
    word_entry(f, span)->kind = CHUNK_FREE;
}

static void plant_unknown_kind(struct fixture *f, uint64_t span, uint64_t piece, uint64_t large)
{
    word_entry(f, span)[1].kind = 99;
}

static void plant_roots(struct fixture *f, uint64_t span, uint64_t piece, uint64_t large)
{
    word_entry(f, span)[1].kind = CHUNK_ROOTS;
}

static void plant_n_free(struct fixture *f, uint64_t span, uint64_t piece, uint64_t large)
{
    f->heap->spans[word_chunk(span)].n_free--;
}

static void plant_open(struct fixture *f, uint64_t span, uint64_t piece, uint64_t large)
{
    f->heap->spans[word_chunk(span)].open[1] ^= 1;
}

static void plant_open_full(struct fixture *f, uint64_t span, uint64_t piece, uint64_t large)
{
    f->heap->spans[word_chunk(span)].open[0] |= 1;
}

static void plant_queue(struct fixture *f, uint64_t span, uint64_t piece, uint64_t large)
{
    f->heap->ripe[CLASS_OF_64].first = 0;
}

static void plant_pieces_list(struct fixture *f, uint64_t span, uint64_t piece, uint64_t large)
{
    f->heap->pieces[13].first = f->heap->pieces[13].last = 0;
}

static void plant_run_length(struct fixture *f, uint64_t span, uint64_t piece, uint64_t large)
{
    f->heap->spans[word_chunk(span) + 1].run_length--;
}

static void plant_busy(struct fixture *f, uint64_t span, uint64_t piece, uint64_t large)
{
    bitmap_set(&f->heap->busy, word_chunk(span) + 9, 1);
}

static void plant_lazy(struct fixture *f, uint64_t span, uint64_t piece, uint64_t large)
{
    bitmap_clear(&f->heap->lazy, word_chunk(span) + 1, 1);
}

static void plant_counter(struct fixture *f, uint64_t span, uint64_t piece, uint64_t large)
{
    f->heap->n_expired[TAG_SPAN]++;
}

static void plant_page_counter(struct fixture *f, uint64_t span, uint64_t piece, uint64_t large)
{
    f->heap->pages_taken++;
}

static void plant_backed_counter(struct fixture *f, uint64_t span, uint64_t piece, uint64_t large)
{
    f->heap->n_backed++;
}

static void count_complaints(void *userdata, const char *line)
{
    unsigned *n = userdata;

    assert_true(strlen(line) > 10);
    (*n)++;
}

static void test_the_audit_sees_each_corruption(void **state)
{
    static const struct planted all[] = {
        {"pending, not out", plant_pending},
        {"out at a granule where nothing starts", plant_misaligned},
        {"out that nobody counted", plant_out},
        {"an object lost", plant_lost},
        {"out within a piece", plant_piece_out},
        {"a piece too long", plant_piece_longer},
        {"an extent too long", plant_large_longer},
        {"an extent over the end", plant_large_over_the_end},
        {"an extent without tail", plant_tail},
        {"a tail without extent", plant_stray_tail},
        {"a span page not backed", plant_unbacked_span},
        {"a piece not backed", plant_unbacked_piece},
        {"an extent page not backed", plant_unbacked_large},
        {"a span being purged", plant_purging},
        {"a free page being purged", plant_purging_free},
        {"another class", plant_class},
        {"a span said to be free", plant_kind},
        {"no kind", plant_unknown_kind},
        {"second roots", plant_roots},
        {"a span's count", plant_n_free},
        {"a span's open blocks", plant_open},
        {"a full block open", plant_open_full},
        {"the queue of ripe spans", plant_queue},
        {"the list of pieces", plant_pieces_list},
        {"a run's length", plant_run_length},
        {"busy without reason", plant_busy},
        {"lazy chunk unknown", plant_lazy},
        {"counter of objects", plant_counter},
        {"counter of pages", plant_page_counter},
        {"counter of backed pages", plant_backed_counter},
    };

    for (unsigned i = 0; i < ARRAY_SIZE(all); i++) {
        uint64_t span, freed, piece, large;
        unsigned n = 0;
        struct fixture f;

        fixture_init(&f, SMALL_ARENA);
        span = fixture_alloc_word(&f, CLASS_OF_64, 1);
        freed = fixture_alloc_word(&f, 1, 1); /* chunk 2: a free one that is backed */
        piece = fixture_alloc_pages(&f, 3);
        large = fixture_alloc_pages(&f, 32);
        fixture_free(&f, freed);
        f.heap = heap_free(f.heap); /* the kept span: given up by a start that finds it not backed whole */
        state_chunks(f.state)[2].backed = 0x00ff;
        assert_int_equal(fixture_start(&f), 0);
        assert_audit_clean(&f);
        all[i].plant(&f, span, piece, large);
        if (heap_audit(f.heap, count_complaints, &n) == 0)
            fail_msg("%s: not seen", all[i].what);
        assert_int_equal(heap_audit(f.heap, NULL, NULL), n);
        fixture_deinit(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_intent_is_finished_by_the_start),
        cmocka_unit_test(test_a_start_refuses_what_is_no_state),
        cmocka_unit_test(test_the_audit_sees_each_corruption),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
