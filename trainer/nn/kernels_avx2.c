/* kernels_avx2.c - AVX2: 16 registers of 8 floats. */
#include <immintrin.h>

#define LANES        8
#define CHANNELS     4
#define VECTORS      3
#define UNROLL       1
#define CHANNELS_MAX 0
#define FRAME_MAX    (1 << 18)

#include "trainer/nn/vectors.h"

static inline float lane_sum(vec v) {
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

#include "trainer/nn/conv_tiles.h"
#include "trainer/nn/norm_planes.h"
#include "trainer/nn/fastmath.h"

static const fgt_conv_kernel conv = CONV_KERNEL;
const fgt_kernels fgt_kernels_avx2 = {&conv, true, NORM_KERNEL, {fgt_max_row, fgt_exp_row}};
