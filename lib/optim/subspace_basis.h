/* subspace_basis.h - the directions in which a gradient is largest. */
#ifndef FRUGI_SUBSPACE_BASIS_H
#define FRUGI_SUBSPACE_BASIS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FRUGI_BASIS_SPARE 8u /* directions that are followed besides those asked for */

/** Numbers of a matrix that is projected along its shorter side. */
typedef struct frugi_sides {
    size_t rows, cols;
    size_t near, far; /* the shorter and the longer one; equal ones count as tall */
    bool tall;        /* the shorter side is the columns */
} frugi_sides;

frugi_sides frugi_sides_of(size_t rows, size_t cols);

/** y (k x far) = x (k x near) times g, and y (k x near) = x (k x far) times g, whichever way g lies. */
void frugi_to_far(const frugi_sides *side, const float *x, size_t k, const float *g, float *y, int threads);
void frugi_to_near(const frugi_sides *side, const float *x, size_t k, const float *g, float *y, int threads);

/** w = keep w + factor times the sum over k of near vector times far vector. */
void frugi_from_both(const frugi_sides *side, const float *near, const float *far, size_t k, float keep, float factor,
                     float *w, int threads);

/** Bytes of work that frugi_basis() takes. */
size_t frugi_basis_bytes(const frugi_sides *side, size_t rank);

/**
 * The `rank` leading singular vectors of g along its shorter side, largest first, orthonormal.
 *
 *   g       finite, below 2^63
 *   work    frugi_basis_bytes(), aligned to 8 bytes
 *   basis   rank x near; directions in which g is zero are arbitrary ones orthogonal to the others
 *
 * Deterministic. Allocates: never. Cost: 5 products of rank + 8 vectors with g, and (rank + 8)^2 (near + 2 far).
 */
void frugi_basis(const frugi_sides *side, const float *g, size_t rank, uint64_t seed, void *work, float *basis,
                 int threads);

#endif
