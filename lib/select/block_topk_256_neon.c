/* block_topk_256_neon.c - the 256-element kernel with NEON, which every 64-bit ARM CPU has. */
#include "select/block_topk_neon.h"

INLINE void accumulate_block(frugi_batch *batch, size_t b) {
    const float *grad = batch->grad + 256 * (size_t)b, *before = batch->before + 256 * (size_t)b;
    float *acc = batch->acc + 256 * (size_t)b;
    float *saved = batch->saved ? batch->saved + 256 * (size_t)b : NULL;
    const float32x4_t beta = vdupq_n_f32(batch->beta);
    uint16x8_t m[8];
#pragma GCC unroll 8
    for (size_t i = 0; i < 8; i++) {
        size_t o = 32 * i;
        uint16x8x2_t x = accumulate_16(grad + o, before + o, acc + o, saved ? saved + o : NULL, beta);
        uint16x8_t pair = vpmaxq_u16(x.val[0], x.val[1]);
        x = accumulate_16(grad + o + 16, before + o + 16, acc + o + 16, saved ? saved + o + 16 : NULL, beta);
        m[i] = vpmaxq_u16(pair, vpmaxq_u16(x.val[0], x.val[1]));
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

INLINE uint32_t mask_ge_16(const uint8_t *key, uint8_t t) {
    uint8x16_t w = vandq_u8(vld1q_u8(weights), vcgeq_u8(vld1q_u8(key), vdupq_n_u8(t)));
    w = vpaddq_u8(w, w);
    w = vpaddq_u8(w, w);
    w = vpaddq_u8(w, w);
    return vgetq_lane_u16(vreinterpretq_u16_u8(w), 0);
}

INLINE uint8x16_t narrow(uint16x8_t x, uint16x8_t y) {
    return vuzp1q_u8(vreinterpretq_u8_u16(x), vreinterpretq_u8_u16(y));
}

/* `exact` uses one bit more than hist, which leaves fewer ties to resolve. */
INLINE lanes_u8 group_keys(const float *acc, const uint8_t *list, uint16_t bound, bool exact, uint8_t top) {
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

INLINE lanes_u8 coarse_keys(const float *x, uint16_t base_) {
    const uint16x8_t base = vdupq_n_u16(base_);
    uint16x8_t a = vqsubq_u16(halves(vld1q_f32(x), vld1q_f32(x + 4)), base);
    uint16x8_t b = vqsubq_u16(halves(vld1q_f32(x + 8), vld1q_f32(x + 12)), base);
    return (lanes_u8)vshrn_high_n_u16(vshrn_n_u16(a, 2), b, 2);
}

INLINE void slots_to_indices(const uint8_t *list, const uint8_t *slots, uint16_t *idx) {
    uint8x16x2_t groups = {{vld1q_u8(list), vld1q_u8(list + 16)}};
    uint8x16_t slot = vld1q_u8(slots);
    uint8x16_t at = vsliq_n_u8(slot, vqtbl2q_u8(groups, vshrq_n_u8(slot, 2)), 2);
    vst1q_u16(idx, vmovl_u8(vget_low_u8(at)));
    vst1q_u16(idx + 8, vmovl_high_u8(at));
}

#include "select/block_topk_256.h"

const frugi_block_kernel frugi_block_kernel_256_neon = {accumulate, select_batch};
