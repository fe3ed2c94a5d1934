/* stored_floats_avx512.h - vectors of floats that are stored as bf16, or as 8 or 4 bits times a scale, with AVX-512. */
#ifndef FRUGI_STORED_FLOATS_AVX512_H
#define FRUGI_STORED_FLOATS_AVX512_H

#include <immintrin.h>

#define STORED_FLOATS static inline __attribute__((always_inline))

STORED_FLOATS __m512 stored_bf16_16(const unsigned char *data) {
    __m256i half = _mm256_loadu_si256((const __m256i *)(const void *)data);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

STORED_FLOATS __m512 stored_scaled_16(__m128i q, __m512 scale) {
    return _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(q)), scale);
}

STORED_FLOATS __m512 stored_int8_16(const unsigned char *data, __m512 scale) {
    return stored_scaled_16(_mm_loadu_si128((const __m128i *)(const void *)data), scale);
}

STORED_FLOATS __m512 stored_int4_16(const unsigned char *data, __m512 scale) {
    const __m128i low = _mm_set1_epi8(15);
    __m128i both = _mm_loadl_epi64((const __m128i *)(const void *)data);
    __m128i even = _mm_and_si128(both, low), odd = _mm_and_si128(_mm_srli_epi16(both, 4), low);
    return stored_scaled_16(_mm_sub_epi8(_mm_unpacklo_epi8(even, odd), _mm_set1_epi8(8)), scale);
}

#endif
