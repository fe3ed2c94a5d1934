/*
 * block_topk_avx512.h - the primitives of block_topk_lanes.h with AVX-512 (F, BW, DQ and VL).
 * block_topk_neon.h documents them.
 */
#ifndef FRUGI_BLOCK_TOPK_AVX512_H
#define FRUGI_BLOCK_TOPK_AVX512_H

#include "select/block_kernel.h"
#include "select/bit_positions.h"

#include <immintrin.h>

#define OPAQUE(x)       __asm__("" : "+r"(x))
#define OPAQUE_LANES(x) __asm__("" : "+v"(x))

INLINE uint64_t mask_ge_64(const uint8_t *key, uint8_t t) {
    return _mm512_cmpge_epu8_mask(_mm512_loadu_si512(key), _mm512_set1_epi8((char)t));
}

INLINE void prefetch_next(const frugi_batch *batch, size_t at) {
    at += (size_t)batch->blocks * batch->block;
    for (size_t i = 0; i < 64; i += 16) {
        _mm_prefetch((const char *)(batch->grad + at + i), _MM_HINT_T1);
        _mm_prefetch((const char *)(batch->before + at + i), _MM_HINT_T1);
    }
}

INLINE uint64_t byte_counts(uint64_t x) {
    x -= (x >> 1) & 0x5555555555555555u;
    x = (x & 0x3333333333333333u) + ((x >> 2) & 0x3333333333333333u);
    return (x + (x >> 4)) & 0x0f0f0f0f0f0f0f0fu;
}

#endif
