/*
 * block_topk_avx2.h - the primitives of block_topk_lanes.h with AVX2, shared by the kernels for all block lengths.
 * block_topk_neon.h documents them; accumulate_8 corresponds to its accumulate_16.
 */
#ifndef FRUGI_BLOCK_TOPK_AVX2_H
#define FRUGI_BLOCK_TOPK_AVX2_H

#include "select/block_topk_x86.h"

#define OPAQUE_LANES(x) __asm__("" : "+x"(x))

INLINE __m128i load(const void *p) {
    return _mm_loadu_si128((const __m128i *)p);
}

INLINE void store(void *p, __m128i v) {
    _mm_storeu_si128((__m128i *)p, v);
}

/* Accumulate eight elements. Returns the upper halves of their magnitudes. */
INLINE __m256i accumulate_8(const float *grad, const float *before, float *acc, float *saved, __m256 beta) {
    __m256 e = _mm256_loadu_ps(before), g = _mm256_loadu_ps(grad);
    if (saved)
        _mm256_storeu_ps(saved, e);
    g = _mm256_add_ps(_mm256_mul_ps(beta, e), g);
    _mm256_storeu_ps(acc, g);
    return _mm256_srli_epi32(_mm256_slli_epi32(_mm256_castps_si256(g), 1), 17);
}

INLINE uint16_t largest(__m256i x) {
    __m128i y = _mm_max_epu16(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    y = _mm_minpos_epu16(_mm_xor_si128(y, _mm_set1_epi16(-1))); /* there is an instruction for the minimum only */
    return (uint16_t)~_mm_cvtsi128_si32(y);
}

INLINE uint32_t mask_ge_32(const uint8_t *key, uint8_t t) {
    __m256i x = _mm256_loadu_si256((const __m256i *)(const void *)key);
    return (uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8(_mm256_max_epu8(x, _mm256_set1_epi8((char)t)), x));
}

INLINE uint64_t mask_ge_64(const uint8_t *key, uint8_t t) {
    return (uint64_t)mask_ge_32(key + 32, t) << 32 | mask_ge_32(key, t);
}

INLINE void zip(const __m128i *a, __m128i *b) {
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        b[2 * i] = _mm_unpacklo_epi8(a[i], a[i + 8]);
        b[2 * i + 1] = _mm_unpackhi_epi8(a[i], a[i + 8]);
    }
}

INLINE void transpose(const uint8_t *src, size_t stride, uint8_t *dst) {
    __m128i a[16], b[16];
#pragma GCC unroll 16
    for (size_t i = 0; i < 16; i++)
        a[i] = load(src + stride * i);
    zip(a, b);
    zip(b, a);
    zip(a, b);
    zip(b, a);
#pragma GCC unroll 16
    for (size_t i = 0; i < 16; i++)
        store(dst + 16 * i, a[i]);
}

#endif
