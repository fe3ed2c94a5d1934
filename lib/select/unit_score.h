/* unit_score.h - what units of several elements weigh against each other. */
#ifndef FRUGI_UNIT_SCORE_H
#define FRUGI_UNIT_SCORE_H

#include "layout/tile_grid.h"
#include "config/config.h"

/**
 * The score of every unit of a matrix: the sum of magnitudes (l1), of squares (l2) or the largest magnitude (max).
 *
 *   score   grid->units floats; a sum too large for a float becomes the largest one
 *
 * Sums are taken in double, in an order that does not depend on threads. Cost: one pass over the elements.
 */
void frugi_score_units(const frugi_grid *grid, const float *x, frugi_score how, float *score, int threads);

#endif
