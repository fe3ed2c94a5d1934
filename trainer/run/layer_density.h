/* layer_density.h - what a step sends of each tensor. */
#ifndef FGT_LAYER_DENSITY_H
#define FGT_LAYER_DENSITY_H

#include "trainer/run/worker.h"

/** Whether a run tells this step: some 16 of its steps, the first and the last among them. */
bool fgt_layer_density_due(uint64_t step, uint64_t steps);

/** Tell the watch what share of every tensor left in the step just taken; nothing where nobody listens or nothing is
 * compressed. */
void fgt_layer_density_report(const fgt_worker *w);

#endif
