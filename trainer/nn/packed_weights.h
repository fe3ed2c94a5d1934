/*
 * packed_weights.h - products with packed weights (frugrad/sparse.h), in graphs without a backward pass.
 */
#ifndef FGT_PACKED_WEIGHTS_H
#define FGT_PACKED_WEIGHTS_H

#include "trainer/nn/graph.h"

enum { FGT_UNPACKED_OUTPUTS = 64 }; /* unpacked at a time for products with many rows */

/** Lets a parameter of `inputs` inputs be packed, if the graph has no backward pass, and reserves its work space. */
void fgt_packed_allow(fgt_graph *g, fgt_param *p, size_t inputs);

/** y (rows x out) = x (rows x in) W'. Few rows are multiplied as they are; for many, some outputs at a time are
 * unpacked and multiplied by BLAS. */
void fgt_packed_multiply(fgt_graph *g, const frug_sparse *w, const float *x, size_t rows, size_t in, float *y,
                         size_t out);

#endif
