/*
 * residual_kernel_neon.c - the loops of the residual formats with NEON. residual_kernel_ref.c explains them.
 *
 * Two units process vectors on many CPUs, and only one of them shifts or narrows; so there are few shifts, and
 * constants are loaded rather than computed.
 */
#include "feedback/residual_kernel.h"

#include "base/float_bits.h"
#include "base/stored_floats_neon.h"
#include "feedback/residual_format.h"

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

INLINE void store_16(float *dst, float32x4x4_t x) {
    for (int i = 0; i < 4; i++)
        vst1q_f32(dst + 4 * i, x.val[i]);
}

static void load_bf16(const unsigned char *data, uint32_t n, float *dst) {
    for (uint32_t i = 0; i < n; i += 16)
        store_16(dst + i, stored_bf16_16(data + 2 * i));
}

static void load_int8(const unsigned char *data, uint32_t n, float scale, float *dst) {
    const stored_scale s = stored_int8_scale(scale);
    for (uint32_t i = 0; i < n; i += 16)
        store_16(dst + i, stored_int8_16(data + i, &s));
}

static void load_int4(const unsigned char *data, uint32_t n, float scale, float *dst) {
    const stored_scale s = stored_int4_scale(scale);
    for (uint32_t i = 0; i < n; i += 16)
        store_16(dst + i, stored_int4_16(data + i / 2, &s));
}

/* ---- save ---- */

#define WEYL_4(i)  (i) * FRUGI_WEYL, ((i) + 1u) * FRUGI_WEYL, ((i) + 2u) * FRUGI_WEYL, ((i) + 3u) * FRUGI_WEYL
#define WEYL_16(i) WEYL_4(i), WEYL_4((i) + 4u), WEYL_4((i) + 8u), WEYL_4((i) + 12u)

#define RUN 64u /* elements that share a random number; to load multiples of FRUGI_WEYL costs less than to add them */
static const uint32_t weyl[RUN] = {WEYL_16(0u), WEYL_16(16u), WEYL_16(32u), WEYL_16(48u)};

/* The upper halves of the random numbers of elements i .. i + 7 of a run. */
INLINE uint16x8_t random_8(uint32x4_t random, uint32_t i) {
    uint16x8_t upper = vaddhn_high_u32(vaddhn_u32(random, vld1q_u32(weyl + i)), random, vld1q_u32(weyl + i + 4));
    __asm__("" : "+w"(upper)); /* otherwise the compiler copies the first half to read it from there */
    return upper;
}

INLINE uint32x4_t next_run(uint32x4_t random) {
    return vaddq_u32(random, vdupq_n_u32(RUN * FRUGI_WEYL));
}

/* Eight rounded elements, which have at most 16 bits each. Twice the quotient has 16 fractional bits, so that the
 * result is the upper half of a sum. */
INLINE uint16x8_t round_8(const float *x, float inverse, uint16x8_t random) {
    const float32x4_t shift = vdupq_n_f32(FRUGI_ROUND_SHIFT);
    uint32x4_t a = vreinterpretq_u32_f32(vaddq_f32(vmulq_n_f32(vld1q_f32(x), inverse), shift));
    uint32x4_t b = vreinterpretq_u32_f32(vaddq_f32(vmulq_n_f32(vld1q_f32(x + 4), inverse), shift));
    return vaddhn_high_u32(vaddhn_u32(a, vaddw_u16(a, vget_low_u16(random))), b, vaddw_high_u16(b, random));
}

/* The low bytes of 16 rounded elements, from element i of a run on. */
INLINE uint8x16_t round_16(const float *x, float inverse, uint32x4_t random, uint32_t i) {
    uint16x8_t a = round_8(x, inverse, random_8(random, i)), b = round_8(x + 8, inverse, random_8(random, i + 8));
    return vuzp1q_u8(vreinterpretq_u8_u16(a), vreinterpretq_u8_u16(b));
}

static void save_int8(unsigned char *data, uint32_t n, const float *src, float inverse, uint32_t random) {
    uint32x4_t r = vdupq_n_u32(random);
    for (; n; n -= RUN, src += RUN, data += RUN, r = next_run(r))
#pragma GCC unroll 4
        for (uint32_t i = 0; i < RUN; i += 16)
            vst1q_u8(data + i, veorq_u8(round_16(src + i, inverse, r, i), vdupq_n_u8(128)));
}

static void save_int4(unsigned char *data, uint32_t n, const float *src, float inverse, uint32_t random) {
    uint32x4_t r = vdupq_n_u32(random);
    for (; n; n -= RUN, src += RUN, data += RUN / 2, r = next_run(r))
#pragma GCC unroll 2
        for (uint32_t i = 0; i < RUN; i += 32) {
            uint8x16_t a = round_16(src + i, inverse, r, i), b = round_16(src + i + 16, inverse, r, i + 16);
            uint8x16_t even = vsubq_u8(vuzp1q_u8(a, b), vdupq_n_u8(120)),
                       odd = vsubq_u8(vuzp2q_u8(a, b), vdupq_n_u8(120));
            vst1q_u8(data + i / 2, vsliq_n_u8(even, odd, 4));
        }
}

/* Rounding adds at most one to the upper half; where that makes an infinity, it is taken back. */
static void save_bf16(unsigned char *data, uint32_t n, const float *src, uint32_t random) {
    const uint16x8_t magnitude = vdupq_n_u16(0x7fff), infinity = vdupq_n_u16(0x7f80);
    uint32x4_t run = vdupq_n_u32(random);
    for (; n; n -= RUN, src += RUN, data += 2 * RUN, run = next_run(run))
#pragma GCC unroll 8
        for (uint32_t i = 0; i < RUN; i += 8) {
            uint16x8_t r = random_8(run, i);
            uint32x4_t a = vaddw_u16(vreinterpretq_u32_f32(vld1q_f32(src + i)), vget_low_u16(r));
            uint32x4_t b = vaddw_high_u16(vreinterpretq_u32_f32(vld1q_f32(src + i + 4)), r);
            uint16x8_t h = vuzp2q_u16(vreinterpretq_u16_u32(a), vreinterpretq_u16_u32(b));
            h = vaddq_u16(h, vcgeq_u16(vandq_u16(h, magnitude), infinity));
            vst1q_u8(data + 2 * i, vreinterpretq_u8_u16(h));
        }
}

const frugi_residual_kernel frugi_residual_kernel_neon = {largest_magnitude, load_bf16, load_int8, load_int4,
                                                          save_bf16,         save_int8, save_int4};
