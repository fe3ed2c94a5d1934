/*
 * counted_alloc.h - the trainer's allocator: zeroed memory aligned to cache lines, counted per use, so that a run can
 * report the peak of its model state.
 */
#ifndef FGT_COUNTED_ALLOC_H
#define FGT_COUNTED_ALLOC_H

#include <stddef.h>
#include <stdint.h>

typedef enum fgt_use {
    FGT_USE_WEIGHTS,
    FGT_USE_GRADIENTS,   /* of weights: buckets */
    FGT_USE_EXCHANGE,    /* messages of the trainer itself */
    FGT_USE_ACTIVATIONS, /* activations, their gradients, and work space of layers */
    FGT_USE_DATA,        /* batches */
    FGT_USES
} fgt_use;

/** Zeroed, aligned to 64 bytes. NULL without memory. */
void *fgt_counted_alloc(fgt_use use, size_t bytes);

/** Free; NULL is allowed. */
void fgt_counted_free(void *memory);

/** Bytes allocated now, and the peak, in this process. */
uint64_t fgt_counted_bytes(fgt_use use);
uint64_t fgt_counted_peak(fgt_use use);

#endif
