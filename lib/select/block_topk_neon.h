/*
 * block_topk_neon.h - the primitives of block_topk_lanes.h with NEON, which every 64-bit ARM CPU has; shared by the
 * kernels for all block lengths.
 *
 *   accumulate_16(grad, residual, acc, saved, beta)   accumulate 16 elements
 *   prefetch_next(batch, at)                        prefetch 64 elements, from `at` on, of the next batch
 *   transpose(src, stride, dst)                     16 rows of 16 bytes to 16 rows of 16
 *   mask_ge_64(key, t)                              one bit per byte that is at least t
 *   byte_counts(word)                               the number of set bits of each byte
 *   OPAQUE(word), OPAQUE_LANES(lanes)               hide how a value was computed from the optimizer of the compiler
 */
#ifndef FRUGI_BLOCK_TOPK_NEON_H
#define FRUGI_BLOCK_TOPK_NEON_H

#include "base/stored_floats_neon.h"
#include "select/bit_positions.h"
#include "select/residual_block.h"

#define OPAQUE(x)       __asm__("" : "+r"(x))
#define OPAQUE_LANES(x) __asm__("" : "+w"(x))

INLINE uint16x8_t halves(float32x4_t a, float32x4_t b) {
    return vbicq_u16(vuzp2q_u16(vreinterpretq_u16_f32(a), vreinterpretq_u16_f32(b)), vdupq_n_u16(0x8000));
}

INLINE float32x4x4_t load_16(const float *x) {
    float32x4x4_t v = {{vld1q_f32(x), vld1q_f32(x + 4), vld1q_f32(x + 8), vld1q_f32(x + 12)}};
    return v;
}

INLINE stored_scale scale_of(const residual_block *r, frugi_residual format) {
    return format == FRUGI_RESIDUAL_INT8 ? stored_int8_scale(r->scale) : stored_int4_scale(r->scale);
}

/* Sixteen elements of a residual, from element i on. */
INLINE float32x4x4_t residual_16(const residual_block *r, const stored_scale *scale, frugi_residual format, size_t i) {
    switch (format) {
    case FRUGI_RESIDUAL_BF16: return stored_bf16_16(r->stored + 2 * i);
    case FRUGI_RESIDUAL_INT8: return stored_int8_16(r->stored + i, scale);
    case FRUGI_RESIDUAL_INT4: return stored_int4_16(r->stored + i / 2, scale);
    default: return load_16(r->floats + i);
    }
}

/*
 * Accumulate sixteen elements. Returns the upper halves of their magnitudes. All loads come first, because the compiler
 * cannot know that the arrays do not overlap.
 */
INLINE uint16x8x2_t accumulate_16(const float *grad, float32x4x4_t e, float *acc, float *saved, float32x4_t beta) {
    float32x4x4_t g = load_16(grad);
#pragma GCC unroll 4
    for (int i = 0; i < 4 && saved; i++)
        vst1q_f32(saved + 4 * i, e.val[i]);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        g.val[i] = vaddq_f32(vmulq_f32(beta, e.val[i]), g.val[i]);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        vst1q_f32(acc + 4 * i, g.val[i]);
    uint16x8x2_t sums = {{halves(g.val[0], g.val[1]), halves(g.val[2], g.val[3])}};
    return sums;
}

typedef void accumulate_fn(frugi_batch *batch, size_t block, frugi_residual format);

/* Call a function, which is inlined, with a constant for the format of the stored residual. */
INLINE void accumulate_by_format(frugi_batch *batch, size_t block, accumulate_fn *accumulate_blocks) {
    if (batch->format == FRUGI_RESIDUAL_BF16)
        accumulate_blocks(batch, block, FRUGI_RESIDUAL_BF16);
    else if (batch->format == FRUGI_RESIDUAL_INT8)
        accumulate_blocks(batch, block, FRUGI_RESIDUAL_INT8);
    else
        accumulate_blocks(batch, block, FRUGI_RESIDUAL_INT4);
}

static const uint8_t weights[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};

INLINE uint64_t mask_ge_64(const uint8_t *key, uint8_t t_) {
    const uint8x16_t t = vdupq_n_u8(t_), weight = vld1q_u8(weights);
    uint8x16_t w0 = vandq_u8(weight, vcgeq_u8(vld1q_u8(key), t)),
               w1 = vandq_u8(weight, vcgeq_u8(vld1q_u8(key + 16), t));
    uint8x16_t w2 = vandq_u8(weight, vcgeq_u8(vld1q_u8(key + 32), t)),
               w3 = vandq_u8(weight, vcgeq_u8(vld1q_u8(key + 48), t));
    uint8x16_t sum = vpaddq_u8(vpaddq_u8(w0, w1), vpaddq_u8(w2, w3));
    return vgetq_lane_u64(vreinterpretq_u64_u8(vpaddq_u8(sum, sum)), 0);
}

/* Prefetches into the L3 cache: closer prefetches compete with the hardware prefetcher. */
INLINE void prefetch_next(const frugi_batch *batch, size_t at) {
    at += (size_t)batch->blocks * batch->block;
    const float *grad = batch->grad + at, *before = batch->before + at;
    for (size_t i = 0; i < 64 && batch->stored; i += 32)
        __builtin_prefetch(stored_at(batch, batch->format, at + i), 0, 1);
#pragma GCC unroll 4
    for (size_t i = 0; i < 64; i += 16) {
        __builtin_prefetch(grad + i, 0, 1);
        if (!batch->stored)
            __builtin_prefetch(before + i, 0, 1);
    }
}

#define ZIP(n, a, b)                                                                                                   \
    for (int i = 0; i < 8; i++) {                                                                                      \
        b[2 * i] = vzip1q_u8(a[i], a[i + 8]);                                                                          \
        b[2 * i + 1] = vzip2q_u8(a[i], a[i + 8]);                                                                      \
    }

INLINE void transpose(const uint8_t *src, size_t stride, uint8_t *dst) {
    uint8x16_t a[16], b[16];
#pragma GCC unroll 16
    for (size_t i = 0; i < 16; i++)
        a[i] = vld1q_u8(src + stride * i);
#pragma GCC unroll 8
    ZIP(0, a, b)
#pragma GCC unroll 8
    ZIP(0, b, a)
#pragma GCC unroll 8
    ZIP(0, a, b)
#pragma GCC unroll 8
    ZIP(0, b, a)
#pragma GCC unroll 16
    for (size_t i = 0; i < 16; i++)
        vst1q_u8(dst + 16 * i, a[i]);
}

INLINE uint64_t byte_counts(uint64_t word) {
    return vget_lane_u64(vreinterpret_u64_u8(vcnt_u8(vcreate_u8(word))), 0);
}

#endif
