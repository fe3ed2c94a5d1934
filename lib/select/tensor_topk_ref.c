/* tensor_topk_ref.c - the scans of tensor_topk_kernel.h for any CPU. */
#include "select/tensor_topk_kernel.h"

#define VECTOR 16u
#define MARKS  lanes
#define FEW    8u
#include "select/tensor_topk_scan.h"

#include "select/tensor_topk_lanes.h"

INLINE lanes reach(const float *x, uint32_t key) {
    return (lanes)((signed_lanes)load_magnitudes(x) > (int32_t)key - 1);
}

INLINE uint64_t pack(const lanes *m) {
    uint64_t bits = 0;
    for (uint32_t j = 0; j < VECTORS; j++) {
        lanes one = m[j] & (lanes){1, 2, 4, 8};
        bits |= (uint64_t)(one[0] | one[1] | one[2] | one[3]) << (j * WIDTH);
    }
    return bits;
}

INLINE uint32_t count_bits(uint64_t bits) {
    return (uint32_t)(count_bits_before(bits) >> 56);
}

INLINE void write_many(uint64_t bits, const float *x, uint32_t base, uint32_t *index, float *value) {
    for (uint32_t e = 0; bits; bits &= bits - 1, e++) {
        uint32_t at = lowest(bits);
        index[e] = base + at;
        value[e] = x[at];
    }
}

#include "select/tensor_topk_words.h"

INLINE signed_lanes rotate_1(signed_lanes v) {
    return __builtin_shufflevector(v, v, 1, 2, 3, 0);
}

INLINE signed_lanes rotate_2(signed_lanes v) {
    return __builtin_shufflevector(v, v, 2, 3, 0, 1);
}

INLINE signed_lanes rotate_3(signed_lanes v) {
    return __builtin_shufflevector(v, v, 3, 0, 1, 2);
}

#include "select/tensor_topk_fours.h"

const frugi_topk_kernel frugi_topk_ref = {false, count, gather, emit, clear, mark_fours, take};
