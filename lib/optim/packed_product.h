/* packed_product.h - products of large matrices, in blocks that fit the caches. */
#ifndef FRUGI_PACKED_PRODUCT_H
#define FRUGI_PACKED_PRODUCT_H

#include <stdbool.h>
#include <stddef.h>

/** Entry (i, j) of a matrix is at data[i * row + j * col]. */
typedef struct frugi_strided {
    const float *data;
    size_t row, col;
} frugi_strided;

/** A (m x k) times B (k x n). symmetric: the product is known to be, and only half of it is computed; m = n. */
typedef struct frugi_large_product {
    frugi_strided a, b;
    size_t m, n, k;
    bool symmetric;
} frugi_large_product;

/**
 * c = beta c + alpha A B; rows of c are n apart. With beta = 0, c is not read.
 *
 * Terms are summed in the order of k in one float, 256 at a time, each product and sum rounded once; these sums are
 * added to c in that order. So bits depend neither on threads nor on the machine.
 */
void frugi_multiply_large(const frugi_large_product *p, float beta, float alpha, float *c, int threads);

/** Its loops, once per instruction set. All give the same bits. */
typedef struct frugi_product_kernel {
    /** Columns j to j + cols - 1 of the result; with `symmetric` the part of them on and below the diagonal. */
    void (*multiply_columns)(const frugi_large_product *p, size_t j, float beta, float alpha, float *c);
    size_t cols;
} frugi_product_kernel;

extern const frugi_product_kernel frugi_product_kernel_ref, frugi_product_kernel_neon, frugi_product_kernel_avx2,
    frugi_product_kernel_avx512;

/** The best variant for this CPU, or the one named by FRUG_ISA. */
const frugi_product_kernel *frugi_product_kernel_chosen(void);

#endif
