/*
 * counted_alloc.h - the trainer's allocator: zeroed memory on cache lines, counted by what it is for, so that a run can say
 * what its model state took at most.
 */
#ifndef FRUGI_COUNTED_ALLOC_H
#define FRUGI_COUNTED_ALLOC_H

#include <stddef.h>
#include <stdint.h>

typedef enum frugi_use {
    FRUGI_USE_WEIGHTS,
    FRUGI_USE_GRADIENTS,   /* of weights: buckets */
    FRUGI_USE_EXCHANGE,    /* what the trainer itself sends and receives */
    FRUGI_USE_ACTIVATIONS, /* and their gradients, and work space of layers */
    FRUGI_USE_DATA,        /* batches */
    FRUGI_USES
} frugi_use;

/** Zeroed, aligned to 64 bytes. NULL without memory. */
void *frugi_hold(frugi_use use, size_t bytes);

/** Give it back; NULL is fine. */
void frugi_let_go(void *memory);

/** Bytes held now, and the most ever, by this process. */
uint64_t frugi_held(frugi_use use);
uint64_t frugi_held_most(frugi_use use);

#endif
