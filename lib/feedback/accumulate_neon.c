/*
 * accumulate_neon.c - the loops of accumulate_kernel.h for 64-bit ARM.
 *
 * As in accumulate_loops.h, but results are checked by one instruction: 0 times a result that is not finite is a NaN,
 * and whatever is added to a NaN stays one.
 */
#include "feedback/accumulate_kernel.h"

#include "layout/partition.h"

#include <arm_neon.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))
#define STEP   16u /* elements of a pass of the loops; blocks are multiples of it */

INLINE float32x4_t spoil(float32x4_t spoiled, float32x4_t result) {
    return vfmaq_f32(spoiled, result, vdupq_n_f32(0.0f));
}

INLINE bool is_spoiled(const float32x4_t *spoiled) {
    float32x4_t all = vaddq_f32(vaddq_f32(spoiled[0], spoiled[1]), vaddq_f32(spoiled[2], spoiled[3]));
    return vminvq_u32(vceqzq_f32(all)) == 0;
}

static bool add(float *restrict acc, const float *restrict grad, float beta, uint32_t n) {
    float before[FRUGI_MAX_BLOCK];
    float32x4_t spoiled[4] = {0};
    for (uint32_t i = 0; i < n; i += STEP)
#pragma GCC unroll 4
        for (uint32_t j = 0; j < STEP / 4; j++) {
            uint32_t at = i + 4 * j;
            float32x4_t old = vld1q_f32(acc + at), sum = vaddq_f32(vmulq_n_f32(old, beta), vld1q_f32(grad + at));
            vst1q_f32(before + at, old);
            vst1q_f32(acc + at, sum);
            spoiled[j] = spoil(spoiled[j], sum);
        }
    if (is_spoiled(spoiled)) {
        memcpy(acc, before, n * sizeof *acc);
        return false;
    }
    return true;
}

/* A sum is not finite where the momentum is not. */
static bool add_dgc(float *restrict acc, float *restrict momentum, const float *restrict grad, float mu, uint32_t n) {
    float before[FRUGI_MAX_BLOCK], before_momentum[FRUGI_MAX_BLOCK];
    float32x4_t spoiled[4] = {0};
    for (uint32_t i = 0; i < n; i += STEP)
#pragma GCC unroll 4
        for (uint32_t j = 0; j < STEP / 4; j++) {
            uint32_t at = i + 4 * j;
            float32x4_t old = vld1q_f32(acc + at), old_momentum = vld1q_f32(momentum + at);
            float32x4_t m = vaddq_f32(vmulq_n_f32(old_momentum, mu), vld1q_f32(grad + at)), sum = vaddq_f32(old, m);
            vst1q_f32(before + at, old);
            vst1q_f32(before_momentum + at, old_momentum);
            vst1q_f32(acc + at, sum);
            vst1q_f32(momentum + at, m);
            spoiled[j] = spoil(spoiled[j], sum);
        }
    if (is_spoiled(spoiled)) {
        memcpy(acc, before, n * sizeof *acc);
        memcpy(momentum, before_momentum, n * sizeof *momentum);
        return false;
    }
    return true;
}

static bool add_ef21(float *restrict acc, float *restrict smoothed, const float *restrict grad, float theta,
                     uint32_t n) {
    float before[FRUGI_MAX_BLOCK], before_smoothed[FRUGI_MAX_BLOCK];
    float32x4_t spoiled[4] = {0};
    for (uint32_t i = 0; i < n; i += STEP)
#pragma GCC unroll 4
        for (uint32_t j = 0; j < STEP / 4; j++) {
            uint32_t at = i + 4 * j;
            float32x4_t old = vld1q_f32(acc + at), old_smoothed = vld1q_f32(smoothed + at);
            float32x4_t change = vmulq_n_f32(vsubq_f32(vld1q_f32(grad + at), old_smoothed), theta);
            float32x4_t sum = vaddq_f32(old, change), smooth = vaddq_f32(old_smoothed, change);
            vst1q_f32(before + at, old);
            vst1q_f32(before_smoothed + at, old_smoothed);
            vst1q_f32(acc + at, sum);
            vst1q_f32(smoothed + at, smooth);
            spoiled[j] = spoil(spoil(spoiled[j], sum), smooth);
        }
    if (is_spoiled(spoiled)) {
        memcpy(acc, before, n * sizeof *acc);
        memcpy(smoothed, before_smoothed, n * sizeof *smoothed);
        return false;
    }
    return true;
}

/* Any number of elements. */
static bool all_finite(const float *x, uint32_t n) {
    float32x4_t spoiled[4] = {0};
    uint32_t i = 0;
    for (; i + STEP <= n; i += STEP)
#pragma GCC unroll 4
        for (uint32_t j = 0; j < STEP / 4; j++)
            spoiled[j] = spoil(spoiled[j], vld1q_f32(x + i + 4 * j));
    float rest = 0.0f;
    for (; i < n; i++)
        rest += x[i] * 0.0f;
    return !is_spoiled(spoiled) && rest == 0.0f;
}

const frugi_accumulate_kernel frugi_accumulate_neon = {add, add_dgc, add_ef21, all_finite};
