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

#define FRUGI_PHILOX_ROUNDS 10

FRUGI_HOST_DEVICE uint32_t frugi_philox_key(uint64_t seed, uint64_t step) {
    uint64_t mixed = (seed ^ (step * 0x9e3779b97f4a7c15u));
    return (uint32_t)(mixed ^ (mixed >> 32));
}

FRUGI_HOST_DEVICE void frugi_philox_round(uint32_t key, int round, uint32_t *lo, uint32_t *hi) {
    uint64_t product = (uint64_t)*lo * 0xd256d193u;
    *lo = (uint32_t)(product >> 32) ^ (key + (uint32_t)round * 0x9e3779b9u) ^ *hi;
    *hi = (uint32_t)product;
}

FRUGI_HOST_DEVICE uint32_t frugi_random(uint64_t seed, uint64_t step, uint64_t block) {
    uint32_t key = frugi_philox_key(seed, step), lo = (uint32_t)block, hi = (uint32_t)(block >> 32);
    for (int round = 0; round < FRUGI_PHILOX_ROUNDS; round++)
        frugi_philox_round(key, round, &lo, &hi);
    return lo;
}

#define FRUGI_RANDOM_RUN 16

/** The same for FRUGI_RANDOM_RUN consecutive blocks, from `first` on; compilers vectorize it. */
static inline void frugi_random_run(uint64_t seed, uint64_t step, uint64_t first, uint32_t *random) {
    uint32_t key = frugi_philox_key(seed, step), hi[FRUGI_RANDOM_RUN];
    for (int i = 0; i < FRUGI_RANDOM_RUN; i++) {
        random[i] = (uint32_t)(first + (uint64_t)i);
        hi[i] = (uint32_t)((first + (uint64_t)i) >> 32);
    }
    for (int round = 0; round < FRUGI_PHILOX_ROUNDS; round++)
        for (int i = 0; i < FRUGI_RANDOM_RUN; i++)
            frugi_philox_round(key, round, &random[i], &hi[i]);
}

#endif
