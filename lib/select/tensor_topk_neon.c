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

/* Byte i of eight keeps only bit i. */
INLINE uint8x16_t mark_bits(uint8x16_t bytes) {
    const uint8x16_t bit = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    return vandq_u8(bytes, bit);
}

/* Narrow sixteen lanes to sixteen bytes. */
INLINE uint8x16_t narrow(const lanes *m) {
    uint16x8_t a = vuzp1q_u16((uint16x8_t)m[0], (uint16x8_t)m[1]), b = vuzp1q_u16((uint16x8_t)m[2], (uint16x8_t)m[3]);
    return mark_bits(vuzp1q_u8((uint8x16_t)a, (uint8x16_t)b));
}

INLINE uint64_t pack_bytes(const uint8x16_t *m) {
    uint8x16_t sum = vpaddq_u8(vpaddq_u8(m[0], m[1]), vpaddq_u8(m[2], m[3]));
    return vgetq_lane_u64((uint64x2_t)vpaddq_u8(sum, sum), 0);
}

INLINE uint64_t pack(const lanes *m) {
    const uint8x16_t bytes[4] = {narrow(m), narrow(m + 4), narrow(m + 8), narrow(m + 12)};
    return pack_bytes(bytes);
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

/* The first, second, third and fourth elements of four groups of four. */
INLINE int32x4x4_t load_fours(const float *x, int32x4_t mask) {
    int32x4_t v[4];
#pragma GCC unroll 4
    for (uint32_t i = 0; i < 4; i++)
        v[i] = vandq_s32(vreinterpretq_s32_f32(vld1q_f32(x + 4 * i)), mask);
    int32x4_t even_0 = vuzp1q_s32(v[0], v[1]), odd_0 = vuzp2q_s32(v[0], v[1]);
    int32x4_t even_1 = vuzp1q_s32(v[2], v[3]), odd_1 = vuzp2q_s32(v[2], v[3]);
    int32x4x4_t fours = {
        {vuzp1q_s32(even_0, even_1), vuzp1q_s32(odd_0, odd_1), vuzp2q_s32(even_0, even_1), vuzp2q_s32(odd_0, odd_1)}};
    return fours;
}

/*
 * Four groups of four as bytes of ones or zeros. An element is selected if fewer than k others are larger, or equal and
 * before it. Comparisons give 0 or -1: the first element has 3 + ab + ac + ad such others, the second 2 + bc + bd - ab,
 * and so on.
 */
INLINE uint8x16_t mark_16(const float *x, int32x4_t k, int32x4_t mask) {
    const uint8x16_t second = {0, 255, 0, 255, 0, 255, 0, 255, 0, 255, 0, 255, 0, 255, 0, 255};
    const uint8x16_t last = {0, 0, 255, 255, 0, 0, 255, 255, 0, 0, 255, 255, 0, 0, 255, 255};
    int32x4x4_t f = load_fours(x, mask);
    int32x4_t ab = (int32x4_t)vcgeq_s32(f.val[0], f.val[1]), ac = (int32x4_t)vcgeq_s32(f.val[0], f.val[2]);
    int32x4_t ad = (int32x4_t)vcgeq_s32(f.val[0], f.val[3]), bc = (int32x4_t)vcgeq_s32(f.val[1], f.val[2]);
    int32x4_t bd = (int32x4_t)vcgeq_s32(f.val[1], f.val[3]), cd = (int32x4_t)vcgeq_s32(f.val[2], f.val[3]);
    uint8x16_t a = (uint8x16_t)vcltq_s32(ab + ac + ad, k - 3), b = (uint8x16_t)vcltq_s32(bc + bd - ab, k - 2);
    uint8x16_t c = (uint8x16_t)vcltq_s32(cd - ac - bc, k - 1), d = (uint8x16_t)vcgtq_s32(ad + bd + cd, -k);
    return vbslq_u8(last, vbslq_u8(second, d, c), vbslq_u8(second, b, a));
}

static void mark_fours(const float *x, uint32_t words, uint32_t k, uint32_t mask, uint64_t *bits) {
    const int32x4_t limit = vdupq_n_s32((int32_t)k), magnitude = vdupq_n_s32((int32_t)(mask & FRUGI_ABS_MASK));
    for (uint32_t w = 0; w < words; w++, x += GROUP) {
        uint8x16_t m[4];
#pragma GCC unroll 4
        for (uint32_t i = 0; i < 4; i++)
            m[i] = mark_bits(mark_16(x + 16 * i, limit, magnitude));
        bits[w] = pack_bytes(m);
    }
}

const frugi_topk_kernel frugi_topk_neon = {false, count, gather, emit, clear, mark_fours, take};
