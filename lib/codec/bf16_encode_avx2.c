/* bf16_encode_avx2.c - bf16 values with AVX2. */
#include "codec/bf16_encode.h"

#include <immintrin.h>

/* frugi_f32_bf16() of eight values; v becomes the rounding error. */
static inline __m256i round_eight(float *v) {
    __m256i u = _mm256_loadu_si256((const __m256i *)(const void *)v);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    __m256i half = _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7fff)), odd), 16);
    __m256i infinite = _mm256_cmpgt_epi32(_mm256_and_si256(half, _mm256_set1_epi32(0x7fff)), _mm256_set1_epi32(0x7f7f));
    half = _mm256_add_epi32(half, infinite); /* where this is true, it is -1 */
    _mm256_storeu_ps(v, _mm256_sub_ps(_mm256_castsi256_ps(u), _mm256_castsi256_ps(_mm256_slli_epi32(half, 16))));
    return half;
}

void frugi_encode_bf16_avx2(float *v, uint32_t n, unsigned char *out) {
    uint32_t j = 0;
    for (; j + 16 <= n; j += 16) {
        __m256i a = round_eight(v + j), b = round_eight(v + j + 8);
        __m256i halves = _mm256_permute4x64_epi64(_mm256_packus_epi32(a, b), 0xd8);
        _mm256_storeu_si256((__m256i *)(void *)(out + 2 * j), halves);
    }
    frugi_encode_bf16_ref(v + j, n - j, out + 2 * j);
}
