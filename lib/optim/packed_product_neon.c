/* packed_product_neon.c - products of large matrices with vectors of four floats. */
#define LANES        4
#define TILE_ROWS    4
#define TILE_VECTORS 4
#include "optim/packed_product_loops.h"

#include <arm_neon.h>

FRUGI_INLINED lanes multiply_add(float a, lanes b, lanes sum) {
    return vfmaq_n_f32(sum, b, a);
}

const frugi_product_kernel frugi_product_kernel_neon = {multiply_columns, TILE_COLS};
