/*
 * packed_product_ref.c - products of large matrices in plain C, and the choice of the variant. Where the processor
 * cannot round a product and a sum once, fmaf() is a slow function: x86-64 without AVX2.
 */
#define LANES        4
#define TILE_ROWS    4
#define TILE_VECTORS 4
#include "optim/packed_product_loops.h"

#include "base/cpu.h"

#include <math.h>

FRUGI_INLINED lanes multiply_add(float a, lanes b, lanes sum) {
    for (int i = 0; i < LANES; i++)
        sum[i] = fmaf(a, b[i], sum[i]);
    return sum;
}

const frugi_product_kernel frugi_product_kernel_ref = {multiply_columns, TILE_COLS};

const frugi_product_kernel *frugi_product_kernel_chosen(void) {
    switch (frugi_isa_chosen()) {
#if defined(__aarch64__)
    case FRUGI_ISA_NEON: return &frugi_product_kernel_neon;
#elif defined(__x86_64__)
    case FRUGI_ISA_AVX2: return &frugi_product_kernel_avx2;
    case FRUGI_ISA_AVX512: return &frugi_product_kernel_avx512;
#endif
    default: return &frugi_product_kernel_ref;
    }
}
