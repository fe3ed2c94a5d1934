/*
 * block_count.h - the number of entries that each block sends, for densities that are no whole number of entries.
 *
 * A density of 6 % of 256 is 15.36 entries. Block j sends floor((j+1) kappa) - floor(j kappa) of them:
 * 15 or 16, never anything else, and exactly the right number over any run of blocks. The count is a
 * pure function of kappa and j, so a receiver computes the size of every payload and no size is sent.
 *
 * kappa is in 32.32 fixed point. Products wrap modulo 2^64, which leaves the low 32 bits of each floor
 * correct; the difference of two consecutive floors is at most the block length, so it is exact for any 64-bit j.
 * Callers shift j by the phase of the step, so that no block gets the larger count for long. Below one entry per
 * block, blocks alternate: with kappa = 1/4 a block sends one entry at every fourth step.
 */
#ifndef FRUGI_BLOCK_COUNT_H
#define FRUGI_BLOCK_COUNT_H

#include "base/host_device.h"

#include <stdint.h>

#define FRUGI_PHASES 16u /* the pattern of counts shifts by one block per step */
#define FRUGI_KAPPA_MIN                                                                                                \
    (((uint64_t)1 << 32) / FRUGI_PHASES) /* every block sends at least once in FRUGI_PHASES steps                      \
                                          */

/** Entries per block, rounded to the nearest 2^-32 and clamped to FRUGI_KAPPA_MIN .. block length. */
FRUGI_HOST_DEVICE uint64_t frugi_kappa(double density, uint32_t block) {
    double scaled = density * (double)block * 4294967296.0 + 0.5;
    uint64_t most = (uint64_t)block << 32;
    if (!(scaled >= (double)FRUGI_KAPPA_MIN))
        return FRUGI_KAPPA_MIN;
    return scaled >= (double)most ? most : (uint64_t)scaled;
}

/** The same, but at least one entry per block. */
FRUGI_HOST_DEVICE uint64_t frugi_kappa_at_least_one(double density, uint32_t block) {
    uint64_t kappa = frugi_kappa(density, block), one = (uint64_t)1 << 32;
    return kappa < one ? one : kappa;
}

/** floor(j kappa), modulo 2^32. */
FRUGI_HOST_DEVICE uint64_t frugi_count_before(uint64_t kappa, uint64_t j) {
    return (j * kappa) >> 32;
}

/** Entries of block j: the whole number below or above kappa. */
FRUGI_HOST_DEVICE uint32_t frugi_count(uint64_t kappa, uint64_t j) {
    return (uint32_t)(frugi_count_before(kappa, j + 1) - frugi_count_before(kappa, j));
}

/**
 * Entries of the next block, for loops over consecutive blocks: *at starts as j0 * kappa (wrapping) and is advanced.
 */
FRUGI_HOST_DEVICE uint32_t frugi_count_next(uint64_t kappa, uint64_t *at) {
    uint64_t before = *at >> 32;
    *at += kappa;
    return (uint32_t)((*at >> 32) - before);
}

/** Entries of the blocks j0 .. j0 + nblocks - 1 together. Exact if the result is below 2^64. */
FRUGI_HOST_DEVICE uint64_t frugi_count_range(uint64_t kappa, uint64_t j0, uint64_t nblocks) {
    uint64_t whole = kappa >> 32, fraction = kappa & UINT32_MAX;
    uint64_t carried = (j0 * kappa) & UINT32_MAX;
    uint64_t high = nblocks >> 32, low = nblocks & UINT32_MAX;
    return nblocks * whole + high * fraction + ((low * fraction + carried) >> 32);
}

/** Entries of a last block of len < block elements if a full block would send k; at least 1 if k is at least 1. */
FRUGI_HOST_DEVICE uint32_t frugi_tail_count(uint32_t k, uint32_t len, uint32_t block) {
    return (uint32_t)(((uint64_t)k * len + block - 1) / block);
}

#endif
