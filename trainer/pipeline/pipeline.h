/*
 * pipeline.h - one stage of a model that is divided over several workers (nn/graph_stages.h): its nodes, its links to
 * the stages before and after it, and the schedule of a step. See docs/pipeline.md.
 *
 * Forward and backward passes of micro-batches alternate (1F1B): stage s of S starts with S - 1 - s forward passes, and
 * has at most S - s micro-batches in memory, each in a graph of its own; all use the same weights. Passes of one kind
 * are in the order of micro-batches on every stage, so sums of gradients and running statistics have the bits of a run
 * without stages.
 */
#ifndef FGT_PIPELINE_H
#define FGT_PIPELINE_H

#include "trainer/exchange/buckets.h"
#include "trainer/model/model.h"
#include "trainer/nn/graph_stages.h"
#include "trainer/pipeline/stage_channel.h"

typedef struct fgt_pipeline fgt_pipeline;

/** How activations and their gradients are sent. */
typedef struct fgt_stage_config {
    frug_config *activations, *gradients; /* NULL: as raw floats */
} fgt_stage_config;

#define FGT_STAGE_CONFIG_DEFAULT "density=1,value=int8"

/** Parses --stage-config: `dense`, or a config of the library, or two, of activations and of gradients, with a slash
 * between them. Returns an exit status, after an error message. */
int fgt_stage_config_parse(const char *text, fgt_stage_config *config);
void fgt_stage_config_destroy(fgt_stage_config *config);

typedef struct fgt_pipeline_options {
    frug_comm *comm; /* rank: the stage */
    const fgt_model *model;
    const fgt_data_info *info;
    fgt_build_options build; /* batch: samples of a micro-batch, at most */
    const fgt_stage_config *config;
    uint32_t accumulate;    /* micro-batches of a step */
    uint64_t steps;         /* of the run */
    uint64_t keyed_samples; /* samples of the data set, where changes of a sample's activations are sent; 0: not */
} fgt_pipeline_options;

/** Divides the model. *graph: this stage's, for the caller to destroy after the pipeline; *layout: of all parameters.
 * Returns an exit status, after an error message. */
int fgt_pipeline_create(const fgt_pipeline_options *options, fgt_pipeline **pipeline, fgt_graph **graph,
                        frug_layout **layout);
/** Messages that a stage has memory for, for each value that comes from or goes to another one; copies: micro-batches
 * in memory. */
uint64_t fgt_pipeline_messages(uint32_t copies);

void fgt_pipeline_destroy(fgt_pipeline *p);

/** After the buckets of this stage were planned: all its graphs get their tiles. */
void fgt_pipeline_set_tiles(fgt_pipeline *p);

/** A batch of which the stages run all micro-batches. */
typedef struct fgt_pipeline_batch {
    uint64_t step, seed;
    const fgt_batch *batch;
    const uint64_t *ids;      /* of its samples, with keyed_samples */
    fgt_buckets *buckets;     /* that get the gradients; begun */
    double forward, backward; /* seconds are added */
} fgt_pipeline_batch;

/** Forward and backward of every micro-batch; *score is that of the stage with the loss, and zero on the others.
 * Collective: if a stage fails, the others return FRUG_ERR_REMOTE naming it, and nothing can be sent afterwards. */
frug_status fgt_pipeline_run(fgt_pipeline *p, fgt_pipeline_batch *batch, fgt_score *score);

/** A forward pass without training, of at most as many samples as a micro-batch has. Collective. */
frug_status fgt_pipeline_evaluate(fgt_pipeline *p, const fgt_batch *batch, fgt_score *score);

/** After the last of them. failed: this stage has no more batches because of an error, which the other stages receive
 * in place of what they wait for. */
frug_status fgt_pipeline_end_evaluation(fgt_pipeline *p, bool failed);

/** Whether a stage has failed, so that the stages can do nothing together any more. */
bool fgt_pipeline_has_failed(const fgt_pipeline *p);

/** What this stage has sent, to both sides, and the seconds of it. */
fgt_channel_stats fgt_pipeline_stats(const fgt_pipeline *p);

/** Whether this stage has the loss. */
bool fgt_pipeline_has_loss(const fgt_pipeline *p);

/** With keyed_samples: allocates the memory of samples, as long on all stages as the longest needs to be, and zeroes
 * it. Collective. Returns an exit status, after an error message. */
int fgt_pipeline_open_memory(fgt_pipeline *p);

/** The memory of samples, of all links of this stage; NULL: there is none. */
float *fgt_pipeline_memory(const fgt_pipeline *p, uint64_t *floats);

#endif
