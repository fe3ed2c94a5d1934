/*
 * sparse_kernel_avx512.c - the products of packed matrices.
 *
 * rows: 16 marks are a mask, by which the next values are expanded to their columns; no column is stored. half: the
 * same, with the 16 marks of two rows, whose values are always eight. windows: see sparse_windows_x86.h.
 */
#define LANES 16
#include "sparse/sparse_rows.h"
#include "sparse/sparse_windows_x86.h"
#define COLUMN_LANES 16
#include "sparse/sparse_column_lanes.h"
#include "sparse/sparse_columns_x86.h"

/* The next values at the columns of a mask; *value moves behind them. */
static inline __m512 expand(__mmask16 mask, const float **value) {
    __m512 w = _mm512_maskz_expandloadu_ps(mask, *value);
    *value += __builtin_popcount(mask);
    return w;
}

static void rows_avx512(const frug_sparse *m, const float *x, uint32_t first, uint32_t end, float *y) {
    const size_t words = frugi_sparse_mark_words(m), whole = m->cols / 16;
    const __mmask16 last = (__mmask16)((1u << m->cols % 16) - 1u);
    for (uint32_t r = first * FRUGI_SPARSE_PANEL; r < rows_end(m, end); r++) {
        const uint16_t *marks = m->marks + r * words;
        const float *value = m->values + m->begin[r];
        __m512 even = _mm512_setzero_ps(), odd = even;
        size_t i = 0;
        for (; i + 2 <= whole; i += 2) {
            even = _mm512_fmadd_ps(expand(marks[i], &value), _mm512_loadu_ps(x + 16 * i), even);
            odd = _mm512_fmadd_ps(expand(marks[i + 1], &value), _mm512_loadu_ps(x + 16 * i + 16), odd);
        }
        for (; i < whole; i++)
            even = _mm512_fmadd_ps(expand(marks[i], &value), _mm512_loadu_ps(x + 16 * i), even);
        if (last)
            odd = _mm512_fmadd_ps(expand(marks[whole], &value), _mm512_maskz_loadu_ps(last, x + 16 * whole), odd);
        y[r] = _mm512_reduce_add_ps(_mm512_add_ps(even, odd));
    }
}

static inline float sum_eight(__m512 v, int upper) {
    __m256 eight = upper ? _mm512_extractf32x8_ps(v, 1) : _mm512_castps512_ps256(v);
    return _mm512_reduce_add_ps(_mm512_zextps256_ps512(eight));
}

static void half_avx512(const frug_sparse *m, const float *x, uint32_t first, uint32_t end, float *y) {
    const size_t groups = m->cols / 8;
    const unsigned char *bytes = m->bytes + FRUGI_SPARSE_PANEL * groups * first;
    const float *value = m->values + 16 * groups * first;
    for (uint32_t panel = first; panel < end; panel++) {
        __m512 front = _mm512_setzero_ps(), back = front;
        for (size_t g = 0; g < groups; g++, bytes += FRUGI_SPARSE_PANEL, value += 16) {
            __m512 eight = _mm512_broadcast_f32x8(_mm256_loadu_ps(x + 8 * g));
            uint32_t marks;
            memcpy(&marks, bytes, sizeof marks);
            front = _mm512_fmadd_ps(_mm512_maskz_expandloadu_ps((__mmask16)marks, value), eight, front);
            back = _mm512_fmadd_ps(_mm512_maskz_expandloadu_ps((__mmask16)(marks >> 16), value + 8), eight, back);
        }
        float sums[FRUGI_SPARSE_PANEL] = {sum_eight(front, 0), sum_eight(front, 1), sum_eight(back, 0),
                                          sum_eight(back, 1)};
        store_panel(m, panel, sums, y);
    }
}

const frugi_sparse_kernel frugi_sparse_kernel_avx512 = {
    .marks = true,
    .lanes = LANES,
    .slot = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
    .rows = rows_avx512,
    .half = half_avx512,
    .windows = windows_x86,
    .batch = multiply_batch,
    .columns = columns_f32,
    .columns_int8 = columns_int8_x86,
};
