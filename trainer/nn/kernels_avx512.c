/* kernels_avx512.c - AVX-512: 32 registers of 16 floats. */
#include <immintrin.h>

#define LANES        16
#define CHANNELS     8
#define VECTORS      3
#define UNROLL       1
#define CHANNELS_MAX 0
#define FRAME_MAX    (1 << 20)

#include "trainer/nn/vectors.h"

static inline float lane_sum(vec v) {
    return _mm512_reduce_add_ps(v);
}

#include "trainer/nn/conv_tiles.h"
#include "trainer/nn/norm_planes.h"
#include "trainer/nn/fastmath.h"

static const fgt_conv_kernel conv = CONV_KERNEL;
const fgt_kernels fgt_kernels_avx512 = {&conv, true, NORM_KERNEL, {fgt_max_row, fgt_exp_row}};
