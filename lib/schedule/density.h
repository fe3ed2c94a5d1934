/* density.h - how many entries leave at a step. */
#ifndef FRUGI_DENSITY_H
#define FRUGI_DENSITY_H

#include "config/config.h"

/**
 * The share of entries that leaves at a step, above 0 and at most 1.
 *
 *   step, total   the optimiser step and the length of training; steps past the
 *                 end, and every step when total is 0, stand at the final value
 *
 * Deterministic: IEEE double additions, multiplications and divisions only, so
 * every worker gets the same bits. Allocates: never. Cost: O(1); about a
 * microsecond during the warm-up of schedule=dgc.
 */
double frugi_schedule_density(const frugi_schedule *schedule, uint64_t step, uint64_t total);

/** The density that training ends with. */
double frugi_schedule_final_density(const frugi_schedule *schedule);

/** The largest density of any step, whatever the length of training. */
double frugi_schedule_most_density(const frugi_schedule *schedule);

#endif
