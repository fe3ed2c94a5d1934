/*
 * unit_value_lanes.h - vectors for the loops of unit_value_loops.h and unit_value_code.c, and the value codes of less
 * than a byte, and qsgd, as functions of one vector: value to field, and field to value. Auto-vectorization of these
 * loops is several times slower. The including file defines VECTOR, the bytes of a vector: 16, 32 or 64.
 */
#ifndef FRUGI_UNIT_VALUE_LANES_H
#define FRUGI_UNIT_VALUE_LANES_H

#include "base/float_bits.h"
#include "codec/unit_value_code.h"

/* For loops with a function as an argument, which must be inlined to be fast. */
#define ALWAYS_INLINE inline __attribute__((always_inline))

#define LANES (VECTOR / 4u)
#define ROUND 12582912.0f /* 1.5 * 2^23: adding and subtracting it rounds to the nearest integer, ties to even */

typedef float lanes_f32 __attribute__((vector_size(VECTOR)));
typedef int32_t lanes_s32 __attribute__((vector_size(VECTOR)));
typedef uint32_t lanes_u32 __attribute__((vector_size(VECTOR)));

typedef lanes_u32 quantize_fn(const frugi_value_group_scale *s, lanes_f32 x, lanes_u32 random);
typedef lanes_f32 dequantize_fn(const frugi_value_group_scale *s, lanes_u32 field);

static ALWAYS_INLINE lanes_f32 load_lanes(const float *x) {
    lanes_f32 v;
    memcpy(&v, x, sizeof v);
    return v;
}

static ALWAYS_INLINE void store_lanes(float *x, lanes_f32 v) {
    memcpy(x, &v, sizeof v);
}

static ALWAYS_INLINE lanes_f32 apply_sign(lanes_u32 magnitude, lanes_u32 field) {
    return (lanes_f32)(magnitude | field << 31);
}

static ALWAYS_INLINE lanes_u32 select_float(lanes_u32 mask, float yes, float no) {
    return (mask & frugi_f32_bits(yes)) | (~mask & frugi_f32_bits(no));
}

/*
 * Division, not multiplication by the inverse: a quotient below one half must not round up to it. No quotient reaches
 * 7.5: the scale is at least a seventh of the largest magnitude, or less by rounding only.
 */
static ALWAYS_INLINE lanes_u32 quantize_int4(const frugi_value_group_scale *s, lanes_f32 x, lanes_u32 random) {
    lanes_f32 n = (x / (s->a > 0 ? s->a : 1.0f) + ROUND) - ROUND;
    (void)random;
    return (lanes_u32) __builtin_convertvector(n, lanes_s32) & 15u;
}

static ALWAYS_INLINE lanes_f32 dequantize_int4(const frugi_value_group_scale *s, lanes_u32 field) {
    return __builtin_convertvector((lanes_s32)((field ^ 8u) - 8u), lanes_f32) * s->a;
}

static ALWAYS_INLINE lanes_u32 quantize_sign(const frugi_value_group_scale *s, lanes_f32 x, lanes_u32 random) {
    (void)s;
    (void)random;
    return (lanes_u32)x >> 31;
}

static ALWAYS_INLINE lanes_f32 dequantize_sign(const frugi_value_group_scale *s, lanes_u32 field) {
    const lanes_u32 zero = {0};
    return apply_sign(zero + frugi_f32_bits(s->a), field);
}

static ALWAYS_INLINE lanes_u32 quantize_two_bit(const frugi_value_group_scale *s, lanes_f32 x, lanes_u32 random) {
    lanes_u32 u = (lanes_u32)x;
    (void)random;
    return u >> 31 | ((lanes_u32)((lanes_f32)(u & FRUGI_ABS_MASK) >= s->least) & 2u);
}

static ALWAYS_INLINE lanes_f32 dequantize_two_bit(const frugi_value_group_scale *s, lanes_u32 field) {
    return apply_sign(select_float(-(field >> 1), s->b, s->a), field);
}

/* The level with 24 fractional bits, plus a random fraction; the fraction is then truncated. */
static ALWAYS_INLINE lanes_u32 quantize_qsgd(const frugi_value_group_scale *s, lanes_f32 x, lanes_u32 random) {
    lanes_u32 u = (lanes_u32)x;
    lanes_f32 places = (lanes_f32)(u & FRUGI_ABS_MASK) * s->up * s->inverse;
    lanes_u32 level = ((lanes_u32) __builtin_convertvector(places, lanes_s32) + (random >> 8)) >> 24;
    return level << 1 | u >> 31;
}

static ALWAYS_INLINE lanes_f32 dequantize_qsgd(const frugi_value_group_scale *s, lanes_u32 field) {
    lanes_f32 level = __builtin_convertvector((lanes_s32)(field >> 1), lanes_f32);
    return apply_sign((lanes_u32)(level / s->b * s->a), field);
}

static ALWAYS_INLINE lanes_u32 quantize_onebit(const frugi_value_group_scale *s, lanes_f32 x, lanes_u32 random) {
    (void)s;
    (void)random;
    return (lanes_u32)(x < 0.0f) & 1u;
}

static ALWAYS_INLINE lanes_f32 dequantize_onebit(const frugi_value_group_scale *s, lanes_u32 field) {
    return (lanes_f32)select_float(-field, s->b, s->a);
}

#endif
