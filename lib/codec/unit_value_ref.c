/* unit_value_ref.c - the loops of unit_value_kernel.h for any CPU. */
#define VECTOR 16u
#include "codec/unit_value_loops.h"

typedef uint16_t eight_u16 __attribute__((vector_size(16)));
typedef uint8_t sixteen_u8 __attribute__((vector_size(16)));

static ALWAYS_INLINE wide_f64 load_wide(const float *x) {
    return (wide_f64){(double)x[0], (double)x[1]};
}

static ALWAYS_INLINE void narrow_step(const lanes_u32 *q, uint8_t *out) {
    eight_u16 a = __builtin_shufflevector((eight_u16)q[0], (eight_u16)q[1], 0, 2, 4, 6, 8, 10, 12, 14);
    eight_u16 b = __builtin_shufflevector((eight_u16)q[2], (eight_u16)q[3], 0, 2, 4, 6, 8, 10, 12, 14);
    sixteen_u8 c = __builtin_shufflevector((sixteen_u8)a, (sixteen_u8)b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24,
                                           26, 28, 30);
    memcpy(out, &c, sizeof c);
}

const frugi_value_kernel frugi_value_kernel_ref = {sum_magnitudes, sum_squares, split_by_sign,
                                                   split_by_size,  quantize,    frugi_encode_bf16_ref};
