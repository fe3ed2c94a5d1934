/* block_topk_long_avx2.c - the kernel for long blocks with AVX2. */
#include "select/block_topk_avx2.h"

INLINE __m256i load_256(const void *p) {
    return _mm256_loadu_si256((const __m256i *)p);
}

INLINE __m256i max_of_4(const __m256i *x) {
    return _mm256_max_epu16(_mm256_max_epu16(x[0], x[1]), _mm256_max_epu16(x[2], x[3]));
}

/* Store the largest of each of four groups of 16 numbers below 2^16, which are two vectors each. */
INLINE void store_maxima_of_16(const __m256i *x, uint16_t *max) {
    __m256i a = _mm256_packus_epi32(_mm256_max_epu16(x[0], x[1]), _mm256_max_epu16(x[2], x[3]));
    __m256i b = _mm256_packus_epi32(_mm256_max_epu16(x[4], x[5]), _mm256_max_epu16(x[6], x[7]));
    __m256i m = _mm256_max_epu16(_mm256_permute2x128_si256(a, b, 0x20), _mm256_permute2x128_si256(a, b, 0x31));
    m = _mm256_max_epu16(m, _mm256_srli_epi64(m, 32)); /* a group is one lane of 64 bits */
    m = _mm256_max_epu16(m, _mm256_srli_epi64(m, 16));
    m = _mm256_and_si256(m, _mm256_set1_epi64x(0xffff));
    __m128i four = _mm_packus_epi32(_mm256_castsi256_si128(m), _mm256_extracti128_si256(m, 1));
    _mm_storel_epi64((__m128i *)(void *)max, _mm_packus_epi32(four, four));
}

INLINE void accumulate_64(const float *grad, const float *before, float *acc, float *saved, float beta, uint32_t group,
                          uint16_t *max) {
    __m256i x[8];
#pragma GCC unroll 8
    for (size_t i = 0; i < 8; i++)
        x[i] =
            accumulate_8(grad + 8 * i, before + 8 * i, acc + 8 * i, saved ? saved + 8 * i : NULL, _mm256_set1_ps(beta));
    if (group == 4)
        _mm256_storeu_si256((__m256i *)(void *)max, _mm256_packus_epi32(max_of_4(x), max_of_4(x + 4)));
    else
        store_maxima_of_16(x, max);
}

INLINE void copy_keys(const float *x, uint16_t *key) {
    __m256i a = _mm256_srli_epi32(_mm256_slli_epi32(load_256(x), 1), 17);
    __m256i b = _mm256_srli_epi32(_mm256_slli_epi32(load_256(x + 8), 1), 17);
    _mm256_storeu_si256((__m256i *)(void *)key, _mm256_permute4x64_epi64(_mm256_packus_epi32(a, b), 0xd8));
}

INLINE uint64_t mask_keys_64(const uint16_t *key, uint16_t t) {
    const __m256i under = _mm256_set1_epi16((short)(t - 1)); /* there is no comparison for at least */
    uint32_t bits[2];
#pragma GCC unroll 2
    for (size_t i = 0; i < 2; i++) {
        __m256i a = _mm256_cmpgt_epi16(load_256(key + 32 * i), under);
        __m256i b = _mm256_cmpgt_epi16(load_256(key + 32 * i + 16), under);
        bits[i] = (uint32_t)_mm256_movemask_epi8(_mm256_permute4x64_epi64(_mm256_packs_epi16(a, b), 0xd8));
    }
    return (uint64_t)bits[1] << 32 | bits[0];
}

/* Which of 16 elements are above `under`; in the order 0-3, 8-11, 4-7, 12-15. */
INLINE __m256i above_16(const float *x, __m256i under) {
    const __m256i abs = _mm256_set1_epi32(0x7fffffff);
    return _mm256_packs_epi32(_mm256_cmpgt_epi32(_mm256_and_si256(load_256(x), abs), under),
                              _mm256_cmpgt_epi32(_mm256_and_si256(load_256(x + 8), abs), under));
}

INLINE uint64_t mask_floats_64(const float *x, uint16_t t) {
    const __m256i under = _mm256_set1_epi32((int)(((uint32_t)t << 16) - 1));
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    uint32_t bits[2];
#pragma GCC unroll 2
    for (size_t i = 0; i < 2; i++) {
        __m256i above = _mm256_packs_epi16(above_16(x + 32 * i, under), above_16(x + 32 * i + 16, under));
        bits[i] = (uint32_t)_mm256_movemask_epi8(_mm256_permutevar8x32_epi32(above, order));
    }
    return (uint64_t)bits[1] << 32 | bits[0];
}

INLINE uint32_t sum_8(__m256i x) {
    __m128i y = _mm_add_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    y = _mm_add_epi32(y, _mm_shuffle_epi32(y, 0x4e));
    return (uint32_t)_mm_cvtsi128_si32(_mm_add_epi32(y, _mm_shuffle_epi32(y, 0xb1)));
}

INLINE uint32_t count_keys(const uint16_t *key, uint32_t n, uint16_t t) {
    const __m256i under = _mm256_set1_epi16((short)(t - 1));
    __m256i a = _mm256_setzero_si256(), b = a;
    for (uint32_t i = 0; i < n; i += 32) {
        a = _mm256_sub_epi16(a, _mm256_cmpgt_epi16(load_256(key + i), under));
        b = _mm256_sub_epi16(b, _mm256_cmpgt_epi16(load_256(key + i + 16), under));
    }
    return sum_8(_mm256_madd_epi16(_mm256_add_epi16(a, b), _mm256_set1_epi16(1)));
}

INLINE uint32_t count_candidates(const uint32_t *magnitude, uint32_t n, uint32_t t) {
    const __m256i under = _mm256_set1_epi32((int)(t - 1));
    __m256i a = _mm256_setzero_si256(), b = a;
    for (uint32_t i = 0; i < n; i += 16) {
        a = _mm256_sub_epi32(a, _mm256_cmpgt_epi32(load_256(magnitude + i), under));
        b = _mm256_sub_epi32(b, _mm256_cmpgt_epi32(load_256(magnitude + i + 8), under));
    }
    return sum_8(_mm256_add_epi32(a, b));
}

INLINE void keep_candidates(const uint32_t *magnitude, const uint16_t *index, uint32_t n, uint32_t t, uint16_t *idx) {
    const __m256i under = _mm256_set1_epi32((int)(t - 1));
    for (uint32_t i = 0; i < n; i += 8) {
        __m256i above = _mm256_cmpgt_epi32(load_256(magnitude + i), under);
        uint32_t bits = (uint32_t)_mm256_movemask_ps(_mm256_castsi256_ps(above));
        __m128i position =
            _mm_cvtepu8_epi16(_mm_loadl_epi64((const __m128i *)(const void *)&frugi_bit_positions[bits]));
        __m128i bytes = _mm_add_epi16(_mm_mullo_epi16(position, _mm_set1_epi16(0x0202)), _mm_set1_epi16(0x0100));
        store(idx, _mm_shuffle_epi8(load(index + i), bytes));
        idx += __builtin_popcount(bits);
    }
}

#include "select/block_topk_long.h"

const frugi_block_kernel frugi_block_kernel_long_avx2 = {accumulate, NULL, select_batch};
