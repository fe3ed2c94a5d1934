/* gemm.h - products of matrices, whole or cut into tiles that threads share. */
#ifndef FGT_GEMM_H
#define FGT_GEMM_H

#include <stdbool.h>
#include <stddef.h>

/** A matrix as it lies in memory, row by row; turned: its transpose is meant. */
typedef struct fgt_matrix {
    const float *data;
    size_t stride; /* floats from one row in memory to the next */
    bool transposed;
} fgt_matrix;

/** c (m x n, rows `stride` apart) = scale * a (m x k) * b (k x n) + keep * c, by one call of BLAS. */
void fgt_gemm_single(size_t m, size_t n, size_t k, float alpha, fgt_matrix a, fgt_matrix b, float beta, float *c,
                     size_t stride);

/** The same, cut into tiles that threads share. How it is cut depends on m and n alone, so the bits do not depend on
 * the number of threads. */
void fgt_gemm(int threads, size_t m, size_t n, size_t k, float alpha, fgt_matrix a, fgt_matrix b, float beta, float *c,
              size_t stride);

#endif
