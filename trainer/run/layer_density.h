/* layer_density.h - density of each tensor at a step. */
#ifndef FGT_LAYER_DENSITY_H
#define FGT_LAYER_DENSITY_H

#include "trainer/run/worker.h"

/** Whether a run reports this step: about 16 of its steps, including the first and the last. */
bool fgt_layer_density_due(uint64_t step, uint64_t steps);

/** Calls the `layers` callback with the density of every tensor in the step just done; does nothing without a callback
 * or compression. */
void fgt_layer_density_report(const fgt_worker *w);

#endif
