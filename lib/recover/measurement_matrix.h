/* measurement_matrix.h - the measurement matrix, internal to this folder. */
#ifndef FRUGI_MEASUREMENT_MATRIX_H
#define FRUGI_MEASUREMENT_MATRIX_H

#include "recover/recover.h"

#define FRUGI_MATRIX_BLOCK 32u /* columns that are processed together; spans are whole blocks */

struct frugi_matrix {
    frugi_matrix_options plan;
    uint32_t stride; /* k, rounded up to whole vectors */
    uint32_t span;
    float *column; /* gaussian: d x stride, zeros past k */
    /* hadamard: entry (t, i) is unit * (-1)^(sign of i + parity(row[t] & i)) */
    uint32_t order; /* of the Hadamard matrix: d, rounded up to a power of two */
    uint32_t *row;  /* k, ascending */
    uint32_t *sign; /* a bit for every column */
    float unit;     /* 1 / sqrt(k) */
};

/* ---- normal_matrix.c ---- */

/** Column j of a gaussian matrix: k normal numbers, scaled to length one. */
void frugi_normal_column(uint64_t seed, uint32_t j, uint32_t k, float *column);

/* ---- hadamard_matrix.c ---- */

/** Draw row and sign, k and (order + 31) / 32 numbers. */
void frugi_hadamard_draw(frugi_matrix *a);

/** x = H x in place, unscaled, for n = a power of two >= 4 numbers, aligned to 16 bytes. */
void frugi_hadamard(float *x, uint32_t n);

void frugi_hadamard_column(const frugi_matrix *a, uint32_t j, float *column);
void frugi_hadamard_correlate(const frugi_matrix *a, const float *r, float *out);

/** p = A x, column by column or by the dense transform, whichever takes fewer operations. */
void frugi_hadamard_apply(const frugi_matrix *a, const uint32_t *index, const float *value, uint32_t n, float *work,
                          float *p);

#endif
