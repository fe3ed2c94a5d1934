/* epoch_order.h - the order of samples in an epoch: a permutation that needs no memory. */
#ifndef FGT_EPOCH_ORDER_H
#define FGT_EPOCH_ORDER_H

#include <stdint.h>

/** The image of index i in [0, n) under the permutation of (seed, epoch). n >= 1, i < n. */
uint64_t fgt_epoch_order(uint64_t seed, uint64_t epoch, uint64_t n, uint64_t i);

#endif
