/*
 * exact_frame.c - a sparse range as a frame, exactly: f32 values at the places that are not zero, whatever the config.
 *
 * Sums of several workers' frames are sent on in this form. Each tensor's part of the range is one section by units of
 * single elements, in the shortest index code; a part without a non-zero has none.
 */
#include "compress/exact_frame.h"

#include "codec/unit_value.h"
#include "base/float_bits.h"
#include "base/philox.h"
#include "base/status.h"

#include <string.h>

/* Index codes never take more than the shorter of four bytes an entry and one bit an element. */
size_t frugi_nonzeros_bound(const frug_compressor *c, uint64_t begin, uint64_t count, uint64_t nonzeros) {
    size_t parts = 0;
    for (size_t i = frugi_piece_at(c, begin); i < c->pieces && c->piece[i].begin < begin + count; i++)
        parts++;
    return FRUGI_FRAME_HEADER + parts * (FRUGI_UNIT_SECTION_HEADER + 3 * 4) + 8 * nonzeros;
}

static uint64_t list_nonzeros(const float *x, uint64_t n, uint32_t *list) {
    uint64_t kept = 0;
    for (uint64_t i = 0; i < n; i++) {
        list[kept] = (uint32_t)i;
        kept += x[i] != 0.0f;
    }
    return kept;
}

static frug_status describe(uint32_t tensor, uint64_t begin, uint64_t count, const uint32_t *list, uint64_t kept,
                            frugi_section *s) {
    *s = (frugi_section){.tensor = tensor, .begin = begin, .count = count, .kept = kept, .entries = kept};
    s->grid = (frugi_grid){.rows = 1, .cols = count, .h = 1, .w = 1};
    FRUG_FAIL_IF(!frugi_grid_measure(&s->grid), FRUG_ERR_ARG, "range: more than 2^32 elements of a tensor in one go");
    if (kept < count) {
        frugi_index_sizes sizes;
        frugi_unit_index_measure(&s->grid, list, kept, &sizes);
        s->index = FRUGI_INDEX_CODE_LOCAL;
        for (frugi_index i = FRUGI_INDEX_CODE_BITMAP; i <= FRUGI_INDEX_CODE_RICE; i++)
            s->index = sizes.bytes[i] < sizes.bytes[s->index] ? i : s->index;
        s->index_bytes = sizes.bytes[s->index];
        s->rice = s->index == FRUGI_INDEX_CODE_RICE ? sizes.rice : 0;
    }
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

frug_status frugi_nonzeros_say(frug_compressor *c, uint64_t step, uint64_t begin, uint64_t count, const float *x,
                               uint32_t *list, void *dst, size_t cap, size_t *len) {
    uint64_t end = begin + count, at = FRUGI_FRAME_HEADER;
    unsigned char *out = dst;
    frugi_frame frame = {.step = step, .layout_hash = c->layout_hash, .source = c->source};
    FRUG_TRY(frugi_check_range(c, begin, count));
    for (size_t i = frugi_piece_at(c, begin); i < c->pieces && c->piece[i].begin < end; i++) {
        const frugi_piece *p = &c->piece[i];
        uint64_t from = p->begin > begin ? p->begin : begin, to = p->begin + p->count < end ? p->begin + p->count : end;
        uint64_t kept = list_nonzeros(x + (from - begin), to - from, list);
        frugi_section s;
        if (kept == 0)
            continue;
        FRUG_TRY(describe(p->tensor, from, to - from, list, kept, &s));
        FRUG_FAIL_IF(cap < at || cap - at < s.header + s.bytes, FRUG_ERR_SHORT_BUFFER,
                     "reduce: room for %zu bytes only", cap);
        write_section(&s, x + (from - begin), list, out + at);
        at += s.header + s.bytes;
        frame.sections++;
    }
    FRUG_FAIL_IF(cap < at, FRUG_ERR_SHORT_BUFFER, "reduce: room for %zu bytes only", cap);
    frame.bytes = at;
    frugi_frame_write(&frame, out);
    frugi_frame_seal(out, at, c->threads);
    *len = at;
    return FRUG_OK;
}

void frugi_residual_add(frug_compressor *c, uint64_t step, uint64_t begin, uint64_t count, const float *x) {
    uint64_t end = begin + count;
    uint32_t block = c->config.block;
    if (c->config.feedback == FRUGI_FEEDBACK_NONE)
        return;
    for (size_t i = frugi_piece_at(c, begin); i < c->pieces && c->piece[i].begin < end; i++) {
        const frugi_piece *p = &c->piece[i];
        if (p->dense)
            continue;
        uint64_t from = p->begin > begin ? p->begin : begin, to = p->begin + p->count < end ? p->begin + p->count : end;
        for (uint64_t e = from; e < to;) {
            uint64_t b = (e - p->begin) / block, first = p->begin + b * block,
                     stop = first + block < to ? first + block : to;
            float left[FRUGI_BATCH_ELEMENTS];
            uint64_t here = e;
            e = stop;
            if (frugi_largest_magnitude(x + (here - begin), (uint32_t)(stop - here)) == 0)
                continue; /* rounded once is enough */
            frugi_store_load(&c->residual, p->first_block + b, left);
            for (uint64_t k = here; k < stop; k++)
                left[k - first] += x[k - begin];
            if (frugi_largest_magnitude(left, block) >= FRUGI_INF_BITS)
                continue; /* an infinity would hold the block back for ever */
            frugi_store_save(&c->residual, p->first_block + b, left,
                             frugi_random(c->config.seed ^ FRUGI_OTHER_DRAWS, step, p->first_block + b));
        }
    }
}
