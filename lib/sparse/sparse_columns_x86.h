/* sparse_columns_x86.h - sums of eight columns of int8 by AVX2: pairs of columns are interleaved, so that one
 * instruction adds the products of two columns in 32 bits. */
#ifndef FRUGI_SPARSE_COLUMNS_X86_H
#define FRUGI_SPARSE_COLUMNS_X86_H

#include "sparse/sparse_kernel.h"

#include <immintrin.h>

/* Two elements of a vector in each 32 bits. */
static inline __m256i pair_of(const int8_t *x) {
    return _mm256_set1_epi32((int32_t)((uint32_t)(uint16_t)x[0] | (uint32_t)(uint16_t)x[1] << 16));
}

/* Eight rows of four pairs. */
static inline __m256i add_rows(__m256i sum, const __m256i w[4], const __m256i x[4]) {
    for (int p = 0; p < 4; p++)
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(w[p], x[p]));
    return sum;
}

static void columns_int8_x86(const int8_t *const column[FRUGI_COLUMNS_AT_ONCE],
                             const int8_t high[FRUGI_COLUMNS_AT_ONCE], const int8_t low[FRUGI_COLUMNS_AT_ONCE],
                             uint32_t rows, int32_t *high_sums, int32_t *low_sums) {
    const __m256i h[4] = {pair_of(high), pair_of(high + 2), pair_of(high + 4), pair_of(high + 6)};
    const __m256i l[4] = {pair_of(low), pair_of(low + 2), pair_of(low + 4), pair_of(low + 6)};
    for (uint32_t r = 0; r < rows; r += FRUGI_COLUMN_ROWS) {
        __m256i front[4], back[4], *to_high = (__m256i *)(high_sums + r), *to_low = (__m256i *)(low_sums + r);
        for (int p = 0; p < 4; p++) {
            __m128i even = _mm_loadu_si128((const __m128i *)(column[2 * p] + r));
            __m128i odd = _mm_loadu_si128((const __m128i *)(column[2 * p + 1] + r));
            front[p] = _mm256_cvtepi8_epi16(_mm_unpacklo_epi8(even, odd));
            back[p] = _mm256_cvtepi8_epi16(_mm_unpackhi_epi8(even, odd));
        }
        _mm256_storeu_si256(to_high, add_rows(_mm256_loadu_si256(to_high), front, h));
        _mm256_storeu_si256(to_high + 1, add_rows(_mm256_loadu_si256(to_high + 1), back, h));
        _mm256_storeu_si256(to_low, add_rows(_mm256_loadu_si256(to_low), front, l));
        _mm256_storeu_si256(to_low + 1, add_rows(_mm256_loadu_si256(to_low + 1), back, l));
    }
}

#endif
