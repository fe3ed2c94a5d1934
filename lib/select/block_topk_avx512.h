/*
 * block_topk_avx512.h - the primitives of block_topk_lanes.h with AVX-512 (F, BW, DQ and VL).
 * block_topk_neon.h documents them.
 */
#ifndef FRUGI_BLOCK_TOPK_AVX512_H
#define FRUGI_BLOCK_TOPK_AVX512_H

#include "select/block_topk_x86.h"

#define OPAQUE_LANES(x) __asm__("" : "+v"(x))

INLINE uint64_t mask_ge_64(const uint8_t *key, uint8_t t) {
    return _mm512_cmpge_epu8_mask(_mm512_loadu_si512(key), _mm512_set1_epi8((char)t));
}

#endif
