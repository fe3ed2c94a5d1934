/*
 * optim.h - optimizers: from the mean gradient of all workers to new weights.
 *
 *   frug_optimizer_create("merged", layout, frug_reducer_compressor(reducer), &optimizer);
 *   frug_optimizer_step(optimizer, step, all, grad, rate, weights);
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef FRUGRAD_OPTIM_H
#define FRUGRAD_OPTIM_H

#include <frugrad/core.h>

#ifdef __cplusplus
extern "C" {
#endif

/** One kind of optimizer and its options. */
typedef struct frug_optimizer_kind {
    const char *name;
    const char *options; /* names and defaults: "momentum=0.9,nesterov=0,decay=0" */
    const char *help;
} frug_optimizer_kind;

/** The i-th kind, or NULL past the end. */
FRUG_API const frug_optimizer_kind *frug_optimizer_at(size_t i);

typedef struct frug_optimizer frug_optimizer;

/**
 * Create an optimizer from a text: name[:option=value[,option=value]...].
 *
 *   layout       the tensors, copied
 *   compressor   read here only: which tensors are sent dense (these have ordinary states where the momentum of the
 *                others is in the residual), and the density of the schedule (inertia=auto). NULL: no dense tensors
 *
 * Allocates here and never later. Returns FRUG_ERR_ARG, FRUG_ERR_CONFIG (an unknown word; the message has the nearest
 * known one), FRUG_ERR_MEMORY.
 */
FRUG_CHECK frug_status frug_optimizer_create(const char *text, const frug_layout *layout,
                                             const frug_compressor *compressor, frug_optimizer **optimizer);
FRUG_API void frug_optimizer_destroy(frug_optimizer *optimizer);

/** The text with every option spelled out; creates the same optimizer. */
FRUG_API const char *frug_optimizer_text(const frug_optimizer *optimizer);

/**
 * Update the weights of one range with the mean gradient of all workers.
 *
 *   step      from 0; the same for all ranges of a step, each range once per step
 *   grad      grad[0] is element range.begin; the mean over the workers, zero where nothing was sent
 *   rate      learning rate of this step, as for the ordinary optimizer: a merged one multiplies it by its gain
 *   weights   weights[0] is element range.begin
 *
 * A range begins and ends at a tensor or a multiple of 256 elements into one, whatever the compressor's block length;
 * inside a tensor only if frug_optimizer_can_split() allows it. A block of 256 whose gradient has a NaN, an infinity or
 * a magnitude of 2^63 or more is skipped, weights and states; a tensor that is updated as a whole is skipped as a
 * whole. Deterministic: all ranks stay equal. Threads: one call at a time. Never allocates. Returns FRUG_ERR_ARG.
 */
FRUG_CHECK frug_status frug_optimizer_step(frug_optimizer *optimizer, uint64_t step, frug_range range,
                                           const float *grad, double rate, float *weights);

/** Announce the next step. A velocity (inertia=auto) that no later step needs is freed, as that step would do: so a
 *  state that is saved before a step and one that is restored there have the same size. */
FRUG_API frug_status frug_optimizer_seek(frug_optimizer *optimizer, uint64_t step);

/**
 * Take over the states of a tensor from an optimizer of the same text whose layout has the tensor in another length,
 * because weights were removed from it or added to it.
 *
 *   tensor   its number in both layouts
 *   source   ascending, for each of its elements: the element of `from` whose state it gets; UINT64_MAX: zeros
 *
 * States in a short format are rounded again. Refused (FRUG_ERR_CONFIG) for optimizers that need whole tensors, and for
 * microadam. Returns FRUG_ERR_ARG.
 */
FRUG_CHECK frug_status frug_optimizer_remap(frug_optimizer *optimizer, const frug_optimizer *from, size_t tensor,
                                            const uint64_t *source);

/** From step `since` on and before step `until` the mean squares of Adam (adamw, adam-merged) do not change; since = 0:
 *  they always do. For gradients that a mask makes larger or smaller than the weights deserve. A step's own gradient
 *  still counts in that step, so that an element without a mean square moves as at its first gradient. Later steps need
 *  the call, too: their bias correction leaves out the steps between. Not part of a saved state. Returns FRUG_ERR_ARG.
 */
