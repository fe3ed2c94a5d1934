/* kernels_ref.c - for every CPU: vectors of 4 floats, which gcc and clang turn into SSE2, NEON or scalars. Without
 * convolution: BLAS, which selects its kernels at run time, is faster. */
#define LANES 4

#include "trainer/nn/vectors.h"
#include "trainer/nn/norm_planes.h"
#include "trainer/nn/fastmath.h"

const fgt_kernels fgt_kernels_ref = {NULL, false, NORM_KERNEL, {fgt_max_row, fgt_exp_row}};
