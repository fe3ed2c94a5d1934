/* packed_product_avx512.c - products of large matrices with vectors of sixteen floats. */
#define LANES        16
#define TILE_ROWS    8
#define TILE_VECTORS 3
#include "optim/packed_product_loops.h"

#include <immintrin.h>

FRUGI_INLINED lanes multiply_add(float a, lanes b, lanes sum) {
    return _mm512_fmadd_ps(_mm512_set1_ps(a), b, sum);
}

const frugi_product_kernel frugi_product_kernel_avx512 = {multiply_columns, TILE_COLS};
