/*
 * sparse_weights.h - sparse weights during training: the masks of a model and how they change.
 *
 * Masks are a function of the weights, which are the same on all workers, so workers need not exchange them. Only
 * growth (rigl) depends on gradients: each worker sums those of pruned weights where they are computed anyway, and an
 * update exchanges the largest of the sums.
 *
 * Where whole units are pruned, all tensors that have weights of a unit have masks, vectors too, and no others.
 *
 * With N:M, from the step fgt_sparse_begin() to fgt_sparse_end(), the model is a projection of dense weights
 * (master_weights.h); the mask is selected at the end.
 */
#ifndef FGT_SPARSE_WEIGHTS_H
#define FGT_SPARSE_WEIGHTS_H

#include "trainer/sparse/graph_units.h"
#include "trainer/sparse/sparse_options.h"
#include "trainer/sparse/weight_mask.h"

typedef struct fgt_sparse {
    fgt_sparse_options options;
    fgt_graph *graph;
    uint64_t steps;
    uint8_t *mask, *scratch; /* of all parameters, one after the other; scratch: masks before the last update */
    size_t mask_bytes;
    bool keeps_norms; /* an update at step 0 multiplies the weights that stay, so that the norms of parameters stay */
    float *growth;    /* rigl: sums of the gradients of pruned weights since the last update, in the flat buffer */
    float *weights;   /* by which masks are selected: those that the optimizer updates, as a flat buffer */
    fgt_graph_units *units; /* channels and heads: those of the model; NULL: single weights are pruned */
} fgt_sparse;

/** Creates masks of a model, which keep everything; random_weights: nothing was learned yet; head_length: of attention
 * heads, 0 if there are none. Returns an exit status. */
int fgt_sparse_create(const fgt_sparse_options *options, fgt_graph *graph, uint64_t steps, bool random_weights,
                      uint32_t head_length, fgt_sparse **sparse);
void fgt_sparse_destroy(fgt_sparse *s);

/** Changes the masks after `step` steps; those before it are in s->scratch. Collective. Returns an exit status. */
int fgt_sparse_update(fgt_sparse *s, frug_comm *comm, uint64_t step);

/** Whether the straight-through phase of N:M includes a step. */
bool fgt_sparse_is_straight_through(const fgt_sparse *s, uint64_t step);

/** Sums the gradient of the pruned weights of a parameter. */
void fgt_sparse_add_growth(float *growth, const fgt_param *p, const float *gradient);

#endif
