/*
 * sparse.h - matrices of weights that are mostly zero, kept packed in memory and multiplied as they are.
 *
 *   frug_sparse_create(w, rows, cols, 0, FRUG_SPARSE_F32, &m)   pack
 *   frug_sparse_multiply(m, 1, x, 1, cols, y, rows, work)       y = W x
 *
 * Entries are the weights that are not zero. They are stored as f32, or as int8 with one scale for each row. A matrix
 * is read by any number of threads at once; each needs a work space of its own.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef FRUGRAD_SPARSE_H
#define FRUGRAD_SPARSE_H

#include <frugrad/core.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct frug_sparse frug_sparse;

typedef enum frug_sparse_code {
    FRUG_SPARSE_F32 = 0,
    FRUG_SPARSE_INT8 = 1 /* weights become q * scale, scale = largest magnitude of the row / 127, q to nearest */
} frug_sparse_code;

/** What a matrix is and needs. */
typedef struct frug_sparse_info {
    size_t struct_size; /* sizeof(frug_sparse_info), set by the caller */
    uint32_t rows, cols;
    frug_sparse_code code;
    const char *form;  /* how it is stored: "rows", "half" (4 of every 8 columns), "windows" or "columns" */
    uint64_t entries;  /* weights that are not zero */
    size_t bytes;      /* of memory */
    size_t work_bytes; /* of the work space of frug_sparse_multiply() */
} frug_sparse_info;

/**
 * Pack a matrix; the zeros of w are left out.
 *
 *   w             rows x cols, row-major: rows are outputs, columns inputs
 *   input_first   w is cols x rows instead, as the weights of GPT-2
 *
 * At most 65536 columns and 2^32 - 1 entries. Returns FRUG_ERR_ARG (sizes; a NaN or an infinity), FRUG_ERR_CONFIG
 * (FRUG_ISA), FRUG_ERR_MEMORY.
 */
FRUG_CHECK frug_status frug_sparse_create(const float *w, uint32_t rows, uint32_t cols, int input_first,
                                          frug_sparse_code code, frug_sparse **matrix);
/**
 * Pack a matrix that is multiplied by vectors of which many elements are zero, as activations below a threshold: all
 * weights are stored, column by column, and columns of elements that are zero are not read. Otherwise as above.
 *
 * Its products have the same bits in all variants; several vectors are multiplied one after the other, and int8 rounds
 * each of them to 16 bits.
 */
FRUG_CHECK frug_status frug_sparse_create_columns(const float *w, uint32_t rows, uint32_t cols, int input_first,
                                                  frug_sparse_code code, frug_sparse **matrix);
FRUG_API void frug_sparse_destroy(frug_sparse *matrix);

FRUG_CHECK frug_status frug_sparse_get_info(const frug_sparse *matrix, frug_sparse_info *info);

/**
 * y = W x for one vector or several. x must be finite.
 *
 *   threads     that share the rows; the result does not depend on it
 *   x           n vectors of cols floats, x_stride floats apart
 *   y           n vectors of rows floats, y_stride floats apart; written
 *   work        info.work_bytes, aligned as floats
 *
 * f32: sums are in f32, in an order that depends on the variant for n = 1 and not for n > 1. int8: a single vector is
 * rounded to 16 bits, relative to its largest magnitude, and sums are exact, so that all variants give the same bits;
 * several vectors are not rounded. Cost of n > 1: n rounded up to a multiple of 8 or 16, by variant. Allocates
 * nothing, cannot fail.
 */
FRUG_API void frug_sparse_multiply(const frug_sparse *matrix, int threads, const float *x, size_t n, size_t x_stride,
                                   float *y, size_t y_stride, void *work);

/** Write some rows as dense f32: count x cols. For products with many vectors, where a dense product is faster. */
FRUG_API void frug_sparse_unpack(const frug_sparse *matrix, uint32_t first, uint32_t count, float *dst);

#ifdef __cplusplus
}
#endif

#endif
