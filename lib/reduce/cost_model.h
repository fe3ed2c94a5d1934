/* cost_model.h - functions of the cost model that tests and reduce=auto use; the model itself is frug_cost_predict().
 */
#ifndef FRUGI_COST_MODEL_H
#define FRUGI_COST_MODEL_H

#include "frugrad.h"

/** Density of the union of m independent random supports: 1 - (1 - density)^m. */
double frugi_union_density(double density, uint32_t m);

/** Bytes of a sum as a frame: f32 values at random indices in the shortest index code, or dense if that is less. */
double frugi_sum_frame_bytes(double elements, double density);

/**
 * The algorithm with the shortest predicted step; of equals the first. Returns its index in names, or count if none can
 * be predicted.
 */
size_t frugi_cheapest_algorithm(const frug_cost_inputs *scene, const char *const *names, size_t count);

#endif
