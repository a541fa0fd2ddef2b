/* SPDX-License-Identifier: MIT */
/*
 * Compares all that the heap keeps with what the state says, and the state with its own rules. For tests and
 * operators.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "engine/heap-internal.h"

/* What is found on the way, to be compared with what the heap counted. */
struct audit {
    const struct heap *h;
    void (*complain)(void *userdata, const char *line);
    void *userdata;
    unsigned n_complaints;
    uint64_t n_out[TAG_MAX], n_pending[TAG_MAX];
    uint64_t pages_out, pages_pending, n_backed, n_lazy, n_purging, n_spans;
    uint64_t n_ripe[ABI_CLASS_EXTENT], n_pieces[ABI_PAGES_PER_CHUNK + 1], n_runs;
};

/* One discrepancy, one line. */
static void _printf_(2, 3) complain(struct audit *a, const char *format, ...)
{
    char line[160];
    va_list args;

    va_start(args, format);
    (void)vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    a->n_complaints++;
    if (a->complain)
        a->complain(a->userdata, line);
}

static void expect(struct audit *a, const char *what, uint64_t kept, uint64_t found)
{
    if (kept != found)
        complain(a, "%s: counted %" PRIu64 ", found %" PRIu64, what, kept, found);
}

static void expect_chunk(struct audit *a, uint64_t chunk, const char *what, uint64_t kept, uint64_t found)
{
    if (kept != found)
        complain(a, "chunk %" PRIu64 ": %s is %#" PRIx64 ", should be %#" PRIx64, chunk, what, kept, found);
}

/* Where objects may start in a block of that chunk. */
static uint32_t allowed_starts(const struct heap *h, uint64_t chunk, unsigned b)
{
    const struct chunk_entry *e = &h->chunks[chunk];

    if (e->kind == CHUNK_SPAN)
        return h->patterns[e->class_index][b];
    if (e->kind == CHUNK_LARGE)
        return b == 0;
    if (e->kind == CHUNK_PIECES && b % ABI_BLOCKS_PER_PAGE == 0)
        return pieces_length(e->pieces, b / ABI_BLOCKS_PER_PAGE) > 0;
    return 0;
}

/* The words of a chunk with their own rules: pending within out, out where objects start. */
static void audit_truth(struct audit *a, uint64_t chunk, unsigned tag)
{
    const struct heap *h = a->h;

    for (unsigned b = 0; b < ABI_BLOCKS_PER_CHUNK; b++) {
        uint64_t block = chunk * ABI_BLOCKS_PER_CHUNK + b;
        uint32_t out = (uint32_t)h->truth[block], pending = (uint32_t)(h->truth[block] >> 32);

        if (!out && !pending)
            continue;
        if (pending & ~out)
            complain(a, "block %" PRIu64 ": pending %#" PRIx32 " is not within out %#" PRIx32, block, pending,
                     out);
        if (out & ~allowed_starts(h, chunk, b))
            complain(a, "block %" PRIu64 ": out %#" PRIx32 " where no object starts", block, out);
        a->n_out[tag] += mask_count(out);
        a->n_pending[tag] += mask_count(pending);
        if (tag == TAG_EXTENT) {
            uint64_t pages = extent_pages(h, (uint32_t)block);

            a->pages_out += out & 1 ? pages : 0;
            a->pages_pending += pending & 1 ? pages : 0;
        }
    }
}

/* Free objects by blocks: those in open ones must be counted, those in others must be reserved. */
static void audit_span_free(struct audit *a, uint64_t chunk)
{
    const struct heap *h = a->h;
    const struct span *s = &h->spans[chunk];
    unsigned n_free = 0, n_closed = 0;

    for (unsigned b = 0; b < ABI_BLOCKS_PER_CHUNK; b++) {
        uint32_t free_mask =
            h->patterns[s->tag - TAG_SPAN][b] & ~(uint32_t)h->truth[chunk * ABI_BLOCKS_PER_CHUNK + b];
        bool open = s->open[b / 64] >> (b % 64) & 1;

        if (open && !free_mask)
            complain(a, "chunk %" PRIu64 ": block %u is open but full", chunk, b);
        if (open)
            n_free += mask_count(free_mask);
        n_closed += !open && free_mask;
    }
    expect_chunk(a, chunk, "n_free", s->n_free, n_free);
    if (!s->parked)
        expect_chunk(a, chunk, "closed blocks with free objects", n_closed, s->n_reserved);
}

