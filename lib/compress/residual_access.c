/*
 * residual_access.c - read and write the residual of a compressor as floats.
 *
 * Formats shorter than f32 round stochastically when numbers are written, as they do in a step, so that a residual that
 * is passed from worker to worker is right on average. The random numbers depend on seed and block.
 */
#include "compress/compressor.h"

#include "base/float_bits.h"
#include "base/philox.h"
#include "base/status.h"

#include <string.h>

#define WRITE_STEP UINT64_MAX /* step for the random numbers: no training step uses it */

/* Whether the current tensor of an iterator has a residual. */
static bool has_residual(const frug_compressor *c, const frugi_range_iter *it) {
    return !it->view->dense && c->config.feedback != FRUGI_FEEDBACK_NONE;
}

/* Number of the block of an element, and how many elements follow up to the end of the block or range. */
static uint64_t block_of(const frug_compressor *c, const frugi_range_iter *it, uint64_t element, uint64_t *n) {
    *n = it->to - element < c->config.block ? it->to - element : c->config.block;
    return it->view->first_block + (element - it->view->begin) / c->config.block;
}

frug_status frug_compressor_get_residual(const frug_compressor *c, frug_range range, float *dst) {
    const uint64_t begin = range.begin, count = range.count;
    FRUG_FAIL_IF(!c || (!dst && count), FRUG_ERR_ARG, "residual: compressor or destination is NULL");
    frugi_frame_size size;
    FRUG_TRY(frugi_make_sections(c, begin, count, 0, FRUGI_SECTIONS_DENSE, NULL, &size));
    if (count)
        memset(dst, 0, count * sizeof *dst);
    float block[FRUGI_BATCH_ELEMENTS];
    frugi_range_iter it = frugi_range_start(&c->partition, begin, begin + count);
    while (frugi_range_next(&it))
        for (uint64_t e = it.from, n; has_residual(c, &it) && e < it.to; e += n) {
            frugi_store_load(&c->residual, block_of(c, &it, e, &n), block);
            memcpy(dst + (e - begin), block, n * sizeof *dst);
        }
    return FRUG_OK;
}

/* Whether all numbers that would be stored are finite. */
static bool is_finite_range(const frug_compressor *c, uint64_t begin, uint64_t count, const float *src) {
    uint32_t bad = 0;
    frugi_range_iter it = frugi_range_start(&c->partition, begin, begin + count);
    while (frugi_range_next(&it))
        for (uint64_t e = it.from; has_residual(c, &it) && e < it.to; e++)
            bad |= frugi_magnitude(src[e - begin]) >= FRUGI_INF_BITS;
    return !bad;
}

/* Store n numbers from the beginning of block b on; only the last block of a tensor has fewer than a whole block. */
static void write_block(frug_compressor *c, uint64_t b, const float *src, uint64_t n) {
    float block[FRUGI_BATCH_ELEMENTS] = {0};
    if (c->config.feedback == FRUGI_FEEDBACK_DGC)
        frugi_store_save(&c->momentum, b, block, 0);
    memcpy(block, src, n * sizeof *src);
    frugi_store_save(&c->residual, b, block, frugi_random(c->config.seed, WRITE_STEP, b));
}

frug_status frug_compressor_set_residual(frug_compressor *c, frug_range range, const float *src) {
    const uint64_t begin = range.begin, count = range.count;
    FRUG_FAIL_IF(!c || (!src && count), FRUG_ERR_ARG, "residual: compressor or source is NULL");
    frugi_frame_size size;
    FRUG_TRY(frugi_make_sections(c, begin, count, 0, FRUGI_SECTIONS_DENSE, NULL, &size));
    FRUG_FAIL_IF(!is_finite_range(c, begin, count, src), FRUG_ERR_ARG, "residual: a number is not finite");
    frugi_range_iter it = frugi_range_start(&c->partition, begin, begin + count);
    while (frugi_range_next(&it))
        for (uint64_t e = it.from, n; has_residual(c, &it) && e < it.to; e += n) {
            uint64_t b = block_of(c, &it, e, &n);
            write_block(c, b, src + (e - begin), n);
        }
    return FRUG_OK;
}
