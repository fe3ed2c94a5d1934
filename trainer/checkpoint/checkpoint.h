/*
 * checkpoint.h - a run on disk: one safetensors file per checkpoint, "step-000000120.safetensors".
 *
 * Weights and running statistics have their own names, so other tools can load the file as a model. Further tensors:
 *
 *   frugrad.buffers.R    F32  running statistics of worker R, concatenated; worker 0's have their own names
 *   frugrad.outer        F32  with local steps and outer_momentum only: that momentum, the same on all workers
 *   frugrad.optimizer    U8   frug_optimizer_save; the same on all workers, so it is saved once
 *   frugrad.optimizer.R  U8   with local steps or stages only: that of worker R from 1 on
 *   frugrad.residual.R   U8   the compressor of worker R (frug_compressor_save)
 *   frugrad.mask         U8   sparse weights: masks of all parameters that have one, lowest bit first
 *   frugrad.stage.R      F32  stages: the last activations of all samples that stage R has sent and received
 *   frugrad.growth.R     F32  likewise: sums of the gradients of pruned weights of worker R
 *   frugrad.master       F32  the weights that the optimizer updates, where those of the model are a projection
 *   frugrad.checksum     U8   CRC-32C of all bytes before it
 *
 * and in the metadata that of the caller and frugrad.step, frugrad.workers, frugrad.format, frugrad.generation. Files
 * appear complete or not at all: a temporary file is written, synced and renamed. Worker 0 does all file I/O and
 * sends the others their parts, so only its machine needs the disk.
 */
#ifndef FGT_CHECKPOINT_H
#define FGT_CHECKPOINT_H

#include "frugrad.h"
#include "trainer/nn/graph.h"

#include <jansson.h>
#include <stdbool.h>

/** The state of one worker that a checkpoint saves and restores. */
typedef struct fgt_checkpoint_state {
    frug_comm *comm;
    fgt_graph *graph;
    frug_compressor *compressor; /* NULL: not saved, not restored */
    frug_optimizer *optimizer;   /* likewise */
    bool own_optimizer;          /* the optimizers of workers differ: all are saved */
    float *outer;                /* momentum of local steps, a float per parameter; or NULL */
    /* Pipeline stages: */
    bool stages;            /* each worker has its own weights, running statistics (fgt_param.stage) and states */
    uint32_t node;          /* workers of a node, one of which has the residual of an entry; 0: each has one */
    float *memory;          /* of samples; or NULL */
    uint64_t memory_floats; /* the same on all workers */
    /* Sparse weights (sparse/sparse_weights.h); NULL: not saved, not restored. */
    uint8_t *mask;
    size_t mask_bytes;
    float *master, *growth; /* graph->elements each */
} fgt_checkpoint_state;

/**
 * Writes a checkpoint into a directory, which is created if missing, and removes old ones beyond `keep`. Collective.
 *
 * keep: number of checkpoints up to this step that are kept; 0: all. generation: from fgt_checkpoint_next_generation();
 * only that of worker 0 is used. metadata: a flat map of strings to strings (others are ignored), or NULL; only that of
 * worker 0 is used. path: worker 0 gets the name of the file; or NULL.
 *
 * On an error (a full disk) every worker gets FGIO_EXIT_FAIL, older checkpoints are intact, and no partial file
 * remains.
 */
int fgt_checkpoint_write(const char *directory, uint32_t keep, uint64_t generation, uint64_t step,
                         const fgt_checkpoint_state *state, json_t *metadata, char *path, size_t cap);

/** An open checkpoint; worker 0 has the file, the others receive their parts. */
typedef struct fgt_checkpoint fgt_checkpoint;

/** Opens a checkpoint, or the newest valid one of a directory (a damaged one is skipped with a warning). Collective.
 * Every worker gets the metadata (owned by the checkpoint). */
int fgt_checkpoint_open(const char *path, frug_comm *comm, fgt_checkpoint **checkpoint, json_t **metadata,
                        uint64_t *step);
void fgt_checkpoint_close(fgt_checkpoint *checkpoint);

/** Whether a directory has a checkpoint, valid or not, as seen by worker 0. Collective. */
int fgt_checkpoint_exists(const char *directory, frug_comm *comm, bool *any);

/**
 * The generation for the checkpoints that a run will write into a directory: that of the newest one there if the
 * run continues from it with the same count of steps, else the next. On worker 0.
 *
 *   from   where the run continues from; NULL: it starts
 *   at     the step that it continues at
 */
int fgt_checkpoint_next_generation(const char *directory, const fgt_checkpoint *from, uint64_t at,
                                   uint64_t *generation);

/** Restores everything. Collective. A checkpoint of another number of workers is restored too: each worker then starts
 * from the mean of all residuals, so that the update still to be applied is the same in total, and from worker 0's
 * running statistics, and growth begins at zero; *redistributed is set. With own_optimizer that is an error. After an
 * error the state is undefined. */
int fgt_checkpoint_restore(fgt_checkpoint *checkpoint, const fgt_checkpoint_state *state, bool *redistributed);

/**
 * Loads only weights and running statistics, from any safetensors or compact file with the usual names. F32, F64, F16
 * and BF16 are converted. A graph without backward gets the weights of linear layers that a compact file has sparse or
 * as int8 as packed matrices.
 *
 * Prefixes ("module.", "model.", "transformer.", "bert.") may be there or missing, and LayerNorm.gamma and beta are
 * accepted. Tensors that the model does not have are ignored. Those that the file does not have, or has in another
 * shape, are an error, unless they belong to the head of a fine-tuned model (classifier, fc, linear,
 * score, pooler, cls): they are not changed, and *missing counts them. Parameters of other stages are checked likewise,
 * but not loaded. Not collective.
 */
int fgt_weights_load(const char *path, fgt_graph *graph, uint32_t *missing);

/** Prints a hint if a checkpoint is of another --model, whose tensors may have the same shapes. */
void fgt_checkpoint_compare_model(const char *path, const json_t *metadata, const char *model);

/** The same for a file of weights that may be a checkpoint. */
void fgt_weights_compare_model(const char *path, const char *model);

/** The parameter that a file's tensor of that name is for; NULL: none. */
const fgt_param *fgt_weights_find(const fgt_graph *graph, const char *name);

/** The file to read weights from: the path itself, or the newest checkpoint if it is a directory. One whose header
 * cannot be read is reported and skipped. Returns an exit status, after an error message. */
int fgt_checkpoint_newest(const char *path, char *dst, size_t cap);

/** Whether a file has the name of a checkpoint. */
bool fgt_checkpoint_has_name(const char *path);

/** Whether a name is that of a layer that fine-tuning initializes anew: a classifier, a pooler. */
bool fgt_weights_is_head(const char *name);

#endif
