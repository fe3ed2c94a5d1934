/*
 * bench_noise.c - generated gradients.
 *
 * Every element is a function of seed and index, so threads need no state and any part can be generated again. A 64-bit
 * mix of the counter gives two uniform numbers, which the distribution turns into two elements. "layers" is the one
 * most like a real gradient: the scale differs from row to row by up to 256 and stays the same from step to step.
 */
#include "program/bench/bench_noise.h"

#include <math.h>
#include <stddef.h>

#define ROW   4096u
#define SCALE 1e-3f

const char *const fgp_dist_names[] = {"gaussian", "laplace", "heavy", "layers", "sparse", "ties", NULL};

static uint64_t mix(uint64_t x) {
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* Above 0 and below 1: the midpoints of 2^23 equal steps, exact in a float. */
static float uniform(uint32_t bits) {
    return ((float)(bits >> 9) + 0.5f) * 0x1p-23f;
}

static void gaussian(uint64_t bits, float *x) {
    float radius = sqrtf(-2.0f * logf(uniform((uint32_t)bits)));
    float angle = 6.2831853f * uniform((uint32_t)(bits >> 32));
    x[0] = radius * cosf(angle);
    x[1] = radius * sinf(angle);
}

static void laplace(uint64_t bits, float *x) {
    for (int i = 0; i < 2; i++, bits >>= 32)
        x[i] = copysignf(logf(uniform((uint32_t)bits)), (bits & 1) ? 1.0f : -1.0f);
}

/* Student's t with two degrees of freedom, by its quantile function: tails so heavy that the variance is infinite. */
static void heavy(uint64_t bits, float *x) {
    for (int i = 0; i < 2; i++, bits >>= 32) {
        float u = uniform((uint32_t)bits);
        x[i] = (2.0f * u - 1.0f) / sqrtf(2.0f * u * (1.0f - u));
    }
}

/* Nine of ten pairs are zero, as after a ReLU or in an embedding; many blocks have fewer than K non-zeros. */
static void sparse(uint64_t bits, float *x) {
    x[0] = x[1] = 0.0f;
    if (mix(bits) % 10 == 0)
        gaussian(bits, x);
}

/* Eight sizes and both signs: every block has several entries that equal its threshold. */
static void ties(uint64_t bits, float *x) {
    for (int i = 0; i < 2; i++, bits >>= 32)
        x[i] = (float)(int)(bits & 7) * ((bits & 8) ? 0.25f : -0.25f);
}

static void (*const shapes[])(uint64_t bits, float *x) = {
    [FGP_DIST_GAUSSIAN] = gaussian, [FGP_DIST_LAPLACE] = laplace, [FGP_DIST_HEAVY] = heavy,
    [FGP_DIST_LAYERS] = gaussian,   [FGP_DIST_SPARSE] = sparse,   [FGP_DIST_TIES] = ties,
};

static void fill_row(fgp_dist dist, uint64_t seed, uint64_t row, uint64_t count, float *dst) {
    float scale = SCALE;
    if (dist == FGP_DIST_LAYERS)
        scale *= exp2f(-8.0f * uniform((uint32_t)mix(row)));
    for (uint64_t i = 0; i < count; i += 2) {
        float pair[2];
        shapes[dist](mix(mix(seed) + row * ROW + i), pair);
        dst[i] = scale * pair[0];
        if (i + 1 < count)
            dst[i + 1] = scale * pair[1];
    }
}

void fgp_generate_gradient(fgp_dist dist, uint64_t seed, uint64_t n, float *dst) {
    int64_t rows = (int64_t)((n + ROW - 1) / ROW);
#pragma omp parallel for schedule(static)
    for (int64_t row = 0; row < rows; row++) {
        uint64_t begin = (uint64_t)row * ROW;
        fill_row(dist, seed, (uint64_t)row, n - begin < ROW ? n - begin : ROW, dst + begin);
    }
}
