/*
 * fake_quantize.h - numbers rounded to those of a few bits, as floats: for training with the errors of quantization.
 *
 * Symmetric, one scale for each row: the largest magnitude over 127 (8 bits) or 7 (4 bits); a number becomes the
 * nearest multiple of the scale, ties to even. Gradients pass unchanged (straight-through).
 */
#ifndef FGT_FAKE_QUANTIZE_H
#define FGT_FAKE_QUANTIZE_H

#include "trainer/nn/graph.h"

/** Rounds n numbers that are `stride` apart, with a common scale. Those with an infinity or a NaN are copied. `to` may
 * be `from`. */
void fgt_fake_quantize(const float *from, float *to, size_t n, size_t stride, uint32_t bits);

/** Rounds the weights of a parameter: one scale for each output. */
void fgt_fake_quantize_weights(const fgt_param *p, const float *from, uint32_t bits);

/** The inputs of all convolutions and linear layers are rounded from now on, but for the samples of the data set: one
 * scale for each token of (T, C), or for each sample. */
void fgt_graph_quantize_activations(fgt_graph *g, uint32_t bits);

/** Rounds the value of a node that has just been computed, where that is asked for. */
void fgt_fake_quantize_value(const fgt_graph *g, const fgt_value *v);

#endif
