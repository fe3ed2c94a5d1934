/*
 * sparse_kernel.h - the products of a packed matrix, and their variants. Ranges are of panels; y begins at row 0.
 */
#ifndef FRUGI_SPARSE_KERNEL_H
#define FRUGI_SPARSE_KERNEL_H

#include "base/cpu.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FRUGI_COLUMNS_AT_ONCE 8u  /* form columns */
#define FRUGI_COLUMN_ROWS     16u /* the rows of a column are a multiple of it */

struct frug_sparse;

/** A vector rounded to 16 bits: x[i] = (255 high[i] + low[i]) * scale, where high and low are within -127 to 127. */
typedef struct frugi_rounded_vector {
    const int8_t *high, *low; /* with 32 zeros behind the last column */
    float scale;
} frugi_rounded_vector;

typedef struct frugi_sparse_kernel {
    bool marks;                         /* of the form rows: marks instead of columns */
    uint32_t lanes;                     /* vectors of a batch */
    uint8_t slot[16];                   /* windows: the slot of entry i of row r of a panel is slot[4 r + i] */
    uint32_t lookup_first, lookup_step; /* half: bit b of a byte of marks is lookup_first + b * lookup_step */
    void (*rows)(const struct frug_sparse *m, const float *x, uint32_t first, uint32_t end, float *y);
    void (*half)(const struct frug_sparse *m, const float *x, uint32_t first, uint32_t end, float *y);
    void (*windows)(const struct frug_sparse *m, const frugi_rounded_vector *x, uint32_t first, uint32_t end, float *y);
    /** `lanes` vectors at once, in any form. x: element c of all vectors, for every column c. Vectors from count on are
     *  padding. Each sum is in the order of the columns, product by product, so that all variants give the same bits.
     */
    void (*batch)(const struct frug_sparse *m, const float *x, uint32_t first, uint32_t end, uint32_t count, float *y,
                  size_t y_stride);
    /** Add x[j] times column j to the sums of some rows, a multiple of 16, for one column after the other; f32. */
    void (*columns)(const float *const column[FRUGI_COLUMNS_AT_ONCE], const float x[FRUGI_COLUMNS_AT_ONCE],
                    uint32_t rows, float *sums);
    /** The same for both halves of the elements of a rounded vector; int8. */
    void (*columns_int8)(const int8_t *const column[FRUGI_COLUMNS_AT_ONCE], const int8_t high[FRUGI_COLUMNS_AT_ONCE],
                         const int8_t low[FRUGI_COLUMNS_AT_ONCE], uint32_t rows, int32_t *high_sums, int32_t *low_sums);
} frugi_sparse_kernel;

/** The kernel of a variant; of NEON, frugi_sparse_kernel_dot where the CPU has its instruction. */
const frugi_sparse_kernel *frugi_sparse_kernel_for(frugi_isa isa);

extern const frugi_sparse_kernel frugi_sparse_kernel_ref, frugi_sparse_kernel_neon, frugi_sparse_kernel_dot,
    frugi_sparse_kernel_avx2, frugi_sparse_kernel_avx512;

#endif
