/*
 * frame_sections.c - divide a range of the flat buffer into the sections of a frame.
 *
 * Each compressed tensor (or the part of it in the range) has sections of its own, made by block_sections.c or
 * unit_encode.c, so that no block spans two tensors. Adjacent dense tensors share a section.
 */
#include "compress/compress_path.h"

#include "base/status.h"

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

void frugi_append_section(frugi_section_list *list, frugi_frame_section fs) {
    frugi_frame_size *size = &list->size;
    if (size->sections && can_merge(&list->last, &fs)) {
        size->bytes -= list->last.section.bytes;
        size->batches = list->last.first_batch;
        list->last.section.count += fs.section.count;
        fs = list->last;
    } else {
        size->sections++;
        frugi_section_measure(&fs.section);
        size->bytes += fs.section.header;
        fs.payload_at = size->bytes;
        fs.first_batch = size->batches;
    }
    frugi_section_measure(&fs.section);
    size->bytes += fs.section.bytes;
    size->batches += count_batches(list->c, &fs.section);
    list->last = fs;
    if (list->sections)
        list->sections[size->sections - 1] = fs;
}

static void append_dense_section(frugi_section_list *list, const frugi_range_iter *it) {
    uint32_t block = list->c->config.block;
    frugi_append_section(list, (frugi_frame_section){.dense = true,
                                                     .section = {.block = block,
                                                                 .tensor = it->view->tensor,
                                                                 .begin = it->from,
                                                                 .count = it->to - it->from,
                                                                 .kappa = (uint64_t)block << 32,
                                                                 .value = FRUGI_VALUE_F32,
                                                                 .index = FRUGI_INDEX_CODE_NONE}});
}

frug_status frugi_make_sections(const frug_compressor *c, frug_range range, uint64_t step, frugi_section_mode mode,
                                frugi_frame_section *sections, frugi_frame_size *size) {
    void (*add)(frugi_section_list *, const frugi_range_iter *) =
        mode == FRUGI_SECTIONS_DENSE ? frugi_add_block_sections : c->path->add_sections;
    frugi_section_list list = {
        .c = c, .step = step, .mode = mode, .sections = sections, .size = {.bytes = FRUGI_FRAME_HEADER}};
    FRUG_TRY(frugi_check_range(&c->partition, range.begin, range.count));
    frugi_range_iter it = frugi_range_start(&c->partition, range.begin, range.begin + range.count);
    while (frugi_range_next(&it)) {
        FRUG_TRY(check_block_boundary(c, it.view, it.from, "start"));
        FRUG_TRY(check_block_boundary(c, it.view, it.to, "end"));
        (it.view->dense ? append_dense_section : add)(&list, &it);
    }
    *size = list.size;
    return FRUG_OK;
}
