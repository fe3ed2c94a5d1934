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
 * Terms are summed in the order of k in one float, 256 at a time, and these sums are added to c in that order: bits
 * depend neither on threads nor on the machine.
 */
void frugi_multiply_large(const frugi_large_product *p, float beta, float alpha, float *c, int threads);

#endif
