/* tensor_topk_avx2.c - the scans of tensor_topk_kernel.h for x86-64 with AVX2, which has an instruction that collects
 * the signs of lanes. */
#include "select/tensor_topk_kernel.h"

#include <immintrin.h>

#define VECTOR 32u
#define STRIDE 8u
#define FEW    8u
#include "select/tensor_topk_scan.h"

INLINE uint64_t pack(const lanes *m) {
    uint64_t bits = 0;
#pragma GCC unroll 8
    for (uint32_t j = 0; j < VECTORS; j++)
        bits |= (uint64_t)(uint32_t)_mm256_movemask_ps((__m256)m[j]) << (j * WIDTH);
    return bits;
}

INLINE void write_lanes(uint32_t bits, const float *x, uint32_t base, uint32_t *index, float *value) {
    __m256i position = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)frugi_bit_positions[bits]));
    _mm256_storeu_si256((__m256i *)(void *)index, _mm256_add_epi32(position, _mm256_set1_epi32((int)base)));
    _mm256_storeu_ps(value, _mm256_permutevar8x32_ps(_mm256_loadu_ps(x), position));
}

INLINE signed_lanes rotate_1(signed_lanes v) {
    return (signed_lanes)_mm256_shuffle_epi32((__m256i)v, 0x39);
}

INLINE signed_lanes rotate_2(signed_lanes v) {
    return (signed_lanes)_mm256_shuffle_epi32((__m256i)v, 0x4e);
}

INLINE signed_lanes rotate_3(signed_lanes v) {
    return (signed_lanes)_mm256_shuffle_epi32((__m256i)v, 0x93);
}

const frugi_topk_kernel frugi_topk_avx2 = {true, count, gather, emit, clear, mark_fours, take};
