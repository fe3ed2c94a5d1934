/* stored_floats_neon.h - vectors of floats that are stored as bf16, or as 8 or 4 bits times a scale, with NEON. */
#ifndef FRUGI_STORED_FLOATS_NEON_H
#define FRUGI_STORED_FLOATS_NEON_H

#include <arm_neon.h>

#define STORED_FLOATS static inline __attribute__((always_inline))

STORED_FLOATS float32x4x4_t stored_bf16_16(const unsigned char *data) {
    const uint16x8_t zero = vdupq_n_u16(0);
    uint16x8_t a = vreinterpretq_u16_u8(vld1q_u8(data)), b = vreinterpretq_u16_u8(vld1q_u8(data + 16));
    float32x4x4_t x = {{vreinterpretq_f32_u16(vzip1q_u16(zero, a)), vreinterpretq_f32_u16(vzip2q_u16(zero, a)),
                        vreinterpretq_f32_u16(vzip1q_u16(zero, b)), vreinterpretq_f32_u16(vzip2q_u16(zero, b))}};
    return x;
}

/* Four bytes in the last bits of 2^23, minus 2^23 + offset: faster than the conversion from integer to float. */
STORED_FLOATS float32x4_t stored_scaled_4(uint16x8_t bits, float offset, float scale) {
    return vmulq_n_f32(vsubq_f32(vreinterpretq_f32_u16(bits), vdupq_n_f32(8388608.0f + offset)), scale);
}

STORED_FLOATS float32x4x4_t stored_scaled_16(uint8x16_t q, float offset, float scale) {
    const uint16x8_t exponent = vdupq_n_u16(0x4b00); /* upper half of 2^23 */
    const uint8x16_t zero = vdupq_n_u8(0);
    uint16x8_t low = vreinterpretq_u16_u8(vzip1q_u8(q, zero)), high = vreinterpretq_u16_u8(vzip2q_u8(q, zero));
    float32x4x4_t x = {{stored_scaled_4(vzip1q_u16(low, exponent), offset, scale),
                        stored_scaled_4(vzip2q_u16(low, exponent), offset, scale),
                        stored_scaled_4(vzip1q_u16(high, exponent), offset, scale),
                        stored_scaled_4(vzip2q_u16(high, exponent), offset, scale)}};
    return x;
}

STORED_FLOATS float32x4x4_t stored_int8_16(const unsigned char *data, float scale) {
    return stored_scaled_16(veorq_u8(vld1q_u8(data), vdupq_n_u8(128)), 128.0f, scale);
}

STORED_FLOATS float32x4x4_t stored_int4_16(const unsigned char *data, float scale) {
    uint8x8_t eight = vld1_u8(data);
    uint8x16_t both = vcombine_u8(eight, eight), even = vandq_u8(both, vdupq_n_u8(15)), odd = vshrq_n_u8(both, 4);
    return stored_scaled_16(vzip1q_u8(even, odd), 8.0f, scale);
}

#endif