/* Entry, volatile part and words of a span must tell the same story. */
static void audit_span(struct audit *a, uint64_t chunk)
{
    const struct heap *h = a->h;
    const struct span *s = &h->spans[chunk];
    const struct chunk_entry *e = &h->chunks[chunk];

    a->n_spans++;
    if (e->class_index >= ABI_CLASS_EXTENT || s->tag != TAG_SPAN + e->class_index) {
        complain(a, "chunk %" PRIu64 ": a span of class %u is known as %u", chunk, e->class_index, s->tag);
        return;
    }
    audit_truth(a, chunk, s->tag);
    audit_span_free(a, chunk);
    expect_chunk(a, chunk, "capacity", s->capacity, h->capacity[e->class_index]);
    expect_chunk(a, chunk, "backed", e->backed, CHUNK_PAGES_ALL);
    expect_chunk(a, chunk, "purging", e->purging, 0);
    if (s->parked)
        expect_chunk(a, chunk, "parked without words to wait for", s->n_reserved == 0 || s->n_free > 0,
                     false);
    if (s->n_free == s->capacity)
        expect_chunk(a, chunk, "empty span, kept", h->kept[e->class_index], chunk);
    a->n_ripe[e->class_index] += s->n_free > 0;
}

/*
 * The nibbles are the truth about places; used pages, list and lazy bit follow from them and from PURGING. An
 * extent that is chosen but not out may be backed in part; one that is out is backed whole.
 */
static void audit_pieces(struct audit *a, uint64_t chunk)
{
    const struct heap *h = a->h;
    const struct span *s = &h->spans[chunk];
    const struct chunk_entry *e = &h->chunks[chunk];
    uint32_t used = pieces_used(e->pieces), lengths = 0, out = 0;

    for (unsigned page = 0; page < ABI_PAGES_PER_CHUNK; page++) {
        lengths += pieces_length(e->pieces, page);
        if (h->truth[chunk * ABI_BLOCKS_PER_CHUNK + page * ABI_BLOCKS_PER_PAGE] & 1)
            out |= page_mask(page, pieces_length(e->pieces, page));
    }
    expect_chunk(a, chunk, "pages of its extents together", lengths, mask_count(used));
    expect_chunk(a, chunk, "tag", s->tag, TAG_EXTENT);
    expect_chunk(a, chunk, "pages that are out, not backed", out & ~(uint32_t)e->backed, 0);
    expect_chunk(a, chunk, "pages of extents being purged", used & e->purging, 0);
    expect_chunk(a, chunk, "used pages", s->used, used | e->purging);
    expect_chunk(a, chunk, "longest hole", s->longest, pages_longest_hole(used | e->purging));
    expect_chunk(a, chunk, "lazy bit", bitmap_test(&a->h->lazy_pieces, chunk),
                 (e->backed & ~(uint32_t)s->used) != 0);
    a->n_pieces[pages_longest_hole((uint32_t)s->used)]++;
    a->n_lazy += mask_count(e->backed & ~(uint32_t)s->used);
    audit_truth(a, chunk, TAG_EXTENT);
}

