/* block_topk_long_neon.c - the kernel for long blocks with NEON. */
#include "select/block_topk_neon.h"

INLINE void accumulate_64(const float *grad, const float *before, float *acc, float *saved, float beta_, uint32_t group,
                          uint16_t *max) {
    const float32x4_t beta = vdupq_n_f32(beta_);
    uint16x8_t two[4];
#pragma GCC unroll 4
    for (size_t i = 0; i < 4; i++) {
        size_t o = 16 * i;
        uint16x8x2_t x = accumulate_16(grad + o, load_16(before + o), acc + o, saved ? saved + o : NULL, beta);
        two[i] = vpmaxq_u16(x.val[0], x.val[1]);
    }
    uint16x8_t low = vpmaxq_u16(two[0], two[1]), high = vpmaxq_u16(two[2], two[3]);
    if (group == 4) {
        vst1q_u16(max, low);
        vst1q_u16(max + 8, high);
    } else {
        uint16x8_t eight = vpmaxq_u16(low, high);
        vst1_u16(max, vget_low_u16(vpmaxq_u16(eight, eight)));
    }
}

/* One bit per lane of eight vectors that are all ones or all zeros. */
INLINE uint64_t mask_of(const uint16x8_t *reach) {
    const uint8x16_t weight = vld1q_u8(weights);
    uint8x16_t w[4];
#pragma GCC unroll 4
    for (size_t i = 0; i < 4; i++)
        w[i] = vandq_u8(weight, vuzp1q_u8(vreinterpretq_u8_u16(reach[2 * i]), vreinterpretq_u8_u16(reach[2 * i + 1])));
    uint8x16_t sum = vpaddq_u8(vpaddq_u8(w[0], w[1]), vpaddq_u8(w[2], w[3]));
    return vgetq_lane_u64(vreinterpretq_u64_u8(vpaddq_u8(sum, sum)), 0);
}

INLINE uint64_t mask_keys_64(const uint16_t *key, uint16_t t) {
    uint16x8_t reach[8];
#pragma GCC unroll 8
    for (size_t i = 0; i < 8; i++)
        reach[i] = vcgeq_u16(vld1q_u16(key + 8 * i), vdupq_n_u16(t));
    return mask_of(reach);
}

INLINE uint64_t mask_floats_64(const float *x, uint16_t t) {
    uint16x8_t reach[8];
#pragma GCC unroll 8
    for (size_t i = 0; i < 8; i++)
        reach[i] = vcgeq_u16(halves(vld1q_f32(x + 8 * i), vld1q_f32(x + 8 * i + 4)), vdupq_n_u16(t));
    return mask_of(reach);
}

INLINE void copy_keys(const float *x, uint16_t *key) {
    vst1q_u16(key, halves(vld1q_f32(x), vld1q_f32(x + 4)));
    vst1q_u16(key + 8, halves(vld1q_f32(x + 8), vld1q_f32(x + 12)));
}

INLINE uint32_t count_keys(const uint16_t *key, uint32_t n, uint16_t t_) {
    const uint16x8_t t = vdupq_n_u16(t_);
    uint16x8_t c[4] = {vdupq_n_u16(0), vdupq_n_u16(0), vdupq_n_u16(0), vdupq_n_u16(0)};
    for (uint32_t i = 0; i < n; i += 32)
#pragma GCC unroll 4
        for (uint32_t j = 0; j < 4; j++) {
            c[j] = vsubq_u16(c[j], vcgeq_u16(vld1q_u16(key + i + 8 * j), t));
            OPAQUE_LANES(c[j]); /* otherwise the compiler merges the four counters into one dependency chain */
        }
    return vaddvq_u16(vaddq_u16(vaddq_u16(c[0], c[1]), vaddq_u16(c[2], c[3])));
}

INLINE uint32_t count_candidates(const uint32_t *magnitude, uint32_t n, uint32_t t_) {
    const uint32x4_t t = vdupq_n_u32(t_);
    uint32x4_t c[4] = {vdupq_n_u32(0), vdupq_n_u32(0), vdupq_n_u32(0), vdupq_n_u32(0)};
    for (uint32_t i = 0; i < n; i += 16)
#pragma GCC unroll 4
        for (uint32_t j = 0; j < 4; j++) {
            c[j] = vsubq_u32(c[j], vcgeq_u32(vld1q_u32(magnitude + i + 4 * j), t));
            OPAQUE_LANES(c[j]);
        }
    return vaddvq_u32(vaddq_u32(vaddq_u32(c[0], c[1]), vaddq_u32(c[2], c[3])));
}

static const uint16_t counting_weights[8] = {0x101, 0x102, 0x104, 0x108, 0x110, 0x120, 0x140, 0x180};

INLINE void keep_candidates(const uint32_t *magnitude, const uint16_t *index, uint32_t n, uint32_t t_, uint16_t *idx) {
    const uint32x4_t t = vdupq_n_u32(t_);
    const uint16x8_t weight = vld1q_u16(counting_weights);
    uint32_t out = 0;
    for (uint32_t i = 0; i < n; i += 8) {
        uint32x4_t a = vcgeq_u32(vld1q_u32(magnitude + i), t), b = vcgeq_u32(vld1q_u32(magnitude + i + 4), t);
        uint16x8_t w = vandq_u16(weight, vuzp1q_u16(vreinterpretq_u16_u32(a), vreinterpretq_u16_u32(b)));
        uint32_t sum = vaddvq_u16(w); /* one bit per lane, and their number in the upper byte */
        uint8x16_t p = vcombine_u8(vld1_u8((const uint8_t *)&frugi_bit_positions[sum & 255]), vdup_n_u8(0));
        p = vshlq_n_u8(vzip1q_u8(p, p), 1);
        p = vaddq_u8(p, vreinterpretq_u8_u16(vdupq_n_u16(0x100)));
        vst1q_u8((uint8_t *)(idx + out), vqtbl1q_u8(vld1q_u8((const uint8_t *)(index + i)), p));
        out += sum >> 8;
    }
}

#include "select/block_topk_long.h"

const frugi_block_kernel frugi_block_kernel_long_neon = {accumulate, NULL, select_batch};
