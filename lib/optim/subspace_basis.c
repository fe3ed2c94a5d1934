/*
 * subspace_basis.c - leading singular vectors by subspace iteration (Halko, Martinsson and Tropp, 2011): begin with a
 * few random directions more than asked for, send them through g and back twice, each time made orthonormal, and turn
 * what is left so that g's products with the directions are orthogonal. That last turn is an eigenproblem of rank + 8
 * numbers, solved by Jacobi's rotations. A full decomposition would need a library and cost near^2 far; this costs 5
 * (rank + 8) near far, and gives what an optimiser needs: the subspace of the large singular values.
 */
#include "optim/subspace_basis.h"

#include "base/philox.h"
#include "optim/matrix_product.h"

#include <math.h>

#define PASSES    2
#define SWEEPS    30
#define COLLAPSED 1e-6 /* of a vector's length: what is left after the others are taken out is rounding */

frugi_sides frugi_sides_of(size_t rows, size_t cols) {
    bool tall = rows >= cols;
    return (frugi_sides){rows, cols, tall ? cols : rows, tall ? rows : cols, tall};
}

/* x (k x rows) times g. */
static void along_rows(const frugi_sides *side, const float *x, size_t k, const float *g, float *y, int threads) {
    frugi_product p = {x, side->rows, 1, g, side->cols, k, side->cols, side->rows};
    frugi_multiply(&p, 0, 1, y, threads);
}

void frugi_to_far(const frugi_sides *side, const float *x, size_t k, const float *g, float *y, int threads) {
    if (side->tall)
        frugi_multiply_rows(x, k, g, side->rows, side->cols, y, threads);
    else
        along_rows(side, x, k, g, y, threads);
}

void frugi_to_near(const frugi_sides *side, const float *x, size_t k, const float *g, float *y, int threads) {
    if (side->tall)
        along_rows(side, x, k, g, y, threads);
    else
        frugi_multiply_rows(x, k, g, side->rows, side->cols, y, threads);
}

void frugi_from_both(const frugi_sides *side, const float *near, const float *far, size_t k, float keep, float factor,
                     float *w, int threads) {
    const float *by_row = side->tall ? far : near, *by_col = side->tall ? near : far;
    frugi_product p = {by_row, 1, side->rows, by_col, side->cols, side->rows, side->cols, k};
    frugi_multiply(&p, keep, factor, w, threads);
}

/* ---- orthonormal rows ---------------------------------------------------- */

static double dot(const float *a, const float *b, size_t n) {
    double sum[4] = {0};
    size_t i = 0;
    for (; i + 4 <= n; i += 4)
        for (size_t j = 0; j < 4; j++)
            sum[j] += (double)a[i + j] * (double)b[i + j];
    for (; i < n; i++)
        sum[0] += (double)a[i] * (double)b[i];
    return (sum[0] + sum[2]) + (sum[1] + sum[3]);
}

static void draw(float *x, size_t n, uint64_t seed, uint64_t row) {
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(int32_t)frugi_random(seed, row, i) * 0x1p-31f;
}

static void scale(float *x, size_t n, double factor) {
    for (size_t i = 0; i < n; i++)
        x[i] = (float)((double)x[i] * factor);
}

/* Take the first i rows out of row i, twice, because once leaves rounding behind. Returns whether anything is left. */
static bool straighten(float *x, size_t i, size_t n) {
    float *own = x + i * n;
    double length = sqrt(dot(own, own, n));
    if (!(length > 0))
        return false;
    scale(own, n, 1 / length);
    for (int round = 0; round < 2; round++)
        for (size_t j = 0; j < i; j++) {
            float share = (float)dot(own, x + j * n, n);
            for (size_t e = 0; e < n; e++)
                own[e] -= share * x[j * n + e];
        }
    length = sqrt(dot(own, own, n));
    if (length < COLLAPSED)
        return false;
    scale(own, n, 1 / length);
    return true;
}

/* A row that the others span already gives way to a random one. */
static void make_orthonormal(float *x, size_t k, size_t n, uint64_t seed) {
    for (size_t i = 0; i < k; i++)
        for (uint64_t attempt = 1; !straighten(x, i, n); attempt++)
            draw(x + i * n, n, seed, i + (attempt << 32));
}

