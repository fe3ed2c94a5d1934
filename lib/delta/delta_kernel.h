/*
 * delta_kernel.h - the loops over all elements, and their variants: compare two versions, and hash one. All variants
 * give the same bits.
 *
 * Data is hashed in blocks of two stripes of sixteen 32-bit numbers. Lane e sums the product of number e of the first
 * stripe and number e of the second, each after exclusive or with a key (the hash NH of UMAC):
 *
 *   lane[e] += (first[e] ^ key(2 b)[e % 2]) * (second[e] ^ key(2 b + 1)[e % 2])
 *   key(s) = KEY + s * STEP, a 64-bit number: its lower half and its upper half
 *
 * One multiplication per eight bytes, no dependency but sums, and keys that differ from stripe to stripe: this runs at
 * the speed of memory on every variant. delta_hash.h makes one number of the lanes.
 */
#ifndef FRUGI_DELTA_KERNEL_H
#define FRUGI_DELTA_KERNEL_H

#include "base/cpu.h"

#include <stddef.h>
#include <stdint.h>

#define FRUGI_DELTA_STRIPE 64u
#define FRUGI_DELTA_BLOCK  128u /* two stripes */
#define FRUGI_DELTA_LANES  16u
#define FRUGI_DELTA_KEY    0x6a09e667f3bcc908u /* the square root of 2 */
#define FRUGI_DELTA_STEP   0x9e3779b97f4a7c15u /* the golden ratio */

typedef struct frugi_delta_kernel {
    /** Set one bit per element that differs, 128 / width bits for each block, and hash `before`.
     *  width: bytes of an element, 1, 2, 4 or 8. */
    void (*scan)(const unsigned char *before, const unsigned char *after, size_t blocks, uint32_t width,
                 unsigned char *changed, uint64_t *lanes);
    /** Hash, and copy to dst unless that is NULL. */
    void (*copy)(const unsigned char *src, size_t blocks, unsigned char *dst, uint64_t *lanes);
    /** The codes of a chunk: see delta_chunk.h. */
    const struct frugi_delta_chunk_code *chunk;
} frugi_delta_kernel;

/** The kernel of a variant. */
const frugi_delta_kernel *frugi_delta_kernel_for(frugi_isa isa);

extern const frugi_delta_kernel frugi_delta_kernel_ref, frugi_delta_kernel_neon, frugi_delta_kernel_avx2,
    frugi_delta_kernel_avx512;

#endif
