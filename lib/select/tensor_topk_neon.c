/* tensor_topk_neon.c - the scans of tensor_topk_kernel.h for 64-bit ARM: lanes are narrowed to bytes and the bytes
 * added in pairs.
 */
#include "select/tensor_topk_kernel.h"

#include <arm_neon.h>

#define VECTOR 16u
#define STRIDE 8u
#define FEW    8u
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

/* A table lookup moves the bytes of the values: those of lane p are 4 p .. 4 p + 3. */
INLINE void write_lanes(uint32_t bits, const float *x, uint32_t base, uint32_t *index, float *value) {
    const uint32x4_t four = vdupq_n_u32(0x04040404u), bytes = vdupq_n_u32(0x03020100u);
    uint16x8_t position = vmovl_u8(vcreate_u8(frugi_bit_positions[bits]));
    uint32x4_t low = vmovl_u16(vget_low_u16(position)), high = vmovl_high_u16(position);
    uint8x16x2_t eight = {{(uint8x16_t)vld1q_f32(x), (uint8x16_t)vld1q_f32(x + 4)}};
    vst1q_u32(index, vaddq_u32(low, vdupq_n_u32(base)));
    vst1q_u32(index + 4, vaddq_u32(high, vdupq_n_u32(base)));
    vst1q_f32(value, (float32x4_t)vqtbl2q_u8(eight, (uint8x16_t)vmlaq_u32(bytes, low, four)));
    vst1q_f32(value + 4, (float32x4_t)vqtbl2q_u8(eight, (uint8x16_t)vmlaq_u32(bytes, high, four)));
}

INLINE signed_lanes rotate_1(signed_lanes v) {
    return (signed_lanes)vextq_s32((int32x4_t)v, (int32x4_t)v, 1);
}

INLINE signed_lanes rotate_2(signed_lanes v) {
    return (signed_lanes)vextq_s32((int32x4_t)v, (int32x4_t)v, 2);
}

INLINE signed_lanes rotate_3(signed_lanes v) {
    return (signed_lanes)vextq_s32((int32x4_t)v, (int32x4_t)v, 3);
}

const frugi_topk_kernel frugi_topk_neon = {false, count, gather, emit, clear, mark_fours, take};
