/*
 * graph_stages.h - dividing a graph into pipeline stages.
 *
 * A chunk is a range of nodes whose only input and only output, besides the batch, is one value each. Chunk i is run by
 * stage i % stages: as many chunks as stages, or one more where the last layer has the weights of the embedding (tied).
 * Then the last chunk, from that layer on, is run by stage 0, which has these weights, so no weight is on two stages.
 */
#ifndef FGT_GRAPH_STAGES_H
#define FGT_GRAPH_STAGES_H

#include "trainer/nn/graph.h"

#define FGT_STAGES_MAX 64u

typedef struct fgt_stage_plan {
    uint32_t stages, chunks;
    uint32_t begin[FGT_STAGES_MAX + 2]; /* numbers of nodes: chunk i is begin[i] .. begin[i + 1] - 1 */
} fgt_stage_plan;

/** A chunk of a graph that has the nodes of one stage. */
typedef struct fgt_chunk {
    uint32_t number;
    fgt_node *first, *last;
    fgt_value *in, *out; /* NULL: of the first and of the last chunk */
} fgt_chunk;

/**
 * Divides a graph, before it is finished, such that the largest estimated cost of a stage is smallest.
 *
 *   model   for the error message where the graph has fewer places to divide it at
 */
int fgt_stages_plan(const fgt_graph *g, const char *model, uint32_t stages, fgt_stage_plan *plan);

/** The floats of one sample that a stage receives and sends as activations, at most of all stages. */
uint64_t fgt_stages_link_floats(const fgt_graph *g, const fgt_stage_plan *plan);

/** How many micro-batches a stage has in memory, of those of a step. */
uint32_t fgt_stages_copies(const fgt_stage_plan *plan, uint32_t stage, uint32_t micro_batches);

/** Removes what other stages run, and marks their parameters as absent and frozen. chunks: this stage's, at most two;
 * returns how many. Before fgt_graph_finish(). */
uint32_t fgt_stages_keep(fgt_graph *g, const fgt_stage_plan *plan, uint32_t stage, fgt_chunk chunks[2]);

#endif
