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
#ifndef FRUGI_BUCKETS_H
#define FRUGI_BUCKETS_H

#include "trainer/run/clip_norm.h"
#include "frugrad.h"
#include "trainer/nn/graph.h"

typedef struct frugi_buckets frugi_buckets;
typedef struct frugi_record frugi_record;

/** What the buckets of one worker are for. Nothing is owned. */
typedef struct frugi_buckets_want {
    frugi_graph *graph;
    frug_reducer *reducer; /* NULL: no exchange; the optimiser gets this worker's own gradient */
    frug_optimizer *optimizer;
    int workers;
    uint64_t bytes;  /* of a bucket, about; 0: a 64th of the parameters, from 1 MiB to 25 MiB */
    bool whole;      /* the gradient exists whole (dense training) */
    bool late;       /* with whole: update only in frugi_buckets_end(), because the norm must be known before */
    bool overlap;    /* exchange on a thread of its own */
    uint32_t passes; /* backward passes of a step; 0: one */
    bool limited; /* norms are limited by their own running means: of each bucket, with `late` of the mean gradient */
    /* Fine-tuning: */
    uint64_t measured_at, measured; /* where the reducer's layout has room for measurements, and for how many */
    uint64_t measured_each;         /* what a target takes at most steps in place of a longer gradient */
    bool counted;                   /* count what the optimiser wants to be handed over */
    frugi_record *record;           /* gets the gradients as they are; or NULL */
} frugi_buckets_want;

/** Plan buckets and take their memory; sets tile and bucket of the graph's parameters. Returns an exit status. */
int frugi_buckets_create(const frugi_buckets_want *want, frugi_buckets **buckets);
void frugi_buckets_destroy(frugi_buckets *b);

/** How many there are. */
size_t frugi_buckets_count(const frugi_buckets *b);

/** The sink for frugi_graph_backward(). */
frugi_sink *frugi_buckets_sink(frugi_buckets *b);

/**
 * Set out for a step: the next backward pass fills the buckets.
 *
 *   factor   gradients are multiplied by it (clipping)
 *   measure  only take the norm: nothing is exchanged and no weight changes
 */
void frugi_buckets_begin(frugi_buckets *b, uint64_t step, double rate, float factor, bool measure);

/** With `passes`: the backward pass that follows is the next of the step. */
void frugi_buckets_next_pass(frugi_buckets *b);

/** Wait until all is done. late_clip: with `late`, the norm to clip the mean gradient to; 0: none. */
frug_status frugi_buckets_end(frugi_buckets *b, double late_clip);

/** The squared norm of this worker's gradient before clipping; with `late`, that of the mean. After
 * frugi_buckets_end(). */
double frugi_buckets_norm2(const frugi_buckets *b);

/** The factor that was applied in the last step by a late clip, or by `limited` (the least of all buckets); 1: none. */
double frugi_buckets_clipped(const frugi_buckets *b);

/** With `limited`: the running means, and this worker's norms of the last step after limiting, as many as there are
 * limits. Tell the limits the mean of these over all workers after each step. */
frugi_limits *frugi_buckets_limits(frugi_buckets *b);
const double *frugi_buckets_limited_norms(const frugi_buckets *b);

/** Seconds so far that backward waited for memory or for the end, and that the optimiser took. */
double frugi_buckets_blocked(const frugi_buckets *b);
double frugi_buckets_optimizer_seconds(const frugi_buckets *b);

/** Seconds so far of optimiser and exchange on the thread of the backward pass. */
double frugi_buckets_inline_seconds(const frugi_buckets *b);

/** With `counted`: floats so far that this worker had to hand over. */
uint64_t frugi_buckets_handed(const frugi_buckets *b);

#endif
