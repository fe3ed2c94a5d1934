/*
 * pursuit.h - state of the recovery of x from p for one chunk, internal to this folder. A thread has one and uses it
 * for all its chunks.
 */
#ifndef FRUGI_PURSUIT_H
#define FRUGI_PURSUIT_H

#include "recover/measurement_matrix.h"

#include <stdbool.h>

#define FRUGI_PURSUIT_GROUP 4u /* chunks that are correlated together with a Gram matrix */
#define FRUGI_PURSUIT_PIVOT                                                                                            \
    1e-5 /* share of a column's squared length that has to be independent of the columns in use */
#define FRUGI_PURSUIT_FLOOR 2e-6 /* share of |p| below which a residual in floats is rounding */

typedef struct frugi_pursuit {
    const frugi_matrix *a;
    const float *gram; /* d x span, or NULL */
    frugi_recover_options plan;

    float *p;            /* GROUP x stride: measurements, scaled by a power of two, zeros past k */
    float *start;        /* GROUP x span: A^T p */
    float *residual;     /* stride */
    float *alpha;        /* span: A^T (p - A x) */
    uint32_t *block_max; /* for every block of columns, the largest magnitude in alpha, as bits */
    uint8_t *excluded;   /* d: whether a column is in use or was rejected */
    double squares;      /* |p|^2 */

    uint32_t n;           /* columns in use */
    uint32_t rejected;    /* columns rejected, at most reach */
    uint32_t *atom;       /* 2 reach: those in use from 0 on, those rejected from reach on */
    const float **column; /* reach: with a Gram matrix its rows of the columns in use, otherwise the columns */
    float *own_columns;   /* reach x stride: columns that have to be computed */
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

/** The same by definition: every pass solves for x and its residual from scratch. */
void frugi_pursue_naive(frugi_pursuit *u, uint32_t c);

/* ---- pursuit_support.c: the columns in use ---- */

void frugi_support_clear(frugi_pursuit *u);

/** Add column j and update x. False: the columns in use span it already. */
bool frugi_support_add(frugi_pursuit *u, uint32_t j, const float *p, const float *start);

/** Reject column j from now on. False if the list of rejected columns is full. */
bool frugi_support_reject(frugi_pursuit *u, uint32_t j);

/** Keep the s columns with the largest values and solve for them alone. */
void frugi_support_prune(frugi_pursuit *u, const float *p, const float *start);

/** residual = p - A_S x. Returns its square. */
double frugi_support_residual(frugi_pursuit *u, const float *p);

/* ---- pursuit_select.c: the column that correlates most ---- */

/** alpha = start - sum of x32[m] column[m] over n rows of the Gram matrix, with the largest of every block. */
void frugi_alpha_update(frugi_pursuit *u, const float *start, uint32_t n);

/**
 * Index of the largest magnitude that is not excluded, the first of equals; it is set to zero in alpha. False if all
 * others are zero.
 */
bool frugi_alpha_next(frugi_pursuit *u, uint32_t *j);

#endif