/* ---- the turn ------------------------------------------------------------ */

/* One rotation of rows and columns p < q that makes t[p][q] zero; v gathers the rotations. */
static void rotate(double *t, double *v, size_t k, size_t p, size_t q) {
    double theta = (t[q * k + q] - t[p * k + p]) / (2 * t[p * k + q]);
    double tangent = (theta >= 0 ? 1 : -1) / (fabs(theta) + sqrt(theta * theta + 1));
    double c = 1 / sqrt(tangent * tangent + 1), s = tangent * c;
    for (size_t i = 0; i < k; i++) {
        double a = t[i * k + p], b = t[i * k + q];
        t[i * k + p] = c * a - s * b;
        t[i * k + q] = s * a + c * b;
    }
    for (size_t i = 0; i < k; i++) {
        double a = t[p * k + i], b = t[q * k + i];
        t[p * k + i] = c * a - s * b;
        t[q * k + i] = s * a + c * b;
        a = v[p * k + i], b = v[q * k + i];
        v[p * k + i] = c * a - s * b;
        v[q * k + i] = s * a + c * b;
    }
}

/* Eigenvectors of t, symmetric, as rows of v; eigenvalues stay in t's diagonal. */
static void diagonalise(double *t, double *v, size_t k) {
    for (size_t i = 0; i < k * k; i++)
        v[i] = i % (k + 1) == 0;
    for (int sweep = 0; sweep < SWEEPS; sweep++) {
        double off = 0, all = 0;
        for (size_t p = 0; p < k; p++)
            for (size_t q = 0; q < k; q++)
                *(p == q ? &all : &off) += t[p * k + q] * t[p * k + q];
        if (off <= 1e-24 * all)
            return;
        for (size_t p = 0; p < k; p++)
            for (size_t q = p + 1; q < k; q++)
                if (fabs(t[p * k + q]) > 1e-18 * sqrt(all))
                    rotate(t, v, k, p, q);
    }
}

/* The row of the largest eigenvalue that is not taken yet; taking it marks it. */
static size_t take_largest(double *t, size_t k) {
    size_t best = 0;
    for (size_t i = 1; i < k; i++)
        if (t[i * k + i] > t[best * k + best])
            best = i;
    t[best * k + best] = -INFINITY;
    return best;
}

/* ---- together ------------------------------------------------------------ */

static size_t followed(const frugi_sides *side, size_t rank) {
    return rank + FRUGI_BASIS_SPARE < side->near ? rank + FRUGI_BASIS_SPARE : side->near;
}

size_t frugi_basis_bytes(const frugi_sides *side, size_t rank) {
    size_t k = followed(side, rank);
    return 2 * k * k * sizeof(double) + k * (side->near + side->far) * sizeof(float);
}

void frugi_basis(const frugi_sides *side, const float *g, size_t rank, uint64_t seed, void *work, float *basis,
                 int threads) {
    const size_t k = followed(side, rank), near = side->near, far = side->far;
    double *t = work, *v = t + k * k;
    float *q = (float *)(void *)(v + k * k), *z = q + k * near;
    for (size_t i = 0; i < k; i++)
        draw(q + i * near, near, seed, i);
    make_orthonormal(q, k, near, seed);
    for (int pass = 0; pass < PASSES; pass++) {
        frugi_to_far(side, q, k, g, z, threads);
        make_orthonormal(z, k, far, seed + 1);
        frugi_to_near(side, z, k, g, q, threads);
        make_orthonormal(q, k, near, seed + 2);
    }
    frugi_to_far(side, q, k, g, z, threads);
    for (size_t i = 0; i < k; i++)
        for (size_t j = 0; j < k; j++)
            t[i * k + j] = dot(z + i * far, z + j * far, far);
    diagonalise(t, v, k);
    for (size_t i = 0; i < rank; i++) {
        const double *turn = v + take_largest(t, k) * k;
        for (size_t e = 0; e < near; e++) {
            double sum = 0;
            for (size_t j = 0; j < k; j++)
                sum += turn[j] * (double)q[j * near + e];
            basis[i * near + e] = (float)sum;
        }
    }
}
