/*
 * frame_sections.c - divide a range of the flat buffer into the sections of a frame.
 *
 * Each compressed tensor (or the part of it in the range) is a section of its own, so that no block spans two tensors.
 * Adjacent dense tensors share a section. The sizes of block sections follow from the density, before any gradient is
 * read.
 */
#include "compress/compressor.h"

#include "base/status.h"
#include "base/block_count.h"

/* The index code of a block section: the requested one, or the shortest. */
static frugi_index block_index_code(const frug_compressor *c, frugi_section *s) {
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

/* Density of a tensor. */
static double density_of(const frug_compressor *c, const frugi_tensor_view *view, frugi_section_mode what) {
    if (view->dense || what == FRUGI_SECTIONS_DENSE)
        return 1.0;
    return what == FRUGI_SECTIONS_BOUND ? frugi_control_max_density(c->control, view->number)
                                        : c->density[view->number];
}

/* Whether every step sends everything. A density slightly below 1 may need more bytes, because it has indices. */
static bool always_sends_all(const frug_compressor *c) {
    const struct frug_config *f = &c->config;
    return f->schedule.kind == FRUGI_SCHEDULE_CONSTANT && f->schedule.arg[0] == 0 && f->layers == FRUGI_LAYERS_EVEN &&
           f->norm == FRUGI_NORM_OFF;
}

static frugi_frame_section make_block_section(const frug_compressor *c, const frugi_tensor_view *view, uint64_t begin,
                                              uint64_t end, uint64_t step, frugi_section_mode what) {
    frugi_frame_section fs = {.dense = view->dense};
    frugi_section *s = &fs.section;
    s->block = c->config.block;
    s->tensor = view->tensor;
    s->begin = begin;
    s->count = end - begin;
    if (view->dense) {
        s->kappa = (uint64_t)s->block << 32;
        s->value = FRUGI_VALUE_F32;
        s->index = FRUGI_INDEX_CODE_NONE;
    } else {
        fs.stored = view->first_block + (begin - view->begin) / s->block;
        s->kappa = frugi_kappa(density_of(c, view, what), s->block);
        s->value = what == FRUGI_SECTIONS_DENSE ? FRUGI_VALUE_F32 : c->config.value;
        s->first = fs.stored + step % FRUGI_PHASES;
        s->index = block_index_code(c, s);
    }
    return fs;
}

/* For a bound that holds at every step: the most entries of any phase, and an index code. */
static void round_up(const frug_compressor *c, frugi_section *s) {
    s->kappa = (s->kappa + UINT32_MAX) & ~(uint64_t)UINT32_MAX;
    if (s->index == FRUGI_INDEX_CODE_NONE && !always_sends_all(c))
        s->index = c->config.index == FRUGI_INDEX_LOCAL ? FRUGI_INDEX_CODE_LOCAL : FRUGI_INDEX_CODE_BITMAP;
}

/* A range may begin and end between blocks only. */
static frug_status check_block_boundary(const frug_compressor *c, const frugi_tensor_view *view, uint64_t at,
                                        const char *which) {
    bool fits = at == view->begin || at == view->begin + view->count || (at - view->begin) % c->config.block == 0;
    FRUG_FAIL_IF(!fits, FRUG_ERR_ARG, "range: its %s at element %llu cuts a block of %u in tensor '%s'", which,
                 (unsigned long long)at, c->config.block, c->layout->tensor[view->tensor].name);
    return FRUG_OK;
}

/* Whether two dense sections are adjacent. */
static bool can_merge(const frugi_frame_section *a, const frugi_frame_section *b) {
    return a->dense && b->dense && a->section.begin + a->section.count == b->section.begin;
}

/* Number of batches of a section; unit sections have none. */
static uint64_t count_batches(const frug_compressor *c, const frugi_section *s) {
    if (!s->block)
        return 0;
    uint64_t whole = s->count / s->block;
    return (whole + c->max_batch_blocks - 1) / c->max_batch_blocks + (s->count % s->block != 0);
}

/* Append a section to the frame, or merge it into the last one where both are dense and adjacent. */
static void append_section(const frug_compressor *c, frugi_frame_section fs, frugi_frame_section *last,
                           frugi_frame_size *size) {
    if (size->sections && can_merge(last, &fs)) {
        size->bytes -= last->section.bytes;
        size->batches = last->first_batch;
        last->section.count += fs.section.count;
        fs = *last;
    } else {
        size->sections++;
        frugi_section_measure(&fs.section);
        size->bytes += fs.section.header;
        fs.payload_at = size->bytes;
        fs.first_batch = size->batches;
    }
    frugi_section_measure(&fs.section);
    size->bytes += fs.section.bytes;
    size->batches += count_batches(c, &fs.section);
    *last = fs;
}

/* Append the unit sections of a tensor, by the selection made before. */
static void append_unit_sections(const frug_compressor *c, const frugi_tensor_view *view, uint64_t step,
                                 frugi_frame_section *sections, frugi_frame_section *last, frugi_frame_size *size) {
    frugi_frame_section made[FRUGI_SECTIONS_PER_TENSOR];
    size_t n = frugi_make_unit_sections(c, view, step, made);
    for (size_t i = 0; i < n; i++) {
        append_section(c, made[i], last, size);
        sections[size->sections - 1] = *last;
    }
}

frug_status frugi_make_sections(const frug_compressor *c, uint64_t begin, uint64_t count, uint64_t step,
                                frugi_section_mode what, frugi_frame_section *sections, frugi_frame_size *total) {
    FRUG_TRY(frugi_check_range(&c->partition, begin, count));
    frugi_frame_size size = {.bytes = FRUGI_FRAME_HEADER};
    frugi_frame_section last = {0};
    frugi_range_iter it = frugi_range_start(&c->partition, begin, begin + count);
    while (frugi_range_next(&it)) {
        const frugi_tensor_view *view = it.view;
        FRUG_TRY(check_block_boundary(c, view, it.from, "start"));
        FRUG_TRY(check_block_boundary(c, view, it.to, "end"));
        if (c->by_units && !view->dense && what != FRUGI_SECTIONS_DENSE) {
            if (what == FRUGI_SECTIONS_STEP)
                append_unit_sections(c, view, step, sections, &last, &size);
            continue;
        }
        frugi_frame_section fs = make_block_section(c, view, it.from, it.to, step, what);
        if (what == FRUGI_SECTIONS_BOUND && !view->dense)
            round_up(c, &fs.section);
        append_section(c, fs, &last, &size);
        if (sections)
            sections[size.sections - 1] = last;
    }
    *total = size;
    return FRUG_OK;
}
