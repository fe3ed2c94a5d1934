/*
 * recover.h - sparse vectors from few measurements: p = A x, and x back from p.
 *
 * A has k rows and d > k columns of length one, so p says little about a vector in general and nearly everything about
 * one with s << k entries that are not zero. Everything here is linear in p, which is why a sum or a running mean of
 * vectors may be kept as the sum or mean of their p.
 *
 *   frugi_matrix_create(&(frugi_matrix_plan){.kind = FRUGI_MATRIX_GAUSSIAN, .k = 217, .d = 2048, .seed = 1}, &a)
 *   frugi_recover_create(a, &(frugi_recover_plan){.method = FRUGI_RECOVER_GRAM, .s = 31, .threads = 2}, &r)
 *   frugi_matrix_apply(a, index, value, n, work, p)
 *   frugi_recover_run(r, p, chunks, index, value, count)
 */
#ifndef FRUGI_RECOVER_H
#define FRUGI_RECOVER_H

#include "frugrad.h"

#include <stddef.h>
#include <stdint.h>

/* ---- measuring -------------------------------------------------------------------------------- */

typedef enum frugi_matrix_kind {
    FRUGI_MATRIX_GAUSSIAN, /* normal numbers, columns then scaled to length one; 4 k d bytes */
    FRUGI_MATRIX_HADAMARD  /* k rows of a Hadamard matrix with random signs; d / 8 + 4 k bytes, k d is never formed */
} frugi_matrix_kind;

typedef struct frugi_matrix_plan {
    frugi_matrix_kind kind;
    uint32_t k, d; /* rows and columns: 1 <= k <= d <= 2^28, k <= 2^24 */
    uint64_t seed; /* the same seed gives the same matrix on every machine */
    int threads;   /* that make it, at least 1; they do not change it */
} frugi_matrix_plan;

typedef struct frugi_matrix frugi_matrix;

/** Returns FRUG_ERR_ARG or FRUG_ERR_MEMORY. */
frug_status frugi_matrix_create(const frugi_matrix_plan *plan, frugi_matrix **out);
void frugi_matrix_destroy(frugi_matrix *a);

uint32_t frugi_matrix_rows(const frugi_matrix *a);
uint32_t frugi_matrix_columns(const frugi_matrix *a);

/** Bytes it holds. */
uint64_t frugi_matrix_bytes(const frugi_matrix *a);

/** Floats of a vector of k that frugi_matrix_correlate() reads: k, rounded up; what is past k has to be 0. */
uint32_t frugi_matrix_stride(const frugi_matrix *a);

/** Floats that frugi_matrix_correlate() writes: d or more, rounded up. */
uint32_t frugi_matrix_span(const frugi_matrix *a);

/**
 * p = A x for an x of n entries.
 *
 *   index, value   n of each; every index below d; checked. One that comes twice counts twice
 *   work           frugi_matrix_span() floats, overwritten
 *   p              k floats; set only on FRUG_OK
 *
 * Deterministic. Threads: any number on one matrix, each with its own work. Allocates: never. Cost: O(n k), or
 * O(d log d) for the Hadamard matrix where that is less. Returns FRUG_ERR_ARG.
 */
frug_status frugi_matrix_apply(const frugi_matrix *a, const uint32_t *index, const float *value, uint32_t n,
                               float *work, float *p);

/**
 * out = A^T r for `count` vectors r one behind the other.
 *
 *   r     count x frugi_matrix_stride() floats
 *   out   count x frugi_matrix_span() floats, aligned to 16 bytes; 0 from d on
 *
 * Bits depend on a vector alone, not on its neighbours. Allocates: never. Cost: O(k d) or O(d log d) a vector.
 */
void frugi_matrix_correlate(const frugi_matrix *a, const float *r, uint32_t count, float *out);

/** Column j < d into frugi_matrix_stride() floats. */
void frugi_matrix_column(const frugi_matrix *a, uint32_t j, float *column);

/* ---- recovering ------------------------------------------------------------------------------- */

typedef enum frugi_recover_method {
    FRUGI_RECOVER_NAIVE,   /* a correlation and least squares from scratch in every pass: slow, the oracle */
    FRUGI_RECOVER_GRAM,    /* Batch-OMP: one correlation in all, passes over columns of A^T A, 4 d^2 bytes */
    FRUGI_RECOVER_RESIDUAL /* a correlation in every pass, least squares brought forward: for d without room for d^2 */
} frugi_recover_method;

typedef struct frugi_recover_plan {
    frugi_recover_method method;
    uint32_t s;       /* entries of x at most: 1 <= s <= k, s < d */
    uint32_t atoms;   /* columns taken in a pass; 0 and 1 are OMP, more is generalised OMP */
    uint32_t reach;   /* columns taken in all, of which the s with the largest values stay; 0 is s; s <= reach <= k */
    double tolerance; /* stop once |p - A x| <= tolerance |p|, from 0 to 1; what is below 2e-6 is rounding and counts as
                         that */
    int threads;      /* at least 1 */
} frugi_recover_plan;

typedef struct frugi_recover frugi_recover;

/** The largest d that FRUGI_RECOVER_GRAM takes: 1 GiB for A^T A. */
#define FRUGI_RECOVER_GRAM_MOST 16384u

/**
 * Reserve all that recovering takes. The matrix is borrowed and has to live longer.
 *
 * Returns FRUG_ERR_ARG with a sentence on which number does not fit, or FRUG_ERR_MEMORY.
 */
frug_status frugi_recover_create(const frugi_matrix *a, const frugi_recover_plan *plan, frugi_recover **out);
void frugi_recover_destroy(frugi_recover *r);

/** Bytes it holds, without the matrix. */
uint64_t frugi_recover_bytes(const frugi_recover *r);

/**
 * Find for every p a sparse x with A x near p.
 *
 *   p              chunks x k floats, all finite; checked
 *   index, value   chunks x s; of chunk c the first count[c] from c * s on, index ascending; zeros behind them
 *   count          chunks; fewer than s where the tolerance is met before, 0 for a p of zeros
 *
 * Outputs are set only on FRUG_OK. A column that those taken before already span, to rounding, is passed over. Of
 * columns that correlate equally the first is taken. Bits depend on a chunk alone: not on threads, neighbours or the
 * machine. Threads: one call at a time. Allocates: never. Returns FRUG_ERR_ARG.
 */
frug_status frugi_recover_run(frugi_recover *r, const float *p, uint64_t chunks, uint32_t *index, float *value,
                              uint32_t *count);

#endif
