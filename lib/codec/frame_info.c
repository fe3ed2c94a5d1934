/* frame_info.c - check and describe frames: frug_frame_check() and frug_frame_section(). */
#include "codec/frame.h"
#include "base/struct_size.h"
#include "codec/unit_index.h"
#include "base/status.h"

#include <string.h>

#define WINDOW 4096u /* units read at a time */

const char *frug_index_code_at(size_t i) {
    return i < FRUG_INDEX_CODES ? frugi_index_name((uint32_t)i) : NULL;
}

frug_status frug_frame_check(const void *frame, size_t len, frug_frame_info *info) {
    FRUG_FAIL_IF(!frame || !frugi_struct_valid(info), FRUG_ERR_ARG,
                 "frame: frame or info is NULL, or struct_size is not set");
    frugi_frame open;
    FRUG_TRY(frugi_frame_open(frame, len, &open));
    frug_status status = frugi_frame_verify(frame, &open);
    FRUG_FAIL_IF(status == FRUG_ERR_CHECKSUM, status, "frame: the checksum does not match; it was damaged");
    FRUG_FAIL_IF(status != FRUG_OK, status, "frame: it has an invalid index or value");
    frug_frame_info made = {.struct_size = sizeof made,
                            .version = open.version,
                            .source = open.source,
                            .step = open.step,
                            .layout_hash = open.layout_hash,
                            .bytes = open.bytes,
                            .sections = open.sections,
                            .skipped = open.held};
    frugi_section s;
    const unsigned char *payload;
    uint64_t at = 0, end = 0;
    while (frugi_frame_next(frame, &open, &at, &s, &payload)) {
        made.range.begin = end ? made.range.begin : s.begin;
        end = s.begin + s.count;
        made.entries += s.entries;
    }
    made.range.count = end - made.range.begin;
    frugi_struct_write(info, &made);
    return FRUG_OK;
}

/* In a section by blocks the header determines all sizes. */
static void describe_blocks(const frugi_section *s, frug_section_info *info) {
    info->density = (double)s->kappa / ((double)s->block * 4294967296.0);
    info->unit_h = info->unit_w = 1;
    info->units = s->count;
    info->selected = s->entries;
    for (uint32_t code = 0; code < FRUG_INDEX_CODES; code++)
        info->index_bytes[code] = UINT64_MAX;
    for (uint32_t code = FRUGI_INDEX_CODE_LOCAL; code <= FRUGI_INDEX_CODE_BITMAP; code++)
        info->index_bytes[code] = frugi_index_bytes((frugi_index)code, s->block, s->blocks, s->entries);
    if (s->entries == s->count)
        info->index_bytes[FRUGI_INDEX_CODE_NONE] = 0;
}

/* Read all units, and add them to sizer if it is not NULL. Returns the last unit. */
static uint32_t read_all_units(const frugi_section *s, const unsigned char *index, frugi_index_sizer *sizer) {
    uint32_t units[WINDOW], n, last = 0;
    frugi_index_reader walk;
    frugi_index_reader_start(&walk, s, index);
    do {
        n = frugi_index_read_below(&walk, s->grid.units, units, WINDOW);
        last = n ? units[n - 1] : last;
        if (sizer)
            frugi_index_sizer_add(sizer, units, n);
    } while (n == WINDOW);
    return last;
}

/* The units of a section by units are read twice: the sizer needs the last one first. */
static void describe_units(const frugi_section *s, const unsigned char *payload, frug_section_info *info) {
    const unsigned char *index = payload + s->index_at;
    frugi_index_sizer sizer;
    frugi_index_sizes sizes;
    frugi_index_sizer_start(&sizer, &s->grid, s->kept, read_all_units(s, index, NULL));
    read_all_units(s, index, &sizer);
    frugi_index_sizer_finish(&sizer, &sizes);
    sizes.bytes[s->index] = s->index_bytes;
    memcpy(info->index_bytes, sizes.bytes, sizeof info->index_bytes);
    info->density = (double)s->entries / (double)s->count;
    info->unit_h = s->grid.h;
    info->unit_w = s->grid.w;
    info->units = s->grid.units;
    info->selected = s->kept;
}

frug_status frug_frame_section(const void *frame, size_t len, uint32_t i, frug_section_info *info) {
    FRUG_FAIL_IF(!frame || !frugi_struct_valid(info), FRUG_ERR_ARG,
                 "frame: frame or info is NULL, or struct_size is not set");
    frugi_frame open;
    FRUG_TRY(frugi_frame_open(frame, len, &open));
    FRUG_FAIL_IF(i >= open.sections, FRUG_ERR_ARG, "frame: no section %u, there are %u", (unsigned)i,
                 (unsigned)open.sections);
    frugi_section s;
    const unsigned char *payload;
    uint64_t at = 0;
    for (uint32_t n = 0; n <= i; n++)
        frugi_frame_next(frame, &open, &at, &s, &payload);
    frug_section_info made = {.struct_size = sizeof made,
                              .index = frugi_index_name(s.index),
                              .value = frugi_value_name(s.value),
                              .block = s.block,
                              .tensor = s.tensor,
                              .range = {s.begin, s.count},
                              .entries = s.entries,
                              .bytes = s.bytes + s.header};
    if (s.block)
        describe_blocks(&s, &made);
    else
        describe_units(&s, payload, &made);
    frugi_struct_write(info, &made);
    return FRUG_OK;
}
