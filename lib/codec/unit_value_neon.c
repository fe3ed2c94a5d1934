/* unit_value_neon.c - the loops of unit_value_kernel.h for 64-bit ARM. */
#include <arm_neon.h>

#define VECTOR 16u
#include "codec/unit_value_loops.h"

static ALWAYS_INLINE wide_f64 load_wide(const float *x) {
    return (wide_f64)vcvt_f64_f32(vld1_f32(x));
}

static ALWAYS_INLINE void narrow_step(const lanes_u32 *q, uint8_t *out) {
    uint16x8_t a = vuzp1q_u16((uint16x8_t)q[0], (uint16x8_t)q[1]), b = vuzp1q_u16((uint16x8_t)q[2], (uint16x8_t)q[3]);
    vst1q_u8(out, vuzp1q_u8((uint8x16_t)a, (uint8x16_t)b));
}

const frugi_value_kernel frugi_value_kernel_neon = {sum_magnitudes, sum_squares, split_by_sign,
                                                    split_by_size,  quantize,    frugi_encode_bf16_neon};
