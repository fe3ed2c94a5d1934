/* block_topk_long_avx512.c - the kernel for long blocks with AVX-512. */
#include "select/block_topk_avx512.h"

/* Accumulate sixteen elements. Returns the upper halves of their magnitudes. */
INLINE __m512i accumulate_16(const float *grad, const float *before, float *acc, float *saved, __m512 beta) {
    __m512 e = _mm512_loadu_ps(before), g = _mm512_loadu_ps(grad);
    if (saved)
        _mm512_storeu_ps(saved, e);
    g = _mm512_add_ps(_mm512_mul_ps(beta, e), g);
    _mm512_storeu_ps(acc, g);
    return _mm512_srli_epi32(_mm512_slli_epi32(_mm512_castps_si512(g), 1), 17);
}

/* Larger ones of adjacent elements: in each 128 bits two of a and b, alternating. */
INLINE __m512i max_of_pairs(__m512i a, __m512i b) {
    return _mm512_max_epu32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
}

/* Store the largest of each of four vectors. */
INLINE void store_maxima(const __m512i *x, uint16_t *max) {
    __m512i a = max_of_pairs(x[0], x[1]), b = max_of_pairs(x[2], x[3]);
    __m512i m = _mm512_max_epu32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
    __m256i half = _mm256_max_epu32(_mm512_castsi512_si256(m), _mm512_extracti64x4_epi64(m, 1));
    __m128i four = _mm_max_epu32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
    _mm_storel_epi64((__m128i *)(void *)max, _mm_packus_epi32(four, four));
}

INLINE void accumulate_64(const float *grad, const float *before, float *acc, float *saved, float beta, uint32_t group,
                          uint16_t *max) {
    __m512i x[4];
#pragma GCC unroll 4
    for (size_t i = 0; i < 4; i++)
        x[i] = accumulate_16(grad + 16 * i, before + 16 * i, acc + 16 * i, saved ? saved + 16 * i : NULL,
                             _mm512_set1_ps(beta));
    if (group == 4) {
        __m512i m = _mm512_max_epu32(_mm512_max_epu32(x[0], x[1]), _mm512_max_epu32(x[2], x[3]));
        _mm256_storeu_si256((__m256i *)(void *)max, _mm512_cvtepi32_epi16(m));
    } else {
        store_maxima(x, max);
    }
}

INLINE void copy_keys(const float *x, uint16_t *key) {
    __m512i k = _mm512_srli_epi32(_mm512_slli_epi32(_mm512_loadu_si512(x), 1), 17);
    _mm256_storeu_si256((__m256i *)(void *)key, _mm512_cvtepi32_epi16(k));
}

INLINE uint64_t mask_keys_64(const uint16_t *key, uint16_t t_) {
    const __m512i t = _mm512_set1_epi16((short)t_);
    uint64_t low = _mm512_cmpge_epu16_mask(_mm512_loadu_si512(key), t);
    return (uint64_t)_mm512_cmpge_epu16_mask(_mm512_loadu_si512(key + 32), t) << 32 | low;
}

INLINE uint64_t mask_floats_64(const float *x, uint16_t t_) {
    const __m512i t = _mm512_set1_epi32((int)((uint32_t)t_ << 16)), abs = _mm512_set1_epi32(0x7fffffff);
    uint64_t bits = 0;
#pragma GCC unroll 4
    for (size_t i = 0; i < 64; i += 16)
        bits |= (uint64_t)_mm512_cmpge_epu32_mask(_mm512_and_si512(_mm512_loadu_si512(x + i), abs), t) << i;
    return bits;
}

INLINE uint32_t count_keys(const uint16_t *key, uint32_t n, uint16_t t_) {
    const __m512i t = _mm512_set1_epi16((short)t_);
    uint32_t count = 0;
    for (uint32_t i = 0; i < n; i += 32)
        count += (uint32_t)__builtin_popcount(_mm512_cmpge_epu16_mask(_mm512_loadu_si512(key + i), t));
    return count;
}

INLINE uint32_t count_candidates(const uint32_t *magnitude, uint32_t n, uint32_t t_) {
    const __m512i t = _mm512_set1_epi32((int)t_);
    uint32_t count = 0;
    for (uint32_t i = 0; i < n; i += 16)
        count += (uint32_t)__builtin_popcount(_mm512_cmpge_epu32_mask(_mm512_loadu_si512(magnitude + i), t));
    return count;
}

INLINE void keep_candidates(const uint32_t *magnitude, const uint16_t *index, uint32_t n, uint32_t t_, uint16_t *idx) {
    const __m512i t = _mm512_set1_epi32((int)t_);
    for (uint32_t i = 0; i < n; i += 16) {
        __mmask16 reach = _mm512_cmpge_epu32_mask(_mm512_loadu_si512(magnitude + i), t);
        __m512i all = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)(index + i)));
        _mm256_storeu_si256((__m256i *)(void *)idx, _mm512_cvtepi32_epi16(_mm512_maskz_compress_epi32(reach, all)));
        idx += __builtin_popcount(reach);
    }
}

#include "select/block_topk_long.h"

const frugi_block_kernel frugi_block_kernel_long_avx512 = {accumulate, NULL, select_batch};
