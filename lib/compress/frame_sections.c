/*
 * frame_sections.c - from a range of the flat buffer to the slices (sections) of a frame.
 *
 * Each compressed tensor (or part of one) becomes a section of its own, so that its
 * blocks never mix with a neighbour's. Dense tensors that touch each other share one.
 * The sizes of all sections follow from the density, before any gradient is read.
 */
#include "compress/compressor.h"

#include "base/status.h"
#include "base/block_count.h"

static frugi_index smallest_index(const frug_compressor *c, frugi_section *s) {
    if (s->kappa == (uint64_t)s->block << 32)
        return FRUGI_INDEX_CODE_NONE;
    if (c->config.index == FRUGI_INDEX_LOCAL)
        return FRUGI_INDEX_CODE_LOCAL;
    if (c->config.index == FRUGI_INDEX_BITMAP)
        return FRUGI_INDEX_CODE_BITMAP;
    s->index = FRUGI_INDEX_CODE_LOCAL;
    frugi_section_measure(s);
    uint64_t local = frugi_index_bytes(FRUGI_INDEX_CODE_LOCAL, s->block, s->blocks, s->entries);
    uint64_t bitmap = frugi_index_bytes(FRUGI_INDEX_CODE_BITMAP, s->block, s->blocks, s->entries);
    return bitmap < local ? FRUGI_INDEX_CODE_BITMAP : FRUGI_INDEX_CODE_LOCAL;
}

/* The share of a piece that leaves. */
static double density_of(const frug_compressor *c, const frugi_piece *p, frugi_cut_for what) {
    if (p->dense || what == FRUGI_CUT_ALL)
        return 1.0;
    return what == FRUGI_CUT_BOUND ? frugi_control_most(c->control, p->number) : c->density[p->number];
}

/* Whether every step sends everything. Others may need more bytes shortly below that, for the places. */
static bool sends_all(const frug_compressor *c) {
    const struct frug_config *f = &c->config;
    return f->schedule.kind == FRUGI_SCHEDULE_CONSTANT && f->schedule.arg[0] == 0 && f->layers == FRUGI_LAYERS_EVEN &&
           f->norm == FRUGI_NORM_OFF;
}

static frugi_slice slice_of(const frug_compressor *c, const frugi_piece *p, uint64_t begin, uint64_t end, uint64_t step,
                            frugi_cut_for what) {
    frugi_slice slice = {.dense = p->dense};
    frugi_section *s = &slice.section;
    s->block = c->config.block;
    s->tensor = p->tensor;
    s->begin = begin;
    s->count = end - begin;
    if (p->dense) {
        s->kappa = (uint64_t)s->block << 32;
        s->value = FRUGI_VALUE_F32;
        s->index = FRUGI_INDEX_CODE_NONE;
    } else {
        slice.stored = p->first_block + (begin - p->begin) / s->block;
        s->kappa = frugi_kappa(density_of(c, p, what), s->block);
        s->value = what == FRUGI_CUT_ALL ? FRUGI_VALUE_F32 : c->config.value;
        s->first = slice.stored + step % FRUGI_PHASES;
        s->index = smallest_index(c, s);
    }
    return slice;
}

/* A bound must hold at every step: as many entries as any phase can give, and their places. */
static void round_up(const frug_compressor *c, frugi_section *s) {
    s->kappa = (s->kappa + UINT32_MAX) & ~(uint64_t)UINT32_MAX;
    if (s->index == FRUGI_INDEX_CODE_NONE && !sends_all(c))
        s->index = c->config.index == FRUGI_INDEX_LOCAL ? FRUGI_INDEX_CODE_LOCAL : FRUGI_INDEX_CODE_BITMAP;
}

static frug_status check_cut(const frug_compressor *c, const frugi_piece *p, uint64_t at, const char *which) {
    bool fits = at == p->begin || at == p->begin + p->count || (at - p->begin) % c->config.block == 0;
    FRUG_FAIL_IF(!fits, FRUG_ERR_ARG, "range: its %s at element %llu cuts a block of %u in tensor '%s'", which,
                 (unsigned long long)at, c->config.block, c->layout->tensor[p->tensor].name);
    return FRUG_OK;
}

