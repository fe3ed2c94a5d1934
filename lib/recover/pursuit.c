/*
 * pursuit.c - orthogonal matching pursuit: take the column that correlates most with what p is not yet explained by,
 * solve for all columns taken, repeat. Two ways to the correlations of a pass:
 *
 *   Gram       A^T r = A^T p - (A^T A)_S x, from rows of A^T A: n d multiplications instead of k d (Rubinstein,
 * Zibulevsky and Elad's Batch-OMP) residual   r = p - A_S x, and A^T r through the matrix: d log d for the Hadamard one
 *
 * Generalised OMP (Wang, Kwon and Shim) takes several columns a pass, so passes and their cost go down by that number.
 * Its wrong picks can be made up for by taking more than s columns and keeping the s that turn out largest.
 */
#include "recover/pursuit.h"

#include "base/float_bits.h"

#include <string.h>

/* Take up to plan.atoms columns. False when there is none left to take. */
static bool take(frugi_pursuit *u, const float *p, const float *start) {
    uint32_t room = u->plan.reach - u->n, wanted = u->plan.atoms < room ? u->plan.atoms : room, before = u->n, j = 0;
    while (u->n - before < wanted && frugi_alpha_next(u, &j))
        if (!frugi_support_add(u, j, p, start) && !frugi_support_pass(u, j))
            break;
    return u->n > before;
}

/*
 * Whether x explains p to the tolerance. |p|^2 - x^T A_S^T p is |r|^2 at the price of n multiplications, but its
 * rounding is that of |p|^2: only a large residual can be told from it.
 */
static bool explained(frugi_pursuit *u, const float *p, const float *start) {
    double share = u->plan.tolerance > FRUGI_PURSUIT_FLOOR ? u->plan.tolerance : FRUGI_PURSUIT_FLOOR;
    double limit = share * share * u->squares, left = u->squares;
    if (u->gram) {
        for (uint32_t i = 0; i < u->n; i++)
            left -= u->x[i] * (double)start[u->atom[i]];
        if (left > 4.0 * limit + 1e-5 * u->squares)
            return false;
    }
    return frugi_support_residual(u, p) <= limit;
}

static void correlate(frugi_pursuit *u, const float *start) {
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
        correlate(u, start);
    while (take(u, p, start) && !explained(u, p, start) && u->n < u->plan.reach);
    frugi_support_prune(u, p, start);
}
