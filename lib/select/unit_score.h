/* unit_score.h - scores of units of several elements. */
#ifndef FRUGI_UNIT_SCORE_H
#define FRUGI_UNIT_SCORE_H

#include "layout/tile_grid.h"
#include "config/config.h"

/**
 * Compute the score of every unit of a matrix: sum of magnitudes (l1), sum of squares (l2) or largest magnitude (max).
 *
 *   score   grid->units floats; a sum too large for a float becomes the largest one
 *
 * Sums are computed in double, in an order that does not depend on threads. Cost: one pass over the elements.
 */
void frugi_score_units(const frugi_grid *grid, const float *x, frugi_score how, float *score, int threads);

#endif
