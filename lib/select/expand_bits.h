/*
 * expand_bits.h - shared by the SIMD variants: from a mask to the positions of its set bits.
 *
 * The including file includes byte_counts() and OPAQUE() of block_topk_neon.h, block_topk_avx2.h or
 * block_topk_avx512.h.
 */
#ifndef FRUGI_EXPAND_BITS_H
#define FRUGI_EXPAND_BITS_H

#include "select/bit_positions.h"

#include <string.h>

/* Write the positions of the set bits of x, plus `start`, ascending, and up to 8 bytes past them. Returns their
 * number. */
INLINE uint32_t expand_bits(uint64_t x, uint8_t start, uint32_t bytes, uint8_t *dst) {
    uint64_t upto = byte_counts(x) * 0x0101010101010101u, before = upto << 8, offset = start * 0x0101010101010101u;
#pragma GCC unroll 8
    for (uint32_t i = 0; i < 8 * bytes; i += 8) {
        uint64_t eight = frugi_bit_positions[(x >> i) & 255u] + offset;
        memcpy(dst + ((before >> i) & 255u), &eight, 8);
        offset += 0x0808080808080808u;
        OPAQUE(offset); /* otherwise the compiler builds constants with four instructions each */
    }
    return (uint32_t)(upto >> 56);
}

#endif
