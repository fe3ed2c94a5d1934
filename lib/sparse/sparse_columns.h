/* sparse_columns.h - the form "columns" of a packed matrix: see sparse_columns.c. */
#ifndef FRUGI_SPARSE_COLUMNS_H
#define FRUGI_SPARSE_COLUMNS_H

#include "sparse/sparse_matrix.h"

/** Bytes of work space for a product. */
size_t frugi_columns_work_bytes(uint32_t cols);

/** y = W x; elements of x that are zero cost nothing. */
void frugi_columns_multiply(const frug_sparse *m, int threads, const float *x, float *y, void *work);

/** Write a row as dense f32. */
void frugi_columns_unpack(const frug_sparse *m, uint32_t row, float *dst);

/** Bytes that frugi_round_vector() writes, and the vector rounded to 16 bits (sparse_multiply.c). */
size_t frugi_rounded_bytes(uint32_t n);
frugi_rounded_vector frugi_round_vector(const float *x, uint32_t n, int8_t *work);

#endif
