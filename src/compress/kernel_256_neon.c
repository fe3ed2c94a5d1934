/* kernel_256_neon.c - the 256-element kernel with NEON, part of every 64-bit ARM. */
#include "compress/kernel.h"
#include "compress/kernel_table.h"

#include <arm_neon.h>

#define KEEP(x) __asm__("" : "+r"(x))
#define INLINE static inline __attribute__((always_inline))

/* All ones where |x| < t. One instruction, which gcc 12 does not find by itself when t stays the same. */
INLINE uint16x8_t below(float32x4_t t, float32x4_t x, float32x4_t y) {
    uint32x4_t a, b;
    __asm__("facgt %0.4s, %1.4s, %2.4s" : "=w"(a) : "w"(t), "w"(x));
    __asm__("facgt %0.4s, %1.4s, %2.4s" : "=w"(b) : "w"(t), "w"(y));
    return vuzp1q_u16(vreinterpretq_u16_u32(a), vreinterpretq_u16_u32(b));
}

/* Sixteen elements: their weight in the bit mask where they are not below the guess, else 0. */
INLINE uint8x16_t weigh(float32x4_t a, float32x4_t b, float32x4_t c, float32x4_t d, float32x4_t guess) {
    const uint8x16_t weight = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    uint8x16_t small =
        vuzp1q_u8(vreinterpretq_u8_u16(below(guess, a, b)), vreinterpretq_u8_u16(below(guess, c, d)));
    return vbicq_u8(weight, small);
}

INLINE uint64_t bits_of(uint8x16_t w0, uint8x16_t w1, uint8x16_t w2, uint8x16_t w3) {
    uint8x16_t sum = vpaddq_u8(vpaddq_u8(w0, w1), vpaddq_u8(w2, w3));
    return vgetq_lane_u64(vreinterpretq_u64_u8(vpaddq_u8(sum, sum)), 0);
}

/* Sixteen elements. All loads come first, for the compiler cannot know that nothing overlaps. */
INLINE uint8x16_t sum_16(const float *grad, const float *before, float *acc, float *saved, float32x4_t beta,
                         float32x4_t guess) {
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
    return weigh(g0, g1, g2, g3, guess);
}

INLINE void mark_sum(frugi_batch *batch, uint32_t block, float guess_, uint64_t *mark) {
    const float *grad = batch->grad + 256 * (size_t)block, *before = batch->before + 256 * (size_t)block;
    float *acc = batch->acc + 256 * (size_t)block;
    float *saved = batch->saved ? batch->saved + 256 * (size_t)block : NULL;
    const float32x4_t beta = vdupq_n_f32(batch->beta), guess = vdupq_n_f32(guess_);
    for (size_t i = 0; i < 256; i += 64) {
        float *s = saved ? saved + i : NULL;
        uint8x16_t w0 = sum_16(grad + i, before + i, acc + i, s, beta, guess);
        uint8x16_t w1 = sum_16(grad + i + 16, before + i + 16, acc + i + 16, s ? s + 16 : s, beta, guess);
        uint8x16_t w2 = sum_16(grad + i + 32, before + i + 32, acc + i + 32, s ? s + 32 : s, beta, guess);
        uint8x16_t w3 = sum_16(grad + i + 48, before + i + 48, acc + i + 48, s ? s + 48 : s, beta, guess);
        mark[i / 64] = bits_of(w0, w1, w2, w3);
    }
}

INLINE uint8x16_t weigh_at(const float *x, float32x4_t guess) {
    return weigh(vld1q_f32(x), vld1q_f32(x + 4), vld1q_f32(x + 8), vld1q_f32(x + 12), guess);
}

INLINE void mark_again(const float *acc, float guess_, uint64_t *mark) {
    const float32x4_t guess = vdupq_n_f32(guess_);
    for (size_t i = 0; i < 256; i += 64)
        mark[i / 64] = bits_of(weigh_at(acc + i, guess), weigh_at(acc + i + 16, guess), weigh_at(acc + i + 32, guess),
                               weigh_at(acc + i + 48, guess));
}

INLINE void rank_row(const float *word, const uint16_t *base, uint8_t *rank) {
    const uint16x8_t sign = vdupq_n_u16(0x8000);
    uint16x8_t x = vuzp2q_u16(vreinterpretq_u16_f32(vld1q_f32(word)), vreinterpretq_u16_f32(vld1q_f32(word + 4)));
    uint16x8_t y = vuzp2q_u16(vreinterpretq_u16_f32(vld1q_f32(word + 8)), vreinterpretq_u16_f32(vld1q_f32(word + 12)));
    x = vqsubq_u16(vbicq_u16(x, sign), vld1q_u16(base));
    y = vqsubq_u16(vbicq_u16(y, sign), vld1q_u16(base + 8));
    vst1q_u8(rank, vqmovn_high_u16(vqmovn_u16(x), y));
}

INLINE uint64_t byte_counts(uint64_t word) {
    return vget_lane_u64(vreinterpret_u64_u8(vcnt_u8(vcreate_u8(word))), 0);
}

INLINE void compact(const uint8_t *src, uint8_t bits, uint16_t *dst) {
    vst1q_u16(dst, vmovl_u8(vtbl1_u8(vld1_u8(src), vcreate_u8(frugi_bit_places[bits]))));
}

#include "compress/kernel_256.h"

const frugi_kernel frugi_kernel_256_neon = {accumulate, select_batch};
