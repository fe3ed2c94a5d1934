/*
 * hadamard_matrix.c - the measurement matrix without storage: A = sqrt(order / k) R H D, with random signs D, the
 * orthonormal Hadamard matrix H and k of its rows R. Its entries are +-1 / sqrt(k), so every column has length one.
 *
 * The transform takes order * log2(order) additions, two levels per pass over memory; parts that fit L1 are finished
 * before they are combined. The input of a correlation is k numbers among order - k zeros: blocks with none or one of
 * them are written directly, which saves about half of the levels.
 */
#include "recover/measurement_matrix.h"

#include "base/float_bits.h"
#include "base/philox.h"
#include "base/seeded_sample.h"
#include "recover/recover_lanes.h"

#include <math.h>
#include <string.h>

#define IN_CACHE 4096u /* floats */

#define DRAW_SIGNS 1u
#define DRAW_ROWS  0x726f7773u

void frugi_hadamard_draw(frugi_matrix *a) {
    uint8_t offset[FRUGI_SAMPLE_BLOCK];
    uint32_t blocks = (a->order + FRUGI_SAMPLE_BLOCK - 1) / FRUGI_SAMPLE_BLOCK, t = 0;
    frugi_sample sample = frugi_sample_start(a->plan.seed ^ DRAW_ROWS, a->order, a->plan.k);
    for (uint32_t b = 0; b < blocks; b++) {
        uint32_t drawn = frugi_sample_draw(&sample, b, offset);
        for (uint32_t i = 0; i < drawn; i++)
            a->row[t++] = b * FRUGI_SAMPLE_BLOCK + offset[i];
    }
    for (uint32_t w = 0; w < (a->order + 31) / 32; w++)
        a->sign[w] = frugi_random(a->plan.seed, DRAW_SIGNS, w);
    a->unit = (float)(1.0 / sqrt((double)a->plan.k));
}

/* ---- the transform ---------------------------------------------------------------------------- */

/* Levels 1 and 2, inside vectors. */
static void transform_in_vectors(float *x, uint32_t n) {
    const frugi_float4 first = {1, -1, 1, -1}, second = {1, 1, -1, -1};
    for (uint32_t i = 0; i < n; i += 4) {
        frugi_float4 v = frugi_load4(x + i);
        v = v * first + __builtin_shufflevector(v, v, 1, 0, 3, 2);
        v = v * second + __builtin_shufflevector(v, v, 2, 3, 0, 1);
        frugi_store4(x + i, v);
    }
}

/* Levels h and 2 h over four ranges of h. */
static void two_levels(float *x, uint32_t h) {
    for (uint32_t i = 0; i < h; i += 4) {
        frugi_float4 a = frugi_load4(x + i), b = frugi_load4(x + h + i);
        frugi_float4 c = frugi_load4(x + 2 * h + i), d = frugi_load4(x + 3 * h + i);
        frugi_float4 ab = a + b, a_b = a - b, cd = c + d, c_d = c - d;
        frugi_store4(x + i, ab + cd);
        frugi_store4(x + h + i, a_b + c_d);
        frugi_store4(x + 2 * h + i, ab - cd);
        frugi_store4(x + 3 * h + i, a_b - c_d);
    }
}

static void one_level(float *x, uint32_t h) {
    for (uint32_t i = 0; i < h; i += 4) {
        frugi_float4 a = frugi_load4(x + i), b = frugi_load4(x + h + i);
        frugi_store4(x + i, a + b);
        frugi_store4(x + h + i, a - b);
    }
}

/* All levels from h on; blocks of h numbers are transformed already. */
static void transform_levels(float *x, uint32_t n, uint32_t h) {
    if (n > IN_CACHE && h <= n / 4) {
        for (uint32_t quarter = 0; quarter < 4; quarter++)
            transform_levels(x + quarter * (n / 4), n / 4, h);
        two_levels(x, n / 4);
        return;
    }
    for (; h <= n / 4; h *= 4)
        for (uint32_t i = 0; i < n; i += 4 * h)
            two_levels(x + i, h);
    if (h == n / 2)
        one_level(x, h);
}

void frugi_hadamard(float *x, uint32_t n) {
    transform_in_vectors(x, n);
    transform_levels(x, n, 4);
}

