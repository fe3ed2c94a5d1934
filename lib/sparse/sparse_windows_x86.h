/*
 * sparse_windows_x86.h - int8 windows by AVX2: both halves of the rounded vector in the two halves of a register, 32
 * columns in two registers. A shuffle of bytes gives zero where the highest bit of a position is set, so that the sum
 * of two shuffles looks up 32 columns.
 */
#ifndef FRUGI_SPARSE_WINDOWS_X86_H
#define FRUGI_SPARSE_WINDOWS_X86_H

#include "sparse/sparse_rows.h"

#include <immintrin.h>

static inline __m256i load_both(const frugi_rounded_vector *x, uint32_t column) {
    return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)(x->high + column))),
                                   _mm_loadu_si128((const __m128i *)(x->low + column)), 1);
}

static inline __m256i load_twice(const unsigned char *p) {
    return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)p));
}

static void windows_x86(const frug_sparse *m, const frugi_rounded_vector *x, uint32_t first, uint32_t end, float *y) {
    const __m256i ones = _mm256_set1_epi16(1), overflow = _mm256_set1_epi8(0x70), half = _mm256_set1_epi8(16);
    for (uint32_t panel = first; panel < end; panel++) {
        __m256i sum = _mm256_setzero_si256();
        int32_t sums[2][FRUGI_SPARSE_PANEL];
        for (uint32_t s = m->begin[panel]; s < m->begin[panel + 1]; s++) {
            const unsigned char *step = m->bytes + (size_t)FRUGI_SPARSE_STEP * s;
            __m256i at = load_twice(step), w = load_twice(step + 16);
            __m256i front = _mm256_shuffle_epi8(load_both(x, m->base[s]), _mm256_adds_epu8(at, overflow));
            __m256i back = _mm256_shuffle_epi8(load_both(x, m->base[s] + 16u), _mm256_sub_epi8(at, half));
            __m256i v = _mm256_sign_epi8(_mm256_or_si256(front, back), w);
            /* pairs of products of magnitude 127 * 127 fit in 16 bits */
            sum = _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_abs_epi8(w), v), ones));
        }
        _mm256_storeu_si256((__m256i *)sums, sum);
        store_windows(m, x, panel, sums[0], sums[1], y);
    }
}

#endif
