/*
 * buckets_internal.h - what the two files of buckets share: a bucket, all of them, and how they are planned.
 */
#ifndef FGT_BUCKETS_INTERNAL_H
#define FGT_BUCKETS_INTERNAL_H

#include "trainer/exchange/buckets.h"

#include <pthread.h>
#include <stdatomic.h>

#define FGT_SLOTS_MAX 64u

typedef struct fgt_bucket {
    uint64_t begin, count;
    size_t tiles, closed_tiles;
    float *memory;        /* NULL: not open */
    uint64_t full_offset; /* where its gradient lies in the whole one */
    uint64_t measured_offset,
        measured_count; /* its measurements: where in the vector, and how many; none: it has no measurements */
    bool targets;       /* the optimiser looks at its tensors as a whole */
    bool measured;      /* this step's measurements are in the vector */
} fgt_bucket;

struct fgt_buckets {
    fgt_sink sink; /* first, so that a sink is its buckets */
    fgt_buckets_options options;
    fgt_bucket *bucket;
    size_t count, capacity;
    uint64_t max_count;
    float *memory, *measured_vector;  /* memory: of the slots */
    float *full_gradient;             /* the gradient, where it exists whole */
    float *free_slots[FGT_SLOTS_MAX]; /* memory that waits for a bucket */
    size_t free_count, slots;
    pthread_mutex_t lock, optimizer_lock;
    pthread_cond_t slot_freed;
    pthread_t backward_thread; /* whose backward pass it is */
    uint64_t step, floats_sent;
    uint32_t pass; /* of want.passes */
    double rate;
    float factor;
    bool measure;
    fgt_norm_limits norm_limits; /* with want.limited: a part is a bucket, with want.late the whole */
    double *limited_norms;       /* norms of this step after limiting */
    double norm2, clip_factor, wait_seconds, optimizer_seconds, inline_seconds;
    _Atomic int failed; /* a frug_status: of an exchange that was not handed over, or of the optimiser */
};

/** Cut the parameters that move into buckets, and make the vector of measurements. Returns -1 without memory. */
int fgt_buckets_plan(fgt_buckets *b);

/** Take memory for as many buckets as stand open at once. Returns -1 without it. */
int fgt_buckets_alloc(fgt_buckets *b);

#endif
