/*
 * memory_fit.h - whether a run fits into memory, checked before it starts, and micro-batches that make it fit.
 *
 * Activations are known exactly, because the graph lays out its memory by shapes; the memory of the library is
 * extrapolated from a small tensor. A batch is split into as few micro-batches of equal size as keep the activations of
 * all workers of this machine below half of the available memory, and everything below all of it.
 */
#ifndef FGT_MEMORY_FIT_H
#define FGT_MEMORY_FIT_H

#include "trainer/run/worker.h"

/** Memory of one worker, or of all stages on this machine together, in bytes. */
typedef struct fgt_memory_need {
    uint64_t weights, gradients, library, activations, batch;
    uint64_t samples; /* of --stage-feedback sample; of each stage, and not in the sum */
    uint32_t blocks;  /* of the model, which FGT_KEEP_BLOCKS can recompute */
} fgt_memory_need;

uint64_t fgt_memory_need_sum(const fgt_memory_need *need);

/** Reads the number of micro-batches from the checkpoint that a run resumes from. Prints no errors. */
void fgt_memory_recall_accumulate(fgt_run *run);

/** Chooses run->accumulate for this process. Returns an exit status. */
int fgt_memory_choose_accumulate(fgt_run *run);

/** Agrees on one number for all processes, and fails where the run does not fit on one of them. Collective in a
 * distributed job. Returns an exit status. */
int fgt_memory_agree_accumulate(fgt_run *run);

/** The memory of a worker, or of the stages, with this many micro-batches. Returns an exit status. */
int fgt_memory_estimate(const fgt_run *run, uint32_t accumulate, fgt_keep keep, fgt_memory_need *need);

/** For a forward pass only: fails where the graph does not fit into this many bytes; 0: the free memory. Returns an
 * exit status. */
int fgt_memory_check_forward(const fgt_model *model, const fgt_data_info *info, const fgt_build_options *options,
                             uint64_t memory);

#endif