/* The transform of one number at index `at` of n >= 4: the number with signs, doubled bit by bit. */
static void transform_single(float *x, uint32_t n, uint32_t at, float value) {
    x[0] = value;
    x[1] = at & 1 ? -value : value;
    x[2] = at & 2 ? -x[0] : x[0];
    x[3] = at & 2 ? -x[1] : x[1];
    for (uint32_t h = 4; h < n; h *= 2) {
        frugi_float4 flip = frugi_splat4(at & h ? -1.0f : 1.0f);
        for (uint32_t i = 0; i < h; i += 4)
            frugi_store4(x + h + i, frugi_load4(x + i) * flip);
    }
}

/* H of the numbers r at the indices row, all others being zero. */
static void transform_sparse(const frugi_matrix *a, const float *r, float *x) {
    uint32_t block = 4, t = 0;
    while (block < IN_CACHE && block * 2 <= a->order / a->plan.k)
        block *= 2;
    for (uint32_t from = 0; from < a->order; from += block) {
        uint32_t first = t;
        while (t < a->plan.k && a->row[t] < from + block)
            t++;
        if (t == first + 1) {
            transform_single(x + from, block, a->row[first] - from, r[first] * a->unit);
            continue;
        }
        memset(x + from, 0, block * sizeof *x);
        for (uint32_t i = first; i < t; i++)
            x[a->row[i]] = r[i] * a->unit;
        if (t > first)
            frugi_hadamard(x + from, block);
    }
    transform_levels(x, a->order, block);
}

/* ---- the matrix ------------------------------------------------------------------------------- */

static void flip_signs(const frugi_matrix *a, float *x) {
    uint32_t bits[FRUGI_MATRIX_BLOCK];
    for (uint32_t i = 0; i < a->span; i += FRUGI_MATRIX_BLOCK) {
        uint32_t sign = i < a->order ? a->sign[i / FRUGI_MATRIX_BLOCK] : 0;
        memcpy(bits, x + i, sizeof bits);
        for (uint32_t j = 0; j < FRUGI_MATRIX_BLOCK; j++)
            bits[j] ^= (sign >> j) << 31;
        memcpy(x + i, bits, sizeof bits);
    }
}

void frugi_hadamard_correlate(const frugi_matrix *a, const float *r, float *out) {
    transform_sparse(a, r, out);
    memset(out + a->plan.d, 0, (a->span - a->plan.d) * sizeof *out);
    flip_signs(a, out);
}

static float signed_unit(const frugi_matrix *a, uint32_t j) {
    return a->sign[j / 32] >> (j % 32) & 1 ? -a->unit : a->unit;
}

/* v, or -v if the parity of bits is odd. With shifts, because no instruction set has a vector parity. */
FRUGI_INLINED float flip_by_parity(float v, uint32_t bits) {
    bits ^= bits >> 16;
    bits ^= bits >> 8;
    bits ^= bits >> 4;
    bits ^= bits >> 2;
    bits ^= bits >> 1;
    return frugi_bits_f32(frugi_f32_bits(v) ^ bits << 31);
}

void frugi_hadamard_column(const frugi_matrix *a, uint32_t j, float *column) {
    float unit = signed_unit(a, j);
    for (uint32_t t = 0; t < a->plan.k; t++)
        column[t] = flip_by_parity(unit, a->row[t] & j);
    memset(column + a->plan.k, 0, (a->stride - a->plan.k) * sizeof *column);
}

static void apply_dense(const frugi_matrix *a, const uint32_t *index, const float *value, uint32_t n, float *work,
                        float *p) {
    memset(work, 0, a->order * sizeof *work);
    for (uint32_t i = 0; i < n; i++)
        work[index[i]] += value[i] * signed_unit(a, index[i]);
    frugi_hadamard(work, a->order);
    for (uint32_t t = 0; t < a->plan.k; t++)
        p[t] = work[a->row[t]];
}

void frugi_hadamard_apply(const frugi_matrix *a, const uint32_t *index, const float *value, uint32_t n, float *work,
                          float *p) {
    uint64_t depth = 32u - (uint32_t)__builtin_clz(a->order);
    if ((uint64_t)n * a->plan.k > a->order * depth / 2) { /* a parity costs about as much as two vector additions */
        apply_dense(a, index, value, n, work, p);
        return;
    }
    memset(p, 0, a->plan.k * sizeof *p);
    for (uint32_t i = 0; i < n; i++) {
        float v = value[i] * signed_unit(a, index[i]);
        for (uint32_t t = 0; t < a->plan.k; t++)
            p[t] += flip_by_parity(v, a->row[t] & index[i]);
    }
}
