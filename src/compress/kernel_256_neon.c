/* kernel_256_neon.c - the 256-element kernel with NEON, part of every 64-bit ARM. */
#include "compress/kernel.h"
#include "compress/kernel_table.h"

#include <arm_neon.h>

#define KEEP(x)       __asm__("" : "+r"(x))
#define KEEP_LANES(x) __asm__("" : "+w"(x))

INLINE uint16x8_t halves(float32x4_t a, float32x4_t b) {
    return vbicq_u16(vuzp2q_u16(vreinterpretq_u16_f32(a), vreinterpretq_u16_f32(b)), vdupq_n_u16(0x8000));
}

/* Sixteen elements. All loads come first, for the compiler cannot know that nothing overlaps. */
INLINE uint16x8_t sum_16(const float *grad, const float *before, float *acc, float *saved, float32x4_t beta) {
    float32x4_t e0 = vld1q_f32(before), e1 = vld1q_f32(before + 4);
    float32x4_t e2 = vld1q_f32(before + 8), e3 = vld1q_f32(before + 12);
    float32x4_t g0 = vld1q_f32(grad), g1 = vld1q_f32(grad + 4), g2 = vld1q_f32(grad + 8), g3 = vld1q_f32(grad + 12);
    if (saved) {
        vst1q_f32(saved, e0);
        vst1q_f32(saved + 4, e1);
        vst1q_f32(saved + 8, e2);
        vst1q_f32(saved + 12, e3);
    }
    g0 = vaddq_f32(vmulq_f32(beta, e0), g0);
    g1 = vaddq_f32(vmulq_f32(beta, e1), g1);
    g2 = vaddq_f32(vmulq_f32(beta, e2), g2);
    g3 = vaddq_f32(vmulq_f32(beta, e3), g3);
    vst1q_f32(acc, g0);
    vst1q_f32(acc + 4, g1);
    vst1q_f32(acc + 8, g2);
    vst1q_f32(acc + 12, g3);
    return vpmaxq_u16(halves(g0, g1), halves(g2, g3));
}

INLINE void sum_block(frugi_batch *batch, size_t b) {
    const float *grad = batch->grad + 256 * (size_t)b, *before = batch->before + 256 * (size_t)b;
    float *acc = batch->acc + 256 * (size_t)b;
    float *saved = batch->saved ? batch->saved + 256 * (size_t)b : NULL;
    const float32x4_t beta = vdupq_n_f32(batch->beta);
    uint16x8_t m[8];
#pragma GCC unroll 8
    for (size_t i = 0; i < 8; i++) {
        size_t o = 32 * i;
        m[i] = vpmaxq_u16(sum_16(grad + o, before + o, acc + o, saved ? saved + o : NULL, beta),
                          sum_16(grad + o + 16, before + o + 16, acc + o + 16, saved ? saved + o + 16 : NULL, beta));
    }
    uint16x8_t x = vmaxq_u16(vmaxq_u16(vmaxq_u16(m[0], m[1]), vmaxq_u16(m[2], m[3])),
                             vmaxq_u16(vmaxq_u16(m[4], m[5]), vmaxq_u16(m[6], m[7])));
    uint16_t top = vmaxvq_u16(x);
    batch->lanes->top[b] = top;
    uint16x8_t base = vqsubq_u16(vdupq_n_u16(top), vdupq_n_u16(255));
#pragma GCC unroll 4
    for (size_t i = 0; i < 4; i++)
        vst1q_u8(batch->lanes->group[b] + 16 * i, vuzp1q_u8(vreinterpretq_u8_u16(vqsubq_u16(m[2 * i], base)),
                                                            vreinterpretq_u8_u16(vqsubq_u16(m[2 * i + 1], base))));
}

static const uint8_t weights[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};

INLINE uint64_t reach_64(const uint8_t *key, uint8_t t_) {
    const uint8x16_t t = vdupq_n_u8(t_), weight = vld1q_u8(weights);
    uint8x16_t w0 = vandq_u8(weight, vcgeq_u8(vld1q_u8(key), t)),
               w1 = vandq_u8(weight, vcgeq_u8(vld1q_u8(key + 16), t));
    uint8x16_t w2 = vandq_u8(weight, vcgeq_u8(vld1q_u8(key + 32), t)),
               w3 = vandq_u8(weight, vcgeq_u8(vld1q_u8(key + 48), t));
    uint8x16_t sum = vpaddq_u8(vpaddq_u8(w0, w1), vpaddq_u8(w2, w3));
    return vgetq_lane_u64(vreinterpretq_u64_u8(vpaddq_u8(sum, sum)), 0);
}

