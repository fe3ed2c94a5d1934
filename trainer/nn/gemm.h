/* gemm.h - products of matrices, whole or cut into tiles that threads share. */
#ifndef FRUGI_GEMM_H
#define FRUGI_GEMM_H

#include <stdbool.h>
#include <stddef.h>

/** A matrix as it lies in memory, row by row; turned: its transpose is meant. */
typedef struct frugi_matrix {
    const float *data;
    size_t stride; /* floats from one row in memory to the next */
    bool turned;
} frugi_matrix;

/** c (m x n, rows `stride` apart) = scale * a (m x k) * b (k x n) + keep * c, by one call of BLAS. */
void frugi_gemm_whole(size_t m, size_t n, size_t k, float scale, frugi_matrix a, frugi_matrix b, float keep, float *c,
                      size_t stride);

/** The same, cut into tiles that threads share. How it is cut depends on m and n alone, so the bits do not depend on
 * the number of threads. */
void frugi_gemm(int threads, size_t m, size_t n, size_t k, float scale, frugi_matrix a, frugi_matrix b, float keep,
                float *c, size_t stride);

#endif
