/* newton_schulz.h - the nearest orthogonal matrix, approximately, by Newton-Schulz steps. */
#ifndef FRUGI_NEWTON_SCHULZ_H
#define FRUGI_NEWTON_SCHULZ_H

#include "optim/subspace_basis.h"

/** Floats of scratch memory that frugi_orthogonalizer() needs. */
size_t frugi_orthogonalizer_floats(const frugi_sides *side);

/**
 * A symmetric matrix q (shorter x shorter) with which x becomes orthogonal: q x, or x q if x is tall, is what five
 * Newton-Schulz steps make of x. Its singular values are between 0.68 and 1.21 where those of x are above a thousandth
 * of its norm.
 *
 *   x      finite
 *   work   frugi_orthogonalizer_floats(); the result is in it
 *
 * Returns NULL if x is zero, or too large for its squares. Bits do not depend on threads. Allocates: never. Cost:
 * products of shorter^2 longer / 2 and about 9 shorter^3.
 */
const float *frugi_orthogonalizer(const frugi_sides *side, const float *x, float *work, int threads);

/** w = decay_factor w + factor times q x, or x q. */
void frugi_add_orthogonalized(const frugi_sides *side, const float *q, const float *x, float decay_factor, float factor,
                              float *w, int threads);

#endif