/* Head, tails, and all needed pages backed once it is out. */
static void audit_large(struct audit *a, uint64_t chunk)
{
    const struct heap *h = a->h;
    uint64_t n_pages = h->chunks[chunk].n_pages, end = chunk + DIV_ROUND_UP(n_pages, ABI_PAGES_PER_CHUNK);
    bool out = h->truth[chunk * ABI_BLOCKS_PER_CHUNK] & 1;

    expect_chunk(a, chunk, "tag", h->spans[chunk].tag, TAG_EXTENT);
    audit_truth(a, chunk, TAG_EXTENT);
    if (n_pages < ABI_PAGES_PER_CHUNK || end > h->n_chunks) {
        complain(a, "chunk %" PRIu64 ": an extent of %" PRIu64 " pages does not fit there", chunk, n_pages);
        return;
    }
    for (uint64_t c = chunk; c < end; c++) {
        uint32_t needed = page_mask(0, (unsigned)MIN(n_pages - (c - chunk) * ABI_PAGES_PER_CHUNK, 16ull));

        if (c > chunk)
            expect_chunk(a, c, "kind behind the head of an extent", h->chunks[c].kind, CHUNK_TAIL);
        if (out)
            expect_chunk(a, c, "pages that are out, backed", h->chunks[c].backed & needed, needed);
        expect_chunk(a, c, "purging", h->chunks[c].purging, 0);
    }
}

/* FREE, TAIL or ROOTS: no objects. */
static void audit_bare(struct audit *a, uint64_t chunk)
{
    const struct heap *h = a->h;
    const struct chunk_entry *e = &h->chunks[chunk];
    bool lazy = e->kind == CHUNK_FREE && !e->purging && e->backed;

    expect_chunk(a, chunk, "tag", h->spans[chunk].tag, TAG_NONE);
    expect_chunk(a, chunk, "lazy bit", bitmap_test(&h->lazy, chunk), lazy);
    if (e->flags & CHUNK_HAS_TRUTH)
        audit_truth(a, chunk, TAG_NONE);
    if (lazy)
        a->n_lazy += mask_count(e->backed);
    if (e->kind == CHUNK_ROOTS)
        expect_chunk(a, chunk, "root chunk of the state", h->state->root_chunk, chunk);
    if (e->kind == CHUNK_TAIL && h->chunks[chunk - 1].kind != CHUNK_TAIL &&
        h->chunks[chunk - 1].kind != CHUNK_LARGE)
        complain(a, "chunk %" PRIu64 ": the tail of no extent", chunk);
}

/* Dispatches by kind, after what holds for all kinds. */
static void audit_chunk(struct audit *a, uint64_t chunk)
{
    const struct chunk_entry *e = &a->h->chunks[chunk];
    bool busy = e->kind != CHUNK_FREE || e->purging;

    expect_chunk(a, chunk, "busy bit", bitmap_test(&a->h->busy, chunk), busy);
    expect_chunk(a, chunk, "pages backed and being purged", e->backed & e->purging, 0);
    a->n_backed += mask_count(e->backed);
    a->n_purging += mask_count(e->purging);
    if (e->kind >= CHUNK_SPAN && e->kind <= CHUNK_LARGE && !(e->flags & CHUNK_HAS_TRUTH))
        complain(a, "chunk %" PRIu64 ": has objects, but not the flag that says so", chunk);
    if (e->kind == CHUNK_SPAN)
        audit_span(a, chunk);
    else if (e->kind == CHUNK_PIECES)
        audit_pieces(a, chunk);
    else if (e->kind == CHUNK_LARGE)
        audit_large(a, chunk);
    else if (e->kind < CHUNK_KIND_MAX)
        audit_bare(a, chunk);
    else
        complain(a, "chunk %" PRIu64 ": kind %u is none", chunk, e->kind);
}

/*
 * Walks a list and checks its back links; returns how many are in it, at most one more than there are chunks.
 */
static uint64_t list_length(struct audit *a, const struct chunk_list *l, const char *what)
{
    uint64_t n = 0;
    uint32_t prev = 0;

    for (uint32_t c = l->first; c && n <= a->h->n_chunks; c = a->h->spans[c].next, n++) {
        expect_chunk(a, c, what, a->h->spans[c].prev, prev);
        prev = c;
    }
    if (n <= a->h->n_chunks)
        expect(a, what, l->last, prev);
    return n;
}

