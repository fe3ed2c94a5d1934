/* tensor_topk_avx512.c - the scans of tensor_topk_kernel.h for x86-64 with AVX-512: comparisons give bits, and an
 * instruction collects the lanes whose bits are set. */
#include "select/tensor_topk_kernel.h"

#include <immintrin.h>

#define VECTOR 64u
#define STRIDE 16u
#define FEW    1u
#include "select/tensor_topk_scan.h"

INLINE uint64_t pack(const lanes *m) {
    uint64_t bits = 0;
#pragma GCC unroll 4
    for (uint32_t j = 0; j < VECTORS; j++)
        bits |= (uint64_t)_mm512_movepi32_mask((__m512i)m[j]) << (j * WIDTH);
    return bits;
}

INLINE void write_lanes(uint32_t bits, const float *x, uint32_t base, uint32_t *index, float *value) {
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    __m512i at = _mm512_add_epi32(_mm512_set1_epi32((int)base), lane);
    _mm512_storeu_si512(index, _mm512_maskz_compress_epi32((__mmask16)bits, at));
    _mm512_storeu_ps(value, _mm512_maskz_compress_ps((__mmask16)bits, _mm512_loadu_ps(x)));
}

INLINE signed_lanes rotate_1(signed_lanes v) {
    return (signed_lanes)_mm512_shuffle_epi32((__m512i)v, 0x39);
}

INLINE signed_lanes rotate_2(signed_lanes v) {
    return (signed_lanes)_mm512_shuffle_epi32((__m512i)v, 0x4e);
}

INLINE signed_lanes rotate_3(signed_lanes v) {
    return (signed_lanes)_mm512_shuffle_epi32((__m512i)v, 0x93);
}

const frugi_topk_kernel frugi_topk_avx512 = {true, count, gather, emit, clear, mark_fours, take};
