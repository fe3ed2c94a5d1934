/* layer_density.h - what a step sends of each tensor. */
#ifndef FRUGI_LAYER_DENSITY_H
#define FRUGI_LAYER_DENSITY_H

#include "trainer/run/worker.h"

/** Whether a run tells this step: some 16 of its steps, the first and the last among them. */
bool frugi_layers_due(uint64_t step, uint64_t steps);

/** Tell the watch what share of every tensor left in the step just taken; nothing where nobody listens or nothing is
 * compressed. */
void frugi_layers_tell(const frugi_worker *w);

#endif