FRUG_API frug_status frug_optimizer_freeze_squares(frug_optimizer *optimizer, uint64_t since, uint64_t until);

/** Factor by which a merged optimizer multiplies this rate; 1 for others. With gain=auto and gain=finetune that of
 *  adam-merged is larger for low rates than for high ones. */
FRUG_API double frug_optimizer_gain(const frug_optimizer *optimizer, double rate);

/** 1 if a range may begin or end inside a tensor; 0 if the optimizer needs the tensor whole and refuses such a range.
 */
FRUG_API int frug_optimizer_can_split(const frug_optimizer *optimizer, size_t tensor);

/** Numbers that the optimizer stores about gradients: two per parameter for AdamW, 2 kappa s per tensor for sgc. Bases,
 *  factors, indices and scales are not counted; frug_optimizer_state_size() counts everything. */
FRUG_API uint64_t frug_optimizer_state_count(const frug_optimizer *optimizer);

/**
 * Number of floats that a rank must contribute for a range at a step. Frozen tensors: 0. Targets of sgc, mesgc and
 * cesgc: 2 kappa s measurements, except at steps that renew the basis or the shares, which need the full gradient. All
 * other tensors: the gradient. 0 for a range that frug_optimizer_step() refuses. Depends on the state: call before the
 * step.
 */
FRUG_API uint64_t frug_optimizer_measure_count(const frug_optimizer *optimizer, uint64_t step, frug_range range);

/**
 * Measure this rank's gradient of a range: frug_optimizer_measure_count() floats, tensor by tensor in the order of the
 * layout; of a measured target first measurements of the gradient, then of its squares, chunk by chunk.
 *
 * Ranks sum the result, divide by their number and call frug_optimizer_step_measured(). Means of measured gradients are
 * exact; those of squares are means of the ranks' squares, not less than the square of the mean gradient. A gradient
 * that would be skipped is measured as NaN, so that all ranks skip it; one that is sent whole is checked in the mean.
 *
 *   measured   may be NULL if the count is 0
 *
 * Does not change the state. Deterministic. Threads: one call at a time. Never allocates. Returns FRUG_ERR_ARG.
 */
FRUG_CHECK frug_status frug_optimizer_measure(frug_optimizer *optimizer, uint64_t step, frug_range range,
                                              const float *grad, float *measured);

/** Update the weights of one range with the mean of all ranks' measurements. With one rank, measuring and then this
 *  gives the bits of frug_optimizer_step(). Measurements are untrusted: a target with a NaN, an infinity or a magnitude
 *  of 2^109 or more among its own is skipped. */
FRUG_CHECK frug_status frug_optimizer_step_measured(frug_optimizer *optimizer, uint64_t step, frug_range range,
                                                    const float *measured, double rate, float *weights);

/** Time spent since creation, by optimizers that need whole tensors. */
typedef struct frug_optimizer_times {
    size_t struct_size;     /* sizeof(frug_optimizer_times), set by the caller */
    double seconds_project; /* bases, projections, selections and measurements */
    double seconds_recover; /* from measurements back to entries; table: finding and dropping entries */
    double seconds_apply;   /* everything else: means and weights */
} frug_optimizer_times;

/** Totals since creation, of steps and measurements; 0 for kinds that need no whole tensor. */
FRUG_API frug_status frug_optimizer_time(const frug_optimizer *optimizer, frug_optimizer_times *times);

/** Save and restore the state, as with compressors: bit for bit; the bytes are untrusted; unchanged on an error. */
FRUG_API size_t frug_optimizer_state_size(const frug_optimizer *optimizer);
FRUG_CHECK frug_status frug_optimizer_save(const frug_optimizer *optimizer, void *dst, size_t cap, size_t *len);
FRUG_CHECK frug_status frug_optimizer_restore(frug_optimizer *optimizer, const void *src, size_t len);

#ifdef __cplusplus
}
#endif

#endif
