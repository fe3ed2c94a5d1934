/*
 * buckets.h - where the gradients of parameters go: a sink that gathers tiles into buckets and sends each bucket off as
 * soon as it is full.
 *
 * A bucket is a range of the flat parameter buffer: several small parameters, or some rows of a large one. When all its
 * tiles are there its norm is taken, it is clipped, exchanged, and the optimiser changes the weights of the range; then
 * its memory serves the next bucket. So of the whole gradient only two or three buckets exist at a time. Dense training
 * is the exception: there the gradient is the memory that is summed in place (gradients as views of buckets), as
 * other systems do it, and buckets are cut out of it.
 *
 * A step may take several backward passes, one for each micro-batch. The gradient then has to be whole for any method:
 * the passes add up into it, bucket by bucket, and what becomes of a full bucket happens in the last pass.
 *
 * Parameters that are frozen have no place in any bucket. Of a bucket whose tensors the optimiser takes by measurements
 * only those are kept, in one vector that is exchanged at the end of the backward pass; the gradient's memory is free
 * at once. At steps at which the optimiser wants the gradient itself, the bucket goes the way of all others.
 */
#ifndef FGT_BUCKETS_H
#define FGT_BUCKETS_H

#include "trainer/exchange/clip_norm.h"
#include "frugrad.h"
#include "trainer/nn/graph.h"

typedef struct fgt_buckets fgt_buckets;
typedef struct fgt_record fgt_record;

/** What the buckets of one worker are for. Nothing is owned. */
typedef struct fgt_buckets_options {
    fgt_graph *graph;
    frug_reducer *reducer; /* NULL: no exchange; the optimiser gets this worker's own gradient */
    frug_optimizer *optimizer;
    int workers;
    uint64_t bytes;       /* of a bucket, about; 0: a 64th of the parameters, from 1 MiB to 25 MiB */
    bool full_gradient;   /* the gradient exists whole (dense training) */
    bool deferred_update; /* with whole: update only in fgt_buckets_end(), because the norm must be known before */
    bool overlap;         /* exchange on a thread of its own */
    uint32_t passes;      /* backward passes of a step; 0: one */
    bool auto_clip; /* norms are limited by their own running means: of each bucket, with `late` of the mean gradient */
    /* Fine-tuning: */
    uint64_t measured_at, measured; /* where the reducer's layout has room for measurements, and for how many */
    uint64_t measured_each;         /* what a target takes at most steps in place of a longer gradient */
    bool count_sent;                /* count what the optimiser wants to be handed over */
    fgt_record *record;             /* gets the gradients as they are; or NULL */
} fgt_buckets_options;

/** Plan buckets and take their memory; sets tile and bucket of the graph's parameters. Returns an exit status. */
int fgt_buckets_create(const fgt_buckets_options *options, fgt_buckets **buckets);
void fgt_buckets_destroy(fgt_buckets *b);

/** How many there are. */
size_t fgt_buckets_count(const fgt_buckets *b);

/** The sink for fgt_graph_backward(). */
fgt_sink *fgt_buckets_sink(fgt_buckets *b);

/**
 * Set out for a step: the next backward pass fills the buckets.
 *
 *   factor   gradients are multiplied by it (clipping)
 *   measure  only take the norm: nothing is exchanged and no weight changes
 */
void fgt_buckets_begin(fgt_buckets *b, uint64_t step, double rate, float factor, bool measure);

/** With `passes`: the backward pass that follows is the next of the step. */
void fgt_buckets_next_pass(fgt_buckets *b);

/** Wait until all is done. late_clip: with `late`, the norm to clip the mean gradient to; 0: none. */
frug_status fgt_buckets_end(fgt_buckets *b, double late_clip);

/** The squared norm of this worker's gradient before clipping; with `late`, that of the mean. After
 * fgt_buckets_end(). */
double fgt_buckets_norm2(const fgt_buckets *b);

/** The factor that was applied in the last step by a late clip, or by `limited` (the least of all buckets); 1: none. */
double fgt_buckets_clip_factor(const fgt_buckets *b);

/** With `limited`: the running means, and this worker's norms of the last step after limiting, as many as there are
 * limits. Tell the limits the mean of these over all workers after each step. */
fgt_norm_limits *fgt_buckets_norm_limits(fgt_buckets *b);
const double *fgt_buckets_limited_norms(const fgt_buckets *b);

/** Seconds so far that backward waited for memory or for the end, and that the optimiser took. */
double fgt_buckets_wait_seconds(const fgt_buckets *b);
double fgt_buckets_optimizer_seconds(const fgt_buckets *b);

/** Seconds so far of optimiser and exchange on the thread of the backward pass. */
double fgt_buckets_inline_seconds(const fgt_buckets *b);

/** With `counted`: floats so far that this worker had to hand over. */
uint64_t fgt_buckets_floats_sent(const fgt_buckets *b);

#endif
