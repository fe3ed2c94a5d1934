/* buckets_internal.h - shared by the two files of buckets: a bucket, all buckets, and their planning. */
#ifndef FGT_BUCKETS_INTERNAL_H
#define FGT_BUCKETS_INTERNAL_H

#include "trainer/exchange/buckets.h"

#include <pthread.h>
#include <stdatomic.h>

#define FGT_SLOTS_MAX 64u

typedef struct fgt_bucket {
    uint64_t begin, count;
    frug_range sent; /* what is exchanged: the same, or its part of the packed buffer */
    size_t tiles, closed_tiles;
    float *memory;        /* NULL: not open */
    uint64_t full_offset; /* offset of its gradient in the full gradient */
    uint64_t measured_offset,
        measured_count; /* its measurements in the vector: offset and number; 0: it has no measurements */
    bool targets;       /* the optimizer needs its tensors as a whole */
    bool measured;      /* this step's measurements are in the vector */
} fgt_bucket;

/** Slots of one length. */
typedef struct fgt_slot_pool {
    float *begin, *free_slots[FGT_SLOTS_MAX]; /* slots that are not in use */
    size_t free_count;
} fgt_slot_pool;

struct fgt_buckets {
    fgt_sink sink; /* the first member: a sink is cast to its buckets */
    fgt_buckets_options options;
    fgt_bucket *bucket;
    size_t count, capacity;
    uint64_t max_count, small_count; /* elements of the largest bucket, and of a small one at most */
    float *memory, *measured_vector; /* memory: of the slots; NULL: the full gradient is in place of them */
    float *full_gradient;            /* the full gradient, or NULL */
    float *weights;                  /* that the optimizer updates */
    float *packed_weights;           /* those of one bucket, with `packed` */
    fgt_slot_pool large, small;      /* that of small buckets is behind the other one */
    pthread_mutex_t lock, optimizer_lock;
    pthread_cond_t slot_freed;
    pthread_t backward_thread; /* the thread that runs the backward pass */
    uint64_t step, floats_sent;
    uint32_t pass; /* of want.passes */
    double rate;
    float factor;
    bool measure;
    fgt_norm_limits norm_limits; /* with auto_clip: one per bucket, with deferred_update one for all */
    double *limited_norms;       /* norms of this step after limiting */
    double norm2, clip_factor, wait_seconds, optimizer_seconds, inline_seconds;
    _Atomic int failed; /* a frug_status: first error of the exchange or of the optimizer */
};

/** Divides the trainable parameters into buckets, and allocates the vector of measurements. Returns -1 without memory.
 * */
int fgt_buckets_plan(fgt_buckets *b);

/** Sets what is exchanged of each bucket. */
void fgt_buckets_set_ranges(fgt_buckets *b);

/** Allocates memory for as many buckets as are open at once. Returns -1 without memory. */
int fgt_buckets_alloc(fgt_buckets *b);

#endif
