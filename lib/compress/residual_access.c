/*
 * residual_access.c - what a compressor has left behind, as floats: out, and in again.
 *
 * A format shorter than f32 rounds at random when numbers are put in, as it does in a step, so that what is handed on
 * from worker to worker is right on average; the random numbers depend on seed and block.
 */
#include "compress/compressor.h"

#include "base/float_bits.h"
#include "base/philox.h"
#include "base/status.h"

#include <string.h>

#define PUT_STEP UINT64_MAX /* no step that trains draws like it */

/* A piece's part of a range; empty where the piece keeps nothing. */
typedef struct part {
    uint64_t from, to;
} part;

static part part_of(const frug_compressor *c, const frugi_piece *p, uint64_t begin, uint64_t end) {
    if (p->dense || c->config.feedback == FRUGI_FEEDBACK_NONE || p->begin + p->count <= begin || p->begin >= end)
        return (part){0};
    return (part){.from = p->begin < begin ? begin : p->begin,
                  .to = p->begin + p->count > end ? end : p->begin + p->count};
}

static uint64_t block_of(const frug_compressor *c, const frugi_piece *p, uint64_t element) {
    return p->first_block + (element - p->begin) / c->config.block;
}

frug_status frug_compressor_residual(const frug_compressor *c, uint64_t begin, uint64_t count, float *dst) {
    FRUG_FAIL_IF(!c || (!dst && count), FRUG_ERR_ARG, "residual: no compressor or no place for the result");
    frugi_cutting cut;
    FRUG_TRY(frugi_cut(c, begin, count, 0, FRUGI_CUT_ALL, NULL, &cut));
    if (count)
        memset(dst, 0, count * sizeof *dst);
    float block[FRUGI_BATCH_ELEMENTS];
    for (size_t i = 0; i < c->pieces; i++) {
        part at = part_of(c, &c->piece[i], begin, begin + count);
        for (; at.from < at.to; at.from += c->config.block) {
            uint64_t n = at.to - at.from < c->config.block ? at.to - at.from : c->config.block;
            frugi_store_load(&c->residual, block_of(c, &c->piece[i], at.from), block);
            memcpy(dst + (at.from - begin), block, n * sizeof *dst);
        }
    }
    return FRUG_OK;
}

/* The numbers that would be kept are all finite. */
static bool all_finite(const frug_compressor *c, uint64_t begin, uint64_t count, const float *src) {
    uint32_t bad = 0;
    for (size_t i = 0; i < c->pieces; i++) {
        part at = part_of(c, &c->piece[i], begin, begin + count);
        for (; at.from < at.to; at.from++)
            bad |= frugi_magnitude(src[at.from - begin]) >= FRUGI_INF_BITS;
    }
    return !bad;
}

/* One block, or the beginning of a tensor's last one. */
static void put_block(frug_compressor *c, uint64_t b, const float *src, uint64_t n) {
    float block[FRUGI_BATCH_ELEMENTS] = {0};
    if (c->config.feedback == FRUGI_FEEDBACK_DGC)
        frugi_store_save(&c->momentum, b, block, 0);
    memcpy(block, src, n * sizeof *src);
    frugi_store_save(&c->residual, b, block, frugi_random(c->config.seed, PUT_STEP, b));
}

frug_status frug_compressor_put_residual(frug_compressor *c, uint64_t begin, uint64_t count, const float *src) {
    FRUG_FAIL_IF(!c || (!src && count), FRUG_ERR_ARG, "residual: no compressor or no numbers");
    frugi_cutting cut;
    FRUG_TRY(frugi_cut(c, begin, count, 0, FRUGI_CUT_ALL, NULL, &cut));
    FRUG_FAIL_IF(!all_finite(c, begin, count, src), FRUG_ERR_ARG, "residual: a number is not finite");
    for (size_t i = 0; i < c->pieces; i++) {
        part at = part_of(c, &c->piece[i], begin, begin + count);
        for (; at.from < at.to; at.from += c->config.block) {
            uint64_t n = at.to - at.from < c->config.block ? at.to - at.from : c->config.block;
            put_block(c, block_of(c, &c->piece[i], at.from), src + (at.from - begin), n);
        }
    }
    return FRUG_OK;
}
