/*
 * delta_hash.h - the 64-bit hash of a tensor: of its chunks, in their order. It detects errors, not attacks.
 *
 * The lanes of delta_kernel.h are sums over the words of a chunk, so that the hash of a changed chunk follows from the
 * one before and the words that changed.
 */
#ifndef FRUGI_DELTA_HASH_H
#define FRUGI_DELTA_HASH_H

#include "delta/delta_kernel.h"

/** A bijection of 64 bits in which every bit of the input affects every bit of the output (the finalizer of
 *  MurmurHash3). */
static inline uint64_t frugi_delta_mix(uint64_t x) {
    x = (x ^ x >> 33) * 0xff51afd7ed558ccdu;
    x = (x ^ x >> 33) * 0xc4ceb9fe1a85ec53u;
    return x ^ x >> 33;
}

/** Continue a hash with one more number. */
static inline uint64_t frugi_delta_hash_word(uint64_t hash, uint64_t word) {
    return frugi_delta_mix(hash * FRUGI_DELTA_STEP + word);
}

/** The lanes of a chunk. */
typedef struct frugi_delta_lanes {
    uint64_t sum[FRUGI_DELTA_LANES];
} frugi_delta_lanes;

/** The hash of a chunk of that many bytes, from its lanes. */
uint64_t frugi_delta_hash_lanes(const frugi_delta_lanes *lanes, size_t bytes);

/** The lanes of a chunk, which is copied to dst unless that is NULL. */
frugi_delta_lanes frugi_delta_copy(const frugi_delta_kernel *kernel, const unsigned char *src, size_t bytes,
                                   unsigned char *dst);

/** Set one bit per element of a chunk of n that differs; returns the lanes of `before`. changed has room for the bits
 * of n elements, rounded up to a stripe. */
frugi_delta_lanes frugi_delta_scan(const frugi_delta_kernel *kernel, const unsigned char *before,
                                   const unsigned char *after, uint32_t n, uint32_t width, unsigned char *changed);

/**
 * Add the words that hold some elements of a chunk to its lanes, or subtract them.
 *
 *   index   the elements, ascending
 *   sign    1, or -1 to subtract
 */
void frugi_delta_hash_some(const unsigned char *chunk, size_t bytes, const uint16_t *index, uint32_t entries,
                           uint32_t width, int sign, frugi_delta_lanes *lanes);

/** Whether so many changed elements of n are few enough for frugi_delta_hash_some() to be faster than a new hash. */
static inline int frugi_delta_few(uint32_t entries, uint32_t n) {
    return entries <= n / 32;
}

/** The hash of any bytes, in chunks of 64 KiB. */
uint64_t frugi_delta_hash_bytes(const void *data, size_t bytes);

#endif
