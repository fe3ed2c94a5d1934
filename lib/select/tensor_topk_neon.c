/* tensor_topk_neon.c - the scans of tensor_topk_kernel.h for 64-bit ARM: lanes are narrowed to bytes and the bytes
 * added in pairs.
 */
#include "select/tensor_topk_kernel.h"

#include "select/block_topk_neon.h"
#include "select/expand_bits.h"

#define VECTOR 16u
#define MARKS  lanes
#define PAGE   256u /* elements that a byte can number */
#include "select/tensor_topk_scan.h"

#include "select/tensor_topk_lanes.h"

/* Finite floats compare as the integers do. */
INLINE lanes reach(const float *x, uint32_t key) {
    return (lanes)vcageq_f32(vld1q_f32(x), vdupq_n_f32(frugi_bits_f32(key)));
}

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

/* Write 16 positions, plus base. */
INLINE void write_indices(const uint8_t *position, uint32x4_t base, uint32_t *index) {
    uint8x16_t p = vld1q_u8(position);
    uint16x8_t low = vmovl_u8(vget_low_u8(p)), high = vmovl_high_u8(p);
    vst1q_u32(index, vaddw_u16(base, vget_low_u16(low)));
    vst1q_u32(index + 4, vaddw_high_u16(base, low));
    vst1q_u32(index + 8, vaddw_u16(base, vget_low_u16(high)));
    vst1q_u32(index + 12, vaddw_high_u16(base, high));
}

/* Lists of positions, one byte each, are made for all pages before they are read: data that was just written in
 * overlapping pieces is not read back at once. */
static uint32_t take(const float *x, const uint64_t *bits, uint32_t words, uint32_t base, uint32_t *index,
                     float *value) {
    uint8_t position[FRUGI_TOPK_CHUNK + 16];
    uint32_t n = 0, end[FRUGI_TOPK_CHUNK / PAGE];
    for (uint32_t w = 0; w < words; w++) {
        if (bits[w])
            n += expand_bits(bits[w], (uint8_t)(GROUP * w), 8, position + n);
        end[w / (PAGE / GROUP)] = n;
    }
    memset(position + n, 0, 16);
    for (uint32_t page = 0, e = 0; page * (PAGE / GROUP) < words; page++) {
        const float *from = x + PAGE * page;
        for (uint32_t j = e; j < end[page]; j += 16)
            write_indices(position + j, vdupq_n_u32(base + PAGE * page), index + j);
        for (; e + 8 <= end[page]; e += 8)
#pragma GCC unroll 8
            for (uint32_t j = e; j < e + 8; j++)
                value[j] = from[position[j]];
        for (; e < end[page]; e++)
            value[e] = from[position[e]];
    }
    return n;
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
