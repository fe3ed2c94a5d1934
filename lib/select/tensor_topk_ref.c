/* tensor_topk_ref.c - the scans of tensor_topk_kernel.h for any CPU. */
#include "select/tensor_topk_kernel.h"

#define VECTOR 16u
#include "select/tensor_topk_scan.h"

INLINE uint64_t pack(const lanes *m) {
    uint64_t bits = 0;
    for (uint32_t j = 0; j < VECTORS; j++) {
        lanes one = m[j] & (lanes){1, 2, 4, 8};
        bits |= (uint64_t)(one[0] | one[1] | one[2] | one[3]) << (j * WIDTH);
    }
    return bits;
}

const frugi_topk_kernel frugi_topk_ref = {count, gather, emit};