INLINE uint32_t reach_16(const uint8_t *key, uint8_t t) {
    uint8x16_t w = vandq_u8(vld1q_u8(weights), vcgeq_u8(vld1q_u8(key), vdupq_n_u8(t)));
    w = vpaddq_u8(w, w);
    w = vpaddq_u8(w, w);
    w = vpaddq_u8(w, w);
    return vgetq_lane_u16(vreinterpretq_u16_u8(w), 0);
}

INLINE uint8x16_t narrow(uint16x8_t x, uint16x8_t y) {
    return vuzp1q_u8(vreinterpretq_u8_u16(x), vreinterpretq_u8_u16(y));
}

/* Exact looks at one bit more than hist, for then fewer ties are left to settle. */
INLINE lanes_u8 rank_quad(const float *acc, const uint8_t *list, uint16_t bound, bool exact, uint8_t top) {
    float32x4_t a = vld1q_f32(acc + 4 * (size_t)list[0]), b = vld1q_f32(acc + 4 * (size_t)list[1]);
    float32x4_t c = vld1q_f32(acc + 4 * (size_t)list[2]), d = vld1q_f32(acc + 4 * (size_t)list[3]);
    if (exact) {
        uint16x8_t under = vdupq_n_u16((uint16_t)(2 * bound - 1));
        uint16x8_t x = vshrn_high_n_u32(vshrn_n_u32(vreinterpretq_u32_f32(a), 15), vreinterpretq_u32_f32(b), 15);
        uint16x8_t y = vshrn_high_n_u32(vshrn_n_u32(vreinterpretq_u32_f32(c), 15), vreinterpretq_u32_f32(d), 15);
        return (lanes_u8)vminq_u8(vqmovn_high_u16(vqmovn_u16(vqsubq_u16(x, under)), vqsubq_u16(y, under)),
                                  vdupq_n_u8(top));
    }
    uint16x8_t under = vdupq_n_u16((uint16_t)(bound - 1));
    return (lanes_u8)vminq_u8(narrow(vqsubq_u16(halves(a, b), under), vqsubq_u16(halves(c, d), under)),
                              vdupq_n_u8(top));
}

INLINE lanes_u8 rank_16(const float *x, uint16_t base_) {
    const uint16x8_t base = vdupq_n_u16(base_);
    uint16x8_t a = vqsubq_u16(halves(vld1q_f32(x), vld1q_f32(x + 4)), base);
    uint16x8_t b = vqsubq_u16(halves(vld1q_f32(x + 8), vld1q_f32(x + 12)), base);
    return (lanes_u8)vshrn_high_n_u16(vshrn_n_u16(a, 2), b, 2);
}

/* Into the third cache: what comes closer gets in the way of the streams that the CPU sees by itself. */
INLINE void ahead(const frugi_batch *batch, size_t b, size_t part) {
    const float *grad = batch->grad + 256 * (batch->blocks + b) + 64 * part;
    const float *before = batch->before + 256 * (batch->blocks + b) + 64 * part;
#pragma GCC unroll 4
    for (size_t i = 0; i < 64; i += 16) {
        __builtin_prefetch(grad + i, 0, 1);
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

INLINE void locate(const uint8_t *list, const uint8_t *slots, uint16_t *idx) {
    uint8x16x2_t groups = {{vld1q_u8(list), vld1q_u8(list + 16)}};
    uint8x16_t slot = vld1q_u8(slots);
    uint8x16_t at = vsliq_n_u8(slot, vqtbl2q_u8(groups, vshrq_n_u8(slot, 2)), 2);
    vst1q_u16(idx, vmovl_u8(vget_low_u8(at)));
    vst1q_u16(idx + 8, vmovl_high_u8(at));
}

#include "compress/kernel_256.h"

const frugi_kernel frugi_kernel_256_neon = {accumulate, select_batch};
