/* epoch_order.h - an epoch's order of samples: a permutation that needs no memory. */
#ifndef FGT_EPOCH_ORDER_H
#define FGT_EPOCH_ORDER_H

#include <stdint.h>

/** Where place `i` of [0, n) goes in the permutation named by (seed, epoch). n >= 1, i < n. */
uint64_t fgt_epoch_order(uint64_t seed, uint64_t epoch, uint64_t n, uint64_t i);

#endif
