/*
 * block_sections.c - the block section of a tensor. Its size follows from density and step, before any gradient is
 * read.
 */
#include "compress/compress_path.h"

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
static double density_of(const frug_compressor *c, const frugi_tensor_view *view, frugi_section_mode mode) {
    if (mode == FRUGI_SECTIONS_DENSE)
        return 1.0;
    return mode == FRUGI_SECTIONS_BOUND ? frugi_control_max_density(c->control, view->number)
                                        : c->density[view->number];
}

/* Whether every step sends everything. A density slightly below 1 may need more bytes, because it has indices. */
static bool always_sends_all(const frug_compressor *c) {
    const struct frug_config *f = &c->config;
    return f->schedule.kind == FRUGI_SCHEDULE_CONSTANT && f->schedule.arg[0] == 0 && f->layers == FRUGI_LAYERS_EVEN &&
           f->norm == FRUGI_NORM_OFF;
}

/* For a bound that holds at every step: the most entries of any phase, and an index code. */
static void round_up(const frug_compressor *c, frugi_section *s) {
    s->kappa = (s->kappa + UINT32_MAX) & ~(uint64_t)UINT32_MAX;
    if (s->index == FRUGI_INDEX_CODE_NONE && !always_sends_all(c))
        s->index = c->config.index == FRUGI_INDEX_LOCAL ? FRUGI_INDEX_CODE_LOCAL : FRUGI_INDEX_CODE_BITMAP;
}

void frugi_add_block_sections(frugi_section_list *list, const frugi_range_iter *it) {
    const frug_compressor *c = list->c;
    const frugi_tensor_view *view = it->view;
    uint32_t block = c->config.block;
    const uint64_t within = (it->from - view->begin) / block;
    frugi_frame_section fs = {.stored = view->first_block + within};
    frugi_section *s = &fs.section;
    *s = (frugi_section){.block = block, .tensor = view->tensor, .begin = it->from, .count = it->to - it->from};
    s->kappa = frugi_kappa(density_of(c, view, list->mode), block);
    s->value = list->mode == FRUGI_SECTIONS_DENSE ? FRUGI_VALUE_F32 : c->config.value;
    s->first = view->first_number + within + list->step % FRUGI_PHASES;
    s->index = block_index_code(c, s);
    if (list->mode == FRUGI_SECTIONS_BOUND)
        round_up(c, s);
    frugi_append_section(list, fs);
}

void frugi_plan_blocks(const frug_compressor *c, const frugi_tensor_view *view, uint64_t step, frug_tensor_plan *plan) {
    frugi_section s = {
        .block = c->config.block, .begin = view->begin, .count = view->count, .index = FRUGI_INDEX_CODE_LOCAL};
    plan->density = frugi_control_density(c->control, step, view->number);
    s.kappa = frugi_kappa(plan->density, s.block);
    s.first = view->first_number + step % FRUGI_PHASES;
    frugi_section_measure(&s);
    plan->units = view->count;
    plan->segments = s.blocks;
    plan->selected = s.entries;
}
