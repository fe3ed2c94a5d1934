/*
 * local_steps.h - local steps, option local: every worker updates its own weights for some steps, then the workers
 * exchange the compressed differences to the weights that they shared (SparseLoCo; with everything sent, DiLoCo).
 *
 * The difference of a worker is what its steps have subtracted from the shared weights, so it is treated like a
 * gradient: the mean of what workers send, as a step of SGD with the outer rate and Nesterov momentum, is subtracted
 * from the shared weights, and every worker continues from there. What a worker did and did not send is in its
 * residual. Its optimizer keeps its own state.
 */
#ifndef FGT_LOCAL_STEPS_H
#define FGT_LOCAL_STEPS_H

#include "frugrad.h"

#include <stdbool.h>

typedef struct fgt_local fgt_local;

/** The options of a config for local steps. */
typedef struct fgt_local_options {
    uint64_t every;         /* steps between exchanges; 0: no local steps */
    double outer, momentum; /* options outer and outer_momentum */
} fgt_local_options;

fgt_local_options fgt_local_options_of(const frug_config *config);

/** The number of exchanges of a run. */
uint64_t fgt_local_rounds(uint64_t every, uint64_t steps);

/**
 * Creates the exchange of one worker: two floats per parameter, and one more for momentum.
 *
 *   reducer   not owned
 *   weights   of the worker, not owned; the same on all workers
 *
 * Returns an exit status.
 */
int fgt_local_create(frug_reducer *reducer, const fgt_local_options *options, int workers, float *weights,
                     uint64_t count, fgt_local **local);
void fgt_local_destroy(fgt_local *local);

/** The momentum, which is the same on all workers and is saved in checkpoints: a float per parameter, or NULL. */
float *fgt_local_momentum(const fgt_local *local);

/** Whether the workers exchange after `step` of `steps` steps: at multiples, and at the end. */
bool fgt_local_is_due(const fgt_local *local, uint64_t step, uint64_t steps);

/** The number of steps from the exchange before to `step`, at which one is due. */
uint64_t fgt_local_since(const fgt_local *local, uint64_t step);

/** Exchanges after `step` steps; all workers then have the same weights. Collective. */
frug_status fgt_local_exchange(fgt_local *local, uint64_t step);

/** Takes the worker's weights, which are the same on all workers, as the shared ones. */
void fgt_local_restart(fgt_local *local);

#endif
