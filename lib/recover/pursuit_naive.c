/*
 * pursuit_naive.c - orthogonal matching pursuit by definition, the reference for the faster methods. Every pass
 * correlates all columns with the residual and solves the normal equations of the columns in use from scratch, by
 * Cholesky decomposition in double. Cost: s k d + s^3 k / 6. It shares with the faster methods the matrix and the rule
 * which columns are rejected, but not the solver.
 */
#include "recover/pursuit.h"

#include "base/float_bits.h"

#include <math.h>
#include <string.h>

static double dot(const float *a, const float *b, uint32_t n) {
    double sum[4] = {0};
    for (uint32_t i = 0; i < n; i += 4) /* strides are whole vectors, padded with zeros */
        for (uint32_t lane = 0; lane < 4; lane++)
            sum[lane] += (double)a[i + lane] * (double)b[i + lane];
    return (sum[0] + sum[2]) + (sum[1] + sum[3]);
}

/* The Cholesky factor of A_S^T A_S for n columns, into u->inverse. Returns the last pivot squared. */
static double cholesky_factor(frugi_pursuit *u, uint32_t n) {
    uint32_t stride = u->a->stride, reach = u->plan.reach;
    double pivot2 = 0;
    for (uint32_t i = 0; i < n; i++) {
        double *row = u->inverse + (size_t)i * reach;
        for (uint32_t j = 0; j <= i; j++) {
            const double *other = u->inverse + (size_t)j * reach;
            double sum = dot(u->column[i], u->column[j], stride);
            for (uint32_t m = 0; m < j; m++)
                sum -= row[m] * other[m];
            if (j < i) {
                row[j] = sum / other[j];
                continue;
            }
            pivot2 = sum;
            row[i] = sum > FRUGI_PURSUIT_PIVOT ? sqrt(sum) : 1.0;
        }
    }
    return pivot2;
}

/* Solve A_S^T A_S x = A_S^T p with the factor. */
static void solve(frugi_pursuit *u, const float *p) {
    uint32_t n = u->n, reach = u->plan.reach;
    for (uint32_t i = 0; i < n; i++) {
        const double *row = u->inverse + (size_t)i * reach;
        double sum = dot(u->column[i], p, u->a->stride);
        for (uint32_t m = 0; m < i; m++)
            sum -= row[m] * u->z[m];
        u->z[i] = sum / row[i];
    }
    for (uint32_t i = n; i-- > 0;) {
        double sum = u->z[i];
        for (uint32_t m = i + 1; m < n; m++)
            sum -= u->inverse[(size_t)m * reach + i] * u->x[m];
        u->x[i] = sum / u->inverse[(size_t)i * reach + i];
    }
}

static bool add_column(frugi_pursuit *u, uint32_t j) {
    float *column = u->own_columns + (size_t)u->n * u->a->stride;
    frugi_matrix_column(u->a, j, column);
    u->column[u->n] = column;
    if (!(cholesky_factor(u, u->n + 1) > FRUGI_PURSUIT_PIVOT))
        return false;
    u->excluded[j] = 1;
    u->atom[u->n++] = j;
    return true;
}

void frugi_pursue_naive(frugi_pursuit *u, uint32_t c) {
    const float *p = u->p + (size_t)c * u->a->stride;
    double tolerance = u->plan.tolerance > FRUGI_PURSUIT_FLOOR ? u->plan.tolerance : FRUGI_PURSUIT_FLOOR;
    frugi_support_clear(u);
    memcpy(u->residual, p, u->a->stride * sizeof *p);
    for (double remaining = u->squares; remaining > tolerance * tolerance * u->squares && u->n < u->plan.reach;) {
        uint32_t j = 0, before = u->n;
        frugi_matrix_correlate(u->a, u->residual, 1, u->alpha);
        frugi_alpha_update(u, u->alpha, 0);
        while (u->n - before < u->plan.atoms && u->n < u->plan.reach && frugi_alpha_next(u, &j))
            if (!add_column(u, j) && !frugi_support_reject(u, j))
                break;
        if (u->n == before)
            break;
        solve(u, p);
        remaining = frugi_support_residual(u, p);
    }
    if (u->n > u->plan.s)
        frugi_support_prune(u, p, NULL);
}