size_t frugi_piece_at(const frug_compressor *c, uint64_t element) {
    size_t lo = 0, hi = c->pieces;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (c->piece[mid].begin + c->piece[mid].count <= element)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static bool touch(const frugi_slice *a, const frugi_slice *b) {
    return a->dense && b->dense && a->section.begin + a->section.count == b->section.begin;
}

static uint64_t batches_of(const frug_compressor *c, const frugi_section *s) {
    if (!s->block) /* by units: not in batches */
        return 0;
    uint64_t whole = s->count / s->block;
    return (whole + c->batch_most - 1) / c->batch_most + (s->count % s->block != 0);
}

/* Put a slice behind the ones before it, as part of the last one where both are dense and touch. */
static void append(const frug_compressor *c, frugi_slice slice, frugi_slice *last, frugi_cutting *cut) {
    if (cut->slices && touch(last, &slice)) {
        cut->bytes -= last->section.bytes;
        cut->batches = last->first_batch;
        last->section.count += slice.section.count;
        slice = *last;
    } else {
        cut->slices++;
        frugi_section_measure(&slice.section);
        cut->bytes += slice.section.header;
        slice.payload_at = cut->bytes;
        slice.first_batch = cut->batches;
    }
    frugi_section_measure(&slice.section);
    cut->bytes += slice.section.bytes;
    cut->batches += batches_of(c, &slice.section);
    *last = slice;
}

/* The sections by units of a piece, as they were chosen. */
static void append_units(const frug_compressor *c, const frugi_piece *p, uint64_t step, frugi_slice *slices,
                         frugi_slice *last, frugi_cutting *cut) {
    frugi_slice made[FRUGI_LAYERS];
    size_t n = frugi_units_sections(c, p, step, made);
    for (size_t i = 0; i < n; i++) {
        append(c, made[i], last, cut);
        slices[cut->slices - 1] = *last;
    }
}

frug_status frugi_check_range(const frug_compressor *c, uint64_t begin, uint64_t count) {
    uint64_t total = frug_layout_elements(c->layout);
    FRUG_FAIL_IF(begin > total || count > total - begin, FRUG_ERR_ARG,
                 "range: elements %llu to %llu, the layout has %llu", (unsigned long long)begin,
                 (unsigned long long)(begin + count), (unsigned long long)total);
    return FRUG_OK;
}

frug_status frugi_cut(const frug_compressor *c, uint64_t begin, uint64_t count, uint64_t step, frugi_cut_for what,
                      frugi_slice *slices, frugi_cutting *cutting) {
    uint64_t end = begin + count;
    FRUG_TRY(frugi_check_range(c, begin, count));
    frugi_cutting cut = {.bytes = FRUGI_FRAME_HEADER};
    frugi_slice last = {0};
    for (size_t i = frugi_piece_at(c, begin); i < c->pieces && c->piece[i].begin < end; i++) {
        const frugi_piece *p = &c->piece[i];
        uint64_t from = p->begin < begin ? begin : p->begin;
        uint64_t to = p->begin + p->count > end ? end : p->begin + p->count;
        FRUG_TRY(check_cut(c, p, from, "start"));
        FRUG_TRY(check_cut(c, p, to, "end"));
        if (c->by_units && !p->dense && what != FRUGI_CUT_ALL) {
            if (what == FRUGI_CUT_STEP)
                append_units(c, p, step, slices, &last, &cut);
            continue;
        }
        frugi_slice slice = slice_of(c, p, from, to, step, what);
        if (what == FRUGI_CUT_BOUND && !p->dense)
            round_up(c, &slice.section);
        append(c, slice, &last, &cut);
        if (slices)
            slices[cut.slices - 1] = last;
    }
    *cutting = cut;
    return FRUG_OK;
}
