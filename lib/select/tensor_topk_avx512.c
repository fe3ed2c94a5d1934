/* tensor_topk_avx512.c - the scans of tensor_topk_kernel.h for x86-64 with AVX-512: comparisons give bits, and an
 * instruction collects the lanes whose bits are set. */
#include "select/tensor_topk_kernel.h"

#include <immintrin.h>

#define VECTOR 64u
#define MARKS  __mmask16
#define FEW    1u
#include "select/tensor_topk_scan.h"

INLINE __mmask16 reach(const float *x, uint32_t key) {
    return _mm512_cmpge_epu32_mask((__m512i)load_magnitudes(x), _mm512_set1_epi32((int)key));
}

INLINE __mmask16 less(signed_lanes v, int32_t limit) {
    return _mm512_cmplt_epi32_mask((__m512i)v, _mm512_set1_epi32(limit));
}

INLINE uint64_t pack(const __mmask16 *m) {
    uint32_t low = _cvtmask32_u32(_mm512_kunpackw(m[1], m[0])), high = _cvtmask32_u32(_mm512_kunpackw(m[3], m[2]));
    return (uint64_t)high << 32 | low;
}

INLINE lanes add_marks(lanes sum, __mmask16 m) {
    return (lanes)_mm512_mask_sub_epi32((__m512i)sum, m, (__m512i)sum, _mm512_set1_epi32(-1));
}

INLINE void clear_marks(float *x, __mmask16 m) {
    _mm512_mask_storeu_ps(x, m, _mm512_setzero_ps());
}

INLINE uint32_t count_bits(uint64_t bits) {
    return (uint32_t)__builtin_popcountll(bits);
}

INLINE void write_many(uint64_t bits, const float *x, uint32_t base, uint32_t *index, float *value) {
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
#pragma GCC unroll 4
    for (uint32_t i = 0; i < GROUP; i += WIDTH) {
        __mmask16 some = (__mmask16)(bits >> i);
        __m512i at = _mm512_add_epi32(_mm512_set1_epi32((int)(base + i)), lane);
        _mm512_storeu_si512(index, _mm512_maskz_compress_epi32(some, at));
        _mm512_storeu_ps(value, _mm512_maskz_compress_ps(some, _mm512_loadu_ps(x + i)));
        index += __builtin_popcount(some);
        value += __builtin_popcount(some);
    }
}

#include "select/tensor_topk_words.h"

INLINE signed_lanes rotate_1(signed_lanes v) {
    return (signed_lanes)_mm512_shuffle_epi32((__m512i)v, 0x39);
}

INLINE signed_lanes rotate_2(signed_lanes v) {
    return (signed_lanes)_mm512_shuffle_epi32((__m512i)v, 0x4e);
}

INLINE signed_lanes rotate_3(signed_lanes v) {
    return (signed_lanes)_mm512_shuffle_epi32((__m512i)v, 0x93);
}

#include "select/tensor_topk_fours.h"

const frugi_topk_kernel frugi_topk_avx512 = {true, count, gather, emit, clear, mark_fours, take};
