/* kernels_neon.c - NEON: 32 registers of 4 floats. */
#define LANES        4
#define CHANNELS     4
#define VECTORS      6
#define UNROLL       3
#define CHANNELS_MAX 128
#define FRAME_MAX    (1 << 13)

#include "trainer/nn/vectors.h"
#include "trainer/nn/conv_tiles.h"
#include "trainer/nn/norm_planes.h"
#include "trainer/nn/fastmath.h"

static const fgt_conv_kernel conv = CONV_KERNEL;
const fgt_kernels fgt_kernels_neon = {&conv, false, NORM_KERNEL, {fgt_max_row, fgt_exp_row}};
