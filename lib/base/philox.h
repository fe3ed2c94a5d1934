/*
 * philox.h - counter-based random numbers: Philox-2x32 with ten rounds.
 *
 * A number is a function of (seed, step, block) alone, so every worker, thread and resumed run gets the same one.
 */
#ifndef FRUGI_PHILOX_H
#define FRUGI_PHILOX_H

#include "base/host_device.h"

#include <stdint.h>

/* seed ^ this gives a second, independent stream. ~seed does not: the two halves of a seed are XORed into one key, so
 * the complements cancel. */
#define FRUGI_SECOND_STREAM 0xd1b54a32d192ed03u

FRUGI_HOST_DEVICE uint32_t frugi_random(uint64_t seed, uint64_t step, uint64_t block) {
    uint64_t mixed = (seed ^ (step * 0x9e3779b97f4a7c15u));
    uint32_t key = (uint32_t)(mixed ^ (mixed >> 32)), lo = (uint32_t)block, hi = (uint32_t)(block >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t product = (uint64_t)lo * 0xd256d193u;
        lo = (uint32_t)(product >> 32) ^ key ^ hi;
        hi = (uint32_t)product;
        key += 0x9e3779b9u;
    }
    return lo;
}

#endif
