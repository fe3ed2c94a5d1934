/* bit_positions.h - shared by the SIMD variants: the positions of the set bits of a byte, and vectors of 16 bytes. */
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

#endif
