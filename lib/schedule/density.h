/* density.h - density as a function of the step. */
#ifndef FRUGI_DENSITY_H
#define FRUGI_DENSITY_H

#include "config/config.h"

/**
 * The share of entries that is sent at a step, above 0 and at most 1.
 *
 *   step, total   the optimizer step and the length of training; steps past the
 *                 end, and every step if total is 0, have the final value
 *
 * Deterministic: IEEE double additions, multiplications and divisions only, so
 * every worker computes the same bits. Allocates: never. Cost: O(1); about a
 * microsecond during the warm-up of schedule=dgc.
 */
double frugi_schedule_density(const frugi_schedule *schedule, uint64_t step, uint64_t total);

/** The density at the end of training. */
double frugi_schedule_final_density(const frugi_schedule *schedule);

/** The largest density of any step, whatever the length of training. */
double frugi_schedule_max_density(const frugi_schedule *schedule);

#endif
