/*
 * delta_kernel.h - the loops over all elements, and their variants: compare two versions, and hash one. All variants
 * give the same bits.
 *
 * Data is hashed in stripes of eight 64-bit words. Lane j sums a function of word j of every stripe:
 *
 *   x = word ^ (KEY + stripe * STEP);   lane += (x mod 2^32) * (x / 2^32) + word
 *
 * One multiplication per eight bytes, no dependency between words but a sum, and a key that differs from stripe to
 * stripe: this runs at the speed of memory on every variant. delta_hash.h makes one number of the lanes.
 */
#ifndef FRUGI_DELTA_KERNEL_H
#define FRUGI_DELTA_KERNEL_H

#include "base/cpu.h"

#include <stddef.h>
#include <stdint.h>

#define FRUGI_DELTA_STRIPE 64u
#define FRUGI_DELTA_LANES  8u
#define FRUGI_DELTA_KEY    0x6a09e667f3bcc908u /* the square root of 2 */
#define FRUGI_DELTA_STEP   0x9e3779b97f4a7c15u /* the golden ratio */

typedef struct frugi_delta_kernel {
    /** Set one bit per element that differs, 64 / width bits for each stripe, and hash `before`.
     *  width: bytes of an element, 1, 2, 4 or 8. */
    void (*scan)(const unsigned char *before, const unsigned char *after, size_t stripes, uint32_t width,
                 unsigned char *changed, uint64_t *lanes);
    /** Hash, and copy to dst unless that is NULL. */
    void (*copy)(const unsigned char *src, size_t stripes, unsigned char *dst, uint64_t *lanes);
} frugi_delta_kernel;

/** The kernel of a variant. */
const frugi_delta_kernel *frugi_delta_kernel_for(frugi_isa isa);

extern const frugi_delta_kernel frugi_delta_kernel_ref, frugi_delta_kernel_neon, frugi_delta_kernel_avx2,
    frugi_delta_kernel_avx512;

#endif
