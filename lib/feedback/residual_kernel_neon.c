/*
 * residual_kernel_neon.c - the loops of the residual formats with NEON. residual_kernel_ref.c explains them.
 *
 * Shifts are the scarce instructions: many CPUs have one unit for them and two or more for the rest.
 */
#include "feedback/residual_kernel.h"

#include "base/float_bits.h"
#include "feedback/residual_format.h"

#include <arm_neon.h>

#define INLINE static inline __attribute__((always_inline))

static uint32_t largest_magnitude(const float *src, uint32_t n) {
    const uint32x4_t magnitude = vdupq_n_u32(FRUGI_ABS_MASK);
    uint32x4_t most[4] = {vdupq_n_u32(0), vdupq_n_u32(0), vdupq_n_u32(0), vdupq_n_u32(0)};
    for (uint32_t i = 0; i < n; i += 64)
#pragma GCC unroll 16
        for (uint32_t j = 0; j < 16; j++)
            most[j % 4] =
                vmaxq_u32(most[j % 4], vandq_u32(vreinterpretq_u32_f32(vld1q_f32(src + i + 4 * j)), magnitude));
    return vmaxvq_u32(vmaxq_u32(vmaxq_u32(most[0], most[1]), vmaxq_u32(most[2], most[3])));
}

/* ---- load ---- */

static void load_bf16(const unsigned char *data, uint32_t n, float *dst) {
    const uint16x8_t zero = vdupq_n_u16(0);
    for (uint32_t i = 0; i < n; i += 8) {
        uint16x8_t h = vreinterpretq_u16_u8(vld1q_u8(data + 2 * i));
        vst1q_f32(dst + i, vreinterpretq_f32_u16(vzip1q_u16(zero, h)));
        vst1q_f32(dst + i + 4, vreinterpretq_f32_u16(vzip2q_u16(zero, h)));
    }
}

/* Four bytes in the last bits of 2^23 minus 2^23 + 128: faster than the conversion from integer to float. */
INLINE void store_scaled_4(uint16x8_t bits, float scale, float *dst) {
    const float32x4_t offset = vdupq_n_f32(8388608.0f + 128.0f);
    vst1q_f32(dst, vmulq_n_f32(vsubq_f32(vreinterpretq_f32_u16(bits), offset), scale));
}

/* Scale sixteen numbers with an offset of 128. */
INLINE void store_scaled_16(uint8x16_t q, float scale, float *dst) {
    const uint16x8_t exponent = vdupq_n_u16(0x4b00); /* upper half of 2^23 */
    const uint8x16_t zero = vdupq_n_u8(0);
    uint16x8_t low = vreinterpretq_u16_u8(vzip1q_u8(q, zero)), high = vreinterpretq_u16_u8(vzip2q_u8(q, zero));
    store_scaled_4(vzip1q_u16(low, exponent), scale, dst);
    store_scaled_4(vzip2q_u16(low, exponent), scale, dst + 4);
    store_scaled_4(vzip1q_u16(high, exponent), scale, dst + 8);
    store_scaled_4(vzip2q_u16(high, exponent), scale, dst + 12);
}

static void load_int8(const unsigned char *data, uint32_t n, float scale, float *dst) {
    for (uint32_t i = 0; i < n; i += 16)
        store_scaled_16(veorq_u8(vld1q_u8(data + i), vdupq_n_u8(128)), scale, dst + i);
}

static void load_int4(const unsigned char *data, uint32_t n, float scale, float *dst) {
    const uint8x16_t low = vdupq_n_u8(15), offset = vdupq_n_u8(120);
    for (uint32_t i = 0; i < n; i += 32) {
        uint8x16_t both = vld1q_u8(data + i / 2);
        uint8x16_t even = vaddq_u8(vandq_u8(both, low), offset), odd = vaddq_u8(vshrq_n_u8(both, 4), offset);
        store_scaled_16(vzip1q_u8(even, odd), scale, dst + i);
        store_scaled_16(vzip2q_u8(even, odd), scale, dst + i + 16);
    }
}

