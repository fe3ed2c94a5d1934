/*
 * normal_matrix.c - normal random numbers that are identical on every machine.
 *
 * Marsaglia's polar method: a point within the unit circle gives two normal numbers, with one logarithm and one square
 * root. The logarithm is implemented here, with + - * / only, because those of C libraries differ in their last bits,
 * and workers with different bits would have different matrices. A number depends only on (seed, column, row).
 */
#include "recover/measurement_matrix.h"

#include "base/philox.h"

#include <math.h>
#include <string.h>

#define TRIES 32u /* one in five points is outside; 32 in a row happen once in 10^21 */

/* ln x of a normal x > 0: exponent times ln 2, and 2 atanh((m - 1) / (m + 1)) for a mantissa m around 1. */
static double ln(double x) {
    uint64_t u;
    memcpy(&u, &x, sizeof u);
    double exponent = (double)((int64_t)(u >> 52) - 1023), m;
    u = (u & 0x000fffffffffffffu) | 0x3ff0000000000000u;
    memcpy(&m, &u, sizeof m);
    if (m > 1.4142135623730951) {
        m *= 0.5;
        exponent += 1.0;
    }
    double t = (m - 1.0) / (m + 1.0), t2 = t * t, sum = 0.0;
    for (int i = 21; i >= 3; i -= 2) /* t2 < 0.03: the omitted terms are below 2^-53 */
        sum = (sum + 1.0 / (double)i) * t2;
    return exponent * 0.6931471805599453 + 2.0 * t * (1.0 + sum);
}

static double uniform(uint64_t seed, uint64_t counter) {
    return ((double)frugi_random(seed, 0, counter) + 0.5) * 0x1p-31 - 1.0;
}

/* The column is part of the counter, not of the 32-bit key: there, two of many columns would collide and be equal. */
static void normal_pair(uint64_t seed, uint32_t j, uint32_t pair, double *out) {
    uint64_t counter = (uint64_t)j << 32 | (uint64_t)pair * (2 * TRIES);
    out[0] = out[1] = 0.0;
    for (uint32_t i = 0; i < TRIES; i++) {
        double u = uniform(seed, counter + 2 * i), v = uniform(seed, counter + 2 * i + 1), r = u * u + v * v;
        if (r >= 1.0)
            continue;
        double scale = sqrt(-2.0 * ln(r) / r); /* r > 0: u and v are odd multiples of 2^-32 */
        out[0] = u * scale;
        out[1] = v * scale;
        return;
    }
}

void frugi_normal_column(uint64_t seed, uint32_t j, uint32_t k, float *column) {
    double pair[2], squares = 0.0;
    for (uint32_t t = 0; t < k; t++) {
        if (t % 2 == 0)
            normal_pair(seed, j, t / 2, pair);
        column[t] = (float)pair[t % 2];
        squares += (double)column[t] * (double)column[t];
    }
    double scale = squares > 0.0 ? 1.0 / sqrt(squares) : 0.0;
    for (uint32_t t = 0; t < k; t++)
        column[t] = (float)((double)column[t] * scale);
}
