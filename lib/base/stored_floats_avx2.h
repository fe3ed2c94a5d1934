/* stored_floats_avx2.h - vectors of floats that are stored as bf16, or as 8 or 4 bits times a scale, with AVX2. */
#ifndef FRUGI_STORED_FLOATS_AVX2_H
#define FRUGI_STORED_FLOATS_AVX2_H

#include <immintrin.h>

#define STORED_FLOATS static inline __attribute__((always_inline))

typedef struct stored_16 {
    __m256 low, high;
} stored_16;

STORED_FLOATS __m256 stored_bf16_8(const unsigned char *data) {
    __m128i half = _mm_loadu_si128((const __m128i *)(const void *)data);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}

STORED_FLOATS stored_16 stored_bf16_16(const unsigned char *data) {
    return (stored_16){stored_bf16_8(data), stored_bf16_8(data + 16)};
}

/* Eight of the low bytes of q. */
STORED_FLOATS __m256 stored_scaled_8(__m128i q, __m256 scale) {
    return _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(q)), scale);
}

STORED_FLOATS __m256 stored_int8_8(const unsigned char *data, __m256 scale) {
    return stored_scaled_8(_mm_loadl_epi64((const __m128i *)(const void *)data), scale);
}

STORED_FLOATS stored_16 stored_int8_16(const unsigned char *data, __m256 scale) {
    return (stored_16){stored_int8_8(data, scale), stored_int8_8(data + 8, scale)};
}

STORED_FLOATS stored_16 stored_int4_16(const unsigned char *data, __m256 scale) {
    const __m128i low = _mm_set1_epi8(15);
    __m128i both = _mm_loadl_epi64((const __m128i *)(const void *)data);
    __m128i even = _mm_and_si128(both, low), odd = _mm_and_si128(_mm_srli_epi16(both, 4), low);
    __m128i q = _mm_sub_epi8(_mm_unpacklo_epi8(even, odd), _mm_set1_epi8(8));
    return (stored_16){stored_scaled_8(q, scale), stored_scaled_8(_mm_unpackhi_epi64(q, q), scale)};
}

#endif
