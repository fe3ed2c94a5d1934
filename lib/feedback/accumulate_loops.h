/*
 * accumulate_loops.h - the loops of accumulate_kernel.h; the body of their variants.
 *
 * One loop computes, checks and stores, and saves what it overwrites in the L1 cache, to be restored if a result is not
 * finite. Compilers vectorize all loops.
 */
#include "feedback/accumulate_kernel.h"

#include "base/float_bits.h"
#include "layout/partition.h"

static inline uint32_t larger(uint32_t most, float x) {
    return frugi_magnitude(x) > most ? frugi_magnitude(x) : most;
}

static bool all_finite(const float *x, uint32_t n) {
    uint32_t most = 0;
#pragma GCC unroll 4
    for (uint32_t i = 0; i < n; i++)
        most = larger(most, x[i]);
    return most < FRUGI_INF_BITS;
}

static bool add(float *restrict acc, const float *restrict grad, float beta, uint32_t n) {
    float before[FRUGI_MAX_BLOCK];
    uint32_t most = 0;
#pragma GCC unroll 4
    for (uint32_t i = 0; i < n; i++) {
        float old = acc[i], sum = beta * old + grad[i];
        most = larger(most, sum);
        before[i] = old;
        acc[i] = sum;
    }
    if (most >= FRUGI_INF_BITS)
        memcpy(acc, before, n * sizeof *acc);
    return most < FRUGI_INF_BITS;
}

static bool add_dgc(float *restrict acc, float *restrict momentum, const float *restrict grad, float mu, uint32_t n) {
    float before[FRUGI_MAX_BLOCK], before_momentum[FRUGI_MAX_BLOCK];
    uint32_t most = 0;
#pragma GCC unroll 4
    for (uint32_t i = 0; i < n; i++) {
        float old = acc[i], old_momentum = momentum[i], m = mu * old_momentum + grad[i], sum = old + m;
        most = larger(larger(most, m), sum);
        before[i] = old;
        before_momentum[i] = old_momentum;
        acc[i] = sum;
        momentum[i] = m;
    }
    if (most >= FRUGI_INF_BITS) {
        memcpy(acc, before, n * sizeof *acc);
        memcpy(momentum, before_momentum, n * sizeof *momentum);
    }
    return most < FRUGI_INF_BITS;
}

static bool add_ef21(float *restrict acc, float *restrict smoothed, const float *restrict grad, float theta,
                     uint32_t n) {
    float before[FRUGI_MAX_BLOCK], before_smoothed[FRUGI_MAX_BLOCK];
    uint32_t most = 0;
#pragma GCC unroll 4
    for (uint32_t i = 0; i < n; i++) {
        float old = acc[i], old_smoothed = smoothed[i], change = theta * (grad[i] - old_smoothed);
        float sum = old + change, smooth = old_smoothed + change;
        most = larger(larger(most, smooth), sum);
        before[i] = old;
        before_smoothed[i] = old_smoothed;
        acc[i] = sum;
        smoothed[i] = smooth;
    }
    if (most >= FRUGI_INF_BITS) {
        memcpy(acc, before, n * sizeof *acc);
        memcpy(smoothed, before_smoothed, n * sizeof *smoothed);
    }
    return most < FRUGI_INF_BITS;
}
