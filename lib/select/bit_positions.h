/* bit_positions.h - shared by the SIMD variants: positions and numbers of set bits, and vectors of 16 bytes. */
#ifndef FRUGI_BIT_POSITIONS_H
#define FRUGI_BIT_POSITIONS_H

#include <stdint.h>

#define INLINE static inline __attribute__((always_inline))

typedef uint8_t lanes_u8 __attribute__((vector_size(16)));

/* Keys of short blocks count down from the maximum of the block: in single steps up to STEPS_ONE, then in steps of
 * 2^STEPS_SHIFT (block_topk_short.h). */
#define STEPS_ONE   192
#define STEPS_SHIFT 4

/** The positions of the set bits of a byte, one byte each, lowest first. */
extern const uint64_t frugi_bit_positions[256];

/** For each byte of a word, the number of set bits up to its end. */
INLINE uint64_t count_bits_before(uint64_t bits) {
    bits -= bits >> 1 & 0x5555555555555555u;
    bits = (bits & 0x3333333333333333u) + (bits >> 2 & 0x3333333333333333u);
    bits = (bits + (bits >> 4)) & 0x0f0f0f0f0f0f0f0fu;
    return bits * 0x0101010101010101u;
}

#endif
