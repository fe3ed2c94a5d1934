/*
 * fastmath.h - exp, tanh and erf of four floats at a time, for softmax and activations.
 *
 * Written with the compiler's vector types, so that gcc and clang generate NEON or SSE2 code without intrinsics. exp is
 * a power of two times a polynomial over half an octave; erf is a polynomial below 1 and 1 - exp(polynomial) above;
 * tanh is a polynomial below 0.625 and a quotient of exponentials above. The polynomials are minimax fits. The relative
 * error is at most 4e-7 (tests/trainer/test_nn_text.c compares with the C library).
 */
#ifndef FGT_FASTMATH_H
#define FGT_FASTMATH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef float fgt_f4 __attribute__((vector_size(16)));
typedef int32_t fgt_i4 __attribute__((vector_size(16)));

static inline fgt_f4 fgt_f4_load(const float *p) {
    fgt_f4 v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline void fgt_f4_store(float *p, fgt_f4 v) {
    memcpy(p, &v, sizeof v);
}

static inline fgt_f4 fgt_f4_splat(float x) {
    return (fgt_f4){x, x, x, x};
}

static inline float fgt_f4_sum(fgt_f4 v) {
    return (v[0] + v[1]) + (v[2] + v[3]);
}

/** yes where the mask has all bits set, no elsewhere. */
static inline fgt_f4 fgt_f4_select(fgt_i4 mask, fgt_f4 yes, fgt_f4 no) {
    return (fgt_f4)((mask & (fgt_i4)yes) | (~mask & (fgt_i4)no));
}

static inline fgt_f4 fgt_f4_max(fgt_f4 a, fgt_f4 b) {
    return fgt_f4_select((fgt_i4)(a > b), a, b);
}

static inline float fgt_f4_max_lane(fgt_f4 v) {
    float a = v[0] > v[1] ? v[0] : v[1], b = v[2] > v[3] ? v[2] : v[3];
    return a > b ? a : b;
}

static inline fgt_f4 fgt_f4_abs(fgt_f4 x) {
    return (fgt_f4)((fgt_i4)x & 0x7FFFFFFF);
}

/** The magnitude of a with the sign of s. */
static inline fgt_f4 fgt_f4_copysign(fgt_f4 a, fgt_f4 s) {
    return (fgt_f4)(((fgt_i4)a & 0x7FFFFFFF) | ((fgt_i4)s & ~0x7FFFFFFF));
}

/** exp(x); 0 below -87, clamped to exp(88) above 88. NaN stays NaN. */
static inline fgt_f4 fgt_exp4(fgt_f4 x) {
    const float magic = 12582912.0f; /* 1.5 * 2^23: adding it rounds to a whole number in the low bits */
    fgt_i4 low = (fgt_i4)(x < -87.0f), high = (fgt_i4)(x > 88.0f);
    x = fgt_f4_select(high, fgt_f4_splat(88.0f), x);
    fgt_f4 shifted = x * 1.44269504f + magic, n = shifted - magic;
    fgt_f4 r = (x - n * 0.693359375f) + n * 2.12194440e-4f; /* ln 2 in two parts */
    fgt_f4 p = r * 1.3951668e-3f + 8.3696028e-3f;
    p = p * r + 4.1666187e-2f;
    p = p * r + 1.6666513e-1f;
    p = p * r + 0.5f;
    p = p * (r * r) + r + 1.0f;
    fgt_i4 power = ((fgt_i4)shifted - 0x4B400000 + 127) << 23;
    return (fgt_f4)((fgt_i4)(p * (fgt_f4)power) & ~low);
}

static inline fgt_f4 fgt_tanh4(fgt_f4 x) {
    fgt_f4 z = x * x, a = fgt_f4_abs(x);
    fgt_f4 p = z * -5.7170380e-3f + 2.0650582e-2f;
    p = p * z - 5.3743500e-2f;
    p = p * z + 1.3331491e-1f;
    p = p * z - 3.3333284e-1f;
    p = p * z * x + x;
    fgt_f4 far = 1.0f - 2.0f / (fgt_exp4(a + a) + 1.0f);
    return fgt_f4_select((fgt_i4)(a < 0.625f), p, fgt_f4_copysign(far, x));
}

static inline fgt_f4 fgt_erf4(fgt_f4 x) {
    fgt_f4 z = x * x, a = fgt_f4_abs(x);
    fgt_f4 p = z * 7.8538577e-5f - 8.0101925e-4f;
    p = p * z + 5.1883276e-3f;
    p = p * z - 2.6853812e-2f;
    p = p * z + 1.1283585e-1f;
    p = p * z - 3.7612626e-1f;
    p = p * z + 1.1283792f;
    fgt_i4 beyond = (fgt_i4)(a > 4.0f);
    a = fgt_f4_select(beyond, fgt_f4_splat(4.0f), a); /* where 1 - erf is below the last bit of 1 */
    fgt_f4 q = a * 1.8557489e-4f - 2.9396157e-3f;
    q = q * a + 2.1805351e-2f;
    q = q * a - 1.0303744e-1f;
    q = q * a - 6.3822560e-1f;
    q = q * a - 1.1270401f;
    q = q * a - 3.5370892e-4f;
    return fgt_f4_select((fgt_i4)(a < 1.0f), p * x, fgt_f4_copysign(1.0f - fgt_exp4(q), x));
}

/** y[i] = exp(x[i] - shift) for n numbers; returns their sum. x and y may be the same. */
static inline float fgt_exp_row(float *y, const float *x, size_t n, float shift) {
    fgt_f4 sum[4] = {0};
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        for (size_t j = 0; j < 4; j++) {
            fgt_f4 e = fgt_exp4(fgt_f4_load(x + i + 4 * j) - shift);
            fgt_f4_store(y + i + 4 * j, e);
            sum[j] += e;
        }
    float total = fgt_f4_sum((sum[0] + sum[1]) + (sum[2] + sum[3]));
    for (; i < n; i += 4) {
        size_t count = n - i < 4 ? n - i : 4;
        fgt_f4 e = {0};
        memcpy(&e, x + i, count * sizeof *x);
        e = fgt_exp4(e - shift);
        memcpy(y + i, &e, count * sizeof *y);
        for (size_t j = 0; j < count; j++)
            total += e[j];
    }
    return total;
}

/** The largest of n >= 1 numbers. */
static inline float fgt_max_row(const float *x, size_t n) {
    fgt_f4 most[4] = {fgt_f4_splat(x[0]), fgt_f4_splat(x[0]), fgt_f4_splat(x[0]), fgt_f4_splat(x[0])};
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        for (size_t j = 0; j < 4; j++)
            most[j] = fgt_f4_max(fgt_f4_load(x + i + 4 * j), most[j]);
    float best = fgt_f4_max_lane(fgt_f4_max(fgt_f4_max(most[0], most[1]), fgt_f4_max(most[2], most[3])));
    for (; i < n; i++)
        best = x[i] > best ? x[i] : best;
    return best;
}

#endif
