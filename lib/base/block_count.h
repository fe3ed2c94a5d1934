/*
 * block_count.h - how many entries each block sends when the density is no whole number of them.
 *
 * A density of 6 % of 256 is 15.36 entries. Block j sends floor((j+1) kappa) - floor(j kappa) of them:
 * 15 or 16, never anything else, and exactly the right number over any run of blocks. The count is a
 * pure function of kappa and j, so a receiver knows every payload's size without being told.
 *
 * kappa is in 32.32 fixed point. Products wrap modulo 2^64, which leaves the low 32 bits of each floor
 * right; the difference of two neighbours is at most one block long, so it is exact for any 64-bit j.
 * Callers shift j by the phase of the step, so that no block is favoured for long. Below one entry a block, blocks
 * take turns: with kappa = 1/4 a block sends one at every fourth step.
 */
#ifndef FRUGI_BLOCK_COUNT_H
#define FRUGI_BLOCK_COUNT_H

#include "base/host_device.h"

#include <stdint.h>

#define FRUGI_PHASES      16u                                  /* the counts' pattern moves on by one block a step */
#define FRUGI_KAPPA_LEAST (((uint64_t)1 << 32) / FRUGI_PHASES) /* every block has its turn within all phases */

/** Entries per block, rounded to the nearest 2^-32 and kept within the least and the block length. */
FRUGI_BOTH uint64_t frugi_kappa(double density, uint32_t block) {
    double scaled = density * (double)block * 4294967296.0 + 0.5;
    uint64_t most = (uint64_t)block << 32;
    if (!(scaled >= (double)FRUGI_KAPPA_LEAST))
        return FRUGI_KAPPA_LEAST;
    return scaled >= (double)most ? most : (uint64_t)scaled;
}

/** The same where every block sends something. */
FRUGI_BOTH uint64_t frugi_kappa_one(double density, uint32_t block) {
    uint64_t kappa = frugi_kappa(density, block), one = (uint64_t)1 << 32;
    return kappa < one ? one : kappa;
}

/** floor(j kappa), modulo 2^32. */
FRUGI_BOTH uint64_t frugi_count_before(uint64_t kappa, uint64_t j) {
    return (j * kappa) >> 32;
}

/** Entries of block j: the whole number below or above kappa. */
FRUGI_BOTH uint32_t frugi_count(uint64_t kappa, uint64_t j) {
    return (uint32_t)(frugi_count_before(kappa, j + 1) - frugi_count_before(kappa, j));
}

/**
 * Entries of the next block, for walks from block to block: *at starts as j0 * kappa (wrapping) and moves on.
 */
FRUGI_BOTH uint32_t frugi_count_next(uint64_t kappa, uint64_t *at) {
    uint64_t before = *at >> 32;
    *at += kappa;
    return (uint32_t)((*at >> 32) - before);
}

/** Entries of the blocks j0 .. j0 + nblocks - 1 together. Exact as long as the answer is below 2^64. */
FRUGI_BOTH uint64_t frugi_count_range(uint64_t kappa, uint64_t j0, uint64_t nblocks) {
    uint64_t whole = kappa >> 32, part = kappa & UINT32_MAX;
    uint64_t carried = (j0 * kappa) & UINT32_MAX;
    uint64_t high = nblocks >> 32, low = nblocks & UINT32_MAX;
    return nblocks * whole + high * part + ((low * part + carried) >> 32);
}

/** Entries of a last block of len < block elements, when a whole one would send k: at least one where k is. */
FRUGI_BOTH uint32_t frugi_tail_count(uint32_t k, uint32_t len, uint32_t block) {
    return (uint32_t)(((uint64_t)k * len + block - 1) / block);
}

#endif
