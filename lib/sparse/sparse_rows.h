/* sparse_rows.h - what the variants of the kernels share: ends of panels, bits, and the product with several vectors.
 * A file that includes it defines LANES, the vectors of a batch. */
#ifndef FRUGI_SPARSE_ROWS_H
#define FRUGI_SPARSE_ROWS_H

#include "sparse/sparse_matrix.h"

#include <string.h>

typedef float half_lanes __attribute__((vector_size(2 * LANES)));
typedef float unaligned_lanes __attribute__((vector_size(2 * LANES), aligned(4), may_alias));

/* One sum for each vector of a batch. Two registers with names: gcc keeps longer vectors and arrays in memory. */
typedef struct batch_lanes {
    half_lanes front, back;
} batch_lanes;

/* The end of the rows of panels before `end`. */
static inline uint32_t rows_end(const frug_sparse *m, uint32_t end) {
    uint32_t rows = end * FRUGI_SPARSE_PANEL;
    return rows < m->rows ? rows : m->rows;
}

/* Store four sums of a panel; the last panel may have fewer rows. */
static inline void store_panel(const frug_sparse *m, uint32_t panel, const float sums[FRUGI_SPARSE_PANEL], float *y) {
    uint32_t row = panel * FRUGI_SPARSE_PANEL;
    memcpy(y + row, sums, (rows_end(m, panel + 1) - row) * sizeof *y);
}

/* The sums of a panel of int8 weights, from those of both halves of the rounded vector. */
static inline void store_windows(const frug_sparse *m, const frugi_rounded_vector *x, uint32_t panel,
                                 const int32_t high[FRUGI_SPARSE_PANEL], const int32_t low[FRUGI_SPARSE_PANEL],
                                 float *y) {
    uint32_t first = panel * FRUGI_SPARSE_PANEL, end = rows_end(m, panel + 1);
    for (uint32_t r = first; r < end; r++) {
        double sum = 255.0 * (double)high[r - first] + (double)low[r - first]; /* exact */
        y[r] = (float)(sum * ((double)m->scale[r] * (double)x->scale));
    }
}

/* ---- several vectors ---------------------------------------------------------------------------- */

static inline batch_lanes add_product(batch_lanes sum, float w, const float *x, uint32_t column) {
    const float *at = x + (size_t)column * LANES;
    sum.front += w * *(const unaligned_lanes *)at;
    sum.back += w * *(const unaligned_lanes *)(at + LANES / 2);
    return sum;
}

static inline void store_lanes(batch_lanes sum, float scale, uint32_t count, float *y, size_t stride) {
    float sums[LANES];
    memcpy(sums, &sum.front, sizeof sum.front);
    memcpy(sums + LANES / 2, &sum.back, sizeof sum.back);
    for (uint32_t i = 0; i < count; i++)
        y[i * stride] = sums[i] * scale;
}

/* Not inlined: where the sums of several forms meet, gcc keeps them in memory. */
static __attribute__((noinline)) batch_lanes marked_row(const frug_sparse *m, uint32_t row, const float *x) {
    const size_t words = frugi_sparse_mark_words(m);
    const uint16_t *marks = m->marks + row * words;
    const float *value = m->values + m->begin[row];
    batch_lanes sum = {{0}, {0}};
    for (size_t i = 0; i < words; i++)
        for (uint32_t bits = marks[i]; bits; bits &= bits - 1)
            sum = add_product(sum, *value++, x, (uint32_t)(16 * i) + (uint32_t)__builtin_ctz(bits));
    return sum;
}

static __attribute__((noinline)) batch_lanes listed_row(const frug_sparse *m, uint32_t row, const float *x) {
    batch_lanes sum = {{0}, {0}};
    for (uint32_t i = m->begin[row]; i < m->begin[row + 1]; i++)
        sum = add_product(sum, m->values[i], x, m->columns[i]);
    return sum;
}

static __attribute__((noinline)) batch_lanes half_row(const frug_sparse *m, uint32_t row, const float *x) {
    const uint32_t groups = m->cols / 8, at = row % FRUGI_SPARSE_PANEL;
    const size_t panel = (size_t)(row / FRUGI_SPARSE_PANEL) * groups * FRUGI_SPARSE_PANEL;
    batch_lanes sum = {{0}, {0}};
    for (uint32_t g = 0; g < groups; g++) {
        const float *value = m->values + 4 * (panel + FRUGI_SPARSE_PANEL * g + at);
        for (uint32_t bits = m->bytes[panel + FRUGI_SPARSE_PANEL * g + at]; bits; bits &= bits - 1)
            sum = add_product(sum, *value++, x, 8 * g + (uint32_t)__builtin_ctz(bits));
    }
    return sum;
}

static __attribute__((noinline)) batch_lanes window_row(const frug_sparse *m, uint32_t row, const float *x) {
    const uint32_t panel = row / FRUGI_SPARSE_PANEL;
    const uint8_t *slot = m->kernel->slot + 4 * (row % FRUGI_SPARSE_PANEL);
    batch_lanes sum = {{0}, {0}};
    for (uint32_t s = m->begin[panel]; s < m->begin[panel + 1]; s++) {
        const unsigned char *step = m->bytes + (size_t)FRUGI_SPARSE_STEP * s;
        for (uint32_t i = 0; i < 4; i++) {
            float w = (float)(int8_t)step[16 + slot[i]]; /* 0 if the slot is empty */
            sum = add_product(sum, w, x, (uint32_t)m->base[s] + step[slot[i]]);
        }
    }
    return sum;
}

static void multiply_batch(const frug_sparse *m, const float *x, uint32_t first, uint32_t end, uint32_t count, float *y,
                           size_t y_stride) {
    for (uint32_t r = first * FRUGI_SPARSE_PANEL; r < rows_end(m, end); r++) {
        batch_lanes sum = m->form == FRUGI_SPARSE_WINDOWS ? window_row(m, r, x)
                          : m->form == FRUGI_SPARSE_HALF  ? half_row(m, r, x)
                          : m->columns                    ? listed_row(m, r, x)
                                                          : marked_row(m, r, x);
        store_lanes(sum, m->scale ? m->scale[r] : 1.0f, count, y + r, y_stride);
    }
}

#endif
