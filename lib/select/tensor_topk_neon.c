/* tensor_topk_neon.c - the scans of tensor_topk_kernel.h for 64-bit ARM: lanes are narrowed to bytes and the bytes
 * added in pairs.
 */
#include "select/tensor_topk_kernel.h"

#include <arm_neon.h>

#define VECTOR 16u
#include "select/tensor_topk_scan.h"

/* Narrow sixteen lanes to sixteen bytes; byte i of eight has bit i set, or none. */
INLINE uint8x16_t narrow(const lanes *m) {
    const uint8x16_t bit = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    uint16x8_t a = vuzp1q_u16((uint16x8_t)m[0], (uint16x8_t)m[1]), b = vuzp1q_u16((uint16x8_t)m[2], (uint16x8_t)m[3]);
    return vandq_u8(vuzp1q_u8((uint8x16_t)a, (uint8x16_t)b), bit);
}

INLINE uint64_t pack(const lanes *m) {
    uint8x16_t low = vpaddq_u8(narrow(m), narrow(m + 4)), high = vpaddq_u8(narrow(m + 8), narrow(m + 12));
    uint8x16_t sum = vpaddq_u8(low, high);
    return vgetq_lane_u64((uint64x2_t)vpaddq_u8(sum, sum), 0);
}

const frugi_topk_kernel frugi_topk_neon = {count, gather, emit};
