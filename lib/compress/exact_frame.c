/*
 * exact_frame.c - encode the non-zero elements of a range exactly, as f32 values, for any config.
 *
 * Exchange algorithms forward sums of frames in this form. Each tensor in the range is one unit section whose units are
 * elements, in the shortest index code; a tensor without non-zero elements has none.
 */
#include "compress/exact_frame.h"
#include "compress/compressor.h"

#include "codec/unit_value.h"
#include "base/float_bits.h"
#include "base/status.h"

#include <string.h>

/* The shortest index code takes at most 4 bytes per entry, and at most 1 bit per element. */
size_t frugi_exact_frame_bound(const frug_compressor *c, uint64_t begin, uint64_t count, uint64_t nonzeros) {
    size_t sections = 0;
    frugi_range_iter it = frugi_range_start(&c->partition, begin, begin + count);
    while (frugi_range_next(&it))
        sections++;
    return FRUGI_FRAME_HEADER + sections * (FRUGI_UNIT_SECTION_HEADER + 3 * 4) + 8 * nonzeros;
}

static uint64_t list_nonzeros(const float *x, uint64_t n, uint32_t *list) {
    uint64_t found = 0;
    for (uint64_t i = 0; i < n; i++) {
        list[found] = (uint32_t)i;
        found += x[i] != 0.0f;
    }
    return found;
}

static frug_status make_section(const frugi_range_iter *it, const uint32_t *list, uint64_t entries, frugi_section *s) {
    uint64_t count = it->to - it->from;
    *s = (frugi_section){
        .tensor = it->view->tensor, .begin = it->from, .count = count, .kept = entries, .entries = entries};
    s->grid = (frugi_grid){.rows = 1, .cols = count, .h = 1, .w = 1};
    FRUG_FAIL_IF(!frugi_grid_measure(&s->grid), FRUG_ERR_ARG,
                 "range: a section has %llu elements, and the most are 2^32", (unsigned long long)count);
    if (entries < count)
        frugi_set_index_code(FRUGI_INDEX_AUTO, list, s);
    frugi_section_measure(s);
    return FRUG_OK;
}

static void write_section(const frugi_section *s, const float *x, const uint32_t *list, unsigned char *at) {
    unsigned char *payload = at + s->header, *values = payload + s->value_at;
    frugi_section_write(s, at);
    frugi_unit_index_encode(s, list, payload + s->index_at);
    memset(payload + s->index_at + s->index_bytes, 0, s->value_at - s->index_at - s->index_bytes);
    for (uint64_t i = 0; i < s->kept; i++)
        memcpy(values + 4 * i, &x[s->kept < s->count ? list[i] : i], 4);
}

frug_status frugi_exact_frame_encode(frug_compressor *c, uint64_t step, uint64_t begin, uint64_t count, const float *x,
                                     uint32_t *list, void *dst, size_t cap, size_t *len) {
    uint64_t at = FRUGI_FRAME_HEADER;
    unsigned char *out = dst;
    frugi_frame frame = {.step = step, .layout_hash = c->layout_hash, .source = c->source};
    FRUG_TRY(frugi_check_range(&c->partition, begin, count));
    frugi_range_iter it = frugi_range_start(&c->partition, begin, begin + count);
    while (frugi_range_next(&it)) {
        const float *values = x + (it.from - begin);
        uint64_t entries = list_nonzeros(values, it.to - it.from, list);
        frugi_section s;
        if (entries == 0)
            continue;
        FRUG_TRY(make_section(&it, list, entries, &s));
        FRUG_FAIL_IF(cap < at || cap - at < s.header + s.bytes, FRUG_ERR_SHORT_BUFFER,
                     "reduce: the frame does not fit into %zu bytes", cap);
        write_section(&s, values, list, out + at);
        at += s.header + s.bytes;
        frame.sections++;
    }
    FRUG_FAIL_IF(cap < at, FRUG_ERR_SHORT_BUFFER, "reduce: the frame does not fit into %zu bytes", cap);
    frame.bytes = at;
    frugi_frame_write(&frame, out);
    frugi_frame_seal(out, at, c->threads);
    *len = at;
    return FRUG_OK;
}
