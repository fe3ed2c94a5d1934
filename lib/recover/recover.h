/*
 * recover.h - compressed sensing: measurements p = A x of sparse vectors, and x recovered from p.
 *
 * A has k rows and d > k columns of length one, so p does not determine a vector in general, but nearly always one with
 * s << k nonzeros. Measuring is linear, so the measurements of a sum or running mean of vectors are the sum or mean of
 * their measurements.
 *
 *   frugi_matrix_create(&(frugi_matrix_options){.kind = FRUGI_MATRIX_GAUSSIAN, .k = 217, .d = 2048, .seed = 1}, &a)
 *   frugi_recover_create(a, &(frugi_recover_options){.method = FRUGI_RECOVER_GRAM, .s = 31, .threads = 2}, &r)
 *   frugi_matrix_apply(a, index, value, n, work, p)
 *   frugi_recover_run(r, p, chunks, index, value, count)
 */
#ifndef FRUGI_RECOVER_H
#define FRUGI_RECOVER_H

#include "frugrad.h"

#include <stddef.h>
#include <stdint.h>

/* ---- measure ---------------------------------------------------------------------------------- */

typedef enum frugi_matrix_kind {
    FRUGI_MATRIX_GAUSSIAN, /* normal numbers, columns scaled to length one; 4 k d bytes */
    FRUGI_MATRIX_HADAMARD  /* k rows of a Hadamard matrix with random signs; d / 8 + 4 k bytes, k d is never formed */
} frugi_matrix_kind;

typedef struct frugi_matrix_options {
    frugi_matrix_kind kind;
    uint32_t k, d; /* rows and columns: 1 <= k <= d <= 2^28, k <= 2^24 */
    uint64_t seed; /* the same seed gives the same matrix on every machine */
    int threads;   /* for its creation, at least 1; they do not change the result */
} frugi_matrix_options;

typedef struct frugi_matrix frugi_matrix;

/** Returns FRUG_ERR_ARG or FRUG_ERR_MEMORY. */
frug_status frugi_matrix_create(const frugi_matrix_options *plan, frugi_matrix **out);
void frugi_matrix_destroy(frugi_matrix *a);

uint32_t frugi_matrix_rows(const frugi_matrix *a);
uint32_t frugi_matrix_columns(const frugi_matrix *a);

/** Bytes of memory it uses. */
uint64_t frugi_matrix_bytes(const frugi_matrix *a);

/** Length of an input vector of frugi_matrix_correlate(): k, rounded up; padding has to be 0. */
uint32_t frugi_matrix_stride(const frugi_matrix *a);

/** Length of an output vector of frugi_matrix_correlate(): at least d, rounded up. */
uint32_t frugi_matrix_span(const frugi_matrix *a);

/**
 * p = A x for an x of n entries.
 *
 *   index, value   n of each; every index below d; checked. Values of duplicate indices are added
 *   work           frugi_matrix_span() floats, overwritten
 *   p              k floats; set only on FRUG_OK
 *
 * Deterministic. Threads: any number on one matrix, each with its own work. Allocates: never. Cost: O(n k), or O(d log
 * d) for the Hadamard matrix where that is less. Returns FRUG_ERR_ARG.
 */
frug_status frugi_matrix_apply(const frugi_matrix *a, const uint32_t *index, const float *value, uint32_t n,
                               float *work, float *p);

/**
 * out = A^T r for `count` consecutive vectors r.
 *
 *   r     count x frugi_matrix_stride() floats
 *   out   count x frugi_matrix_span() floats, aligned to 16 bytes; 0 from d on
 *
 * Bits depend only on the vector, not on the others. Allocates: never. Cost: O(k d) or O(d log d) per vector.
 */
void frugi_matrix_correlate(const frugi_matrix *a, const float *r, uint32_t count, float *out);

/** Column j < d into frugi_matrix_stride() floats. */
void frugi_matrix_column(const frugi_matrix *a, uint32_t j, float *column);

/* ---- recover ---------------------------------------------------------------------------------- */

typedef enum frugi_recover_method {
    FRUGI_RECOVER_NAIVE,   /* a correlation and least squares from scratch in every pass: slow, the reference */
    FRUGI_RECOVER_GRAM,    /* Batch-OMP: one correlation in all, passes over columns of A^T A, 4 d^2 bytes */
    FRUGI_RECOVER_RESIDUAL /* a correlation in every pass, least squares updated: for d too large for d^2 */
} frugi_recover_method;

typedef struct frugi_recover_options {
    frugi_recover_method method;
    uint32_t s;     /* entries of x at most: 1 <= s <= k, s < d */
    uint32_t atoms; /* columns added per pass; 0 and 1 are OMP, more is generalized OMP */
    uint32_t reach; /* columns added in all, of which the s with the largest values are kept; 0 is s; s <= reach <= k */
    double tolerance; /* stop once |p - A x| <= tolerance |p|, from 0 to 1; below 2e-6 it counts as 2e-6 (rounding) */
    int threads;      /* at least 1 */
} frugi_recover_options;

typedef struct frugi_recover frugi_recover;

/** The largest d of FRUGI_RECOVER_GRAM: 1 GiB for A^T A. */
#define FRUGI_RECOVER_GRAM_MOST 16384u

/**
 * Allocate everything that recovering needs. The matrix is borrowed and has to outlive the result.
 *
 * Returns FRUG_ERR_ARG with a message on which number does not fit, or FRUG_ERR_MEMORY.
 */
frug_status frugi_recover_create(const frugi_matrix *a, const frugi_recover_options *plan, frugi_recover **out);
void frugi_recover_destroy(frugi_recover *r);

/** Bytes of memory it uses, without the matrix. */
uint64_t frugi_recover_bytes(const frugi_recover *r);

/**
 * Find for every p a sparse x with A x near p.
 *
 *   p              chunks x k floats, all finite; checked
 *   index, value   chunks x s; of chunk c the first count[c] from c * s on, index ascending; zeros after them
 *   count          chunks; fewer than s if the tolerance is met before, 0 for a p of zeros
 *
 * Outputs are set only on FRUG_OK. A column that those in use already span, up to rounding, is rejected. Of columns
 * that correlate equally the first is added. Bits depend only on the chunk: not on threads, other chunks or the
 * machine. Threads: one call at a time. Allocates: never. Returns FRUG_ERR_ARG.
 */
frug_status frugi_recover_run(frugi_recover *r, const float *p, uint64_t chunks, uint32_t *index, float *value,
                              uint32_t *count);

#endif
