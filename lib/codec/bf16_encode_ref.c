/* bf16_encode_ref.c - bf16 values with vectors of 16 bytes, and the choice between variants. */
#include "codec/bf16_encode.h"

#include "base/float_bits.h"

typedef float four_f32 __attribute__((vector_size(16)));
typedef uint32_t four_u32 __attribute__((vector_size(16)));
typedef uint16_t eight_u16 __attribute__((vector_size(16)));

/* frugi_f32_bf16() of four values; v becomes the rounding error. */
static inline four_u32 round_four(float *v) {
    four_f32 x;
    memcpy(&x, v, sizeof x);
    four_u32 u = (four_u32)x, half = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    half += (four_u32)((half & 0x7fffu) >= 0x7f80u); /* where this is true, it is -1 */
    x -= (four_f32)(half << 16);
    memcpy(v, &x, sizeof x);
    return half;
}

void frugi_encode_bf16_ref(float *v, uint32_t n, unsigned char *out) {
    uint32_t j = 0;
    for (; j + 8 <= n; j += 8) {
        four_u32 a = round_four(v + j), b = round_four(v + j + 4);
        eight_u16 h = __builtin_shufflevector((eight_u16)a, (eight_u16)b, 0, 2, 4, 6, 8, 10, 12, 14);
        memcpy(out + 2 * j, &h, sizeof h);
    }
    for (; j < n; j++) {
        uint16_t h = frugi_f32_bf16(v[j]);
        frugi_put16(out + 2 * j, h);
        v[j] -= frugi_bf16_f32(h);
    }
}

frugi_bf16_encoder *frugi_bf16_encoder_for(frugi_isa isa) {
#if defined(__aarch64__)
    if (isa == FRUGI_ISA_NEON)
        return frugi_encode_bf16_neon;
#elif defined(__x86_64__)
    if (isa == FRUGI_ISA_AVX512)
        return frugi_encode_bf16_avx512;
    if (isa == FRUGI_ISA_AVX2)
        return frugi_encode_bf16_avx2;
#endif
    (void)isa;
    return frugi_encode_bf16_ref;
}
