/*
 * unit_value_lanes.h - vectors of 16 bytes for unit_value_code.c and unit_value_scale.c. Auto-vectorization of their
 * loops is several times slower.
 */
#ifndef FRUGI_UNIT_VALUE_LANES_H
#define FRUGI_UNIT_VALUE_LANES_H

#include "base/float_bits.h"

/* For loops with a function as an argument, which must be inlined to be fast. */
#define ALWAYS_INLINE inline __attribute__((always_inline))

typedef float four_f32 __attribute__((vector_size(16)));
typedef int32_t four_s32 __attribute__((vector_size(16)));
typedef uint32_t four_u32 __attribute__((vector_size(16)));
typedef uint16_t eight_u16 __attribute__((vector_size(16)));
typedef uint8_t sixteen_u8 __attribute__((vector_size(16)));
typedef double two_f64 __attribute__((vector_size(16)));

static inline four_f32 load_four(const float *x) {
    four_f32 v;
    memcpy(&v, x, sizeof v);
    return v;
}

static inline void store_four(float *x, four_f32 v) {
    memcpy(x, &v, sizeof v);
}

/* Narrow sixteen numbers below 256 to bytes, and widen them again. */
static inline void narrow_sixteen(const four_u32 *x, uint8_t *out) {
    eight_u16 a = __builtin_shufflevector((eight_u16)x[0], (eight_u16)x[1], 0, 2, 4, 6, 8, 10, 12, 14);
    eight_u16 b = __builtin_shufflevector((eight_u16)x[2], (eight_u16)x[3], 0, 2, 4, 6, 8, 10, 12, 14);
    sixteen_u8 c = __builtin_shufflevector((sixteen_u8)a, (sixteen_u8)b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24,
                                           26, 28, 30);
    memcpy(out, &c, sizeof c);
}

static inline void widen_eight(eight_u16 h, four_u32 *x) {
    const eight_u16 zero = {0};
    x[0] = (four_u32)__builtin_shufflevector(h, zero, 0, 8, 1, 9, 2, 10, 3, 11);
    x[1] = (four_u32)__builtin_shufflevector(h, zero, 4, 12, 5, 13, 6, 14, 7, 15);
}

static inline void widen_sixteen(const uint8_t *in, four_u32 *x) {
    const sixteen_u8 zero = {0};
    sixteen_u8 c;
    memcpy(&c, in, sizeof c);
    widen_eight((eight_u16)__builtin_shufflevector(c, zero, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23), x);
    widen_eight(
        (eight_u16)__builtin_shufflevector(c, zero, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31),
        x + 2);
}

#endif