/* ---- save ---- */

/* The random numbers of elements 0 .. 3; next_random() gives those of the next four. */
INLINE uint32x4_t first_random(uint32_t random) {
    const uint32_t lane[4] = {0, FRUGI_WEYL, 2 * FRUGI_WEYL, 3 * FRUGI_WEYL};
    return vaddq_u32(vdupq_n_u32(random), vld1q_u32(lane));
}

INLINE uint32x4_t next_random(uint32x4_t random) {
    return vaddq_u32(random, vdupq_n_u32(4 * FRUGI_WEYL));
}

/* Eight rounded elements, which have at most 16 bits each. */
INLINE uint16x8_t round_8(const float *x, float inverse, uint32x4_t *random) {
    const float32x4_t shift = vdupq_n_f32(FRUGI_ROUND_SHIFT);
    uint32x4_t r0 = *random, r1 = next_random(r0);
    uint32x4_t a = vreinterpretq_u32_f32(vaddq_f32(vmulq_n_f32(vld1q_f32(x), inverse), shift));
    uint32x4_t b = vreinterpretq_u32_f32(vaddq_f32(vmulq_n_f32(vld1q_f32(x + 4), inverse), shift));
    *random = next_random(r1);
    return vshrn_high_n_u32(vshrn_n_u32(vsraq_n_u32(a, r0, 17), 15), vsraq_n_u32(b, r1, 17), 15);
}

/* The low bytes of 16 rounded elements. */
INLINE uint8x16_t round_16(const float *x, float inverse, uint32x4_t *random) {
    uint16x8_t a = round_8(x, inverse, random), b = round_8(x + 8, inverse, random);
    return vuzp1q_u8(vreinterpretq_u8_u16(a), vreinterpretq_u8_u16(b));
}

static void save_int8(unsigned char *data, uint32_t n, const float *src, float inverse, uint32_t random) {
    uint32x4_t r = first_random(random);
    for (uint32_t i = 0; i < n; i += 16)
        vst1q_u8(data + i, veorq_u8(round_16(src + i, inverse, &r), vdupq_n_u8(128)));
}

static void save_int4(unsigned char *data, uint32_t n, const float *src, float inverse, uint32_t random) {
    uint32x4_t r = first_random(random);
    for (uint32_t i = 0; i < n; i += 32) {
        uint8x16_t a = round_16(src + i, inverse, &r), b = round_16(src + i + 16, inverse, &r);
        uint8x16_t even = vsubq_u8(vuzp1q_u8(a, b), vdupq_n_u8(120)), odd = vsubq_u8(vuzp2q_u8(a, b), vdupq_n_u8(120));
        vst1q_u8(data + i / 2, vsliq_n_u8(even, odd, 4));
    }
}

/* Rounding adds at most one to the upper half; where that makes an infinity, it is taken back. */
static void save_bf16(unsigned char *data, uint32_t n, const float *src, uint32_t random) {
    const uint16x8_t magnitude = vdupq_n_u16(0x7fff), infinity = vdupq_n_u16(0x7f80);
    uint32x4_t r0 = first_random(random);
    for (uint32_t i = 0; i < n; i += 8) {
        uint32x4_t r1 = next_random(r0);
        uint32x4_t a = vsraq_n_u32(vreinterpretq_u32_f32(vld1q_f32(src + i)), r0, 16);
        uint32x4_t b = vsraq_n_u32(vreinterpretq_u32_f32(vld1q_f32(src + i + 4)), r1, 16);
        uint16x8_t h = vuzp2q_u16(vreinterpretq_u16_u32(a), vreinterpretq_u16_u32(b));
        h = vaddq_u16(h, vcgeq_u16(vandq_u16(h, magnitude), infinity));
        vst1q_u8(data + 2 * i, vreinterpretq_u8_u16(h));
        r0 = next_random(r1);
    }
}

const frugi_residual_kernel frugi_residual_kernel_neon = {largest_magnitude, load_bf16, load_int8, load_int4,
                                                          save_bf16,         save_int8, save_int4};
