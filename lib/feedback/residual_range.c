/*
 * residual_range.c - read, write and add to the residual of a range of the flat buffer.
 *
 * Formats shorter than f32 round stochastically when numbers are written, as they do in a step, so that a residual that
 * is passed from worker to worker is right on average. The random numbers depend on seed and block.
 */
#include "feedback/residual_range.h"

#include "base/float_bits.h"
#include "base/philox.h"
#include "base/status.h"

#include <string.h>

#define WRITE_STEP UINT64_MAX /* step for the random numbers: no training step uses it */

/* Whether the current tensor of an iterator has a residual. */
static bool has_residual(const frugi_feedback_state *fb, const frugi_range_iter *it) {
    return !it->view->dense && frugi_has_residual(fb);
}

/** Elements of one block. */
typedef struct block_part {
    uint64_t block;  /* number in the stores */
    uint32_t inside; /* first element within the block */
    uint32_t n;      /* up to the end of the block or range */
} block_part;

static block_part part_at(const frugi_feedback_state *fb, const frugi_range_iter *it, uint64_t element) {
    uint64_t offset = element - it->view->begin, inside = offset % fb->block, rest = it->to - element;
    return (block_part){.block = it->view->first_block + offset / fb->block,
                        .inside = (uint32_t)inside,
                        .n = (uint32_t)(rest < fb->block - inside ? rest : fb->block - inside)};
}

void frugi_residual_read(const frugi_feedback_state *fb, const frugi_partition *partition, frug_range range,
                         float *dst) {
    float block[FRUGI_MAX_BLOCK];
    if (range.count)
        memset(dst, 0, range.count * sizeof *dst);
    frugi_range_iter it = frugi_range_start(partition, range.begin, range.begin + range.count);
    while (frugi_range_next(&it))
        for (uint64_t e = it.from; has_residual(fb, &it) && e < it.to;) {
            block_part part = part_at(fb, &it, e);
            frugi_store_load(&fb->residual, part.block, block);
            memcpy(dst + (e - range.begin), block, part.n * sizeof *dst);
            e += part.n;
        }
}

/* Whether all numbers that would be stored are finite. */
static bool is_finite_range(const frugi_feedback_state *fb, const frugi_partition *partition, frug_range range,
                            const float *src) {
    uint32_t bad = 0;
    frugi_range_iter it = frugi_range_start(partition, range.begin, range.begin + range.count);
    while (frugi_range_next(&it))
        for (uint64_t e = it.from; has_residual(fb, &it) && e < it.to; e++)
            bad |= frugi_magnitude(src[e - range.begin]) >= FRUGI_INF_BITS;
    return !bad;
}

/* Store n numbers from the beginning of block b on; only the last block of a tensor has fewer than a whole block. */
static void write_block(frugi_feedback_state *fb, uint64_t b, const float *src, uint32_t n) {
    float block[FRUGI_MAX_BLOCK] = {0};
    if (fb->kind == FRUGI_FEEDBACK_DGC)
        frugi_store_save(&fb->momentum, b, block, 0);
    memcpy(block, src, n * sizeof *src);
    frugi_store_save(&fb->residual, b, block, frugi_random(fb->seed, WRITE_STEP, fb->before + b));
}

frug_status frugi_residual_write(frugi_feedback_state *fb, const frugi_partition *partition, frug_range range,
                                 const float *src) {
    FRUG_FAIL_IF(!is_finite_range(fb, partition, range, src), FRUG_ERR_ARG, "residual: a number is not finite");
    frugi_range_iter it = frugi_range_start(partition, range.begin, range.begin + range.count);
    while (frugi_range_next(&it))
        for (uint64_t e = it.from; has_residual(fb, &it) && e < it.to;) {
            block_part part = part_at(fb, &it, e);
            write_block(fb, part.block, src + (e - range.begin), part.n);
            e += part.n;
        }
    return FRUG_OK;
}

static void add_to_block(frugi_feedback_state *fb, uint64_t step, block_part part, const float *x) {
    float residual[FRUGI_MAX_BLOCK];
    if (frugi_largest_magnitude(x, part.n) == 0)
        return; /* storing an unchanged block would round it once more */
    frugi_store_load(&fb->residual, part.block, residual);
    for (uint32_t i = 0; i < part.n; i++)
        residual[part.inside + i] += x[i];
    if (!frugi_all_finite(residual, fb->block))
        return; /* an infinity would make every later step skip the block */
    frugi_store_save(&fb->residual, part.block, residual,
                     frugi_random(fb->seed ^ FRUGI_SECOND_STREAM, step, fb->before + part.block));
}

void frugi_residual_add(frugi_feedback_state *fb, const frugi_partition *partition, uint64_t step, frug_range range,
                        const float *x) {
    frugi_range_iter it = frugi_range_start(partition, range.begin, range.begin + range.count);
    while (frugi_range_next(&it))
        for (uint64_t e = it.from; has_residual(fb, &it) && e < it.to;) {
            block_part part = part_at(fb, &it, e);
            add_to_block(fb, step, part, x + (e - range.begin));
            e += part.n;
        }
}
