/* bf16_encode_avx512.c - bf16 values with AVX-512. */
#include "codec/bf16_encode.h"

#include <immintrin.h>

/* frugi_f32_bf16() of sixteen values; x becomes the rounding error. */
static inline __m256i round_16(__m512 *x) {
    const __m512i one = _mm512_set1_epi32(1), magnitude = _mm512_set1_epi32(0x7fff);
    __m512i u = _mm512_castps_si512(*x), odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), one);
    __m512i half = _mm512_srli_epi32(_mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), odd), 16);
    __mmask16 infinite = _mm512_cmpge_epu32_mask(_mm512_and_si512(half, magnitude), _mm512_set1_epi32(0x7f80));
    half = _mm512_mask_sub_epi32(half, infinite, half, one);
    *x = _mm512_sub_ps(*x, _mm512_castsi512_ps(_mm512_slli_epi32(half, 16)));
    return _mm512_cvtepi32_epi16(half);
}

void frugi_encode_bf16_avx512(float *v, uint32_t n, unsigned char *out) {
    uint32_t j = 0;
    for (; j + 16 <= n; j += 16) {
        __m512 x = _mm512_loadu_ps(v + j);
        _mm256_storeu_si256((__m256i *)(void *)(out + 2 * j), round_16(&x));
        _mm512_storeu_ps(v + j, x);
    }
    frugi_encode_bf16_ref(v + j, n - j, out + 2 * j);
}
