/* packed_product_avx2.c - products of large matrices with vectors of eight floats. */
#define LANES        8
#define TILE_ROWS    6
#define TILE_VECTORS 2
#include "optim/packed_product_loops.h"

#include <immintrin.h>

FRUGI_INLINED lanes multiply_add(float a, lanes b, lanes sum) {
    return _mm256_fmadd_ps(_mm256_set1_ps(a), b, sum);
}

const frugi_product_kernel frugi_product_kernel_avx2 = {multiply_columns, TILE_COLS};