/* As many in each list as the walk over the chunks found; that each is in the right one shows in the sums. */
static void audit_lists(struct audit *a)
{
    const struct heap *h = a->h;

    for (unsigned c = 0; c < ABI_CLASS_EXTENT; c++) {
        expect(a, "ripe spans of a class", list_length(a, &h->ripe[c], "queue of ripe spans"), a->n_ripe[c]);
        if (h->kept[c])
            expect_chunk(a, h->kept[c], "free objects of a kept span", h->spans[h->kept[c]].n_free,
                         h->capacity[c]);
    }
    for (unsigned n = 1; n < ABI_PAGES_PER_CHUNK; n++)
        expect(a, "chunks with a longest hole", list_length(a, &h->pieces[n], "list of pieces"),
               a->n_pieces[n]);
}

/* Each gap between busy chunks is one run in the list of its length, and nothing else is in these lists. */
static void audit_runs(struct audit *a)
{
    const struct heap *h = a->h;
    uint64_t n = 0;

    for (uint64_t first = bitmap_next_clear(&h->busy, 1); first != BITMAP_NONE; a->n_runs++) {
        uint64_t end = MIN(bitmap_next_set(&h->busy, first), h->n_chunks);

        expect_chunk(a, first, "length of the free run", h->spans[first].run_length, end - first);
        first = bitmap_next_clear(&h->busy, end);
    }
    for (unsigned bin = 0; bin < RUN_BINS; bin++) {
        n += list_length(a, &h->runs[bin], "list of runs");
        expect(a, "a list of runs has some", h->runs_present[bin / 64] >> (bin % 64) & 1,
               h->runs[bin].first != 0);
        if (h->runs[bin].first)
            expect(a, "lists of runs", run_bin(h->spans[h->runs[bin].first].run_length), bin);
    }
    expect(a, "free runs", n, a->n_runs);
}

/* What is counted step by step against what was found. */
static void audit_counters(struct audit *a)
{
    const struct heap *h = a->h;

    for (unsigned tag = TAG_NONE; tag < TAG_MAX; tag++) {
        expect(a, "objects out", objects_out(h, tag), a->n_out[tag]);
        expect(a, "objects pending", objects_pending(h, tag), a->n_pending[tag]);
    }
    expect(a, "pages of extents out", h->pages_committed - h->pages_expired, a->pages_out);
    expect(a, "pages of extents pending", h->pages_taken - h->pages_expired, a->pages_pending);
    expect(a, "pages backed", h->n_backed, a->n_backed);
    expect(a, "pages lazy", h->n_lazy, a->n_lazy);
    /* those that were backed before: how many of them, no chunk tells */
    expect(a, "pages purging", MAX(h->n_purging, a->n_purging), a->n_purging);
    expect(a, "spans", h->n_spans, a->n_spans);
}

unsigned heap_audit(const struct heap *h, void (*complain_to)(void *userdata, const char *line),
                    void *userdata)
{
    struct audit a = {.h = h, .complain = complain_to, .userdata = userdata};
    uint64_t low = h->state->n_low, high = MAX(low, h->n_chunks - h->state->n_high);

    for (uint64_t chunk = 1; chunk < low; chunk++)
        audit_chunk(&a, chunk);
    for (uint64_t chunk = MAX(high, 1ull); chunk < h->n_chunks; chunk++)
        audit_chunk(&a, chunk);
    for (uint64_t c = bitmap_next_set(&h->busy, MAX(low, 1ull)); c < high;
         c = bitmap_next_set(&h->busy, c + 1))
        complain(&a, "chunk %" PRIu64 ": in use beyond the watermarks", c);
    audit_lists(&a);
    audit_runs(&a);
    audit_counters(&a);
    return a.n_complaints;
}
