/* bf16_encode_neon.c - bf16 values with NEON. */
#include "codec/bf16_encode.h"

#include <arm_neon.h>

/* Four values, rounded: their upper halves are frugi_f32_bf16(), unless that is infinite. */
static inline uint32x4_t round_four(uint32x4_t u) {
    uint32x4_t odd = vandq_u32(u, vdupq_n_u32(0x10000));
    return vsraq_n_u32(vaddq_u32(u, vdupq_n_u32(0x7fff)), odd, 16);
}

void frugi_encode_bf16_neon(float *v, uint32_t n, unsigned char *out) {
    const uint16x8_t magnitude = vdupq_n_u16(0x7fff), infinity = vdupq_n_u16(0x7f80), zero = vdupq_n_u16(0);
    uint32_t j = 0;
    for (; j + 8 <= n; j += 8) {
        float32x4_t a = vld1q_f32(v + j), b = vld1q_f32(v + j + 4);
        uint16x8_t half = vuzp2q_u16(vreinterpretq_u16_u32(round_four(vreinterpretq_u32_f32(a))),
                                     vreinterpretq_u16_u32(round_four(vreinterpretq_u32_f32(b))));
        half = vaddq_u16(half, vcgeq_u16(vandq_u16(half, magnitude), infinity)); /* where this is true, it is -1 */
        vst1q_u8(out + 2 * j, vreinterpretq_u8_u16(half));
        vst1q_f32(v + j, vsubq_f32(a, vreinterpretq_f32_u16(vzip1q_u16(zero, half))));
        vst1q_f32(v + j + 4, vsubq_f32(b, vreinterpretq_f32_u16(vzip2q_u16(zero, half))));
    }
    frugi_encode_bf16_ref(v + j, n - j, out + 2 * j);
}
