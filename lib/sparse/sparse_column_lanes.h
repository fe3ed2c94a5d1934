/* sparse_column_lanes.h - sums of eight columns of f32. A file that includes it defines COLUMN_LANES, the floats of a
 * vector. */
#ifndef FRUGI_SPARSE_COLUMN_LANES_H
#define FRUGI_SPARSE_COLUMN_LANES_H

#include "sparse/sparse_kernel.h"

typedef float column_lanes __attribute__((vector_size(4 * COLUMN_LANES), aligned(4), may_alias));

enum { COLUMN_PARTS = FRUGI_COLUMN_ROWS / COLUMN_LANES, FLOATS_AHEAD = 128 };

/* 16 rows at a time; each column is fetched eight lines ahead, which prefetchers do too late for eight columns. */
static void columns_f32(const float *const column[FRUGI_COLUMNS_AT_ONCE], const float x[FRUGI_COLUMNS_AT_ONCE],
                        uint32_t rows, float *sums) {
    for (uint32_t r = 0; r < rows; r += FRUGI_COLUMN_ROWS) {
        column_lanes sum[COLUMN_PARTS];
#pragma GCC unroll 4
        for (uint32_t i = 0; i < COLUMN_PARTS; i++)
            sum[i] = *(const column_lanes *)(sums + r + i * COLUMN_LANES);
#pragma GCC unroll 8
        for (uint32_t j = 0; j < FRUGI_COLUMNS_AT_ONCE; j++) {
            __builtin_prefetch(column[j] + r + FLOATS_AHEAD);
#pragma GCC unroll 4
            for (uint32_t i = 0; i < COLUMN_PARTS; i++)
                sum[i] += x[j] * *(const column_lanes *)(column[j] + r + i * COLUMN_LANES);
        }
#pragma GCC unroll 4
        for (uint32_t i = 0; i < COLUMN_PARTS; i++)
            *(column_lanes *)(sums + r + i * COLUMN_LANES) = sum[i];
    }
}

#endif
