/*
 * checkpoint.h - a run on disk: one safetensors file per checkpoint, "step-000000120.safetensors".
 *
 * Weights and running statistics stand under their own names, so other tools open the file as a model. Beside them:
 *
 *   frugrad.buffers.R    F32  running statistics of worker R, one after the other; worker 0's have their own names
 *   frugrad.optimizer    U8   frug_optimizer_save; the same on all workers, so it is there once
 *   frugrad.residual.R   U8   the compressor of worker R (frug_compressor_save)
 *   frugrad.checksum     U8   CRC-32C of all bytes before it
 *
 * and in the metadata the caller's facts and frugrad.step, frugrad.workers, frugrad.format, frugrad.generation. Files
 * appear whole or not at all: they are written beside, synced and renamed. Worker 0 does all reading and writing and
 * sends the others their parts, so only its machine needs the disk.
 */
#ifndef FGT_CHECKPOINT_H
#define FGT_CHECKPOINT_H

#include "frugrad.h"
#include "trainer/nn/graph.h"

#include <jansson.h>
#include <stdbool.h>

/** What a checkpoint is made of, on one worker. */
typedef struct fgt_state {
    frug_comm *comm;
    fgt_graph *graph;
    frug_compressor *compressor; /* NULL: not saved, not restored */
    frug_optimizer *optimizer;   /* likewise */
} fgt_state;

/**
 * Write a checkpoint into a directory, which is made if it is not there, and remove old ones beyond `keep`. Collective.
 *
 *   keep         checkpoints up to this step that stay; 0: all
 *   generation   by fgt_checkpoint_next_generation(); only worker 0's counts
 *   facts        a flat map of strings to strings (others are left out), or NULL; only worker 0's counts
 *   path         worker 0 gets the name of the file; or NULL
 *
 * On an error (a full disk) every worker gets FGIO_EXIT_FAIL, older checkpoints are still there, and nothing
 * half-written is.
 */
int fgt_checkpoint_write(const char *directory, uint32_t keep, uint64_t generation, uint64_t step,
                         const fgt_state *state, json_t *metadata, char *path, size_t cap);

/** An opened checkpoint; worker 0 has the file, the others wait for their parts. */
typedef struct fgt_checkpoint fgt_checkpoint;

/**
 * Open a checkpoint, or the newest sound one of a directory (a damaged one is passed over with a warning). Collective.
 * Every worker gets the facts (owned by the checkpoint).
 */
int fgt_checkpoint_open(const char *path, frug_comm *comm, fgt_checkpoint **checkpoint, json_t **metadata,
                        uint64_t *step);
void fgt_checkpoint_close(fgt_checkpoint *checkpoint);

/** Whether a directory has a checkpoint, sound or not, as worker 0 sees it. Collective. */
int fgt_checkpoint_exists(const char *directory, frug_comm *comm, bool *any);

/**
 * The generation of the checkpoints that a run is going to write into a directory: that of the newest one there if the
 * run continues from it with the same count of steps, else the next. On worker 0.
 *
 *   from   where the run continues from; NULL: it starts
 *   at     the step that it continues at
 */
int fgt_checkpoint_next_generation(const char *directory, const fgt_checkpoint *from, uint64_t at,
                                   uint64_t *generation);

/**
 * Take up everything. Collective. A checkpoint of another number of workers is taken up too: each worker then starts
 * from the mean of all residuals, so that what is still to be applied is the same in all, and from worker 0's running
 * statistics; *redistributed says so. After an error the state is of no use.
 */
int fgt_checkpoint_restore(fgt_checkpoint *checkpoint, const fgt_state *state, bool *redistributed);

/**
 * Load weights and running statistics alone, from any safetensors file with the usual names. F32, F64, F16 and BF16 are
 * converted.
 *
 * Prefixes ("module.", "model.", "transformer.", "bert.") may be there or missing, and LayerNorm.gamma and beta are
 * understood. Tensors that the model does not have are ignored. Those that the file does not have, or has in another
 * shape, are an error, unless they belong to the head of a model that is to be fine-tuned (classifier, fc, linear,
 * score, pooler, cls): they stay as they are, and *fresh counts them. Every worker calls it for itself.
 */
int fgt_weights_load(const char *path, fgt_graph *graph, uint32_t *fresh);

/** Whether a name is that of a layer that a fine-tuned model makes anew: a classifier, a pooler. */
bool fgt_weights_is_head(const char *name);

#endif
