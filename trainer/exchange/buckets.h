/*
 * buckets.h - the sink of the gradients of parameters: it collects tiles into buckets and submits each bucket for
 * exchange when it is full.
 *
 * A bucket is a range of the flat parameter buffer: several small parameters, or some rows of a large one. When all its
 * tiles are closed its norm is computed, it is clipped and exchanged, and the optimizer updates the weights of the
 * range; then its memory is reused for the next bucket. So only two or three buckets of the gradient exist at a time.
 * Dense training is the exception: there the full gradient exists and is summed in place (gradients as views of
 * buckets), as in other systems, and buckets are ranges of it.
 *
 * A step may have several backward passes, one for each micro-batch. Then the full gradient is needed for any method:
 * the passes are accumulated in it, bucket by bucket, and full buckets are processed in the last pass.
 *
 * With sparse weights the gradient of a bucket is packed (sparse/weight_mask.h) before it is exchanged, and reducer and
 * optimizer know the packed buffer only. Then no parameter is cut into tiles.
 *
 * Frozen parameters are in no bucket. Of a bucket whose tensors the optimizer updates from measurements only the
 * measurements are kept, in one vector that is exchanged at the end of the backward pass; the memory of the gradient is
 * released at once. At steps at which the optimizer needs the gradient itself, the bucket is exchanged as any other.
 */
#ifndef FGT_BUCKETS_H
#define FGT_BUCKETS_H

#include "trainer/exchange/block_transform.h"
#include "trainer/exchange/clip_norm.h"
#include "frugrad.h"
#include "trainer/nn/graph.h"

typedef struct fgt_buckets fgt_buckets;
typedef struct fgt_record fgt_record;

/** Options of the buckets of one worker. Nothing is owned. */
typedef struct fgt_buckets_options {
    fgt_graph *graph;
    frug_reducer *reducer; /* NULL: no exchange; the optimizer gets this worker's own gradient */
    frug_optimizer *optimizer;
    const fgt_transform *transform; /* of what is exchanged; or NULL */
    float *weights;                 /* that the optimizer updates, as a flat buffer; NULL: those of the graph */
    int workers;
    uint64_t bytes;       /* of a bucket, approximately; 0: 1/64 of the parameters, from 1 MiB to 25 MiB */
    bool full_gradient;   /* the full gradient exists (dense training) */
    bool deferred_update; /* with full_gradient: update only in fgt_buckets_end(), because the norm must be known before
                           */
    bool overlap;         /* exchange on a thread of its own */
    uint32_t passes;      /* backward passes of a step; 0: one */
    bool auto_clip; /* limit norms by their own running means: of each bucket, with deferred_update of the mean gradient
                     */
    bool all_numbered; /* the layouts have the frozen parameters too: those of other stages */
    double (*sum_norms)(void *ctx, double norm2); /* with deferred_update: the squared norm over all stages; or NULL */
    void *sum_norms_ctx;
    /* Fine-tuning: */
    uint64_t measured_at, measured; /* offset and number of measurements in the reducer's layout */
    uint64_t measured_each;         /* measurements of a target at most steps, instead of a longer gradient */
    bool count_sent;                /* count the floats that the optimizer needs */
    fgt_record *record;             /* records the gradients before clipping; or NULL */
    /* Sparse weights: */
    bool packed;   /* masks may change; then call fgt_buckets_set_exchange() */
    float *growth; /* gets the sums of the gradients of pruned weights; or NULL */
} fgt_buckets_options;

/** Sets tile and bucket of the graph's parameters as fgt_buckets_create() will with `packed` and these `bytes`: for a
 * layout that depends on buckets. Returns an exit status. */
int fgt_buckets_assign_packed(fgt_graph *graph, uint64_t bytes);

/** Plans buckets and allocates their memory; sets tile and bucket of the graph's parameters. Returns an exit status. */
int fgt_buckets_create(const fgt_buckets_options *options, fgt_buckets **buckets);
void fgt_buckets_destroy(fgt_buckets *b);

/** With `packed`: after masks have changed, a reducer and an optimizer of the new packed buffer, and the weights that
 * the optimizer updates, as a flat buffer; NULL: those of the graph. */
void fgt_buckets_set_exchange(fgt_buckets *b, frug_reducer *reducer, frug_optimizer *optimizer, float *weights);

/** Number of buckets. */
size_t fgt_buckets_count(const fgt_buckets *b);

/** The sink for fgt_graph_backward(). */
fgt_sink *fgt_buckets_sink(fgt_buckets *b);

/**
 * Begins a step: the next backward pass fills the buckets.
 *
 * factor: gradients are multiplied by it (clipping). measure: only compute the norm; nothing is exchanged and no weight
 * changes.
 */
void fgt_buckets_begin(fgt_buckets *b, uint64_t step, double rate, float factor, bool measure);

/** With `passes`: begins the next backward pass of the step. */
void fgt_buckets_next_pass(fgt_buckets *b);

/** Waits until the step is complete. late_clip: with deferred_update, the norm to clip the mean gradient to; 0: none.
 * */
frug_status fgt_buckets_end(fgt_buckets *b, double late_clip);

/** The squared norm of this worker's gradient before clipping; with deferred_update, that of the mean. After
 * fgt_buckets_end(). */
double fgt_buckets_norm2(const fgt_buckets *b);

/** The clip factor of the last step, with deferred_update or auto_clip (the minimum over all buckets); 1: not clipped.
 * */
double fgt_buckets_clip_factor(const fgt_buckets *b);

/** With auto_clip: the running means, and this worker's norms of the last step after limiting, one per limit. After
 * each step update the limits with the mean of these norms over all workers. */
fgt_norm_limits *fgt_buckets_norm_limits(fgt_buckets *b);
const double *fgt_buckets_limited_norms(const fgt_buckets *b);

/** Total seconds that backward waited for a free slot or for the end of the exchange, and that the optimizer took. */
double fgt_buckets_wait_seconds(const fgt_buckets *b);
double fgt_buckets_optimizer_seconds(const fgt_buckets *b);

/** Total seconds of optimizer and exchange on the thread of the backward pass. */
double fgt_buckets_inline_seconds(const fgt_buckets *b);

/** With count_sent: total floats that this worker had to send. */
uint64_t fgt_buckets_floats_sent(const fgt_buckets *b);

#endif
