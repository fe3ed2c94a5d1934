/* tensor_topk_avx2.c - the scans of tensor_topk_kernel.h for x86-64 with AVX2, which has an instruction that collects
 * the signs of lanes. */
#include "select/tensor_topk_kernel.h"

#include <immintrin.h>

#define VECTOR 32u
#include "select/tensor_topk_scan.h"

INLINE uint64_t pack(const lanes *m) {
    uint64_t bits = 0;
#pragma GCC unroll 8
    for (uint32_t j = 0; j < VECTORS; j++)
        bits |= (uint64_t)(uint32_t)_mm256_movemask_ps((__m256)m[j]) << (j * WIDTH);
    return bits;
}

const frugi_topk_kernel frugi_topk_avx2 = {count, gather, emit};
