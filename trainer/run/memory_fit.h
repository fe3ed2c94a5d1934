/*
 * memory_fit.h - whether a run fits into memory, found out before it starts, and micro-batches that make it fit.
 *
 * Activations are known exactly, because the graph lays its memory out by shapes; what the library holds is found by a
 * trial on a small tensor. A batch is cut into as few micro-batches of equal size as bring the activations of all
 * workers of this machine under half of the memory there is, and everything under all of it.
 */
#ifndef FGT_MEMORY_FIT_H
#define FGT_MEMORY_FIT_H

#include "trainer/run/worker.h"

/** What one worker takes, in bytes. */
typedef struct fgt_memory_need {
    uint64_t weights, gradients, library, activations, batch;
    uint32_t blocks; /* of the model: what FGT_KEEP_BLOCKS can compute again */
} fgt_memory_need;

uint64_t fgt_memory_need_sum(const fgt_memory_need *need);

/** See what the checkpoint that a run resumes from was made with: it keeps its micro-batches. Says nothing. */
void fgt_memory_recall_accumulate(fgt_run *run);

/** Choose crew->accumulate, as this process sees it. Returns an exit status. */
int fgt_memory_choose_accumulate(fgt_run *run);

/** Have the same on all processes, and refuse what does not fit on one of them. Collective where this process has
 * joined a group. Returns an exit status. */
int fgt_memory_agree_accumulate(fgt_run *run);

/** The memory of a worker of the crew with so many micro-batches. Returns an exit status. */
int fgt_memory_estimate(const fgt_run *run, uint32_t accumulate, fgt_keep keep, fgt_memory_need *need);

/** For a graph alone: refuse one that does not fit into so many bytes; 0: what is free. Returns an exit status. */
int fgt_fit_forward(const fgt_model *model, const fgt_data_info *info, const fgt_build *options, uint64_t memory);

#endif
