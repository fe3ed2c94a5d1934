/* subspace_basis.h - leading singular vectors of a gradient. */
#ifndef FRUGI_SUBSPACE_BASIS_H
#define FRUGI_SUBSPACE_BASIS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FRUGI_BASIS_EXTRA 8u /* directions that are iterated in addition to those requested */

/** Dimensions of a matrix that is projected along its shorter side. */
typedef struct frugi_sides {
    size_t rows, cols;
    size_t shorter, longer; /* of equal sides, `longer` is the rows */
    bool tall;              /* the shorter side is the columns */
} frugi_sides;

frugi_sides frugi_sides_make(size_t rows, size_t cols);

/**
 * y (k x longer) = x (k x shorter) times g, and y (k x shorter) = x (k x longer) times g, in either orientation of g.
 */
void frugi_project_to_longer(const frugi_sides *side, const float *x, size_t k, const float *g, float *y, int threads);
void frugi_project_to_shorter(const frugi_sides *side, const float *x, size_t k, const float *g, float *y, int threads);

/** w = decay_factor w + factor times the sum of k outer products of a shorter and a longer vector. */
void frugi_add_outer_products(const frugi_sides *side, const float *shorter, const float *longer, size_t k,
                              float decay_factor, float factor, float *w, int threads);

/** Bytes of scratch memory that frugi_compute_basis() needs. */
size_t frugi_basis_work_bytes(const frugi_sides *side, size_t rank);

/**
 * The `rank` leading singular vectors of g along its shorter side, largest first, orthonormal.
 *
 *   g       finite, below 2^63
 *   work    frugi_basis_work_bytes(), aligned to 8 bytes
 *   basis   rank x shorter; directions in which g is zero are arbitrary ones orthogonal to the others
 *
 * Deterministic. Allocates: never. Cost: 5 products of rank + 8 vectors with g, and (rank + 8)^2 (shorter + 2 longer).
 */
void frugi_compute_basis(const frugi_sides *side, const float *g, size_t rank, uint64_t seed, void *work, float *basis,
                         int threads);

#endif
