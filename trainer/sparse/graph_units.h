/* graph_units.h - the units of a graph, and masks that prune whole units. */
#ifndef FGT_GRAPH_UNITS_H
#define FGT_GRAPH_UNITS_H

#include "trainer/nn/graph.h"
#include "trainer/sparse/unit_layers.h"

typedef struct fgt_graph_units {
    frug_tensor *tensor; /* of the parameters, then of the running statistics */
    float **data;
    fgt_param **param; /* NULL: running statistics, which have no mask */
    size_t count;
    fgt_unit_layer *layer;
    size_t layers;
} fgt_graph_units;

/** Finds the units of a graph; a model without such units is an error. Returns an exit status. */
int fgt_graph_units_create(const fgt_graph *graph, const fgt_unit_kinds *kinds, fgt_graph_units **units);
void fgt_graph_units_destroy(fgt_graph_units *units);

/** Whether some weights of a parameter belong to units. */
bool fgt_graph_units_include(const fgt_graph_units *units, const fgt_param *p);

/** Prunes the least important units of every layer that are not pruned yet, until the share of them stays: clears all
 * bits that the masks of parameters have of them. weights: a flat buffer. Returns an exit status. */
int fgt_graph_units_prune(fgt_graph_units *units, float *weights, double share);

#endif
