/*
 * sparse_kernel_avx2.c - the products of packed matrices.
 *
 * rows: eight columns at a time. half: a permutation selects four of eight elements for each of two rows. windows: see
 * sparse_windows_x86.h.
 */
#define LANES 16
#include "sparse/sparse_rows.h"
#include "sparse/sparse_windows_x86.h"
#define COLUMN_LANES 8
#include "sparse/sparse_column_lanes.h"
#include "sparse/sparse_columns_x86.h"

static inline float sum_lanes(__m256 v) {
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

/* Eight loads: gathers are slow on some CPUs, and wrong in qemu 7.2 where gcc has the columns in ymm4. */
static inline __m256 add_eight(const frug_sparse *m, const float *x, uint32_t i, __m256 sum) {
    const uint16_t *c = m->columns + i;
    __m256 eight = _mm256_setr_ps(x[c[0]], x[c[1]], x[c[2]], x[c[3]], x[c[4]], x[c[5]], x[c[6]], x[c[7]]);
    return _mm256_fmadd_ps(_mm256_loadu_ps(m->values + i), eight, sum);
}

static void rows_avx2(const frug_sparse *m, const float *x, uint32_t first, uint32_t end, float *y) {
    for (uint32_t r = first * FRUGI_SPARSE_PANEL; r < rows_end(m, end); r++) {
        __m256 even = _mm256_setzero_ps(), odd = even;
        uint32_t i = m->begin[r], stop = m->begin[r + 1];
        for (; i + 16 <= stop; i += 16) {
            even = add_eight(m, x, i, even);
            odd = add_eight(m, x, i + 8, odd);
        }
        if (i < stop)
            even = add_eight(m, x, i, even);
        y[r] = sum_lanes(_mm256_add_ps(even, odd));
    }
}

/* The products of two rows of a panel with four of eight elements each. */
static inline __m256 half_pair(const frug_sparse *m, __m256 x, uint32_t marks, const float *value, __m256 sum) {
    __m128i front = _mm_loadu_si128((const __m128i *)m->lookup[marks & 255]);
    __m128i back = _mm_loadu_si128((const __m128i *)m->lookup[marks >> 8 & 255]);
    __m256 selected = _mm256_permutevar8x32_ps(x, _mm256_set_m128i(back, front));
    return _mm256_fmadd_ps(_mm256_loadu_ps(value), selected, sum);
}

static void half_avx2(const frug_sparse *m, const float *x, uint32_t first, uint32_t end, float *y) {
    const size_t groups = m->cols / 8;
    const unsigned char *bytes = m->bytes + FRUGI_SPARSE_PANEL * groups * first;
    const float *value = m->values + 16 * groups * first;
    for (uint32_t panel = first; panel < end; panel++) {
        __m256 front = _mm256_setzero_ps(), back = front;
        float sums[FRUGI_SPARSE_PANEL];
        for (size_t g = 0; g < groups; g++, bytes += FRUGI_SPARSE_PANEL, value += 16) {
            __m256 eight = _mm256_loadu_ps(x + 8 * g);
            uint32_t marks;
            memcpy(&marks, bytes, sizeof marks);
            front = half_pair(m, eight, marks, value, front);
            back = half_pair(m, eight, marks >> 16, value + 8, back);
        }
        __m256 pairs = _mm256_hadd_ps(front, back); /* rows 0 and 2 in the lower half, 1 and 3 in the upper */
        pairs = _mm256_hadd_ps(pairs, pairs);
        __m128 low = _mm256_castps256_ps128(pairs), high = _mm256_extractf128_ps(pairs, 1);
        _mm_storeu_ps(sums, _mm_unpacklo_ps(low, high));
        store_panel(m, panel, sums, y);
    }
}

const frugi_sparse_kernel frugi_sparse_kernel_avx2 = {
    .lanes = LANES,
    .slot = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
    .lookup_step = 1,
    .rows = rows_avx2,
    .half = half_avx2,
    .windows = windows_x86,
    .batch = multiply_batch,
    .columns = columns_f32,
    .columns_int8 = columns_int8_x86,
};
