/*
 * pursuit.h - one chunk's way from p to x; for the files of this folder. A thread has one of these and uses it for all
 * its chunks.
 */
#ifndef FRUGI_PURSUIT_H
#define FRUGI_PURSUIT_H

#include "recover/measurement_matrix.h"

#include <stdbool.h>

#define FRUGI_PURSUIT_GROUP 4u   /* chunks that are correlated with together where the Gram matrix serves the rest */
#define FRUGI_PURSUIT_PIVOT 1e-5 /* of a column's squared length, what has to be new for it to be taken */
#define FRUGI_PURSUIT_FLOOR 2e-6 /* share of |p| below which a residual of floats is rounding */

typedef struct frugi_pursuit {
    const frugi_matrix *a;
    const float *gram; /* d x span, or NULL */
    frugi_recover_plan plan;

    float *p;        /* GROUP x stride: measurements, scaled by a power of two, zeros past k */
    float *start;    /* GROUP x span: A^T p */
    float *residual; /* stride */
    float *alpha;    /* span: A^T (p - A x) */
    uint32_t *most;  /* of every block of columns, the largest magnitude in alpha, as bits */
    uint8_t *taken;  /* d: whether a column is in use or passed over */
    double squares;  /* |p|^2 */

    uint32_t n;           /* columns in use */
    uint32_t passed;      /* and passed over, at most reach */
    uint32_t *atom;       /* 2 reach: those in use from the front, those passed over from reach on */
    const float **column; /* reach: without a Gram matrix the columns in use, with it their rows of it */
    float *own;           /* reach x stride: where columns have to be worked out */
    double *inverse;      /* reach x reach: rows of the inverse Cholesky factor of A_S^T A_S */
    double *x, *z;        /* reach: A_S x near p; inverse A_S^T p */
    double *g, *w;        /* reach: scratch */
    float *x32;           /* reach */
    float *work;          /* span: scratch of frugi_matrix_apply */
} frugi_pursuit;

/* ---- pursuit.c ---- */

/** Recover chunk c of the group: x and atom, of n entries in no order. */
void frugi_pursue(frugi_pursuit *u, uint32_t c);

/* ---- pursuit_naive.c ---- */

/** The same by definition: every pass solves for x and its residual anew. */
void frugi_pursue_naive(frugi_pursuit *u, uint32_t c);

/* ---- pursuit_support.c: the columns in use ---- */

void frugi_support_clear(frugi_pursuit *u);

/** Take column j into use and bring x forward. False: it was passed over, being spanned already. */
bool frugi_support_add(frugi_pursuit *u, uint32_t j, const float *p, const float *start);

/** Pass over column j from now on. False when there is no more room to remember it. */
bool frugi_support_pass(frugi_pursuit *u, uint32_t j);

/** Keep the s columns with the largest values and solve for them alone. */
void frugi_support_prune(frugi_pursuit *u, const float *p, const float *start);

/** residual = p - A_S x. Returns its square. */
double frugi_support_residual(frugi_pursuit *u, const float *p);

/* ---- pursuit_select.c: the column that correlates most ---- */

/** alpha = start - sum of x32[m] column[m] over n rows of the Gram matrix, with the largest of every block. */
void frugi_alpha_update(frugi_pursuit *u, const float *start, uint32_t n);

/** The first of the largest that is not taken; it is struck from alpha. False when all else is zero. */
bool frugi_alpha_next(frugi_pursuit *u, uint32_t *j);

#endif
