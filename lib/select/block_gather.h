/* block_gather.h - copy the entries of a block that a list of indices names, to an array and back. */
#ifndef FRUGI_BLOCK_GATHER_H
#define FRUGI_BLOCK_GATHER_H

#include <stdint.h>

/** to[e] = from[idx[e]]. The inner loop has a fixed count of 8, so that the compiler unrolls it. */
static inline void frugi_gather_values(const float *from, const uint16_t *idx, uint32_t k, float *to) {
    uint32_t e = 0;
    for (; e + 8 <= k; e += 8)
#pragma GCC unroll 8
        for (uint32_t i = 0; i < 8; i++)
            to[e + i] = from[idx[e + i]];
    for (; e < k; e++)
        to[e] = from[idx[e]];
}

/** to[idx[e]] = from[e], unrolled likewise. */
static inline void frugi_scatter_values(const float *from, const uint16_t *idx, uint32_t k, float *to) {
    uint32_t e = 0;
    for (; e + 8 <= k; e += 8)
#pragma GCC unroll 8
        for (uint32_t i = 0; i < 8; i++)
            to[idx[e + i]] = from[e + i];
    for (; e < k; e++)
        to[idx[e]] = from[e];
}

#endif
