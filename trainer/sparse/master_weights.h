/*
 * master_weights.h - weights that the optimizer updates, where the model has a projection of them: N of every M, or few
 * bits (fake quantization), or both. The gradient at the projection is applied to the master (straight-through).
 */
#ifndef FGT_MASTER_WEIGHTS_H
#define FGT_MASTER_WEIGHTS_H

#include "trainer/nn/graph.h"
#include "trainer/sparse/sparse_options.h"

/** The text of --quantize. */
typedef struct fgt_quantize_options {
    uint32_t weights, activations; /* bits; 0: not quantized */
} fgt_quantize_options;

/** Parses int8 or int4, with :activations=int8 or int4. Returns an exit status, after an error message. */
int fgt_quantize_parse(const char *text, fgt_quantize_options *options);

typedef struct fgt_master {
    fgt_graph *graph;
    float *weights;               /* a flat buffer; NULL: the optimizer updates those of the model */
    uint32_t bits;                /* of the model's weights; 0: they are not quantized */
    const fgt_sparse_options *nm; /* N of every M; NULL: all */
    uint8_t *selected;            /* a mask of one parameter */
} fgt_master;

/** What the model is from now on: its graph, bits and nm are set before. A new master has the weights of the model, and
 * one that is not needed any more is freed; the model gets the projection. Returns an exit status. */
int fgt_master_begin(fgt_master *m);
void fgt_master_free(fgt_master *m);

/** After a step of the optimizer with a learning rate: the model gets the projection. */
void fgt_master_project(fgt_master *m, double rate);

#endif
