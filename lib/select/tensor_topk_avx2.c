/* tensor_topk_avx2.c - the scans of tensor_topk_kernel.h for x86-64 with AVX2, which has an instruction that collects
 * the signs of lanes. */
#include "select/tensor_topk_kernel.h"

#include <immintrin.h>

#define VECTOR 32u
#define MARKS  lanes
#define FEW    8u
#include "select/tensor_topk_scan.h"

#include "select/tensor_topk_lanes.h"

INLINE lanes reach(const float *x, uint32_t key) {
    return (lanes)((signed_lanes)load_magnitudes(x) > (int32_t)key - 1);
}

INLINE uint64_t pack(const lanes *m) {
    uint64_t bits = 0;
#pragma GCC unroll 8
    for (uint32_t j = 0; j < VECTORS; j++)
        bits |= (uint64_t)(uint32_t)_mm256_movemask_ps((__m256)m[j]) << (j * WIDTH);
    return bits;
}

INLINE uint32_t count_bits(uint64_t bits) {
    return (uint32_t)(count_bits_before(bits) >> 56);
}

INLINE void write_many(uint64_t bits, const float *x, uint32_t base, uint32_t *index, float *value) {
    uint64_t before = count_bits_before(bits) << 8;
#pragma GCC unroll 8
    for (uint32_t i = 0; i < GROUP; i += 8) {
        uint32_t out = (uint32_t)(before >> i) & 255u;
        long long positions = (long long)frugi_bit_positions[(bits >> i) & 255u];
        __m256i position = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(positions));
        _mm256_storeu_si256((__m256i *)(void *)(index + out),
                            _mm256_add_epi32(position, _mm256_set1_epi32((int)(base + i))));
        _mm256_storeu_ps(value + out, _mm256_permutevar8x32_ps(_mm256_loadu_ps(x + i), position));
    }
}

#include "select/tensor_topk_words.h"

INLINE signed_lanes rotate_1(signed_lanes v) {
    return (signed_lanes)_mm256_shuffle_epi32((__m256i)v, 0x39);
}

INLINE signed_lanes rotate_2(signed_lanes v) {
    return (signed_lanes)_mm256_shuffle_epi32((__m256i)v, 0x4e);
}

INLINE signed_lanes rotate_3(signed_lanes v) {
    return (signed_lanes)_mm256_shuffle_epi32((__m256i)v, 0x93);
}

#include "select/tensor_topk_fours.h"

const frugi_topk_kernel frugi_topk_avx2 = {true, count, gather, emit, clear, mark_fours, take};
