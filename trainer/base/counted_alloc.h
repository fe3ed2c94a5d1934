/*
 * counted_alloc.h - the trainer's allocator: zeroed memory on cache lines, counted by what it is for, so that a run can
 * say what its model state took at most.
 */
#ifndef FGT_COUNTED_ALLOC_H
#define FGT_COUNTED_ALLOC_H

#include <stddef.h>
#include <stdint.h>

typedef enum fgt_use {
    FGT_USE_WEIGHTS,
    FGT_USE_GRADIENTS,   /* of weights: buckets */
    FGT_USE_EXCHANGE,    /* what the trainer itself sends and receives */
    FGT_USE_ACTIVATIONS, /* and their gradients, and work space of layers */
    FGT_USE_DATA,        /* batches */
    FGT_USES
} fgt_use;

/** Zeroed, aligned to 64 bytes. NULL without memory. */
void *fgt_hold(fgt_use use, size_t bytes);

/** Give it back; NULL is fine. */
void fgt_counted_free(void *memory);

/** Bytes held now, and the most ever, by this process. */
uint64_t fgt_counted_bytes(fgt_use use);
uint64_t fgt_counted_peak(fgt_use use);

#endif
