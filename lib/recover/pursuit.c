/*
 * pursuit.c - orthogonal matching pursuit: add the column that correlates most with the residual of p, solve for all
 * columns in use, repeat. Correlations are computed in one of two ways:
 *
 *   Gram       A^T r = A^T p - (A^T A)_S x, from rows of A^T A: n d multiplications instead of k d
 *              (Batch-OMP by Rubinstein, Zibulevsky and Elad)
 *   residual   r = p - A_S x, and A^T r with the matrix: d log d for the Hadamard matrix
 *
 * Generalized OMP (Wang, Kwon and Shim) adds several columns per pass, which reduces the number of passes. Wrong
 * columns are compensated by adding more than s columns and keeping the s with the largest values.
 */
#include "recover/pursuit.h"

#include "base/float_bits.h"

#include <string.h>

/* Add up to plan.atoms columns. False if none could be added. */
static bool add_columns(frugi_pursuit *u, const float *p, const float *start) {
    uint32_t capacity = u->plan.reach - u->n, wanted = u->plan.atoms < capacity ? u->plan.atoms : capacity,
             before = u->n, j = 0;
    while (u->n - before < wanted && frugi_alpha_next(u, &j))
        if (!frugi_support_add(u, j, p, start) && !frugi_support_reject(u, j))
            break;
    return u->n > before;
}

/*
 * Whether |p - A x| is within the tolerance. |p|^2 - x^T A_S^T p is |r|^2 with only n multiplications, but with the
 * rounding error of |p|^2: it can only show that a residual is large.
 */
static bool is_converged(frugi_pursuit *u, const float *p, const float *start) {
    double share = u->plan.tolerance > FRUGI_PURSUIT_FLOOR ? u->plan.tolerance : FRUGI_PURSUIT_FLOOR;
    double limit = share * share * u->squares, remaining = u->squares;
    if (u->gram) {
        for (uint32_t i = 0; i < u->n; i++)
            remaining -= u->x[i] * (double)start[u->atom[i]];
        if (remaining > 4.0 * limit + 1e-5 * u->squares)
            return false;
    }
    return frugi_support_residual(u, p) <= limit;
}

static void update_correlations(frugi_pursuit *u, const float *start) {
    if (u->gram) {
        for (uint32_t i = 0; i < u->n; i++)
            u->x32[i] = (float)u->x[i];
        frugi_alpha_update(u, start, u->n);
        return;
    }
    frugi_matrix_correlate(u->a, u->residual, 1, u->alpha);
    frugi_alpha_update(u, u->alpha, 0);
}

void frugi_pursue(frugi_pursuit *u, uint32_t c) {
    const float *p = u->p + (size_t)c * u->a->stride;
    const float *start = u->gram ? u->start + (size_t)c * u->a->span : NULL;
    frugi_support_clear(u);
    if (!(u->squares > 0.0))
        return;
    if (!u->gram)
        memcpy(u->residual, p, u->a->stride * sizeof *p);
    do
        update_correlations(u, start);
    while (add_columns(u, p, start) && !is_converged(u, p, start) && u->n < u->plan.reach);
    frugi_support_prune(u, p, start);
}
