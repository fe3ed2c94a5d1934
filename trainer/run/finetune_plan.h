/*
 * finetune_plan.h - fine-tuning: which tensors of a model move, and by which optimiser with how many states.
 *
 * The *targets* are moved by the method; the *head*, which a fine-tuned model makes anew, by AdamW; all else is frozen.
 * What follows (layout, buckets, exchange, optimiser) knows only what moves.
 */
#ifndef FGT_FINETUNE_PLAN_H
#define FGT_FINETUNE_PLAN_H

#include "trainer/nn/graph.h"

/** What is asked for. Texts are not owned. */
typedef struct fgt_tune {
    const char *kind;    /* "full": AdamW; or an optimiser of the library that has targets */
    const char *targets; /* as the library's option */
    const char *head;    /* "auto": what a classifier has above its encoder; "none"; or a pattern of names */
    const char *options; /* further ones of the optimiser, as option=value,...; NULL: none */
    uint64_t states;     /* of all targets together, at most; 0: what the kind has */
    uint64_t kappa, chunks, rank, refresh; /* 0: what the kind has */
    double scale;                          /* likewise */
    const char *record;                    /* file for gradients of the first steps; NULL: none */
    const char *record_tensor;             /* pattern of names; NULL: the first target */
    uint64_t record_steps;
} fgt_tune;

/** What it comes to. */
typedef struct fgt_tuning {
    uint32_t targets, heads; /* tensors */
    uint64_t target_params, head_params;
    uint64_t states, head_states;
    uint64_t optimizer_bytes;
    char first[128]; /* name of the first target */
    /* of a step, means in milliseconds; what overlaps is counted where it happens */
    double ms_backward; /* without optimiser and exchange */
    double ms_project, ms_recover, ms_apply, ms_exchange, ms_other;
} fgt_tuning;

#define FGT_FINETUNE_TEXT 512

/** "full", or the i-th kind of the library's optimisers that has targets; NULL past the end. */
const char *fgt_tune_kind_at(size_t i);

/**
 * Find targets and head, freeze the others, and spell the optimiser out. Returns an exit status, after a line on
 * stderr.
 */
int fgt_finetune_plan(const fgt_tune *options, fgt_task task, uint32_t threads, fgt_graph *graph,
                      char text[FGT_FINETUNE_TEXT], fgt_tuning *result);

/**
 * The tensors that move as a layout; the head's as vectors, so that no rule makes targets of them. `measured` > 0 adds
 * a vector of so many numbers at its end, and *measured_at says where. Returns an exit status.
 */
int fgt_finetune_layout(const fgt_graph *graph, uint64_t measured, uint64_t *measured_at, frug_layout **layout);

/** How many measurements a target hands over at most steps in place of a longer gradient; 0: the kind has none. */
uint64_t fgt_finetune_measured_each(const fgt_tune *options, const fgt_tuning *result);

/** The same of all targets together. */
uint64_t fgt_finetune_measured(const fgt_graph *graph, uint64_t each);

/** A number that differs where anything that is asked for does. */
uint64_t fgt_finetune_hash(const fgt_tune *options);

#endif
