/*
 * subspace_basis.c - leading singular vectors by subspace iteration (Halko, Martinsson and Tropp, 2011).
 *
 * Start with a few random directions more than needed, multiply them by g and its transpose twice, orthonormalize each
 * time, and rotate the result so that g's products with the directions are orthogonal. That last rotation is an
 * eigenproblem of size rank + 8, solved by Jacobi's method. A full decomposition would need a library and cost
 * shorter^2 longer; this costs 5 (rank + 8) shorter longer, and gives what an optimizer needs: the subspace of the
 * large singular values.
 */
#include "optim/subspace_basis.h"

#include "base/philox.h"
#include "optim/matrix_product.h"

#include <math.h>

#define PASSES     2
#define SWEEPS     30
#define MIN_LENGTH 1e-6 /* share of a vector's length: what remains below it after orthogonalization is rounding */

frugi_sides frugi_sides_make(size_t rows, size_t cols) {
    bool tall = rows >= cols;
    return (frugi_sides){rows, cols, tall ? cols : rows, tall ? rows : cols, tall};
}

/* x (k x rows) times g. */
static void multiply_by_rows(const frugi_sides *side, const float *x, size_t k, const float *g, float *y, int threads) {
    frugi_product p = {x, side->rows, 1, g, side->cols, k, side->cols, side->rows};
    frugi_multiply(&p, 0, 1, y, threads);
}

void frugi_project_to_longer(const frugi_sides *side, const float *x, size_t k, const float *g, float *y, int threads) {
    if (side->tall)
        frugi_multiply_rows(x, k, g, side->rows, side->cols, y, threads);
    else
        multiply_by_rows(side, x, k, g, y, threads);
}

void frugi_project_to_shorter(const frugi_sides *side, const float *x, size_t k, const float *g, float *y,
                              int threads) {
    if (side->tall)
        multiply_by_rows(side, x, k, g, y, threads);
    else
        frugi_multiply_rows(x, k, g, side->rows, side->cols, y, threads);
}

void frugi_add_outer_products(const frugi_sides *side, const float *shorter, const float *longer, size_t k,
                              float decay_factor, float factor, float *w, int threads) {
    const float *by_row = side->tall ? longer : shorter, *by_col = side->tall ? shorter : longer;
    frugi_product p = {by_row, 1, side->rows, by_col, side->cols, side->rows, side->cols, k};
    frugi_multiply(&p, decay_factor, factor, w, threads);
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

static void fill_random(float *x, size_t n, uint64_t seed, uint64_t row) {
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(int32_t)frugi_random(seed, row, i) * 0x1p-31f;
}

static void scale_vector(float *x, size_t n, double factor) {
    for (size_t i = 0; i < n; i++)
        x[i] = (float)((double)x[i] * factor);
}

/*
 * Orthogonalize row i against the rows before it, twice, because once leaves rounding errors. Returns whether anything
 * remains.
 */
static bool orthogonalize_row(float *x, size_t i, size_t n) {
    float *own = x + i * n;
    double length = sqrt(dot(own, own, n));
    if (!(length > 0))
        return false;
    scale_vector(own, n, 1 / length);
    for (int round = 0; round < 2; round++)
        for (size_t j = 0; j < i; j++) {
            float share = (float)dot(own, x + j * n, n);
            for (size_t e = 0; e < n; e++)
                own[e] -= share * x[j * n + e];
        }
    length = sqrt(dot(own, own, n));
    if (length < MIN_LENGTH)
        return false;
    scale_vector(own, n, 1 / length);
    return true;
}

/* A row that the others span already is replaced by a random one. */
static void make_orthonormal(float *x, size_t k, size_t n, uint64_t seed) {
    for (size_t i = 0; i < k; i++)
        for (uint64_t attempt = 1; !orthogonalize_row(x, i, n); attempt++)
            fill_random(x + i * n, n, seed, i + (attempt << 32));
}

/* ---- rotation ------------------------------------------------------------ */

/* One rotation of rows and columns p < q that makes t[p][q] zero; v accumulates the rotations. */
static void jacobi_rotate(double *t, double *v, size_t k, size_t p, size_t q) {
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

/* Eigenvectors of symmetric t, as rows of v; eigenvalues in t's diagonal. */
static void diagonalize(double *t, double *v, size_t k) {
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
                    jacobi_rotate(t, v, k, p, q);
    }
}

/* The row of the largest eigenvalue that was not returned yet; it is marked as returned. */
static size_t pop_largest(double *t, size_t k) {
    size_t best = 0;
    for (size_t i = 1; i < k; i++)
        if (t[i * k + i] > t[best * k + best])
            best = i;
    t[best * k + best] = -INFINITY;
    return best;
}

/* ---- basis --------------------------------------------------------------- */

static size_t vector_count(const frugi_sides *side, size_t rank) {
    return rank + FRUGI_BASIS_EXTRA < side->shorter ? rank + FRUGI_BASIS_EXTRA : side->shorter;
}

size_t frugi_basis_work_bytes(const frugi_sides *side, size_t rank) {
    size_t k = vector_count(side, rank);
    return 2 * k * k * sizeof(double) + k * (side->shorter + side->longer) * sizeof(float);
}

void frugi_compute_basis(const frugi_sides *side, const float *g, size_t rank, uint64_t seed, void *work, float *basis,
                         int threads) {
    const size_t k = vector_count(side, rank), shorter = side->shorter, longer = side->longer;
    double *t = work, *v = t + k * k;
    float *q = (float *)(void *)(v + k * k), *z = q + k * shorter;
    for (size_t i = 0; i < k; i++)
        fill_random(q + i * shorter, shorter, seed, i);
    make_orthonormal(q, k, shorter, seed);
    for (int pass = 0; pass < PASSES; pass++) {
        frugi_project_to_longer(side, q, k, g, z, threads);
        make_orthonormal(z, k, longer, seed + 1);
        frugi_project_to_shorter(side, z, k, g, q, threads);
        make_orthonormal(q, k, shorter, seed + 2);
    }
    frugi_project_to_longer(side, q, k, g, z, threads);
    for (size_t i = 0; i < k; i++)
        for (size_t j = 0; j < k; j++)
            t[i * k + j] = dot(z + i * longer, z + j * longer, longer);
    diagonalize(t, v, k);
    for (size_t i = 0; i < rank; i++) {
        const double *turn = v + pop_largest(t, k) * k;
        for (size_t e = 0; e < shorter; e++) {
            double sum = 0;
            for (size_t j = 0; j < k; j++)
                sum += turn[j] * (double)q[j * shorter + e];
            basis[i * shorter + e] = (float)sum;
        }
    }
}
