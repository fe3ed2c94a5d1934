/*
 * fastmath.h - exp, tanh and erf of a vector of floats (vectors.h), for softmax and activations.
 *
 * Written with the compiler's vector types, so that gcc and clang generate vector code without intrinsics. exp is
 * a power of two times a polynomial over half an octave; erf is a polynomial below 1 and 1 - exp(polynomial) above;
 * tanh is a polynomial below 0.625 and a quotient of exponentials above. The polynomials are minimax fits. The relative
 * error is at most 4e-7 (tests/trainer/test_nn_text.c compares with the C library).
 */
#ifndef FGT_FASTMATH_H
#define FGT_FASTMATH_H

#include "trainer/nn/vectors.h"

#include <stddef.h>
#include <string.h>

static inline vec splat(float x) {
    return x - (vec){0};
}

/** yes where the mask has all bits set, no elsewhere. */
static inline vec select_lanes(int_vec mask, vec yes, vec no) {
    return (vec)((mask & (int_vec)yes) | (~mask & (int_vec)no));
}

static inline vec larger(vec a, vec b) {
    return select_lanes((int_vec)(a > b), a, b);
}

static inline float largest_lane(vec v) {
    float most = v[0];
    for (int i = 1; i < LANES; i++)
        most = v[i] > most ? v[i] : most;
    return most;
}

static inline vec magnitude(vec x) {
    return (vec)((int_vec)x & 0x7FFFFFFF);
}

/** The magnitude of a with the sign of s. */
static inline vec with_sign(vec a, vec s) {
    return (vec)(((int_vec)a & 0x7FFFFFFF) | ((int_vec)s & ~0x7FFFFFFF));
}

/** exp(x); 0 below -87, clamped to exp(88) above 88. NaN stays NaN. */
static inline vec fgt_exp(vec x) {
    const float magic = 12582912.0f; /* 1.5 * 2^23: adding it rounds to a whole number in the low bits */
    int_vec low = (int_vec)(x < -87.0f), high = (int_vec)(x > 88.0f);
    x = select_lanes(low, splat(-87.0f), select_lanes(high, splat(88.0f), x)); /* no overflow below, of any x */
    vec shifted = x * 1.44269504f + magic, n = shifted - magic;
    vec r = (x - n * 0.693359375f) + n * 2.12194440e-4f; /* ln 2 in two parts */
    vec p = r * 1.3951668e-3f + 8.3696028e-3f;
    p = p * r + 4.1666187e-2f;
    p = p * r + 1.6666513e-1f;
    p = p * r + 0.5f;
    p = p * (r * r) + r + 1.0f;
    int_vec power = ((int_vec)shifted - 0x4B400000 + 127) << 23;
    return (vec)((int_vec)(p * (vec)power) & ~low);
}

static inline vec fgt_tanh(vec x) {
    vec z = x * x, a = magnitude(x);
    vec p = z * -5.7170380e-3f + 2.0650582e-2f;
    p = p * z - 5.3743500e-2f;
    p = p * z + 1.3331491e-1f;
    p = p * z - 3.3333284e-1f;
    p = p * z * x + x;
    vec far = 1.0f - 2.0f / (fgt_exp(a + a) + 1.0f);
    return select_lanes((int_vec)(a < 0.625f), p, with_sign(far, x));
}

static inline vec fgt_erf(vec x) {
    vec z = x * x, a = magnitude(x);
    vec p = z * 7.8538577e-5f - 8.0101925e-4f;
    p = p * z + 5.1883276e-3f;
    p = p * z - 2.6853812e-2f;
    p = p * z + 1.1283585e-1f;
    p = p * z - 3.7612626e-1f;
    p = p * z + 1.1283792f;
    int_vec beyond = (int_vec)(a > 4.0f);
    a = select_lanes(beyond, splat(4.0f), a); /* where 1 - erf is below the last bit of 1 */
    vec q = a * 1.8557489e-4f - 2.9396157e-3f;
    q = q * a + 2.1805351e-2f;
    q = q * a - 1.0303744e-1f;
    q = q * a - 6.3822560e-1f;
    q = q * a - 1.1270401f;
    q = q * a - 3.5370892e-4f;
    return select_lanes((int_vec)(a < 1.0f), p * x, with_sign(1.0f - fgt_exp(q), x));
}

/** y[i] = exp(x[i] - shift) for n numbers; returns their sum. x and y may be the same. */
static inline float fgt_exp_row(float *y, const float *x, size_t n, float shift) {
    vec sum[4] = {0};
    size_t i = 0;
    for (; i + 4 * LANES <= n; i += 4 * LANES)
        for (size_t j = 0; j < 4; j++) {
            vec e = fgt_exp(load(x + i + LANES * j) - shift);
            store(y + i + LANES * j, e);
            sum[j] += e;
        }
    float total = lane_sum((sum[0] + sum[1]) + (sum[2] + sum[3]));
    for (; i < n; i += LANES) {
        size_t count = n - i < LANES ? n - i : LANES;
        vec e = {0};
        memcpy(&e, x + i, count * sizeof *x);
        e = fgt_exp(e - shift);
        memcpy(y + i, &e, count * sizeof *y);
        for (size_t j = 0; j < count; j++)
            total += e[j];
    }
    return total;
}

/** The largest of n >= 1 numbers. */
static inline float fgt_max_row(const float *x, size_t n) {
    vec most[4] = {splat(x[0]), splat(x[0]), splat(x[0]), splat(x[0])};
    size_t i = 0;
    for (; i + 4 * LANES <= n; i += 4 * LANES)
        for (size_t j = 0; j < 4; j++)
            most[j] = larger(load(x + i + LANES * j), most[j]);
    float best = largest_lane(larger(larger(most[0], most[1]), larger(most[2], most[3])));
    for (; i < n; i++)
        best = x[i] > best ? x[i] : best;
    return best;
}

#endif
