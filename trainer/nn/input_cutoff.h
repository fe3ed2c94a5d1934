/*
 * input_cutoff.h - cutoffs of the inputs of linear layers: elements of a smaller magnitude count as zero, as in TEAL
 * (Liu et al. 2024). For graphs without backward.
 *
 * A cutoff is the magnitude below which a given share of a layer's inputs is, over some batches:
 * fgt_cutoffs_measure(), forward passes, fgt_cutoffs_set(). Layers with sparse weights have none: their products do not
 * gain by it.
 */
#ifndef FGT_INPUT_CUTOFF_H
#define FGT_INPUT_CUTOFF_H

#include "trainer/nn/graph.h"

/** From now on, forward counts the magnitudes of the inputs of all linear layers. Returns false without memory. */
bool fgt_cutoffs_measure(fgt_graph *g);

/** Sets the cutoffs, by what was counted, and counts no longer. */
void fgt_cutoffs_set(fgt_graph *g, double share);

/** Stores the weights of layers with a cutoff by columns, so that inputs of zero cost nothing: for graphs that compute
 * token by token. int8 weights stay int8; dense ones are no longer used. Returns an exit status. */
int fgt_cutoffs_pack(fgt_graph *g);

/** Counts n inputs of a layer. */
void fgt_cutoff_count(const fgt_param *p, const float *x, size_t n);

/** Copies n inputs, those below the cutoff as zero. */
void fgt_cutoff_apply(float cutoff, const float *x, size_t n, float *dst);

#endif
