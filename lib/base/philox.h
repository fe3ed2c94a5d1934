/*
 * philox.h - random numbers that depend on where, not on when.
 *
 * Philox-2x32 with ten rounds: a keyed mixing of a counter. Any worker, thread
 * or restart that asks for the number at (seed, step, block) gets the same one.
 */
#ifndef FRUGI_PHILOX_H
#define FRUGI_PHILOX_H

#include "base/host_device.h"

#include <stdint.h>

/* A seed's other draws: seed ^ this. Not ~seed: the halves are folded into one key, and two complements cancel out. */
#define FRUGI_OTHER_DRAWS 0xd1b54a32d192ed03u

FRUGI_BOTH uint32_t frugi_random(uint64_t seed, uint64_t step, uint64_t block) {
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
