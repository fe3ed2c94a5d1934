/* gemm.h - matrix products, by one call of BLAS or of our own kernels, or split into tiles for several threads. */
#ifndef FGT_GEMM_H
#define FGT_GEMM_H

#include "trainer/nn/kernels.h"

/** A row-major matrix in memory; transposed: the operand is its transpose. */
typedef struct fgt_matrix {
    const float *data;
    size_t stride; /* floats from one row in memory to the next */
    bool transposed;
} fgt_matrix;

/** c (m x n, row stride `stride`) = alpha * a (m x k) * b (k x n) + beta * c, by one thread: by BLAS, or, where the
 * variant in use has kernels for it, by oneDNN or fgt_gemm_packed(). */
void fgt_gemm_single(size_t m, size_t n, size_t k, float alpha, fgt_matrix a, fgt_matrix b, float beta, float *c,
                     size_t stride);

/** The same by the kernels of direct convolution (gemm_packed.c). */
void fgt_gemm_packed(const fgt_conv_kernel *k, size_t m, size_t n, size_t depth, float alpha, fgt_matrix a,
                     fgt_matrix b, float beta, float *c, size_t stride);

#if defined(FGT_HAVE_ONEDNN)
/** The same by oneDNN (gemm_onednn.c); false without memory. */
bool fgt_gemm_onednn(size_t m, size_t n, size_t k, float alpha, fgt_matrix a, fgt_matrix b, float beta, float *c,
                     size_t stride);
#endif

/** The same, split into tiles for several threads. The tiles depend on m and n alone, so the result does not depend on
 * the number of threads. */
void fgt_gemm(int threads, size_t m, size_t n, size_t k, float alpha, fgt_matrix a, fgt_matrix b, float beta, float *c,
              size_t stride);

/** y (n) = x (k) * b (k x n) + beta * y, for one vector: the weights are read once and not packed. */
void fgt_gemv(int threads, size_t n, size_t k, const float *x, fgt_matrix b, float beta, float *y);

enum { FGT_GEMV_PARTS = 8 };

/** The same for a `b` that is not transposed, with whole rows at a time: pieces of rows of a large matrix are read at a
 * third of the speed. `work` has FGT_GEMV_PARTS * n floats. The result does not depend on the number of threads. */
void fgt_gemv_rows(int threads, size_t n, size_t k, const float *x, fgt_matrix b, float beta, float *y, float *work);

#endif
