/*
 * buckets_internal.h - what the two files of buckets share: a bucket, all of them, and how they are planned.
 */
#ifndef FGT_BUCKETS_INTERNAL_H
#define FGT_BUCKETS_INTERNAL_H

#include "trainer/exchange/buckets.h"

#include <pthread.h>
#include <stdatomic.h>

#define FGT_MOST_SLOTS 64u

typedef struct fgt_bucket {
    uint64_t begin, count;
    size_t tiles, closed;
    float *memory;     /* NULL: not open */
    uint64_t home;     /* where its gradient lies in the whole one */
    uint64_t at, some; /* its measurements: where in the vector, and how many; none: it has no measurements */
    bool targets;      /* the optimiser looks at its tensors as a whole */
    bool measured;     /* this step's measurements are in the vector */
} fgt_bucket;

struct fgt_buckets {
    fgt_sink sink; /* first, so that a sink is its buckets */
    fgt_buckets_want want;
    fgt_bucket *bucket;
    size_t count, room;
    uint64_t longest;
    float *memory, *vector;      /* memory: of the slots */
    float *whole;                /* the gradient, where it exists whole */
    float *idle[FGT_MOST_SLOTS]; /* memory that waits for a bucket */
    size_t idles, slots;
    pthread_mutex_t lock, optimizer_lock;
    pthread_cond_t changed;
    pthread_t owner; /* whose backward pass it is */
    uint64_t step, handed;
    uint32_t pass; /* of want.passes */
    double rate;
    float factor;
    bool measure;
    fgt_limits limits; /* with want.limited: a part is a bucket, with want.late the whole */
    double *limited;   /* norms of this step after limiting */
    double norm2, clipped, blocked, optimizer_seconds, inline_seconds;
    _Atomic int failed; /* a frug_status: of an exchange that was not handed over, or of the optimiser */
};

/** Cut the parameters that move into buckets, and make the vector of measurements. Returns -1 without memory. */
int fgt_buckets_plan(fgt_buckets *b);

/** Take memory for as many buckets as stand open at once. Returns -1 without it. */
int fgt_buckets_take_memory(fgt_buckets *b);

#endif
