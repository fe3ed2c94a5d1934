/* sparse_options.h - the text of --sparse: how weights are pruned during training, and when. */
#ifndef FGT_SPARSE_OPTIONS_H
#define FGT_SPARSE_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum fgt_sparse_kind {
    FGT_SPARSE_MAGNITUDE, /* gradual magnitude pruning: fewer and fewer weights, the largest ones */
    FGT_SPARSE_RIGL,      /* a fixed number of weights, of which some are exchanged for others now and then */
    FGT_SPARSE_NM,        /* N of every M weights: dense weights behind a mask, then that mask for good */
    FGT_SPARSE_ZEROS,     /* weights that are zero at the beginning stay zero */
    FGT_SPARSE_CHANNELS,  /* gradual pruning of inner channels and neurons */
    FGT_SPARSE_HEADS,     /* of attention heads */
    FGT_SPARSE_UNITS,     /* of both */
    FGT_SPARSE_KINDS
} fgt_sparse_kind;

/** Density of each tensor. */
typedef enum fgt_sparse_layers {
    FGT_LAYERS_ERK,     /* Erdos-Renyi-kernel: in proportion to the sum of its dimensions over their product */
    FGT_LAYERS_UNIFORM, /* the same for all */
    FGT_LAYERS_GLOBAL   /* the largest weights of all tensors together */
} fgt_sparse_layers;

typedef struct fgt_sparse_options {
    fgt_sparse_kind kind;
    fgt_sparse_layers layers;
    double density;     /* of all tensors that are pruned; of the units of each layer */
    double from, until; /* shares of all steps between which masks change */
    double swap;        /* rigl: share of the weights that the first update exchanges */
    double refine;      /* nm: decay of weights that are masked, as a factor of the rate */
    uint32_t updates;   /* of masks between from and until */
    uint32_t n, m;
} fgt_sparse_options;

/** Name, options with their defaults and description of the i-th kind; NULL past the end. */
typedef struct fgt_sparse_help {
    const char *name, *options, *help;
} fgt_sparse_help;
const fgt_sparse_help *fgt_sparse_help_at(size_t i);

/** Parses KIND[:option=value[,option=value]...]. Returns an exit status, after an error message. */
int fgt_sparse_parse(const char *text, fgt_sparse_options *options);

/** Whether whole units are pruned: channels, heads. */
bool fgt_sparse_has_units(const fgt_sparse_options *o);

/** The first step whose mask, or straight-through estimator, is in effect; and the step from which on masks stay. */
uint64_t fgt_sparse_begin(const fgt_sparse_options *o, uint64_t steps);
uint64_t fgt_sparse_end(const fgt_sparse_options *o, uint64_t steps);

/** Share of the updates of masks that are done after `step` steps. */
double fgt_sparse_progress(const fgt_sparse_options *o, uint64_t step, uint64_t steps);

/** Whether masks change after `step` steps. */
bool fgt_sparse_is_due(const fgt_sparse_options *o, uint64_t step, uint64_t steps);

/** Density of the weights, or units, after `step` steps. */
double fgt_sparse_density(const fgt_sparse_options *o, uint64_t step, uint64_t steps);

#endif
