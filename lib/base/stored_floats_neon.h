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

/** Scales of the four lanes of a vector, and what bytes of 0 stand for. */
typedef struct stored_scale {
    float32x4_t scale, offset;
} stored_scale;

/*
 * A byte u becomes the second byte of a float: 2^15 + u. Scales have 8 significant bits and are below 2^112, so
 * products and offsets are exact, and one fused operation computes (u - zero) * scale. It overwrites the offset; to
 * load that every time is cheaper than to copy it, because few units process vectors.
 */
STORED_FLOATS float32x4_t stored_scaled_4(uint8x16_t bits, const stored_scale *s) {
    float32x4_t x;
    __asm__("ldr %q0, %1" : "=w"(x) : "m"(s->offset), "w"(bits)); /* `bits` only make every load another one */
    return vfmaq_f32(x, vreinterpretq_f32_u8(bits), s->scale);
}

/* Eight bytes, XOR the sign bits given by `flip`, and the upper byte of 2^15 eight times. */
STORED_FLOATS uint8x16_t stored_bytes(const unsigned char *data, uint8_t flip) {
    return veorq_u8(vcombine_u8(vld1_u8(data), vdup_n_u8(0)), vcombine_u8(vdup_n_u8(flip), vdup_n_u8(0x47)));
}

STORED_FLOATS stored_scale stored_int8_scale(float scale) {
    return (stored_scale){vdupq_n_f32(scale), vdupq_n_f32(-(32768.0f + 128.0f) * scale)};
}

STORED_FLOATS float32x4x4_t stored_int8_16(const unsigned char *data, const stored_scale *s) {
    const uint8x16_t first = {255, 0, 255, 8, 255, 1, 255, 8, 255, 2, 255, 8, 255, 3, 255, 8},
                     second = {255, 4, 255, 8, 255, 5, 255, 8, 255, 6, 255, 8, 255, 7, 255, 8};
    uint8x16_t a = stored_bytes(data, 128), b = stored_bytes(data + 8, 128);
    float32x4x4_t x = {{stored_scaled_4(vqtbl1q_u8(a, first), s), stored_scaled_4(vqtbl1q_u8(a, second), s),
                        stored_scaled_4(vqtbl1q_u8(b, first), s), stored_scaled_4(vqtbl1q_u8(b, second), s)}};
    return x;
}

/* Elements with odd indices are in the upper halves of bytes, so they are 16 times as large. */
STORED_FLOATS stored_scale stored_int4_scale(float scale) {
    const float32x4_t share = {1.0f, 0.0625f, 1.0f, 0.0625f}, zero = {8.0f, 128.0f, 8.0f, 128.0f};
    float32x4_t scales = vmulq_n_f32(share, scale);
    return (stored_scale){scales, vnegq_f32(vmulq_f32(vaddq_f32(vdupq_n_f32(32768.0f), zero), scales))};
}

STORED_FLOATS float32x4x4_t stored_int4_16(const unsigned char *data, const stored_scale *s) {
    const uint8x16_t first = {255, 0, 255, 8, 255, 0, 255, 8, 255, 1, 255, 8, 255, 1, 255, 8};
    const uint8x16_t half = {0, 15, 0, 255, 0, 240, 0, 255, 0, 15, 0, 255, 0, 240, 0, 255};
    const uint8x16_t bytes = stored_bytes(data, 0);
    float32x4x4_t x;
    for (int i = 0; i < 4; i++) {
        const uint8x16_t step = {0, 2, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0};
        uint8x16_t at = vaddq_u8(first, vmulq_u8(step, vdupq_n_u8((uint8_t)i)));
        x.val[i] = stored_scaled_4(vandq_u8(vqtbl1q_u8(bytes, at), half), s);
    }
    return x;
}

#endif
