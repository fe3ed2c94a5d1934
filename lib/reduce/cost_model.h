/* cost_model.h - the parts of the cost model (cost_model.c) that tests and reduce=auto look at; the whole is
 * frug_predict(). */
#ifndef FRUGI_COST_MODEL_H
#define FRUGI_COST_MODEL_H

#include "frugrad.h"

/** Share of the entries that at least one of m independent supports of a density has: 1 - (1 - density)^m. */
double frugi_union_density(double density, uint32_t m);

/** Bytes of a sum as a frame: f32 values at random places in the shortest index code, or all of them if that is less.
 */
double frugi_sum_bytes(double elements, double density);

/**
 * Of some algorithms, the one whose step the model finds shortest; of equals the first. Returns its place, or count
 * where none can be predicted.
 */
size_t frugi_cheapest(const frug_scene *scene, const char *const *names, size_t count);

#endif
