/*
 * compress.c - frug_compress(): what both paths (block_path.c, unit_path.c) have in common.
 *
 * A call makes the sections of the frame or a bound of their sizes, which may fail; then the path writes all payloads,
 * and headers and checksum follow.
 */
#include "compress/compress_path.h"

#include "codec/unit_value.h"
#include "base/clock.h"
#include "base/status.h"

/* Zero the bytes between the parts of a section. */
static void clear_padding(const frugi_frame_section *fs, unsigned char *frame) {
    const frugi_section *s = &fs->section;
    unsigned char *payload = frame + fs->payload_at;
    uint64_t scales, indices, values;
    if (s->block) {
        scales = s->blocks * frugi_value_scale_bytes(s->value);
        indices = s->index_at + frugi_index_bytes(s->index, s->block, s->blocks, s->entries);
        values = s->value_at + s->entries * frugi_value_bytes(s->value);
    } else {
        scales = frugi_value_group_scale_bytes(s);
        indices = s->index_at + s->index_bytes;
        values = s->value_at + frugi_value_group_bytes(s);
    }
    memset(payload + scales, 0, s->index_at - scales);
    memset(payload + indices, 0, s->value_at - indices);
    memset(payload + values, 0, s->bytes - values);
}

/* Write headers and checksum. */
static void write_headers(const frugi_compress_call *call, const frugi_frame_size *size) {
    frug_compressor *c = call->c;
    frugi_frame frame = {.bytes = size->bytes,
                         .step = call->step,
                         .layout_hash = c->layout_hash,
                         .source = c->source,
                         .sections = (uint32_t)size->sections};
    for (int i = 0; i < c->threads; i++)
        frame.held += (uint32_t)c->workspace[i].tally.skipped;
    for (size_t i = 0; i < size->sections; i++) {
        frugi_section_write(&c->section[i].section,
                            call->frame + c->section[i].payload_at - c->section[i].section.header);
        clear_padding(&c->section[i], call->frame);
    }
    frugi_frame_write(&frame, call->frame);
    frugi_frame_seal(call->frame, size->bytes, c->threads);
}

/* Elements of the range without gaps. Sections do not give this: a tensor may have none or several. */
static uint64_t count_elements(const frugi_compress_call *call) {
    uint64_t elements = 0;
    frugi_range_iter it = frugi_range_start(&call->c->partition, call->begin, call->begin + call->count);
    while (frugi_range_next(&it))
        elements += it.to - it.from;
    return elements;
}

static void update_stats(const frugi_compress_call *call, const frugi_frame_size *size) {
    frug_compressor *c = call->c;
    uint64_t entries = 0;
    for (size_t i = 0; i < size->sections; i++)
        entries += c->section[i].section.entries;
    frugi_stats_count(c, size->bytes, entries, count_elements(call));
    frugi_stats_add_tallies(c);
}

/* Everything that can fail, before the compressor changes. */
static frug_status make_sections(const frugi_compress_call *call, size_t cap, frugi_frame_size *size) {
    uint64_t bytes = 0;
    FRUG_TRY(call->path->make_sections(call, size, &bytes));
    FRUG_FAIL_IF(cap < bytes, FRUG_ERR_SHORT_BUFFER,
                 "compress: the buffer has %zu bytes, and the frame may need %llu: see frug_compressor_bound()", cap,
                 (unsigned long long)bytes);
    return FRUG_OK;
}

frug_status frug_compress(frug_compressor *c, uint64_t step, frug_range range, const float *grad, void *dst, size_t cap,
                          size_t *len) {
    const uint64_t begin = range.begin, count = range.count;
    FRUG_FAIL_IF(!c || (!grad && count) || !dst || !len, FRUG_ERR_ARG,
                 "compress: compressor, gradient, destination or length is NULL");
    double start = frugi_clock();
    frugi_frame_size size;
    frugi_compress_call call = {.c = c, .step = step, .begin = begin, .count = count, .grad = grad, .frame = dst};
    FRUG_TRY(frugi_call_init(&call));
    frugi_control_densities(c->control, step, c->density);
    frug_status status = make_sections(&call, cap, &size);
    if (status != FRUG_OK) {
        if (c->config.norm != FRUGI_NORM_OFF)
            frugi_control_undo_norm(c->control);
        return status;
    }
    for (int i = 0; i < c->threads; i++)
        memset(&c->workspace[i].tally, 0, sizeof c->workspace[i].tally);
    call.path->encode(&call, &size);
    double encoded = frugi_clock();
    write_headers(&call, &size);
    update_stats(&call, &size);
    double end = frugi_clock();
    c->stats.seconds_checksum += end - encoded;
    c->stats.seconds_compress += end - start;
    *len = size.bytes;
    return FRUG_OK;
}
