/*
 * finetune_plan.h - fine-tuning: which tensors of a model are trained, by which optimizer, with how many states.
 *
 * The *targets* are trained by the method; the *head*, which fine-tuning initializes anew, by AdamW; all others are
 * frozen. Layout, buckets, exchange and optimizer have only the trainable tensors.
 */
#ifndef FGT_FINETUNE_PLAN_H
#define FGT_FINETUNE_PLAN_H

#include "trainer/nn/graph.h"

/** Options of fine-tuning. Texts are not owned. */
typedef struct fgt_finetune_options {
    const char *kind;    /* "full": AdamW; or an optimizer of the library: fgt_finetune_supports() */
    const char *targets; /* as the library's option */
    const char *head;    /* "auto": the layers of a classifier above its encoder; "none"; or a pattern of names */
    const char *options; /* further ones of the optimizer, as option=value,...; NULL: none */
    uint64_t states;     /* maximum for all targets together; 0: the default of the kind */
    uint64_t kappa, chunks, rank, refresh; /* 0: the default of the kind */
    double scale;                          /* likewise */
    const char *record;                    /* file for gradients of the first steps; NULL: none */
    const char *record_tensor;             /* pattern of names; NULL: the first target */
    uint64_t record_steps;
} fgt_finetune_options;

/** Result of the plan, and the times of a run. */
typedef struct fgt_finetune_result {
    uint32_t targets, heads; /* tensors */
    uint64_t target_params, head_params;
    uint64_t states, head_states;
    uint64_t optimizer_bytes;
    char first[128]; /* name of the first target */
    /* of a step, means in milliseconds; overlapping work is counted in the phase where it happens */
    double ms_backward; /* without optimizer and exchange */
    double ms_project, ms_recover, ms_apply, ms_exchange, ms_other;
} fgt_finetune_result;

#define FGT_FINETUNE_TEXT 512

/** Whether an optimizer of the library updates targets and can leave the others as they are (others=frozen). */
bool fgt_finetune_supports(const frug_optimizer_kind *kind);

/** "full", or the i-th kind of the library's optimizers that fine-tuning supports; NULL past the end. */
const char *fgt_finetune_kind_at(size_t i);

/** Selects targets and head, freezes the others, and writes the text of the optimizer. Returns an exit status, after an
 * error message. */
int fgt_finetune_plan(const fgt_finetune_options *options, fgt_task task, uint32_t threads, fgt_graph *graph,
                      char text[FGT_FINETUNE_TEXT], fgt_finetune_result *result);

/** The trainable tensors as a layout; those of the head as vectors, so that they are no targets. `measured` > 0 adds a
 * vector of this many numbers at the end, at offset *measured_at. Returns an exit status. */
int fgt_finetune_layout(const fgt_graph *graph, uint64_t measured, uint64_t *measured_at, frug_layout **layout);

/** Number of measurements that a target sends at most steps instead of a longer gradient; 0: the kind has none. */
uint64_t fgt_finetune_measured_each(const fgt_finetune_options *options, const fgt_finetune_result *result);

/** The same of all targets together. */
uint64_t fgt_finetune_measured(const fgt_graph *graph, uint64_t each);

/** A hash of all options. */
uint64_t fgt_finetune_hash(const fgt_finetune_options *options);

#endif
