/* bit_positions.h - what the SIMD variants share: where the set bits of a byte are, and one byte per block. */
#ifndef FRUGI_BIT_POSITIONS_H
#define FRUGI_BIT_POSITIONS_H

#include <stdint.h>

#define INLINE static inline __attribute__((always_inline))

typedef uint8_t lanes_u8 __attribute__((vector_size(16)));

/* Keys of short blocks count steps down from the maximum: one by one, then 2^STEPS_SHIFT at a time
 * (block_topk_short.h). */
#define STEPS_ONE   192
#define STEPS_SHIFT 4

/** One byte per set bit, lowest first. */
extern const uint64_t frugi_bit_places[256];

#endif
