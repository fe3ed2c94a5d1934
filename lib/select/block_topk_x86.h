/* block_topk_x86.h - the primitives of block_topk_lanes.h that AVX2 and AVX-512 share. block_topk_neon.h documents
 * them. */
#ifndef FRUGI_BLOCK_TOPK_X86_H
#define FRUGI_BLOCK_TOPK_X86_H

#include "select/bit_positions.h"
#include "select/residual_block.h"

#include <immintrin.h>

#define OPAQUE(x) __asm__("" : "+r"(x))

/* Prefetches into the L2 cache. Floats of a residual that is not in place are in the workspace; bytes of a stored one
 * are so few that prefetching them was no faster. */
INLINE void prefetch_next(const frugi_batch *batch, size_t at) {
    at += (size_t)batch->blocks * batch->block;
    for (size_t i = 0; i < 64; i += 16)
        _mm_prefetch((const char *)(batch->grad + at + i), _MM_HINT_T1);
    for (size_t i = 0; i < 64 && !batch->stored && (batch->saved || batch->before != batch->acc); i += 16)
        _mm_prefetch((const char *)(batch->before + at + i), _MM_HINT_T1);
}

INLINE uint64_t byte_counts(uint64_t x) {
    x -= (x >> 1) & 0x5555555555555555u;
    x = (x & 0x3333333333333333u) + ((x >> 2) & 0x3333333333333333u);
    return (x + (x >> 4)) & 0x0f0f0f0f0f0f0f0fu;
}

#endif
