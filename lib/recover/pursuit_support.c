/*
 * pursuit_support.c - least squares over the columns in use, updated one column at a time.
 *
 * The inverse of the Cholesky factor L of A_S^T A_S is stored, in double. A new column j with products g = A_S^T a_j
 * adds one row to it, (-(w^T L^-1), 1) / pivot with w = L^-1 g and pivot^2 = |a_j|^2 - |w|^2, and the solution changes
 * along that row: x += z row with z = (a_j^T p - w^T z_before) / pivot. So a column costs n^2 multiplications and one
 * division, and nothing is solved again. pivot^2 is the part of the column that is independent of the others; a column
 * without any is rejected.
 */
#include "recover/pursuit.h"

#include "base/float_bits.h"
#include "recover/recover_lanes.h"

#include <math.h>

void frugi_support_clear(frugi_pursuit *u) {
    for (uint32_t i = 0; i < u->n; i++)
        u->excluded[u->atom[i]] = 0;
    for (uint32_t i = 0; i < u->rejected; i++)
        u->excluded[u->atom[u->plan.reach + i]] = 0;
    u->n = u->rejected = 0;
}

bool frugi_support_reject(frugi_pursuit *u, uint32_t j) {
    if (u->rejected == u->plan.reach)
        return false;
    u->excluded[j] = 1;
    u->atom[u->plan.reach + u->rejected++] = j;
    return true;
}

/* g = A_S^T a_j; column[n] becomes column j or its row. Returns |a_j|^2. */
static double column_products(frugi_pursuit *u, uint32_t j) {
    uint32_t n = u->n, stride = u->a->stride;
    if (u->gram) {
        const float *row = u->gram + (size_t)j * u->a->span;
        u->column[n] = row;
        for (uint32_t i = 0; i < n; i++)
            u->g[i] = (double)row[u->atom[i]];
        return (double)row[j];
    }
    if (u->a->column) {
        u->column[n] = u->a->column + (size_t)j * stride;
    } else {
        frugi_matrix_column(u->a, j, u->own_columns + (size_t)n * stride);
        u->column[n] = u->own_columns + (size_t)n * stride;
    }
    for (uint32_t i = 0; i < n; i++)
        u->g[i] = (double)frugi_dot(u->column[i], u->column[n], stride);
    return (double)frugi_dot(u->column[n], u->column[n], stride);
}

/* Sum of a[i] b[i] in four lanes, added in a fixed order. */
static double dot_double(const double *a, const double *b, uint32_t n) {
    double s0 = 0, s1 = 0, s2 = 0, s3 = 0;
    uint32_t i = 0;
    for (; i + 4 <= n; i += 4) {
        s0 += a[i] * b[i];
        s1 += a[i + 1] * b[i + 1];
        s2 += a[i + 2] * b[i + 2];
        s3 += a[i + 3] * b[i + 3];
    }
    for (; i < n; i++)
        s0 += a[i] * b[i];
    return (s0 + s2) + (s1 + s3);
}

bool frugi_support_add(frugi_pursuit *u, uint32_t j, const float *p, const float *start) {
    uint32_t n = u->n, reach = u->plan.reach;
    double length = column_products(u, j), *row = u->inverse + (size_t)n * reach;
    for (uint32_t i = 0; i < n; i++)
        u->w[i] = dot_double(u->inverse + (size_t)i * reach, u->g, i + 1);
    double pivot2 = length - dot_double(u->w, u->w, n);
    if (!(pivot2 > FRUGI_PURSUIT_PIVOT))
        return false;
    double pivot = sqrt(pivot2), with_p = start ? (double)start[j] : (double)frugi_dot(u->column[n], p, u->a->stride);
    memset(row, 0, n * sizeof *row);
    for (uint32_t i = 0; i < n; i++) {
        const double *before = u->inverse + (size_t)i * reach;
        double share = u->w[i] / pivot;
        for (uint32_t m = 0; m <= i; m++)
            row[m] -= share * before[m];
    }
    row[n] = 1.0 / pivot;
    u->z[n] = (with_p - dot_double(u->w, u->z, n)) / pivot;
    u->x[n] = 0.0;
    for (uint32_t i = 0; i <= n; i++)
        u->x[i] += u->z[n] * row[i];
    u->excluded[j] = 1;
    u->atom[n] = j;
    u->n = n + 1;
    return true;
}

double frugi_support_residual(frugi_pursuit *u, const float *p) {
    uint32_t k = u->a->plan.k, stride = u->a->stride;
    float *r = u->residual;
    double squares = 0;
    for (uint32_t i = 0; i < u->n; i++)
        u->x32[i] = (float)u->x[i];
    if (u->gram) {
        frugi_matrix_apply(u->a, u->atom, u->x32, u->n, u->work, r); /* cannot fail: atoms are columns */
        for (uint32_t t = 0; t < k; t++)
            r[t] = p[t] - r[t];
    } else {
        memcpy(r, p, stride * sizeof *r);
        for (uint32_t i = 0; i < u->n; i++)
            for (uint32_t t = 0; t < stride; t += 4)
                frugi_store4(r + t, frugi_load4(r + t) - frugi_splat4(u->x32[i]) * frugi_load4(u->column[i] + t));
    }
    for (uint32_t t = 0; t < k; t++)
        squares += (double)r[t] * (double)r[t];
    return squares;
}

/* Move the `count` columns with the largest values to the front, in descending order. */
static void move_largest_first(frugi_pursuit *u, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        uint32_t best = i;
        for (uint32_t m = i + 1; m < u->n; m++)
            if (fabs(u->x[m]) > fabs(u->x[best]))
                best = m;
        double x = u->x[i];
        uint32_t atom = u->atom[i];
        u->x[i] = u->x[best], u->x[best] = x;
        u->atom[i] = u->atom[best], u->atom[best] = atom;
    }
}

void frugi_support_prune(frugi_pursuit *u, const float *p, const float *start) {
    uint32_t count = u->plan.s;
    if (u->n <= count)
        return;
    move_largest_first(u, count);
    for (uint32_t i = 0; i < u->n; i++)
        u->excluded[u->atom[i]] = 0;
    u->n = 0;
    for (uint32_t i = 0; i < count; i++) /* a subset of independent columns: rejected only because of rounding */
        frugi_support_add(u, u->atom[i], p, start);
}
