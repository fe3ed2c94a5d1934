/*
 * delta_hash.h - the 64-bit hash of a tensor: of its chunks, in their order. It detects errors, not attacks.
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

/** The hash of a chunk, which is copied to dst unless that is NULL. */
uint64_t frugi_delta_copy(const frugi_delta_kernel *kernel, const unsigned char *src, size_t bytes, unsigned char *dst);

/** Set one bit per element of a chunk of n that differs, and hash both versions: hashes[0] of `before`. changed has
 * room for the bits of n elements, rounded up to a block. */
void frugi_delta_scan(const frugi_delta_kernel *kernel, const unsigned char *before, const unsigned char *after,
                      uint32_t n, uint32_t width, unsigned char *changed, uint64_t *hashes);

/** The hash of any bytes, in chunks of 64 KiB. */
uint64_t frugi_delta_hash_bytes(const void *data, size_t bytes);

#endif
