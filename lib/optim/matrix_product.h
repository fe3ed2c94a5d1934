/* matrix_product.h - products of small matrices with a large one, for optimizers of whole tensors. */
#ifndef FRUGI_MATRIX_PRODUCT_H
#define FRUGI_MATRIX_PRODUCT_H

#include <stddef.h>

/** A (m x k) times B (k x n). Entry (i, t) of A is at a[i * a_row + t * a_step]; rows of B are b_step apart. */
typedef struct frugi_product {
    const float *a;
    size_t a_row, a_step;
    const float *b;
    size_t b_step;
    size_t m, n, k;
} frugi_product;

/**
 * c = beta c + alpha A B; rows of c are n apart. With beta = 0, c is not read.
 *
 * Every entry is summed in the order of k, in one float: bits depend neither on threads nor on the machine.
 */
void frugi_multiply(const frugi_product *p, float beta, float alpha, float *c, int threads);

/** y (k x rows) = x (k x cols) times the transpose of g (rows x cols). Sums are in four lanes. */
void frugi_multiply_rows(const float *x, size_t k, const float *g, size_t rows, size_t cols, float *y, int threads);

#endif
